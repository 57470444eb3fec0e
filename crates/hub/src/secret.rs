//! A secret that somebody enters: read from a pipe, or typed without being shown. It is never an argument of a command,
//! where everybody on the machine could see it.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use linchpin::auth::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::apart::{apart, line};
use crate::failure::Failure;
use crate::signals::Signals;

const LONGEST: u64 = 64 << 10;

/// Reads a secret. On a terminal `question` is asked.
pub(crate) async fn read(question: &str) -> Result<Secret, Failure> {
    let text = if io::stdin().is_terminal() {
        let mut signals = Signals::new()?;
        let hidden = Hidden::new()?;
        let _ = write!(io::stderr(), "{question}: "); // nobody is left to be asked
        let typed = signals.or(line()).await;
        drop(hidden);
        let _ = writeln!(io::stderr());
        typed??
    } else {
        apart(|| io::read_to_string(io::stdin().take(LONGEST))).await?
    };
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(Failure::usage("a secret is needed: type it, or send it on standard input")),
        text => Ok(Secret::new(text)),
    }
}

/// Nothing that is typed is shown as long as this is there.
struct Hidden(Termios);

impl Hidden {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Hidden(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0); // the terminal may be gone
    }
}

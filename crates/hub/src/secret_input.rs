//! Secret input from a pipe, or from a terminal without echo. Secrets are never command-line arguments, since every
//! user of the machine can read those.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use linchpin::auth::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::blocking_input::{apart, line};
use crate::error::Failure;
use crate::signals::Signals;

/// Maximum bytes read from a pipe.
const LONGEST: u64 = 64 << 10;

/// Reads a secret. On a terminal, shows `question` as the prompt.
pub(crate) async fn read(question: &str) -> Result<Secret, Failure> {
    let text = if io::stdin().is_terminal() {
        let mut signals = Signals::new()?;
        let hidden = Hidden::new()?;
        let _ = write!(io::stderr(), "{question}: "); // the secret can be read without the prompt
        let typed = signals.or(line()).await;
        drop(hidden);
        let _ = writeln!(io::stderr());
        typed??
    } else {
        apart(|| io::read_to_string(io::stdin().take(LONGEST))).await?
    };
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(Failure::usage("no secret was entered: type it, or pipe it to standard input")),
        text => Ok(Secret::new(text)),
    }
}

/// Guard that disables terminal echo until it is dropped.
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

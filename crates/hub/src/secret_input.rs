//! Secret input from a pipe, or from a terminal without echo. Secrets are never command-line arguments, since every
//! user of the machine can read those.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use linchpin::auth::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::blocking_input::{read_line, read_on_thread};
use crate::error::CliError;
use crate::signals::Signals;

/// Maximum number of bytes read from standard input if it is a pipe.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// Reads a secret from the terminal or standard input. On a terminal, shows `question` as the prompt.
pub(crate) async fn read_secret(question: &str) -> Result<Secret, CliError> {
    let text = if io::stdin().is_terminal() {
        let mut signals = Signals::new()?;
        let echo_guard = EchoGuard::new()?;
        let _ = write!(io::stderr(), "{question}: "); // the secret can be read without the prompt
        let typed = signals.or_interrupt(read_line()).await;
        drop(echo_guard);
        let _ = writeln!(io::stderr());
        typed??
    } else {
        read_on_thread(|| io::read_to_string(io::stdin().take(MAX_SECRET_BYTES))).await?
    };
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(CliError::usage("no secret was entered: type it, or pipe it to standard input")),
        text => Ok(Secret::new(text)),
    }
}

/// Guard that disables terminal echo until it is dropped.
struct EchoGuard(Termios);

impl EchoGuard {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut without_echo = before.clone();
        without_echo.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &without_echo)?;
        Ok(EchoGuard(before))
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0); // the terminal may be gone
    }
}

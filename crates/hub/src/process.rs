//! A server that is started for one command: connected, listened to, and ended with everything it started,
//! whatever happens.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linchpin::client::Command;
use linchpin::model::Implementation;
use linchpin::{Client, ClientBuilder, ClientError};

use crate::failure::{Failure, Kind};
use crate::signals::Signals;
use crate::terminal::{Screen, clean, shorten};

/// Lines of a server's standard error that are kept for when it fails.
const KEPT: usize = 20;
const LONGEST: usize = 500;

/// Which server, and how patient to be with it.
pub(crate) struct Process {
    pub(crate) command: Vec<OsString>,
    pub(crate) timeout: Duration,
    pub(crate) verbose: bool,
    pub(crate) screen: Arc<Screen>,
}

impl Process {
    /// Starts the server, does the work and ends the server. `dress` gives the client its handlers.
    pub(crate) async fn with<T>(
        self,
        dress: impl FnOnce(ClientBuilder) -> ClientBuilder,
        work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut signals = Signals::new()?;
        let heard = Arc::new(Heard::new(self.screen.clone(), self.verbose));
        let builder = Client::command(self.command(&heard))
            .info(Implementation::new("linchpin", env!("CARGO_PKG_VERSION")))
            .timeout(self.timeout)
            .open_timeout(self.timeout);
        let result = match signals.or(Box::pin(dress(builder).connect())).await? {
            Ok(client) => {
                let result = signals.or(work(&client)).await;
                self.screen.clear();
                // In good order; a signal while that takes its time makes it quick.
                let _ = signals.or(client.close()).await;
                result.and_then(|result| result)
            }
            Err(error) => Err(self.not_connected(error)),
        };
        heard.show_stray();
        result.map_err(|failure| failure.with_words(heard.words()))
    }

    fn not_connected(&self, error: ClientError) -> Failure {
        match Failure::from(error) {
            Failure { kind: Kind::Timeout, .. } => {
                let advice = "is it an MCP server that speaks on stdio? --timeout gives it longer";
                Failure::new(
                    Kind::Timeout,
                    format!("the server did not answer within {:?}: {advice}", self.timeout),
                )
            }
            failure => failure,
        }
    }

    fn command(&self, heard: &Arc<Heard>) -> Command {
        let (words, strays) = (heard.clone(), heard.clone());
        let (program, args) = self
            .command
            .split_first()
            .map_or((OsString::new(), &[][..]), |(program, args)| (program.clone(), args));
        Command::new(program)
            .args(args)
            .on_stderr(move |line| words.on_stderr(line))
            .on_stdout(move |line| strays.on_stdout(line))
    }
}

/// What the server says beside the protocol.
struct Heard {
    screen: Arc<Screen>,
    verbose: bool,
    lines: Mutex<VecDeque<String>>,
    stray: Mutex<Option<String>>,
}

impl Heard {
    fn new(screen: Arc<Screen>, verbose: bool) -> Self {
        Heard { screen, verbose, lines: Mutex::default(), stray: Mutex::default() }
    }

    fn on_stderr(&self, line: &str) {
        let line = shorten(&clean(line), LONGEST);
        if self.verbose {
            return self.screen.aside(&format!("server | {line}"));
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Keeps the first line that cannot be a message.
    fn on_stdout(&self, line: &str) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with(['{', '[']) {
            let mut stray = self.stray.lock().unwrap_or_else(PoisonError::into_inner);
            stray.get_or_insert_with(|| shorten(&clean(line), 80));
        }
    }

    /// It is the server's mistake, and often the reason why nothing else works.
    fn show_stray(&self) {
        let stray = self.stray.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stray) = stray {
            self.screen.aside(&format!(
                "note: the server wrote something that is no message on its standard output: {stray}\n      \
                 Only messages may go there; its logs belong on standard error."
            ));
        }
    }

    fn words(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

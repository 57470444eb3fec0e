//! Listeners for the termination signals SIGINT, SIGTERM and SIGHUP.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, CliErrorKind};

/// Listeners for SIGINT, SIGTERM and SIGHUP. Once created, these signals no longer terminate the process by default.
pub(crate) struct Signals([(u8, Signal); 3]);

impl Signals {
    pub(crate) fn new() -> Result<Self, CliError> {
        let listen = |kind: SignalKind| -> Result<(u8, Signal), CliError> {
            Ok((u8::try_from(kind.as_raw_value()).unwrap_or_default(), signal(kind)?))
        };
        Ok(Signals([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    /// Returns the result of the work, or an error if a signal arrives first.
    pub(crate) async fn or_interrupt<T>(&mut self, work: impl Future<Output = T>) -> Result<T, CliError> {
        let [(first, interrupt), (second, terminate), (third, hangup)] = &mut self.0;
        let signal = tokio::select! {
            result = work => return Ok(result),
            _ = interrupt.recv() => *first,
            _ = terminate.recv() => *second,
            _ = hangup.recv() => *third,
        };
        Err(CliError::new(CliErrorKind::Interrupted(signal), "interrupted"))
    }
}

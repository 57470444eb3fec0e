//! Observability: one event per request, and one report per error whose details the client does not see.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tracing::dispatcher::{Dispatch, get_default};
use tracing::subscriber::NoSubscriber;

use crate::Error;
use crate::server::definitions::shared_state::StateMap;

/// Summary of a finished request, for the request hook: method, target, error and duration.
#[non_exhaustive]
pub struct RequestEvent<'a> {
    /// Method of the request.
    pub method: &'a str,
    /// Name of the tool or prompt, or URI of the resource, only if it is registered: names invented by clients never
    /// appear here.
    pub target: Option<&'a str>,
    /// Error code, if the response was an error.
    pub error: Option<i64>,
    /// Whether a tool failed with an error that the model sees.
    pub tool_error: bool,
    /// Duration of the request.
    pub duration: Duration,
    pub(crate) state: &'a StateMap,
}

impl RequestEvent<'_> {
    /// Returns a value that was added with [`crate::Server::state`].
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.state.find()
    }
}

impl fmt::Debug for RequestEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("error", &self.error)
            .field("tool_error", &self.tool_error)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}

/// Error whose details are not sent to the client, which receives a general text.
#[non_exhaustive]
pub struct ErrorReport<'a> {
    /// Error with all its details, which the client does not see.
    pub error: &'a Error,
    /// Method that failed.
    pub method: &'a str,
    /// Name of the tool or prompt, or URI of the resource, if it is registered.
    pub target: Option<&'a str>,
    pub(crate) state: &'a StateMap,
}

impl ErrorReport<'_> {
    /// Returns a value that was added with [`crate::Server::state`].
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.state.find()
    }
}

/// Returns whether a `tracing` subscriber receives the events of this thread.
pub(crate) fn has_subscriber() -> bool {
    !get_default(Dispatch::is::<NoSubscriber>)
}

/// Writes a line to standard error, in place of an event that no `tracing` subscriber receives: without one, `tracing`
/// records events only with its feature `log`.
pub(crate) fn print_to_stderr(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}"); // a failure cannot be reported anywhere else
}

//! What happened, for those who watch: one event per request, one report per error that the client does not see.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tracing::dispatcher::{Dispatch, get_default};
use tracing::subscriber::NoSubscriber;

use super::state::StateMap;
use crate::Error;

/// One request that was answered.
#[non_exhaustive]
pub struct Event<'a> {
    /// The method.
    pub method: &'a str,
    /// The tool, prompt or resource, only if it is registered: names made up by clients never get here.
    pub target: Option<&'a str>,
    /// The code of the error answer, if it was one.
    pub error: Option<i64>,
    /// Whether a tool ended in an error that the model reads.
    pub tool_error: bool,
    /// How long it took.
    pub duration: Duration,
    pub(crate) state: &'a StateMap,
}

impl Event<'_> {
    /// A value given to the server with [`crate::Server::state`].
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.state.find()
    }
}

impl fmt::Debug for Event<'_> {
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

/// An error whose detail stays here: the client got a general text.
#[non_exhaustive]
pub struct Report<'a> {
    /// What went wrong.
    pub error: &'a Error,
    /// The method during which it did.
    pub method: &'a str,
    /// The tool, prompt or resource, if it is registered.
    pub target: Option<&'a str>,
    pub(crate) state: &'a StateMap,
}

impl Report<'_> {
    /// A value given to the server with [`crate::Server::state`].
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.state.find()
    }
}

/// Whether a `tracing` subscriber gets the events of this thread.
pub(crate) fn has_subscriber() -> bool {
    !get_default(Dispatch::is::<NoSubscriber>)
}

/// Writes a line to standard error. For a process without a subscriber, where an event is recorded only if `tracing` has its
/// feature `log`.
pub(crate) fn print(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}"); // there is no other place to report to
}

//! Placeholder for the supervisor outside Linux, where orphans cannot be reparented to it.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::time::Duration;

pub(super) const SUPERVISE: &str = "__supervise";

/// Placeholder for the connection to a supervisor, outside Linux; never constructed.
pub(super) struct Control(Infallible);

impl Control {
    pub(super) fn terminate(&self) {
        match self.0 {}
    }

    pub(super) fn kill_all(&self, _: Duration) -> Option<ExitStatus> {
        match self.0 {}
    }
}

pub(super) fn start(_: Command, _: &OsStr) -> io::Result<io::Result<(Child, ChildStdin, Control)>> {
    Err(io::ErrorKind::Unsupported.into())
}

//! Placeholder for the process finder on systems without `/proc`: only the process group of a child is known.

use std::os::fd::OwnedFd;

use rustix::process::Pid;

pub(super) struct ProcessFinder;

pub(super) struct ProcessScan {
    pub(super) alive: Vec<Process>,
    pub(super) is_root_alive: bool,
    pub(super) is_incomplete: bool,
}

/// Placeholder for a process found in `/proc`, on systems without it; never constructed.
pub(super) enum Process {}

#[expect(clippy::unused_self, reason = "same interface as on Linux")]
impl ProcessFinder {
    pub(super) fn new(_: Pid, _: &str) -> Self {
        ProcessFinder
    }

    pub(super) fn with_marker(_: &str) -> Self {
        ProcessFinder
    }

    pub(super) fn scan(&mut self) -> ProcessScan {
        ProcessScan { alive: Vec::new(), is_root_alive: true, is_incomplete: false }
    }

    pub(super) fn kill(&mut self, member: &Process) -> Option<OwnedFd> {
        match *member {}
    }

    pub(super) fn killed_count(&self) -> usize {
        0
    }

    pub(super) fn not_permitted_count(&self) -> usize {
        0
    }
}

/// Returns no descriptor: on this platform, the end of the child's output shows its exit.
pub(super) fn exit_fd(_: Pid) -> Option<OwnedFd> {
    None
}

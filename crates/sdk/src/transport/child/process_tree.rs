//! Process tree of a child: the process and everything it started, which are ended together.
//!
//! The child is reaped only after everything else is gone. Until then its pid, which is also its process group,
//! cannot be reused, so a signal never hits an unrelated process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::process_finder::{ProcessFinder, ProcessScan, exit_fd};
use super::supervisor::Control;
use crate::lock::lock;

/// How long to wait for killed processes. Only a process that hangs in the kernel takes longer.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of scans for remaining processes of a server. After each scan all found processes are killed.
const MAX_SCANS: usize = 50;
/// Maximum number of repeated scans because of a process in the middle of `exec`.
const MAX_RESCANS: usize = 2;
const RESCAN_DELAY: Duration = Duration::from_millis(1);

pub(super) struct ProcessTree {
    root: Pid,
    exit_fd: Option<OwnedFd>,
    /// Control channel of the supervisor, if the child is one; it then ends all processes itself.
    control: Option<Control>,
    state: Mutex<TreeState>,
}

struct TreeState {
    child: Child,
    finder: ProcessFinder,
    end: Option<TreeEnd>,
}

#[derive(Clone, Copy)]
struct TreeEnd {
    status: Option<ExitStatus>,
}

impl ProcessTree {
    /// Creates the process tree of a child. `marker` is the marker in the environment of the child and its descendants.
    pub(super) fn new(child: Child, marker: &str, control: Option<Control>) -> Self {
        let root = Pid::from_child(&child);
        let finder = ProcessFinder::new(root, marker);
        ProcessTree {
            root,
            exit_fd: exit_fd(root),
            control,
            state: Mutex::new(TreeState { child, finder, end: None }),
        }
    }

    /// Returns a file descriptor that becomes readable when the child has exited, if supported.
    pub(super) fn exit_fd(&self) -> Option<BorrowedFd<'_>> {
        self.exit_fd.as_ref().map(AsFd::as_fd)
    }

    /// Returns whether the child process itself, not its descendants, has exited.
    pub(super) fn has_exited(&self) -> bool {
        let state = lock(&self.state);
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that the child was reaped elsewhere.
        state.end.is_some() || !matches!(waitid(WaitId::Pid(self.root), look), Ok(None))
    }

    /// Finds the descendants of the child process while their parents still run and link them to the child.
    pub(super) fn record_descendants(&self) {
        let mut state = lock(&self.state);
        if state.end.is_none() && self.control.is_none() {
            state.finder.scan();
        }
    }

    /// Sends `SIGTERM` to the process group, or to all descendants if there is a supervisor.
    pub(super) fn terminate(&self) {
        if let Some(control) = &self.control {
            return control.terminate();
        }
        let mut state = lock(&self.state);
        if state.end.is_none() && state.finder.scan().is_root_alive {
            let _ = kill_process_group(self.root, Signal::TERM);
        }
    }

    /// Kills all remaining processes and reaps the child. Returns its exit status, if known. May be called
    /// repeatedly and concurrently.
    pub(super) fn kill(&self) -> Option<ExitStatus> {
        let (end, not_permitted) = {
            let mut state = lock(&self.state);
            if let Some(end) = state.end {
                return end.status;
            }
            let TreeState { child, finder, end } = &mut *state;
            if let Some(status) = self.control.as_ref().and_then(|control| control.kill_all(KILL_TIMEOUT)) {
                self.reap(child, Instant::now() + KILL_TIMEOUT);
                *end = Some(TreeEnd { status: Some(status) });
                return Some(status);
            }
            let until = Instant::now() + KILL_TIMEOUT;
            let is_clean = kill_all(finder, until, MAX_RESCANS, |found| {
                if found.is_root_alive {
                    // All at once, so that no process of the group can start another one in between.
                    let _ = kill_process_group(self.root, Signal::KILL);
                    let _ = child.kill();
                }
            });
            let status = self.reap(child, until);
            (*end.insert(TreeEnd { status }), (!is_clean).then(|| finder.not_permitted_count()))
        };
        if let Some(refused) = not_permitted {
            let process = self.root.as_raw_pid();
            tracing::warn!(process, refused, "failed to end processes started by a server");
        }
        end.status
    }

    fn reap(&self, child: &mut Child, until: Instant) -> Option<ExitStatus> {
        match self.exit_fd() {
            Some(sign) if !wait(sign, until) => child.try_wait().ok().flatten(),
            _ => child.wait().ok(),
        }
    }
}

/// Kills all processes that the finder finds, and scans again until there are none. Returns whether none is left.
/// `max_rescans` is how often to repeat a scan because of a process in the middle of `exec`; `before_kill` is called
/// after every scan, before processes are killed.
pub(super) fn kill_all(
    finder: &mut ProcessFinder,
    until: Instant,
    max_rescans: usize,
    mut before_kill: impl FnMut(&ProcessScan),
) -> bool {
    let mut rescans = 0;
    for _ in 0..MAX_SCANS + max_rescans {
        // Scan before killing: when its parent exits, a process loses the evidence of its descent.
        let found = finder.scan();
        before_kill(&found);
        if found.alive.is_empty() {
            if !found.is_incomplete || rescans == max_rescans || Instant::now() >= until {
                return finder.not_permitted_count() == 0;
            }
            rescans += 1;
            std::thread::sleep(RESCAN_DELAY);
            continue;
        }
        let killed: Vec<_> = found.alive.iter().map(|member| finder.kill(member)).collect();
        for descriptor in &killed {
            match descriptor {
                Some(descriptor) => drop(wait(descriptor.as_fd(), until)),
                None => std::thread::sleep(RESCAN_DELAY),
            }
        }
        if Instant::now() >= until {
            break;
        }
    }
    finder.scan().alive.is_empty() && finder.not_permitted_count() == 0
}

/// Waits until a process exits or the time is over. Returns whether it exited in time.
fn wait(descriptor: BorrowedFd<'_>, until: Instant) -> bool {
    loop {
        let remaining = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(remaining).unwrap_or_default();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.is_ok_and(|count| count > 0),
        }
    }
}

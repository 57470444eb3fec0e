//! A child process and everything it started, ended together.
//!
//! The child is reaped only after everything else is gone. Until then its pid, which is also its process group,
//! cannot be reused, so a signal never hits an unrelated process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::process_finder::{Census, Found, exit_sign};
use super::supervisor::Control;
use crate::lock::lock;

/// How long to wait for killed processes. Only a process that hangs in the kernel takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of scans. After each scan all found processes are killed.
const ROUNDS: usize = 50;
/// How often to repeat a scan because of a process in the middle of `exec`.
const UNCLEAR_ROUNDS: usize = 2;
const PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Tree {
    root: Pid,
    exit: Option<OwnedFd>,
    /// Set if the child is a supervisor, which ends everything itself.
    control: Option<Control>,
    state: Mutex<State>,
}

struct State {
    child: Child,
    census: Census,
    end: Option<End>,
}

#[derive(Clone, Copy)]
struct End {
    status: Option<ExitStatus>,
}

impl Tree {
    /// Creates a tree. `mark` is the marker in the environment of the child and its descendants.
    pub(super) fn new(child: Child, mark: &str, control: Option<Control>) -> Self {
        let root = Pid::from_child(&child);
        let census = Census::new(root, mark);
        Tree { root, exit: exit_sign(root), control, state: Mutex::new(State { child, census, end: None }) }
    }

    /// Returns a descriptor that becomes readable when the child has exited, if supported.
    pub(super) fn exit_sign(&self) -> Option<BorrowedFd<'_>> {
        self.exit.as_ref().map(AsFd::as_fd)
    }

    /// Returns whether the child itself has exited.
    pub(super) fn has_exited(&self) -> bool {
        let state = lock(&self.state);
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that the child was reaped elsewhere.
        state.end.is_some() || !matches!(waitid(WaitId::Pid(self.root), look), Ok(None))
    }

    /// Records the descendants of the child while their parents still exist as evidence.
    pub(super) fn remember(&self) {
        let mut state = lock(&self.state);
        if state.end.is_none() && self.control.is_none() {
            state.census.take();
        }
    }

    /// Sends `SIGTERM` to the process group, or to all descendants if there is a supervisor.
    pub(super) fn terminate(&self) {
        if let Some(control) = &self.control {
            return control.terminate();
        }
        let mut state = lock(&self.state);
        if state.end.is_none() && state.census.take().is_root_ours {
            let _ = kill_process_group(self.root, Signal::TERM);
        }
    }

    /// Kills all remaining processes and reaps the child. Returns its exit status, if known. May be called
    /// repeatedly and concurrently.
    pub(super) fn end(&self) -> Option<ExitStatus> {
        let (end, left) = {
            let mut state = lock(&self.state);
            if let Some(end) = state.end {
                return end.status;
            }
            let State { child, census, end } = &mut *state;
            if let Some(status) = self.control.as_ref().and_then(|control| control.end(PATIENCE)) {
                self.reap(child, Instant::now() + PATIENCE);
                *end = Some(End { status: Some(status) });
                return Some(status);
            }
            let until = Instant::now() + PATIENCE;
            let is_clean = kill_all(census, until, UNCLEAR_ROUNDS, |found| {
                if found.is_root_ours {
                    // All at once, so that no process of the group can start another one in between.
                    let _ = kill_process_group(self.root, Signal::KILL);
                    let _ = child.kill();
                }
            });
            let status = self.reap(child, until);
            (*end.insert(End { status }), (!is_clean).then(|| census.refused()))
        };
        if let Some(refused) = left {
            let process = self.root.as_raw_pid();
            tracing::warn!(process, refused, "failed to end processes started by a server");
        }
        end.status
    }

    fn reap(&self, child: &mut Child, until: Instant) -> Option<ExitStatus> {
        match self.exit_sign() {
            Some(sign) if !wait(sign, until) => child.try_wait().ok().flatten(),
            _ => child.wait().ok(),
        }
    }
}

/// Kills all processes that the finder finds, and scans again until there are none. Returns whether none is left.
/// `unclear` is how often to repeat a scan because of a process in the middle of `exec`; `first` is called after
/// every scan, before processes are killed.
pub(super) fn kill_all(
    census: &mut Census,
    until: Instant,
    unclear: usize,
    mut first: impl FnMut(&Found),
) -> bool {
    let mut looked = 0;
    for _ in 0..ROUNDS + unclear {
        // Scan before killing: when its parent exits, a process loses the evidence of its descent.
        let found = census.take();
        first(&found);
        if found.alive.is_empty() {
            if !found.is_unclear || looked == unclear || Instant::now() >= until {
                return census.refused() == 0;
            }
            looked += 1;
            std::thread::sleep(PAUSE);
            continue;
        }
        let dying: Vec<_> = found.alive.iter().map(|member| census.kill(member)).collect();
        for descriptor in &dying {
            match descriptor {
                Some(descriptor) => drop(wait(descriptor.as_fd(), until)),
                None => std::thread::sleep(PAUSE),
            }
        }
        if Instant::now() >= until {
            break;
        }
    }
    census.take().alive.is_empty() && census.refused() == 0
}

/// Waits for the exit of a process. Returns whether it exited in time.
fn wait(descriptor: BorrowedFd<'_>, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.is_ok_and(|count| count > 0),
        }
    }
}

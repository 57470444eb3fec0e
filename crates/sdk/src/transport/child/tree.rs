//! A child process and everything it started, to be ended together.
//!
//! The child is waited for only after everything else is gone. Until then its number, which is also that of
//! its process group, cannot be given to another process, so a signal meant for it never hits a stranger.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::census::{Census, Found, exit_sign};
use super::supervisor::Control;
use crate::sync::lock;

/// How long to wait for processes that were killed. Only one that hangs in the kernel takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How often to look for more. Each time everything that was found has been killed.
const ROUNDS: usize = 50;
/// How often to look again because somebody could not be told from a stranger.
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
    /// `mark` is what the child and its descendants carry in their environment.
    pub(super) fn new(child: Child, mark: &str, control: Option<Control>) -> Self {
        let root = Pid::from_child(&child);
        let census = Census::new(root, mark);
        Tree { root, exit: exit_sign(root), control, state: Mutex::new(State { child, census, end: None }) }
    }

    /// Becomes readable when the child has ended, where there is such a thing.
    pub(super) fn exit_sign(&self) -> Option<BorrowedFd<'_>> {
        self.exit.as_ref().map(AsFd::as_fd)
    }

    /// Whether the child itself has ended.
    pub(super) fn has_exited(&self) -> bool {
        let state = lock(&self.state);
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that somebody else has waited for it.
        state.end.is_some() || !matches!(waitid(WaitId::Pid(self.root), look), Ok(None))
    }

    /// Remembers who belongs to the child, while their parents still live to tell.
    pub(super) fn remember(&self) {
        let mut state = lock(&self.state);
        if state.end.is_none() && self.control.is_none() {
            state.census.take();
        }
    }

    /// Asks the process group to end, or all descendants if there is a supervisor.
    pub(super) fn terminate(&self) {
        if let Some(control) = &self.control {
            return control.terminate();
        }
        let mut state = lock(&self.state);
        if state.end.is_none() && state.census.take().is_root_ours {
            let _ = kill_process_group(self.root, Signal::TERM);
        }
    }

    /// Kills whatever is left and waits for the child. How the child ended, if that is known. May be called
    /// again, and by several at once.
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
                    // At once, so that nobody in the group can start another one in between.
                    let _ = kill_process_group(self.root, Signal::KILL);
                    let _ = child.kill();
                }
            });
            let status = self.reap(child, until);
            (*end.insert(End { status }), (!is_clean).then(|| census.refused()))
        };
        if let Some(refused) = left {
            let process = self.root.as_raw_pid();
            tracing::warn!(process, refused, "processes that a server started could not be ended");
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

/// Kills everybody whom the census finds, and looks again until nobody is found. Whether nobody is left. `unclear` is
/// how often to look again because somebody could not be told from a stranger; `first` is called before anybody is
/// killed, after every look.
pub(super) fn kill_all(
    census: &mut Census,
    until: Instant,
    unclear: usize,
    mut first: impl FnMut(&Found),
) -> bool {
    let mut looked = 0;
    for _ in 0..ROUNDS + unclear {
        // Before anybody is killed: with its parent a process loses what shows whose it is.
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

/// Whether a process ended in time.
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

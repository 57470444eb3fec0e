//! Finds the processes that belong to a child, by evidence: its process group, its descendants, and the mark
//! that it hands down in the environment. Whoever shows none of these is never touched. A lineage has no child of
//! its own to begin with: those who carry its mark belong to it, and their descendants.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::lineage::LINEAGE;
use super::table::{self, Process};

/// The process from which the kernel starts its own threads.
const KERNEL: i32 = 2;

pub(super) struct Census {
    own: i32,
    /// The child, if there is one.
    root: Option<i32>,
    /// When the child was started: whatever is older is none of its descendants. 0 if that is not known.
    start: u64,
    /// Whether the descendants of this process belong, too.
    is_below_this: bool,
    /// Mark of the processes. Empty: no process carries it.
    mark: String,
    /// Found before. Their descendants belong, too; whoever has lost its parents since is still remembered.
    known: HashSet<(i32, u64)>,
    killed: HashSet<(i32, u64)>,
    /// Those that may not be killed, like a program that runs as another user.
    refused: HashSet<(i32, u64)>,
}

/// What a look at the table has brought.
pub(super) struct Found {
    pub(super) alive: Vec<Process>,
    /// Whether the child's number still names it, and its group. A program that waits for all its children
    /// itself may have let go of it.
    pub(super) is_root_ours: bool,
    /// Somebody was just becoming another program, and could not be told from a stranger.
    pub(super) is_unclear: bool,
}

enum Mark {
    Ours,
    None,
    Unclear,
}

impl Census {
    /// `root` must not have been waited for: as long as it has not, its number names no other process and no
    /// other group.
    pub(super) fn new(root: Pid, mark: &str) -> Self {
        let root = root.as_raw_pid();
        let start = table::find(root).map_or(0, |process| process.start);
        Census { root: Some(root), start, ..Self::of(mark) }
    }

    /// Of all that carry the mark.
    pub(super) fn of(mark: &str) -> Self {
        Census {
            own: rustix::process::getpid().as_raw_pid(),
            root: None,
            start: 0,
            is_below_this: false,
            mark: mark.to_owned(),
            known: HashSet::new(),
            killed: HashSet::new(),
            refused: HashSet::new(),
        }
    }

    /// Of all descendants of this process.
    pub(super) fn below_this() -> Self {
        Census { is_below_this: true, ..Self::of("") }
    }

    /// Looks at the table once.
    pub(super) fn take(&mut self) -> Found {
        let table = table::all();
        let is_root = |process: &Process| self.root == Some(process.id);
        let is_other = |process: &Process| is_root(process) && process.start != self.start;
        let is_root_ours = self.root.is_some() && (self.start == 0 || !table.iter().any(is_other));
        let (mut members, mut others) = (Vec::new(), Vec::new());
        let mut unclear = Vec::new();
        for process in table {
            if process.start < self.start || process.id == self.own {
                continue;
            }
            let is_in_group = is_root(&process) || self.root == Some(process.group);
            if (is_root_ours && is_in_group) || self.known.contains(&identity(&process)) {
                members.push(process);
                continue;
            }
            match self.mark_of(&process) {
                Mark::Ours => members.push(process),
                Mark::None => others.push(process),
                Mark::Unclear => {
                    unclear.push(process.id);
                    others.push(process);
                }
            }
        }
        loop {
            let this = self.is_below_this.then_some(self.own);
            let parents: HashSet<_> = members.iter().map(|member| member.id).chain(this).collect();
            let (children, rest): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|process| parents.contains(&process.parent));
            others = rest;
            if children.is_empty() {
                break;
            }
            members.extend(children);
        }
        self.known.extend(members.iter().map(identity));
        members.retain(|member| member.is_alive && !self.refused.contains(&identity(member)));
        let is_unclear = others.iter().any(|process| unclear.contains(&process.id));
        Found { alive: members, is_root_ours, is_unclear }
    }

    fn mark_of(&self, process: &Process) -> Mark {
        if self.mark.is_empty() || !process.is_alive || process.parent == KERNEL {
            return Mark::None;
        }
        match table::environment(process.id) {
            Some(environment) if environment.is_empty() => Mark::Unclear,
            Some(environment) if carries(&environment, &self.mark) => Mark::Ours,
            _ => Mark::None,
        }
    }

    /// Kills a member. The descriptor tells when it has ended.
    pub(super) fn kill(&mut self, member: &Process) -> Option<OwnedFd> {
        let id = Pid::from_raw(member.id)?;
        let descriptor = pidfd_open(id, PidfdFlags::empty());
        // Its number may have gone to another process since the table was read. From now on the descriptor
        // stands for the one that is looked at here.
        if table::find(member.id).is_none_or(|now| now.start != member.start) {
            return None;
        }
        let killed = match &descriptor {
            Ok(descriptor) => pidfd_send_signal(descriptor, Signal::KILL),
            Err(Errno::SRCH) => return None,
            // An old kernel, or no descriptors left.
            Err(_) => kill_process(id, Signal::KILL),
        };
        if killed == Err(Errno::PERM) {
            self.refused.insert(identity(member));
            return None;
        }
        self.killed.insert(identity(member));
        descriptor.ok()
    }

    /// How many were killed.
    pub(super) fn killed(&self) -> usize {
        self.killed.len()
    }

    /// How many could not be killed for want of permission.
    pub(super) fn refused(&self) -> usize {
        self.refused.len()
    }
}

/// Asks a process to end. One that has ended already needs no signal.
pub(super) fn terminate(member: &Process) {
    let Some(id) = Pid::from_raw(member.id) else { return };
    let Ok(descriptor) = pidfd_open(id, PidfdFlags::empty()) else { return };
    if table::find(member.id).is_some_and(|now| now.start == member.start) {
        let _ = pidfd_send_signal(descriptor, Signal::TERM); // it may belong to another user
    }
}

/// Becomes readable when the process ends. `None` where the kernel is too old for it.
pub(super) fn exit_sign(process: Pid) -> Option<OwnedFd> {
    pidfd_open(process, PidfdFlags::empty()).ok()
}

fn identity(process: &Process) -> (i32, u64) {
    (process.id, process.start)
}

/// Whether the mark is among those that an environment lists.
fn carries(environment: &[u8], mark: &str) -> bool {
    let variables = environment.split(|byte| *byte == 0);
    let lineages =
        variables.filter_map(|variable| variable.strip_prefix(LINEAGE.as_bytes())?.strip_prefix(b"="));
    lineages.flat_map(|lineage| lineage.split(|byte| *byte == b':')).any(|one| one == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_to_another_process_is_no_evidence() {
        let mut stranger = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut census = Census::new(Pid::from_child(&stranger), "1-a");
        let found = census.take();
        assert!(found.is_root_ours && found.alive.len() == 1);
        let mut later = Census { start: census.start - 1, known: HashSet::new(), ..census };
        let found = later.take();
        assert!(!found.is_root_ours && found.alive.is_empty());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_mark_is_found_among_others_and_only_whole() {
        let environment = b"A=1-a\0LINCHPIN_LINEAGE=9-b:1-a\0B=2\0";
        assert!(carries(environment, "1-a") && carries(environment, "9-b"));
        assert!(!carries(environment, "1-") && !carries(environment, "-a") && !carries(environment, "2"));
        assert!(!carries(b"XLINCHPIN_LINEAGE=1-a\0LINCHPIN_LINEAGES=1-a\0", "1-a"));
        assert!(!carries(b"", "1-a"));
    }
}

//! Finds the processes that belong to a child, by evidence: its process group, its descendants, and the lineage
//! marker in their environment. Processes without such evidence are never touched. A lineage has no root process:
//! its members are the processes that carry the marker, and their descendants.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::lineage::LINEAGE_VARIABLE;
use super::proc_table::{self, Process};

/// Process id of `kthreadd`, the parent of all kernel threads.
const KTHREADD_PID: i32 = 2;

pub(super) struct ProcessFinder {
    own_pid: i32,
    /// Process id of the child, if there is one.
    root_pid: Option<i32>,
    /// Start time of the child: older processes are not its descendants. 0 if unknown.
    root_start: u64,
    /// Whether the finder includes all descendants of this process.
    includes_descendants: bool,
    /// Marker in the environment of the processes. Empty: no process carries it.
    marker: String,
    /// Processes that earlier scans have found. Their descendants are members too, even after they have lost their
    /// parents.
    known_members: HashSet<(i32, u64)>,
    killed: HashSet<(i32, u64)>,
    /// Found processes that may not be killed, such as a program that runs as another user.
    not_permitted: HashSet<(i32, u64)>,
}

/// Processes of a child that one scan of `/proc` found.
pub(super) struct ProcessScan {
    pub(super) alive: Vec<Process>,
    /// Whether the process id of the child still belongs to it, and was not reused. A program that waits for all its
    /// children itself may have reaped it.
    pub(super) is_root_alive: bool,
    /// A process was in the middle of `exec`, so its environment could not be read.
    pub(super) is_incomplete: bool,
}

enum Membership {
    Member,
    None,
    Unknown,
}

impl ProcessFinder {
    /// Creates a finder for the processes that a child has started. `root` must not have been waited for: until then,
    /// its pid and its process group cannot be reused.
    pub(super) fn new(root: Pid, marker: &str) -> Self {
        let root = root.as_raw_pid();
        let root_start = proc_table::find(root).map_or(0, |process| process.start);
        ProcessFinder { root_pid: Some(root), root_start, ..Self::with_marker(marker) }
    }

    /// Creates a finder for all processes that carry the marker.
    pub(super) fn with_marker(marker: &str) -> Self {
        ProcessFinder {
            own_pid: rustix::process::getpid().as_raw_pid(),
            root_pid: None,
            root_start: 0,
            includes_descendants: false,
            marker: marker.to_owned(),
            known_members: HashSet::new(),
            killed: HashSet::new(),
            not_permitted: HashSet::new(),
        }
    }

    /// Creates a finder for all descendants of this process.
    pub(super) fn descendants() -> Self {
        ProcessFinder { includes_descendants: true, ..Self::with_marker("") }
    }

    /// Scans the process table once and finds the processes that belong to the server.
    pub(super) fn scan(&mut self) -> ProcessScan {
        let table = proc_table::all();
        let is_root = |process: &Process| self.root_pid == Some(process.id);
        let is_reused_pid = |process: &Process| is_root(process) && process.start != self.root_start;
        let is_root_alive =
            self.root_pid.is_some() && (self.root_start == 0 || !table.iter().any(is_reused_pid));
        let (mut members, mut others) = (Vec::new(), Vec::new());
        let mut undecided = Vec::new();
        for process in table {
            if process.start < self.root_start || process.id == self.own_pid {
                continue;
            }
            let is_in_group = is_root(&process) || self.root_pid == Some(process.group);
            if (is_root_alive && is_in_group) || self.known_members.contains(&identity(&process)) {
                members.push(process);
                continue;
            }
            match self.membership(&process) {
                Membership::Member => members.push(process),
                Membership::None => others.push(process),
                Membership::Unknown => {
                    undecided.push(process.id);
                    others.push(process);
                }
            }
        }
        loop {
            let own_process = self.includes_descendants.then_some(self.own_pid);
            let parents: HashSet<_> = members.iter().map(|member| member.id).chain(own_process).collect();
            let (children, rest): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|process| parents.contains(&process.parent));
            others = rest;
            if children.is_empty() {
                break;
            }
            members.extend(children);
        }
        self.known_members.extend(members.iter().map(identity));
        members.retain(|member| member.is_alive && !self.not_permitted.contains(&identity(member)));
        let has_undecided = others.iter().any(|process| undecided.contains(&process.id));
        ProcessScan { alive: members, is_root_alive, is_incomplete: has_undecided }
    }

    fn membership(&self, process: &Process) -> Membership {
        if self.marker.is_empty() || !process.is_alive || process.parent == KTHREADD_PID {
            return Membership::None;
        }
        match proc_table::environment(process.id) {
            Some(environment) if environment.is_empty() => Membership::Unknown,
            Some(environment) if has_marker(&environment, &self.marker) => Membership::Member,
            _ => Membership::None,
        }
    }

    /// Kills a process that the finder has found. The returned descriptor becomes readable when the process has exited.
    pub(super) fn kill(&mut self, member: &Process) -> Option<OwnedFd> {
        let id = Pid::from_raw(member.id)?;
        let descriptor = pidfd_open(id, PidfdFlags::empty());
        // The pid may have been reused since the scan. From here on the descriptor identifies the process that is
        // checked below.
        if proc_table::find(member.id).is_none_or(|now| now.start != member.start) {
            return None;
        }
        let killed = match &descriptor {
            Ok(descriptor) => pidfd_send_signal(descriptor, Signal::KILL),
            Err(Errno::SRCH) => return None,
            // An old kernel, or no free file descriptors.
            Err(_) => kill_process(id, Signal::KILL),
        };
        if killed == Err(Errno::PERM) {
            self.not_permitted.insert(identity(member));
            return None;
        }
        self.killed.insert(identity(member));
        descriptor.ok()
    }

    /// Returns the number of processes that this finder has killed.
    pub(super) fn killed_count(&self) -> usize {
        self.killed.len()
    }

    /// Returns the number of processes that could not be killed for lack of permission.
    pub(super) fn not_permitted_count(&self) -> usize {
        self.not_permitted.len()
    }
}

/// Sends `SIGTERM` to a process. An exited one needs no signal.
pub(super) fn terminate(member: &Process) {
    let Some(id) = Pid::from_raw(member.id) else { return };
    let Ok(descriptor) = pidfd_open(id, PidfdFlags::empty()) else { return };
    if proc_table::find(member.id).is_some_and(|now| now.start == member.start) {
        let _ = pidfd_send_signal(descriptor, Signal::TERM); // it may belong to another user
    }
}

/// Returns a file descriptor that becomes readable when the process exits. `None` on old kernels.
pub(super) fn exit_fd(process: Pid) -> Option<OwnedFd> {
    pidfd_open(process, PidfdFlags::empty()).ok()
}

fn identity(process: &Process) -> (i32, u64) {
    (process.id, process.start)
}

/// Returns whether the lineage variable in a process environment contains the marker.
fn has_marker(environment: &[u8], marker: &str) -> bool {
    let variables = environment.split(|byte| *byte == 0);
    let lineages = variables
        .filter_map(|variable| variable.strip_prefix(LINEAGE_VARIABLE.as_bytes())?.strip_prefix(b"="));
    lineages.flat_map(|lineage| lineage.split(|byte| *byte == b':')).any(|one| one == marker.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_to_another_process_is_no_evidence() {
        let mut unrelated = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut finder = ProcessFinder::new(Pid::from_child(&unrelated), "1-a");
        let found = finder.scan();
        assert!(found.is_root_alive && found.alive.len() == 1);
        let mut later =
            ProcessFinder { root_start: finder.root_start - 1, known_members: HashSet::new(), ..finder };
        let found = later.scan();
        assert!(!found.is_root_alive && found.alive.is_empty());
        unrelated.kill().unwrap();
        unrelated.wait().unwrap();
    }

    #[test]
    fn a_mark_is_found_among_others_and_only_whole() {
        let environment = b"A=1-a\0LINCHPIN_LINEAGE=9-b:1-a\0B=2\0";
        assert!(has_marker(environment, "1-a") && has_marker(environment, "9-b"));
        assert!(
            !has_marker(environment, "1-") && !has_marker(environment, "-a") && !has_marker(environment, "2")
        );
        assert!(!has_marker(b"XLINCHPIN_LINEAGE=1-a\0LINCHPIN_LINEAGES=1-a\0", "1-a"));
        assert!(!has_marker(b"", "1-a"));
    }
}

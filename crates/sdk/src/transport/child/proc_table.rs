//! Reader of the Linux process table in `/proc`.

use std::path::Path;

/// Process of the Linux process table. Its pid may be reused after its exit; pid and start time together are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// Start time of the process in clock ticks since boot.
    pub(super) start: u64,
    /// Whether the process runs; `false` for a zombie, which only waits to be reaped.
    pub(super) is_alive: bool,
}

/// Returns all processes in the process table that this user can see. Those that exit during the scan are omitted.
pub(super) fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(find).collect()
}

pub(super) fn find(id: i32) -> Option<Process> {
    parse(&std::fs::read(Path::new("/proc").join(id.to_string()).join("stat")).ok()?)
}

/// Returns the initial environment of a process; `None` if it may not be read. It is empty for a moment during
/// `exec`.
pub(super) fn environment(id: i32) -> Option<Vec<u8>> {
    std::fs::read(Path::new("/proc").join(id.to_string()).join("environ")).ok()
}

/// Parses `/proc/PID/stat`. The name in parentheses is chosen by the process and may contain parentheses itself: the
/// other fields start after the last one.
fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let id = str::from_utf8(&stat[..open]).ok()?.trim().parse().ok()?;
    let fields: Vec<_> = str::from_utf8(&stat[close + 1..]).ok()?.split_ascii_whitespace().collect();
    // proc(5) counts fields from 1, and the first one here is the third.
    let field = |number: usize| fields.get(number - 3).copied();
    // A main thread that has exited is shown as a zombie even while other threads run.
    let threads: u32 = field(20)?.parse().ok()?;
    Some(Process {
        id,
        parent: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        start: field(22)?.parse().ok()?,
        is_alive: !matches!(field(3)?, "Z" | "X" | "x") || threads > 1,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = "7 42 6 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987 1000 5";
        let expected = Process { id: 42, parent: 7, group: 42, start: 987, is_alive: true };
        for name in ["sh", "a b", "a) Z 1 (b", ")", "(((", "", "\n"] {
            assert_eq!(parse(format!("42 ({name}) S {rest}\n").as_bytes()), Some(expected), "{name}");
            let zombie = parse(format!("42 ({name}) Z {rest}\n").as_bytes()).unwrap();
            assert!(!zombie.is_alive);
        }
        assert_eq!(parse(b"42 (sh) S 7 42"), None);
    }

    #[test]
    fn this_process_is_found() {
        let id = i32::try_from(std::process::id()).unwrap();
        let found = find(id).unwrap();
        assert!(found.id == id && found.is_alive);
        assert!(all().contains(&found));
        assert!(environment(id).is_some());
    }

    proptest! {
        #[test]
        fn nothing_makes_the_parser_fail(stat in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&stat);
        }
    }
}

//! Rule: protocol revision dates occur in one file only, so that a new revision is a small change.

use super::{Finding, SourceFile, rust};

const HOME: &str = "crates/protocol/src/version.rs";

/// Split into parts, so that this file passes its own rule.
const REVISIONS: [[&str; 3]; 5] = [
    ["2024", "11", "05"],
    ["2025", "03", "26"],
    ["2025", "06", "18"],
    ["2025", "11", "25"],
    ["2026", "07", "28"],
];

pub(super) fn revision_dates_stay_in_one_file(files: &[SourceFile]) -> Vec<Finding> {
    let dates: Vec<_> = REVISIONS.iter().flat_map(|parts| [parts.join("-"), parts.join("_")]).collect();
    let exempt = |file: &SourceFile| {
        file.path == HOME || file.is_in_tests_folder() || file.path.starts_with("bench/peers/")
    };
    let in_file = |file: &SourceFile| -> Vec<_> {
        let found = |line: &str| dates.iter().find(|date| line.contains(&***date));
        file.lines_before_tests()
            .filter_map(|(number, line)| Some((number, found(line)?)))
            .map(|(number, date)| file.finding(number, format!("{date}: name the revision through {HOME}")))
            .collect()
    };
    rust(files).filter(|file| !exempt(file)).flat_map(in_file).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding_locations;
    use super::*;

    #[test]
    fn a_date_outside_its_file_is_found() {
        for parts in REVISIONS {
            let text = format!("//! x\nfn v{}() {{}}\n// {}\n", parts.join("_"), parts.join("-"));
            let after = format!("//! x\n#[cfg(test)]\nmod tests {{ {} }}", parts.join("-"));
            let files = [
                ("crates/protocol/src/wire.rs", &*text),
                (HOME, &*text),
                ("crates/sdk/tests/revisions.rs", &*text),
                ("bench/peers/a/src/main.rs", &*text),
                ("crates/sdk/src/lib.rs", &*after),
                ("crates/sdk/Cargo.toml", &*text),
            ];
            let expected = ["crates/protocol/src/wire.rs:2", "crates/protocol/src/wire.rs:3"];
            assert_eq!(finding_locations(revision_dates_stay_in_one_file, &files), expected);
        }
    }
}

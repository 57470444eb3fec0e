//! Tables of the coverage by crate and by group, with the files below the target of their group.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use super::lcov::{Lines, SourceFile};

/// Files with a common target.
struct Group {
    name: &'static str,
    /// Percentage of the lines.
    target: usize,
    /// Files, and directories with a slash at the end.
    paths: &'static [&'static str],
}

const GROUPS: [Group; 5] = [
    Group { name: "schema validation", target: 90, paths: &["crates/schema/src/"] },
    Group { name: "policy", target: 90, paths: &["crates/hub-core/src/policy.rs"] },
    Group {
        name: "message formatting",
        target: 90,
        paths: &["crates/jsonrpc/src/", "crates/protocol/src/encode.rs", "crates/protocol/src/wire/"],
    },
    Group {
        name: "connections",
        target: 80,
        paths: &["crates/hub-core/src/connection/", "crates/sdk/src/transport/"],
    },
    Group { name: "execution", target: 80, paths: &["crates/hub-core/src/hub/calls/"] },
];

/// Coverage by crate and by group.
pub(super) struct Report<'a> {
    crates: BTreeMap<&'a str, Lines>,
    groups: Vec<GroupRow<'a>>,
}

struct GroupRow<'a> {
    group: &'static Group,
    lines: Lines,
    /// Files below the target, with the most uncovered lines first.
    below: Vec<&'a SourceFile>,
}

impl Group {
    fn contains(&self, file: &SourceFile) -> bool {
        self.paths.iter().any(|path| file.path == *path || path.ends_with('/') && file.path.starts_with(path))
    }

    fn row<'a>(&'static self, files: &'a [SourceFile]) -> GroupRow<'a> {
        let files = files.iter().filter(|file| self.contains(file));
        let lines = files.clone().fold(Lines::default(), |sum, file| sum.add(file.lines));
        let mut below: Vec<_> = files.filter(|file| !file.lines.reaches(self.target)).collect();
        below.sort_by_key(|file| Reverse(file.lines.total - file.lines.covered));
        GroupRow { group: self, lines, below }
    }
}

impl GroupRow<'_> {
    fn verdict(&self) -> &'static str {
        match self.lines {
            Lines { total: 0, .. } => "not compiled",
            lines if lines.reaches(self.group.target) => "reached",
            _ => "BELOW",
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(files: &'a [SourceFile]) -> Self {
        let mut crates = BTreeMap::<&str, Lines>::new();
        for file in files {
            let below_crates = file.path.strip_prefix("crates/");
            if let Some((name, _)) = below_crates.and_then(|path| path.split_once("/src/")) {
                let sum = crates.entry(name).or_default();
                *sum = sum.add(file.lines);
            }
        }
        Self { crates, groups: GROUPS.iter().map(|group| group.row(files)).collect() }
    }

    /// Returns the names of the groups that are below their target.
    pub(super) fn below_target(&self) -> Vec<&'static str> {
        let below = self.groups.iter().filter(|row| !row.lines.reaches(row.group.target));
        below.map(|row| row.group.name).collect()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:<20}{:>8}{:>11}", "crate", "lines", "covered %")?;
        for (name, lines) in &self.crates {
            writeln!(out, "{name:<20}{:>8}{:>11}", lines.total, lines.percent())?;
        }
        writeln!(out, "\n{:<20}{:>8}{:>11}{:>10}", "group", "lines", "covered %", "target %")?;
        for row in &self.groups {
            let (name, target) = (row.group.name, row.group.target);
            let (total, percent) = (row.lines.total, row.lines.percent());
            writeln!(out, "{name:<20}{total:>8}{percent:>11}{target:>10}  {}", row.verdict())?;
        }
        for row in &self.groups {
            if !row.below.is_empty() {
                writeln!(out, "\nfiles of {} below {} %:", row.group.name, row.group.target)?;
            }
            for SourceFile { path, lines } in &row.below {
                writeln!(out, "  {path}: {} of {} lines, {} %", lines.covered, lines.total, lines.percent())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::root;

    fn file(path: &str, covered: usize, total: usize) -> SourceFile {
        SourceFile { path: path.to_owned(), lines: Lines { covered, total } }
    }

    #[test]
    fn the_paths_of_the_groups_exist() {
        for path in GROUPS.iter().flat_map(|group| group.paths) {
            let found = root().join(path);
            assert!(if path.ends_with('/') { found.is_dir() } else { found.is_file() }, "{path}");
        }
    }

    #[test]
    fn a_group_below_its_target_is_named_with_its_files() {
        let files = [
            file("crates/hub-core/src/policy.rs", 9, 10),
            file("crates/hub-core/src/hub/calls/admit.rs", 75, 100),
            file("crates/hub-core/src/hub/calls/mod.rs", 0, 30),
            file("crates/hub-core/src/hub/calls/execute.rs", 80, 100),
            file("examples/story/src/main.rs", 0, 100),
        ];
        let report = Report::new(&files);
        assert_eq!(report.below_target(), ["execution"]);
        let shown = report.to_string();
        let (tables, list) = shown.split_once("\nfiles of execution below 80 %:\n").unwrap();
        let rows: Vec<Vec<_>> = tables.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["hub-core", "240", "68.3"]), "{shown}");
        assert!(rows.contains(&vec!["policy", "10", "90.0", "90", "reached"]), "{shown}");
        assert!(rows.contains(&vec!["execution", "230", "67.3", "80", "BELOW"]), "{shown}");
        assert!(rows.contains(&vec!["connections", "0", "0.0", "80", "not", "compiled"]), "{shown}");
        assert_eq!(
            list,
            "  crates/hub-core/src/hub/calls/mod.rs: 0 of 30 lines, 0.0 %\n  \
             crates/hub-core/src/hub/calls/admit.rs: 75 of 100 lines, 75.0 %\n"
        );
    }
}

//! Reader of lcov files: the counter of each line, by source file.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::rust_source::RustSource;

/// Number of executable lines and how many of them ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) covered: usize,
    pub(super) total: usize,
}

impl Lines {
    pub(super) fn add(self, other: Self) -> Self {
        Self { covered: self.covered + other.covered, total: self.total + other.total }
    }

    /// Returns whether at least this percentage is covered.
    pub(super) fn reaches(self, percent: usize) -> bool {
        self.covered * 100 >= self.total * percent
    }

    /// Returns the percentage with one decimal, rounded down, so that a figure below a target does not look like it.
    pub(super) fn percent(self) -> String {
        let thousandths = self.covered * 1000 / self.total.max(1);
        format!("{}.{}", thousandths / 10, thousandths % 10)
    }
}

/// Source file, with its path below the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    pub(super) path: String,
    pub(super) lines: Lines,
}

/// Returns the source files below the root, without lines for tests only.
pub(super) fn read(text: &str, root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for record in text.split("end_of_record") {
        let Some(name) = record.lines().find_map(|line| line.strip_prefix("SF:")) else { continue };
        let Ok(path) = Path::new(name).strip_prefix(root) else { continue };
        let source = fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
        let lines =
            count(record, &RustSource::read(&source)).with_context(|| format!("counters of {name}"))?;
        files.push(SourceFile { path: path.to_string_lossy().into_owned(), lines });
    }
    ensure!(!files.is_empty(), "the tests ran no code of the workspace");
    Ok(files)
}

/// Counts the lines of one file.
fn count(record: &str, source: &RustSource<'_>) -> anyhow::Result<Lines> {
    let mut lines = Lines::default();
    for line in record.lines().filter_map(|line| line.strip_prefix("DA:")) {
        let (number, runs) = line.split_once(',').with_context(|| format!("DA:{line} has no counter"))?;
        let number = number.parse().with_context(|| format!("DA:{line} has no line number"))?;
        if !source.is_test_line(number) {
            lines = lines.add(Lines { covered: usize::from(runs != "0"), total: 1 });
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::root;

    #[test]
    fn test_code_and_files_elsewhere_do_not_count() {
        let folder = root().join(format!("target/xtask-lcov-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).unwrap();
        let path = folder.join("src/a.rs");
        fs::write(&path, "fn a() {\n    b();\n}\n#[cfg(test)]\nfn c() {\n}\n").unwrap();
        let record = "FN:1,a\nDA:1,3\nDA:2,0\nDA:3,12\nDA:5,7\nDA:6,7\nLF:5\nend_of_record\n";
        let text = format!("SF:{}\n{record}SF:/elsewhere/b.rs\n{record}", path.display());
        let files = read(&text, &folder);
        let none = read("", &folder);
        fs::remove_dir_all(&folder).unwrap();
        let lines = Lines { covered: 2, total: 3 };
        assert_eq!(files.unwrap(), [SourceFile { path: "src/a.rs".to_owned(), lines }]);
        assert!(none.unwrap_err().to_string().contains("ran no code"));
    }

    #[test]
    fn a_percentage_is_rounded_down() {
        let lines = Lines { covered: 8_999, total: 10_000 };
        assert_eq!(lines.percent(), "89.9");
        assert!(lines.reaches(89) && !lines.reaches(90));
        assert_eq!(Lines { covered: 1, total: 1 }.percent(), "100.0");
    }
}

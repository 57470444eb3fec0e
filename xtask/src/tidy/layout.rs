//! Rules: maximum file length, maximum line length, and a doc comment for every module.

use super::{Finding, SourceFile, rust};

const MAX_FILE_LINES: usize = 500;
/// Limit for authorization code, which must be easy to review.
const MAX_AUTHORIZATION_FILE_LINES: usize = 300;
/// rustfmt wraps code at 110 columns; only long strings may exceed that.
const MAX_LINE_LEN: usize = 160;

pub(super) fn files_are_short(files: &[SourceFile]) -> Vec<Finding> {
    let exempt = |file: &SourceFile| {
        file.is_in_tests_folder() || file.path.starts_with("fuzz/") || file.path.starts_with("bench/peers/")
    };
    let too_long = rust(files).filter(|file| !exempt(file)).filter_map(|file| {
        let count = file.lines_before_tests().count();
        let most = if file.path.contains("/auth/") { MAX_AUTHORIZATION_FILE_LINES } else { MAX_FILE_LINES };
        let advice = format!("{count} lines before the tests, at most {most} are allowed: split the file");
        (count > most).then(|| file.finding(most + 1, advice))
    });
    too_long.collect()
}

pub(super) fn lines_are_short(files: &[SourceFile]) -> Vec<Finding> {
    let long = |line: &str| line.chars().count() > MAX_LINE_LEN;
    let advice = format!("longer than {MAX_LINE_LEN} characters: break the line");
    let in_file = |file: &SourceFile| -> Vec<_> {
        file.lines()
            .filter(|(_, line)| long(line))
            .map(|(number, _)| file.finding(number, &*advice))
            .collect()
    };
    rust(files).flat_map(in_file).collect()
}

pub(super) fn modules_say_what_they_are_for(files: &[SourceFile]) -> Vec<Finding> {
    rust(files)
        .filter(|file| needs_module_doc(&file.path) && !begins_with_module_doc(file))
        .map(|file| file.finding(1, "start the file with a //! doc comment that describes the module"))
        .collect()
}

fn needs_module_doc(path: &str) -> bool {
    let folders: Vec<_> = path.split('/').collect();
    matches!(
        folders[..],
        ["crates" | "examples", _, "src", _, ..] | ["xtask" | "bench" | "fuzz", "src", _, ..]
    )
}

/// Returns whether the file starts with a module doc. In xtask and bench it must be the first line; elsewhere
/// attributes may precede it.
fn begins_with_module_doc(file: &SourceFile) -> bool {
    if file.path.starts_with("xtask/") || file.path.starts_with("bench/") {
        return file.text.starts_with("//!");
    }
    let mut in_attribute = false;
    for (_, line) in file.lines() {
        if in_attribute || line.starts_with("#!") {
            in_attribute = !line.trim_end().ends_with(']');
        } else if !line.trim().is_empty() {
            return line.starts_with("//!");
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding_locations;
    use super::*;

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let long = "//! x\n".repeat(501);
        let short = format!("{}#[cfg(test)]\n{long}", "//! x\n".repeat(500));
        let files = [
            ("crates/a/src/long.rs", &*long),
            ("crates/a/src/short.rs", &*short),
            ("crates/a/tests/long.rs", &*long),
            ("fuzz/src/lib.rs", &*long),
            ("bench/peers/a/src/main.rs", &*long),
        ];
        assert_eq!(finding_locations(files_are_short, &files), ["crates/a/src/long.rs:501"]);
    }

    #[test]
    fn a_long_line_is_found() {
        let text = format!("//! x\n// {}\n// {}\n", "é".repeat(158), "é".repeat(157));
        assert_eq!(finding_locations(lines_are_short, &[("a.rs", &text), ("Cargo.toml", &text)]), ["a.rs:2"]);
    }

    #[test]
    fn a_module_without_a_doc_is_found() {
        let files = [
            (
                "crates/a/src/good.rs",
                "#![no_main]\n#![expect(\n    lint,\n    reason = \"r\",\n)]\n\n//! x\n",
            ),
            ("crates/a/src/deep/bad.rs", "#![no_main]\nuse a;\n//! x\n"),
            ("examples/a/src/empty.rs", ""),
            ("xtask/src/late.rs", "#![no_main]\n//! x\n"),
            ("bench/src/good.rs", "//! x\n"),
            ("fuzz/src/bin/comment.rs", "// x\n"),
            ("crates/a/tests/free.rs", "use a;\n"),
            ("crates/a/build.rs", "fn main() {}\n"),
        ];
        let expected = ["crates/a/src/deep/bad.rs:1", "examples/a/src/empty.rs:1", "xtask/src/late.rs:1"];
        assert_eq!(finding_locations(modules_say_what_they_are_for, &files)[..3], expected);
        assert_eq!(
            finding_locations(modules_say_what_they_are_for, &files)[3..],
            ["fuzz/src/bin/comment.rs:1"]
        );
    }
}

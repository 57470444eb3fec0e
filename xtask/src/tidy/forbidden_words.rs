//! Rule: forbidden words in the source: markers of unfinished work, and tests that are ignored or that sleep.
//!
//! The words are concatenated from parts, so that this file passes its own rules.

use super::{Finding, SourceFile, rust};

const UNFINISHED_CALLS: [&str; 2] = [concat!("todo", "!("), concat!("unimplemented", "!(")];
const MARKERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const TEST_ATTRIBUTES: [&str; 2] = [concat!("#[", "ignore"), concat!("#[", "should_panic")];
const SLEEPS: [&str; 2] = [concat!("thread::", "sleep"), concat!("time::", "sleep(")];

pub(super) fn nothing_is_left_unfinished(files: &[SourceFile]) -> Vec<Finding> {
    find(rust(files), |_, line| {
        let call = UNFINISHED_CALLS.into_iter().find(|call| line.contains(call));
        let found = call.or_else(|| MARKERS.into_iter().find(|marker| contains_word(line, marker)))?;
        Some(format!("\"{found}\": finish it, or document the reason"))
    })
}

pub(super) fn tests_run_and_do_not_sleep(files: &[SourceFile]) -> Vec<Finding> {
    find(rust(files), |file, line| {
        if let Some(found) = TEST_ATTRIBUTES.into_iter().find(|attribute| line.contains(attribute)) {
            return Some(format!("\"{found}\": tests must always run and assert"));
        }
        // This helper, the only one that may sleep, panics unless the clock is paused.
        let waits = file.is_in_tests_folder() && !file.path.ends_with("tests/support/paused.rs");
        let found = SLEEPS.into_iter().find(|sleep| waits && line.contains(sleep))?;
        Some(format!("\"{found}\": wait for the expected event, or pause tokio's clock"))
    })
}

fn find<'a>(
    files: impl Iterator<Item = &'a SourceFile>,
    advice: impl Fn(&SourceFile, &str) -> Option<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let found = file.lines().filter_map(|(number, line)| Some(file.finding(number, advice(file, line)?)));
        findings.extend(found);
    }
    findings
}

/// Returns whether the line contains `word` as a whole word.
fn contains_word(line: &str, word: &str) -> bool {
    let is_part = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
    line.match_indices(word).any(|(at, _)| {
        !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding_locations;
    use super::*;

    #[test]
    fn unfinished_work_is_found() {
        for word in UNFINISHED_CALLS.into_iter().chain(MARKERS) {
            let text = format!("fn a() {{\n    {word}\n}}\n#[cfg(test)]\n// {word}: x\n// A{word}B\n");
            let found = finding_locations(
                nothing_is_left_unfinished,
                &[("crates/a/src/a.rs", &text), ("Cargo.toml", &text)],
            );
            assert_eq!(found[..2], ["crates/a/src/a.rs:2", "crates/a/src/a.rs:5"], "{word}");
        }
        assert!(!contains_word(concat!("XX", "XX"), MARKERS[2]));
    }

    #[test]
    fn tests_that_do_not_run_or_that_sleep_are_found() {
        for attribute in TEST_ATTRIBUTES {
            let text = format!("#[test]\n{attribute}]\n{attribute} = \"why\"]\n");
            assert_eq!(
                finding_locations(tests_run_and_do_not_sleep, &[("a.rs", &text)]),
                ["a.rs:2", "a.rs:3"]
            );
        }
        for sleep in SLEEPS {
            let text = format!("fn a() {{\n    {sleep}(1);\n}}\n");
            let paused = ("crates/a/tests/support/paused.rs", &*text);
            let files = [("crates/a/src/a.rs", &*text), ("crates/a/tests/a.rs", &*text), paused];
            assert_eq!(finding_locations(tests_run_and_do_not_sleep, &files), ["crates/a/tests/a.rs:2"]);
        }
    }
}

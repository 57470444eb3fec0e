//! Rules for layout, dependencies, names and words that the compiler does not check. Each rule is a function from files to findings, so that it can
//! be tested on made-up files. `cargo xtask tidy` and `cargo test` run the rules on the real ones.

mod dates;
mod dependencies;
mod exceptions;
mod facade;
mod forbidden_words;
mod layout;
mod manifest;
mod prose;
mod sockets;
mod type_names;

use std::fmt;
use std::path::Path;

use anyhow::{Context, bail};

use crate::command::{output, root};

/// File of the checkout, with its path relative to the workspace root.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Violation of a rule, with advice.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    advice: String,
}

type Rule = fn(&[SourceFile]) -> Vec<Finding>;

const RULES: &[Rule] = &[
    layout::files_are_short,
    layout::lines_are_short,
    layout::modules_say_what_they_are_for,
    dates::revision_dates_stay_in_one_file,
    forbidden_words::nothing_is_left_unfinished,
    forbidden_words::tests_run_and_do_not_sleep,
    sockets::sockets_are_opened_in_one_place,
    dependencies::crates_depend_downwards,
    dependencies::versions_come_from_the_workspace,
    dependencies::jsonrpc_knows_nothing_of_the_protocol,
    prose::constants_state_their_unit_or_limit,
    prose::prose_uses_plain_words,
    facade::the_hub_has_few_methods,
    type_names::type_names_are_nouns,
    type_names::type_names_are_unique_in_a_crate,
];

pub(crate) fn run() -> anyhow::Result<()> {
    let files = files()?;
    let findings = check(&files);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!(
            "{} to fix",
            if findings.len() == 1 { "1 place".into() } else { format!("{} places", findings.len()) }
        );
    }
    println!("tidy: {} files, nothing to fix", files.len());
    Ok(())
}

fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings: Vec<_> = RULES.iter().flat_map(|rule| rule(files)).collect();
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

/// Returns all Rust files, documents and manifests that git tracks or would add.
pub(crate) fn files() -> anyhow::Result<Vec<SourceFile>> {
    let list = output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .context("cannot list the files that git tracks")?;
    let wanted = |path: &&str| {
        is_rust(path)
            || has_extension(path, "md")
            || Path::new(path).file_name().is_some_and(|name| name == "Cargo.toml")
    };
    let existing = list.split('\0').filter(wanted).filter(|path| root().join(path).is_file());
    existing
        .map(|path| {
            let text =
                std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))?;
            Ok(SourceFile { path: path.to_owned(), text })
        })
        .collect()
}

impl SourceFile {
    pub(crate) fn is_rust(&self) -> bool {
        is_rust(&self.path)
    }

    fn is_in_tests_folder(&self) -> bool {
        self.path.split('/').rev().skip(1).any(|folder| folder == "tests")
    }

    /// Returns the lines with their numbers.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns the lines before the unit tests.
    fn lines_before_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
    }

    fn finding(&self, line: usize, advice: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, advice: advice.into() }
    }
}

fn is_rust(path: &str) -> bool {
    has_extension(path, "rs")
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

fn rust(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|file| file.is_rust())
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings of a rule in made-up files, as `path:line`.
    pub(super) fn finding_locations(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
        let file = |&(path, text): &(&str, &str)| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let files: Vec<_> = files.iter().map(file).collect();
        rule(&files).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }

    #[test]
    fn this_checkout_is_tidy() {
        let files = files().unwrap();
        assert!(files.iter().any(|file| file.path == "xtask/src/tidy.rs"), "git must list this file");
        let findings: Vec<_> = check(&files).iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "{} to fix:\n{}", findings.len(), findings.join("\n"));
    }

    #[test]
    fn a_finding_reads_as_place_and_advice() {
        let file = SourceFile { path: "a.rs".into(), text: String::new() };
        assert_eq!(file.finding(3, "do this").to_string(), "a.rs:3: do this");
    }
}

//! `cargo xtask coverage`: line coverage of each crate, and of the groups of files that have a target.
//!
//! `cargo-llvm-cov` compiles the workspace with counters into `target/llvm-cov-target` and runs the tests. Code for tests
//! only does not count. Code that runs only in processes that are killed counts as not covered, since such a process
//! writes no counters.

mod lcov;
mod report;
mod tools;

use std::fs;

use anyhow::{Context, bail};

use self::report::Report;
use self::tools::Tools;
use crate::command::root;
use crate::{interop, postgres};

/// Counters by line, in the format of lcov; stays there for other tools.
const COUNTERS: &str = "target/coverage.lcov";

/// Runs the tests, by default all of them, and prints the coverage. The arguments select tests as for `cargo test`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let tools = Tools::install()?;
    postgres::install()?;
    let selected = if arguments.is_empty() {
        interop::install()?;
        vec!["--workspace", "--all-targets"]
    } else {
        arguments.iter().map(String::as_str).collect()
    };
    // Without counters of earlier runs.
    tools.run(&["clean", "--workspace"])?;
    let tests = tools.run(&[&["test", "--no-report", "--no-fail-fast"], &*selected].concat());
    // A killed process may leave incomplete counters, which are skipped.
    tools.run(&["report", "--failure-mode", "all", "--lcov", "--output-path", COUNTERS])?;
    let counters =
        fs::read_to_string(root().join(COUNTERS)).with_context(|| format!("cannot read {COUNTERS}"))?;
    let files = lcov::read(&counters, root())?;
    let report = Report::new(&files);
    println!("\n{report}\nlines: {COUNTERS}");
    tests.context("the figures are incomplete, since tests failed")?;
    let below = report.below_target();
    if !below.is_empty() {
        bail!("below the target: {}", below.join(", "));
    }
    Ok(())
}

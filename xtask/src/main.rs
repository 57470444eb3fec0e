//! Development tasks, run as `cargo xtask <name>`. This file parses the name; each task is a module.
//!
//! No crate depends on xtask. It runs other tools (cargo, git, the fuzz programs) from the workspace root and prints
//! each command line first.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "xtask writes to the terminal")]

mod bench;
mod ci;
mod command;
mod conformance;
mod coverage;
mod dependency_budget;
mod fuzz;
mod interop;
mod postgres;
mod prose_sample;
mod rust_source;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <name>

  test                            check the installation, then run all tests, doc tests and examples
  ci                              all checks of a change: format, lints, tidy, test, conformance
  tidy                            rules for layout, dependencies, names and words
  bench …                         cost of the SDK, compared with the official one
  interop                         install the official SDKs for the interop tests
  conformance [--server | --client] [--only SCENARIO]
                                  run the official conformance suite against our server and client
  fuzz [target] [--seconds N]     coverage-guided fuzzing, 30 seconds per target
  coverage [CARGO TEST ARGUMENTS]
                                  line coverage per crate, compared with the targets; without arguments by all tests
  prose-sample --seed N           120 random names, docs and texts, to test whether a newcomer understands them
  help                            this menu";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcome = match name.as_str() {
        "test" => test::run(),
        "ci" => ci::run(),
        "tidy" => tidy::run(),
        "bench" => bench::run(rest),
        "interop" => interop::install(),
        "conformance" => conformance::run(rest),
        "fuzz" => fuzz::run(rest),
        "coverage" => coverage::run(rest),
        "prose-sample" => prose_sample::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        unknown => {
            eprintln!("unknown task \"{unknown}\"\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask {name} failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! Every chore of the project, as `cargo xtask <name>`: this file is the menu, one module per chore does the work.
//!
//! Nothing here is part of a product: no crate depends on it, and it runs the other tools (cargo, git, the fuzz
//! programs) as a person would, from the workspace root, showing each command line first.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "xtask talks to the person at the terminal")]

mod bench;
mod ci;
mod command;
mod conformance;
mod crates;
mod fuzz;
mod interop;
mod postgres;
mod test;
mod tidy;

use std::process::ExitCode;

const MENU: &str = "\
cargo xtask <name>

  test                            install-check, then every test, doc test and example
  ci                              what decides: format, lints, tidy, test, conformance
  tidy                            layout rules: length, dates, dependency direction, module docs
  bench …                         what the SDK costs, next to the official one
  interop                         install what the peers on the official SDKs need
  conformance [--server | --client] [--only SCENARIO]
                                  the official conformance suite against our server and our client
  fuzz [target] [--seconds N]     coverage-guided fuzzing, 30 seconds a target
  help                            this menu";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprintln!("{MENU}");
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
        "help" | "--help" | "-h" => {
            println!("{MENU}");
            Ok(())
        }
        unknown => {
            eprintln!("there is no chore named \"{unknown}\"\n\n{MENU}");
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

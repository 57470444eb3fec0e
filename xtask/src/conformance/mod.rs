//! `cargo xtask conformance`: the official conformance suite against our server, alone and behind the gateway of the hub,
//! and against our client.
//!
//! Runs every scenario that the suite lists, for each of its revisions. A warning is a failure, and so is a skipped
//! check, unless `conformance/exceptions.json` gives a reason. The suite defines the scenarios; `conformance/src`
//! contains our programs.

mod exceptions;
mod outcome;
mod process;
mod runs;
mod suite;
mod table;

use std::time::Instant;

use anyhow::bail;

use self::exceptions::Exceptions;
use self::outcome::Outcome;
use self::suite::{Scenario, Side, Suite};
use crate::command::cargo;

/// Scenarios to run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    only: Option<String>,
    side: Option<Side>,
}

impl Options {
    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Options::default();
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            match (argument, options.side) {
                ("--only", _) => match arguments.next() {
                    Some(name) => options.only = Some(name.to_owned()),
                    None => bail!("--only needs the name of a scenario"),
                },
                ("--server", None) => options.side = Some(Side::Server),
                ("--gateway", None) => options.side = Some(Side::Gateway),
                ("--client", None) => options.side = Some(Side::Client),
                _ => bail!(
                    "usage: cargo xtask conformance [--server | --gateway | --client] [--only SCENARIO]"
                ),
            }
        }
        Ok(options)
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        self.side.is_none_or(|side| side == scenario.side)
            && self.only.as_ref().is_none_or(|only| *only == scenario.name)
    }
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(arguments)?;
    let suite = Suite::install()?;
    cargo(&["build", "--package", "conformance"])?;
    cargo(&["build", "--package", "linchpin-hub-gateway", "--example", "conformance_gateway"])?;
    let begun = Instant::now();
    let mut scenarios = suite.list()?;
    let behind_gateway = scenarios.iter().filter(|scenario| scenario.side == Side::Server);
    let behind_gateway: Vec<_> =
        behind_gateway.map(|scenario| Scenario { side: Side::Gateway, ..scenario.clone() }).collect();
    scenarios.extend(behind_gateway);
    scenarios.retain(|scenario| options.wants(scenario));
    if scenarios.is_empty() {
        bail!("unknown scenario: `{} list` shows all", suite.command_line());
    }
    let exceptions = Exceptions::read()?;
    let runs = runs::all(&suite, &scenarios, &exceptions, options.only.is_some())?;
    print!("{}", table::show(&scenarios, &runs));
    let count = |wanted: fn(&Outcome) -> bool| runs.iter().filter(|run| wanted(&run.outcome)).count();
    let passed = count(|outcome| matches!(outcome, Outcome::Passed));
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    println!("\n{} scenarios in {:.1} s", runs.len(), begun.elapsed().as_secs_f64());
    println!("conformance: {passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        bail!(
            "{failed} of {} failed: see the output of the suite in {}",
            runs.len(),
            suite.results().display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> anyhow::Result<Options> {
        Options::parse(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_choose_a_side_and_a_scenario() {
        assert_eq!(parse(&[]).unwrap(), Options::default());
        let options = parse(&["--client", "--only", "initialize"]).unwrap();
        assert_eq!(options, Options { only: Some("initialize".into()), side: Some(Side::Client) });
        let scenario = |name: &str, side| Scenario { name: name.into(), side, revisions: Vec::new() };
        assert!(options.wants(&scenario("initialize", Side::Client)));
        assert!(!options.wants(&scenario("initialize", Side::Server)));
        assert!(!options.wants(&scenario("tools_call", Side::Client)));
        for wrong in [&["--only"][..], &["--all"], &["--server", "--client"], &["initialize"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}

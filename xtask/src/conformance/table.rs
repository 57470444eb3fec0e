//! Report for the terminal: one line per scenario, one column per revision, and the reasons for failures and skips.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::outcome::{Outcome, Run};
use super::suite::Scenario;

pub(super) fn show(scenarios: &[Scenario], runs: &[Run]) -> String {
    let revisions: BTreeSet<&str> = runs.iter().map(|run| &*run.revision).collect();
    let widest = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or_default().max(8);
    let mut out = format!("\n{:<8}{:<widest$}", "side", "scenario");
    for revision in &revisions {
        let _ = write!(out, "  {revision:<10}"); // writing to a String cannot fail
    }
    out.push('\n');
    for scenario in scenarios {
        let _ = write!(out, "{:<8}{:<widest$}", scenario.side.word(), scenario.name);
        for revision in &revisions {
            let run = runs.iter().find(|run| is_of(run, scenario) && run.revision == **revision);
            let _ = write!(out, "  {:<10}", run.map_or(String::new(), cell));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out + &skipped(runs) + &run_again(runs) + &failed(runs)
}

fn is_of(run: &Run, scenario: &Scenario) -> bool {
    run.side == scenario.side && run.scenario == scenario.name
}

fn cell(run: &Run) -> String {
    let passed = run.checks.iter().filter(|check| check.status == "SUCCESS").count();
    match &run.outcome {
        Outcome::Passed => format!("ok {passed}"),
        Outcome::Failed(faults) => format!("FAILED {}", faults.len()),
        Outcome::Skipped(_) => "skipped".into(),
    }
}

/// Lists the skipped scenarios, grouped by reason.
fn skipped(runs: &[Run]) -> String {
    let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for run in runs {
        if let Outcome::Skipped(why) = &run.outcome {
            reasons.entry(why).or_default().insert(&run.scenario);
        }
    }
    let mut out = String::new();
    for (why, scenarios) in reasons {
        let names: Vec<_> = scenarios.into_iter().collect();
        let _ = write!(out, "\nskipped, {why}:\n  {}\n", names.join(", "));
    }
    out
}

/// Lists the scenarios that were run again, with their first failures.
fn run_again(runs: &[Run]) -> String {
    let again: Vec<_> = runs.iter().filter(|run| run.first_outcome.is_some()).collect();
    let mut out = if again.is_empty() { String::new() } else { format!("\n{} run again\n", again.len()) };
    for run in again {
        let _ = writeln!(out, "at first {}", named(run));
        out += &run.first_outcome.as_ref().map(faults).unwrap_or_default();
    }
    out
}

fn failed(runs: &[Run]) -> String {
    let mut out = String::new();
    for run in runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed(_))) {
        let _ = writeln!(out, "\nFAILED {}", named(run));
        out += &faults(&run.outcome);
    }
    out
}

fn named(run: &Run) -> String {
    format!("{} {} {}", run.side.word(), run.scenario, run.revision)
}

/// Formats each failure on its own line.
fn faults(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(faults) => format!("  {}\n", faults.join("\n  ")),
        Outcome::Passed | Outcome::Skipped(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::check;
    use super::super::suite::Side;
    use super::*;

    #[test]
    fn each_scenario_has_a_line_and_each_reason_is_said_once() {
        let scenario = |name: &str| Scenario { name: name.into(), side: Side::Server, revisions: Vec::new() };
        let run = |name: &str, revision: &str, status: &str| {
            Run::new(
                name,
                Side::Server,
                revision,
                vec![check("Name", "SUCCESS"), check("Name", status)],
                true,
            )
        };
        let skipped = |name: &str| {
            let outcome = Outcome::Skipped("it is early".into());
            Run { outcome, ..run(name, "two", "SKIPPED") }
        };
        let runs = [
            run("ping", "one", "SUCCESS").replacing(&run("ping", "one", "FAILURE")),
            run("ping", "two", "WARNING"),
            skipped("auth/a"),
            skipped("auth/b"),
        ];
        let expected = "\n\
            side    scenario  one         two       \n\
            server  ping      ok 2        FAILED 1\n\
            server  auth/a                skipped\n\
            server  auth/b                skipped\n\
            \nskipped, it is early:\n  auth/a, auth/b\n\
            \n1 run again\nat first server ping one\n  FAILURE id (Name): why\n\
            \nFAILED server ping two\n  WARNING id (Name): why\n";
        assert_eq!(show(&[scenario("ping"), scenario("auth/a"), scenario("auth/b")], &runs), expected);
    }
}

//! Outcome of one scenario run, computed from the checks that the suite wrote.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::suite::Side;

/// Run of a scenario.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) scenario: String,
    pub(super) side: Side,
    pub(super) revision: String,
    pub(super) checks: Vec<Check>,
    /// Whether the program under test, or the suite, exited successfully.
    pub(super) exited_successfully: bool,
    pub(super) outcome: Outcome,
    /// Outcome of the first run, if the scenario was run again.
    pub(super) first_outcome: Option<Outcome>,
}

/// Outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The reasons.
    Failed(Vec<String>),
    /// The reason given by the exception.
    Skipped(String),
}

impl Outcome {
    /// Computes the outcome of the checks. A skipped check is a failure unless an exception permits it.
    pub(super) fn of(checks: &[Check], ended_well: bool) -> Self {
        let bad = |check: &&Check| !matches!(&*check.status, "SUCCESS" | "INFO");
        let mut faults: Vec<String> = checks.iter().filter(bad).map(Check::text).collect();
        if !checks.iter().any(|check| check.status != "INFO") {
            faults.push("no checks were run".into());
        }
        if !ended_well && faults.is_empty() {
            faults.push("the program under test failed".into());
        }
        if faults.is_empty() { Outcome::Passed } else { Outcome::Failed(faults) }
    }
}

/// One check of the suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) status: String,
    pub(super) message: String,
}

impl Check {
    fn text(&self) -> String {
        let message = if self.message.is_empty() { "" } else { ": " };
        format!("{} {} ({}){message}{}", self.status, self.id, self.name, self.message)
    }

    pub(super) fn was_skipped(&self) -> bool {
        self.status == "SKIPPED"
    }
}

/// Reads a file of checks.
pub(super) fn read_checks(file: &Path) -> anyhow::Result<Vec<Check>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let checks: Vec<Value> =
        serde_json::from_str(&text).with_context(|| format!("{} is not a list of checks", file.display()))?;
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let check = |check: &Value| Check {
        id: text(check, "id"),
        name: text(check, "name"),
        status: text(check, "status"),
        message: text(check, "errorMessage"),
    };
    Ok(checks.iter().map(check).collect())
}

impl Run {
    /// Creates a run from its checks.
    pub(super) fn new(
        scenario: &str,
        side: Side,
        revision: &str,
        checks: Vec<Check>,
        exited_successfully: bool,
    ) -> Self {
        let outcome = Outcome::of(&checks, exited_successfully);
        let (scenario, revision) = (scenario.to_owned(), revision.to_owned());
        Run { scenario, side, revision, checks, exited_successfully, outcome, first_outcome: None }
    }

    /// Returns whether it may have failed only because of parallel runs: client scenarios measure time.
    pub(super) fn may_be_timing_failure(&self) -> bool {
        self.side == Side::Client && matches!(self.outcome, Outcome::Failed(_))
    }

    /// Replaces `first`, the failed first run.
    pub(super) fn replacing(self, first: &Run) -> Self {
        Run { first_outcome: Some(first.outcome.clone()), ..self }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn check(name: &str, status: &str) -> Check {
        Check { id: "id".into(), name: name.into(), status: status.into(), message: "why".into() }
    }

    fn run(statuses: &[&str], ended_well: bool) -> Outcome {
        let checks = statuses.iter().map(|status| check("Name", status)).collect();
        Run::new("ping", Side::Server, "one", checks, ended_well).outcome
    }

    #[test]
    fn only_success_passes() {
        assert_eq!(run(&["SUCCESS", "INFO", "SUCCESS"], true), Outcome::Passed);
        for status in ["FAILURE", "WARNING", "SKIPPED", "NEW"] {
            let expected = Outcome::Failed(vec![format!("{status} id (Name): why")]);
            assert_eq!(run(&["SUCCESS", status], true), expected);
        }
        assert_eq!(run(&["INFO"], true), Outcome::Failed(vec!["no checks were run".into()]));
        let died = Outcome::Failed(vec!["the program under test failed".into()]);
        assert_eq!(run(&["SUCCESS"], false), died);
    }

    #[test]
    fn only_clients_are_given_another_chance() {
        let run = |side, status| Run::new("ping", side, "one", vec![check("Name", status)], true);
        assert!(run(Side::Client, "FAILURE").may_be_timing_failure());
        assert!(!run(Side::Client, "SUCCESS").may_be_timing_failure());
        assert!(!run(Side::Server, "FAILURE").may_be_timing_failure());
    }
}

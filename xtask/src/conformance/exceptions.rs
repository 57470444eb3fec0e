//! Permitted skips, with reasons, from `conformance/exceptions.json`. An exception that is not needed is a failure, so
//! that the list stays correct.

use std::fs;

use anyhow::Context;
use serde_json::Value;

use super::outcome::{Outcome, Run};
use crate::command::root;

#[derive(Debug)]
pub(super) struct Exceptions(Vec<Exception>);

#[derive(Debug)]
struct Exception {
    scenario: String,
    /// Side that the exception is for: with `gateway` the whole scenario is expected to fail there. Default: a skip on
    /// every side.
    side: Option<String>,
    /// Names of the skipped checks; empty for all.
    checks: Vec<String>,
    reason: String,
}

impl Exceptions {
    pub(super) fn read() -> anyhow::Result<Self> {
        let file = root().join("conformance/exceptions.json");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("invalid {}", file.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let entries: Vec<Value> = serde_json::from_str(text)?;
        let exception = |entry: &Value| {
            let text = |key: &str| entry[key].as_str().map(str::to_owned);
            let checks = entry["checks"].as_array().into_iter().flatten();
            Some(Exception {
                scenario: text("scenario")?,
                side: text("side"),
                checks: checks.map(|check| check.as_str().map(str::to_owned)).collect::<Option<_>>()?,
                reason: text("reason")?,
            })
        };
        let all = entries.iter().map(|entry| {
            exception(entry)
                .with_context(|| format!("an exception must have a scenario and a reason: {entry}"))
        });
        Ok(Exceptions(all.collect::<anyhow::Result<_>>()?))
    }

    /// Applies the exceptions of a run's scenario to its outcome.
    pub(super) fn apply(&self, run: &mut Run) {
        let of_side = |side: Option<&str>| {
            self.0
                .iter()
                .find(|exception| exception.scenario == run.scenario && exception.side.as_deref() == side)
        };
        if let Some(exception) = of_side(Some(run.side.word())) {
            run.outcome = match &run.outcome {
                Outcome::Passed => Outcome::Failed(vec![
                    "the scenario passed: remove the exception from conformance/exceptions.json".to_owned(),
                ]),
                _ => Outcome::Skipped(exception.reason.clone()),
            };
            return;
        }
        let Some(exception) = of_side(None) else { return };
        let excepted = |name: &String| exception.checks.is_empty() || exception.checks.contains(name);
        let (skipped, others): (Vec<_>, Vec<_>) =
            run.checks.iter().cloned().partition(|check| check.was_skipped() && excepted(&check.name));
        run.outcome = if skipped.is_empty() {
            let stale =
                "no check was skipped: remove the exception from conformance/exceptions.json".to_owned();
            match Outcome::of(&run.checks, run.exited_successfully) {
                Outcome::Failed(faults) => Outcome::Failed(faults.into_iter().chain([stale]).collect()),
                _ => Outcome::Failed(vec![stale]),
            }
        } else if run.exited_successfully && others.iter().all(|check| check.status == "INFO") {
            Outcome::Skipped(exception.reason.clone())
        } else {
            Outcome::of(&others, run.exited_successfully)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::check;
    use super::super::suite::Side;
    use super::*;

    fn judged(scenario: &str, checks: &[(&str, &str)]) -> Outcome {
        judged_on(Side::Server, scenario, checks)
    }

    fn judged_on(side: Side, scenario: &str, checks: &[(&str, &str)]) -> Outcome {
        let exceptions = r#"[
            {"scenario": "never", "reason": "the suite does so"},
            {"scenario": "part", "checks": ["Old"], "reason": "it is old"},
            {"scenario": "own", "side": "gateway", "reason": "it is translated"}
        ]"#;
        let exceptions = Exceptions::parse(exceptions).unwrap();
        let checks = checks.iter().map(|(name, status)| check(name, status)).collect();
        let mut run = Run::new(scenario, side, "one", checks, true);
        exceptions.apply(&mut run);
        run.outcome
    }

    #[test]
    fn what_is_excepted_is_no_failure_and_the_rest_is() {
        assert_eq!(judged("never", &[("A", "SKIPPED")]), Outcome::Skipped("the suite does so".into()));
        assert_eq!(judged("part", &[("Old", "SKIPPED"), ("New", "SUCCESS")]), Outcome::Passed);
        let failed = |outcome| matches!(outcome, Outcome::Failed(_));
        assert!(failed(judged("part", &[("Old", "SKIPPED"), ("New", "SKIPPED"), ("A", "SUCCESS")])));
        assert!(failed(judged("part", &[("Old", "SKIPPED"), ("New", "WARNING")])));
        assert!(failed(judged("other", &[("Old", "SKIPPED")])));
    }

    #[test]
    fn an_exception_that_is_none_any_more_is_a_failure() {
        let stale = "no check was skipped: remove the exception from conformance/exceptions.json";
        assert_eq!(judged("never", &[("A", "SUCCESS")]), Outcome::Failed(vec![stale.into()]));
        assert_eq!(judged("part", &[("Old", "SUCCESS")]), Outcome::Failed(vec![stale.into()]));
    }

    #[test]
    fn an_exception_of_one_side_is_for_a_scenario_that_fails_there() {
        let excepted = Outcome::Skipped("it is translated".into());
        assert_eq!(judged_on(Side::Gateway, "own", &[("A", "FAILURE")]), excepted);
        assert!(matches!(judged_on(Side::Gateway, "own", &[("A", "SUCCESS")]), Outcome::Failed(_)));
        assert!(matches!(judged_on(Side::Server, "own", &[("A", "FAILURE")]), Outcome::Failed(_)));
    }

    #[test]
    fn the_list_of_exceptions_can_be_read() {
        assert!(!Exceptions::read().unwrap().0.is_empty());
        for wrong in ["{}", r#"[{"scenario": "a"}]"#, r#"[{"scenario": "a", "reason": "b", "checks": [1]}]"#]
        {
            assert!(Exceptions::parse(wrong).is_err(), "{wrong}");
        }
    }
}

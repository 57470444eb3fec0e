//! Targets from `bench/targets.json`: by table and workload, the limit (`must`) and the goal of our figure.

use std::fs;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::command;

const FILE: &str = "bench/targets.json";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) must: f64,
    pub(super) goal: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Targets(Vec<(String, String, Target)>);

impl Targets {
    /// Reads the targets. Fails on a target for a workload that is not measured, since it would never be checked.
    pub(super) fn read(known: &[(&str, Vec<String>)]) -> anyhow::Result<Self> {
        let text = fs::read_to_string(command::root().join(FILE)).context(FILE)?;
        Self::parse(&text, known).context(FILE)
    }

    fn parse(text: &str, known: &[(&str, Vec<String>)]) -> anyhow::Result<Self> {
        let tables: Value = serde_json::from_str(text)?;
        let mut targets = Vec::new();
        for (table, workloads) in tables.as_object().context("not an object")? {
            let measured = known.iter().find(|(name, _)| name == table);
            let (_, measured) = measured.with_context(|| format!("unknown table {table}"))?;
            for (workload, target) in
                workloads.as_object().with_context(|| format!("{table}: not an object"))?
            {
                ensure!(measured.contains(workload), "{table}: {workload} is not measured");
                let must =
                    target["must"].as_f64().with_context(|| format!("{table}: {workload}: no \"must\""))?;
                let target = Target { must, goal: target["goal"].as_f64() };
                targets.push((table.clone(), workload.clone(), target));
            }
        }
        Ok(Self(targets))
    }

    pub(super) fn find(&self, table: &str, workload: &str) -> Option<Target> {
        let found = self.0.iter().find(|(t, w, _)| t == table && w == workload);
        found.map(|(_, _, target)| *target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_must_be_whole_and_for_something_that_is_measured() {
        let known = [("instructions", vec!["ping".to_owned()])];
        let parse = |text| Targets::parse(text, &known).map_err(|error| error.to_string());
        let targets = parse(r#"{"instructions": {"ping": {"must": 6000}}}"#).unwrap();
        assert_eq!(targets.find("instructions", "ping"), Some(Target { must: 6000.0, goal: None }));
        assert_eq!(targets.find("instructions", "pong"), None);
        for (text, expected) in [
            (r#"{"instructions": {"pong": {"must": 1}}}"#, "instructions: pong is not measured"),
            (r#"{"instructions": {"ping": {"goal": 1}}}"#, "instructions: ping: no \"must\""),
            (r#"{"seconds": {}}"#, "unknown table seconds"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}

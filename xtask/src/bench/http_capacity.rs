//! Capacity of our HTTP server: `bench-http-capacity` opens sessions, streams or slow connections and reports their cost. There
//! is no comparison with other SDKs: the figures are checked against the limits of our server.

use anyhow::Context;
use serde_json::Value;

use super::client::RunningServer;
use super::load_generator;
use super::peer::{Failures, Peer, PerPeer};
use super::table::{Row, Table, TargetMetric};
use super::targets::Targets;
use crate::command;

/// Raises the open-file limit of server and load generator: three quarters of it, the connections that a listener accepts,
/// must exceed the number of streams.
const RAISE_FILE_LIMIT: &str = "ulimit -n 16000 &&";

/// One run of `bench-http-capacity`.
struct CapacityRun {
    what: &'static str,
    count: u32,
    /// Row name and report field of each figure.
    figures: &'static [(&'static str, &'static str)],
}

const CAPACITY_RUNS: [CapacityRun; 3] = [
    CapacityRun {
        what: "sessions",
        count: 2_000,
        figures: &[("sessions, bytes each", "bytes_each"), ("sessions, % after", "percent_after")],
    },
    CapacityRun { what: "streams", count: 10_000, figures: &[("streams, MB", "megabytes")] },
    CapacityRun { what: "slow", count: 2_000, figures: &[("slow, s", "seconds")] },
];

/// Returns the rows that may have a target.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CAPACITY_RUNS.iter().flat_map(|crowd| crowd.figures).map(|(name, _)| *name)
}

pub(super) fn measure(wants: impl Fn(&str) -> bool, targets: &Targets, failures: &mut Failures) -> Table {
    let mut table = Table::new("HTTP capacity", 1, TargetMetric::Figure);
    for CapacityRun { what, count, figures } in CAPACITY_RUNS {
        if !figures.iter().any(|(name, _)| wants(name)) {
            continue;
        }
        eprintln!("measuring: {count} {what}");
        let report = failures.record(Peer::Ours, what, run(what, count));
        for (name, member) in figures.iter().filter(|(name, _)| wants(name)) {
            let figure = report.as_ref().map(|report| load_generator::figure(report, member));
            let mut row = PerPeer::default();
            row.set(Peer::Ours, figure.and_then(|figure| failures.record(Peer::Ours, name, figure)));
            let target = targets.find("crowds", name);
            table.rows.push(Row { workload: (*name).to_owned(), figures: row, target });
        }
    }
    table
}

fn run(what: &str, count: u32) -> anyhow::Result<Value> {
    let server = RunningServer::start(RAISE_FILE_LIMIT)?;
    let address = server.url.trim_start_matches("http://").trim_end_matches("/mcp");
    let line = format!(
        "{RAISE_FILE_LIMIT} exec target/release/bench-http-capacity {what} {count} {address} {}",
        server.id()
    );
    let report = command::output("sh", &["-c", &line])?;
    let figures = report.lines().last().context("bench-http-capacity printed nothing")?;
    serde_json::from_str(figures).context("invalid report of bench-http-capacity")
}

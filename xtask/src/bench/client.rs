//! Instructions per call of a client, counted as those of a server are: two runs of different length, subtracted.
//!
//! The server is the one that costs least, and nothing of it is counted. It waits a moment before each answer: whether
//! an answer is there before the client looks for it would otherwise be chance, and cost two thousand instructions or
//! not.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::instructions::{self, Lengths};
use super::peer::Peer;
use crate::command;

pub(super) const STATELESS: &str = "call:64";
pub(super) const SESSION: &str = "call:64 session";
pub(super) const WORKLOADS: [Lengths; 2] = [
    Lengths { workload: STATELESS, short: 200, long: 1200 },
    Lengths { workload: SESSION, short: 200, long: 1200 },
];
/// Those who have a client.
pub(super) const PEERS: [Peer; 2] = [Peer::Ours, Peer::Rmcp];

/// Instructions per call.
pub(super) fn per_call(peer: Peer, lengths: &Lengths) -> anyhow::Result<f64> {
    instructions::difference(&profiles(peer, lengths)?, lengths)
}

/// The callgrind files of the short and of the long run.
pub(super) fn profiles(peer: Peer, lengths: &Lengths) -> anyhow::Result<[String; 2]> {
    let run = |count| profile(peer, lengths.workload, count);
    Ok([run(lengths.short)?, run(lengths.long)?])
}

fn profile(peer: Peer, workload: &str, count: u32) -> anyhow::Result<String> {
    let client = peer.client().with_context(|| format!("{} has no client", peer.name()))?;
    let path = instructions::path(peer, workload, count);
    let (out, calls) = (instructions::prepare(&path)?, count.to_string());
    let mut arguments = vec!["--tool=callgrind", &out, "-q", client, "stdio", &calls, "1", "64"];
    let mut server = vec!["--", "target/peers/release/raw-limit", "stdio", "--pause", "1"];
    if workload == SESSION {
        arguments.push("--session");
    } else {
        server.push("--stateless");
    }
    arguments.extend(server);
    let report = command::output("valgrind", &arguments)?;
    let report: Value = serde_json::from_str(report.trim()).context("the client's report")?;
    ensure!(
        report["calls"] == count && report["errors"] == 0,
        "not every call was answered rightly: {report}"
    );
    instructions::read(&path)
}

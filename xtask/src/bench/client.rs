//! Instructions per call of a client, counted as those of a server are: two runs of different length, subtracted.
//!
//! The server is the one that costs least, over HTTP ours, and nothing of it is counted. On stdio it waits a moment before each answer: whether
//! an answer is there before the client looks for it would otherwise be chance, and cost two thousand instructions or
//! not.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::instructions::{self, Lengths};
use super::peer::Peer;
use crate::command;

const SESSION: &str = " session";
const HTTP: &str = "http ";
pub(super) const WORKLOADS: [Lengths; 4] = [
    Lengths { workload: "call:64", short: 200, long: 1200 },
    Lengths { workload: "call:64 session", short: 200, long: 1200 },
    Lengths { workload: "http call:64", short: 200, long: 1200 },
    Lengths { workload: "http call:64 session", short: 200, long: 1200 },
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
    let is_session = workload.ends_with(SESSION);
    let server = workload.starts_with(HTTP).then(|| Served::start("")).transpose()?;
    let transport = if server.is_some() { "http" } else { "stdio" };
    let mut arguments = vec!["--tool=callgrind", &out, "-q", client, transport, &calls, "1", "64"];
    if is_session {
        arguments.push("--session");
    }
    if let Some(server) = &server {
        arguments.push(&server.url);
    } else {
        arguments.extend(["--", "target/peers/release/raw-limit", "stdio", "--pause", "1"]);
        arguments.extend((!is_session).then_some("--stateless"));
    }
    let report = command::output("valgrind", &arguments)?;
    let report: Value = serde_json::from_str(report.trim()).context("the client's report")?;
    ensure!(
        report["calls"] == count && report["errors"] == 0,
        "not every call was answered rightly: {report}"
    );
    instructions::read(&path)
}

/// Our server over HTTP, for clients of anybody, until this is dropped.
pub(super) struct Served {
    child: Child,
    pub(super) url: String,
}

impl Served {
    /// Starts it, after what the shell is to do before.
    pub(super) fn start(before: &str) -> anyhow::Result<Self> {
        let line = format!("{before} exec target/release/bench-server http --port 0");
        let mut command = Command::new("sh");
        command.current_dir(command::root()).args(["-c", &line]).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the server")?;
        let mut url = String::new();
        let stdout = child.stdout.take().context("the server has no output")?;
        BufReader::new(stdout).read_line(&mut url).context("the server does not say where it is")?;
        Ok(Served { child, url: url.trim().to_owned() })
    }

    /// Its process, in whose place the shell has put it.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

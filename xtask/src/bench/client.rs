//! Instructions per client call, counted like those of a server: the difference of two runs of different length.
//!
//! The server is raw on stdio and ours over HTTP; its instructions are not counted. On stdio it pauses before each
//! response. Otherwise it would be chance whether the response arrives before the client reads, a difference of two
//! thousand instructions.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::instructions::{self, RunLengths};
use super::peer::Peer;
use crate::command;

const SESSION: &str = " session";
const HTTP: &str = "http ";
pub(super) const WORKLOADS: [RunLengths; 4] = [
    RunLengths { workload: "call:64", short: 200, long: 1200 },
    RunLengths { workload: "call:64 session", short: 200, long: 1200 },
    RunLengths { workload: "http call:64", short: 200, long: 1200 },
    RunLengths { workload: "http call:64 session", short: 200, long: 1200 },
];
/// Peers that have a client.
pub(super) const PEERS: [Peer; 2] = [Peer::Ours, Peer::Rmcp];

/// Returns the instructions per call.
pub(super) fn per_call(peer: Peer, lengths: &RunLengths) -> anyhow::Result<f64> {
    instructions::difference(&profiles(peer, lengths)?, lengths)
}

/// Returns the callgrind files of the short and the long run.
pub(super) fn profiles(peer: Peer, lengths: &RunLengths) -> anyhow::Result<[String; 2]> {
    let run = |count| profile(peer, lengths.workload, count);
    Ok([run(lengths.short)?, run(lengths.long)?])
}

fn profile(peer: Peer, workload: &str, count: u32) -> anyhow::Result<String> {
    let client = peer.client().with_context(|| format!("{} has no client", peer.name()))?;
    let path = instructions::path(peer, workload, count);
    let (out, calls) = (instructions::prepare(&path)?, count.to_string());
    let is_session = workload.ends_with(SESSION);
    let server = workload.starts_with(HTTP).then(|| RunningServer::start("")).transpose()?;
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
    ensure!(report["calls"] == count && report["errors"] == 0, "some calls failed: {report}");
    instructions::read(&path)
}

/// Running instance of our server over HTTP; killed on drop.
pub(super) struct RunningServer {
    child: Child,
    pub(super) url: String,
}

impl RunningServer {
    /// Starts the server from a shell, after the shell command `before`.
    pub(super) fn start(before: &str) -> anyhow::Result<Self> {
        let line = format!("{before} exec target/release/bench-server http --port 0");
        let mut command = Command::new("sh");
        command.current_dir(command::root()).args(["-c", &line]).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the server")?;
        let mut url = String::new();
        let stdout = child.stdout.take().context("the server has no output")?;
        BufReader::new(stdout).read_line(&mut url).context("the server did not print its URL")?;
        Ok(RunningServer { child, url: url.trim().to_owned() })
    }

    /// Returns the process id; the shell has replaced itself with the server (`exec`).
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails if it has already exited
        let _ = self.child.wait();
    }
}

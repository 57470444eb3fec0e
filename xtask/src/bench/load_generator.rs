//! Runs of the load generator (`bench/peers/mcp-load`), which starts the server, validates every response and prints
//! one line of JSON.

use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::peer::{LOAD_GENERATOR, Peer, PeerTransport};
use crate::command;

/// Load to generate. The prefix of the workload's name selects the transport.
pub(super) struct Load<'a> {
    pub(super) workload: &'a str,
    pub(super) count: u32,
    /// Requests in flight; over HTTP, connections.
    pub(super) depth: u32,
    /// Requests before the measurement. Default: a tenth of `count`.
    pub(super) warmup: Option<u32>,
    pub(super) max_secs: u32,
}

/// Runs the load against a peer whose command is prefixed with `wrapper`. Fails if the server fails or any response is
/// wrong.
pub(super) fn run(load: &Load<'_>, peer: Peer, wrapper: &[&str]) -> anyhow::Result<Value> {
    let (way, workload) = PeerTransport::of(load.workload);
    let (port, depth) = (free_port()?, load.depth.to_string());
    let mut command = Command::new(LOAD_GENERATOR);
    command.current_dir(command::root());
    match way {
        PeerTransport::Stdio => command.args(["--stdio", "--depth", &depth]),
        PeerTransport::Session | PeerTransport::Stateless => {
            let proto = if way == PeerTransport::Session { "session" } else { "2026" };
            let url = format!("http://127.0.0.1:{port}/mcp");
            command.args(["--url", &url, "--proto", proto, "--conns", &depth])
        }
    };
    command.args(["--max-secs", &load.max_secs.to_string()]);
    command.args(["--workload", &format!("{workload}@{}", load.count)]);
    if let Some(warmup) = load.warmup {
        command.args(["--warmup", &warmup.to_string()]);
    }
    command.arg("--").args(wrapper).args(peer.command(way, &port));
    let output = command.output().with_context(|| format!("cannot start {LOAD_GENERATOR}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("the load generator failed: {}", stderr.trim());
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let report = stdout.lines().last().context("the load generator printed nothing")?;
    let report: Value = serde_json::from_str(report).context("invalid report of the load generator")?;
    let errors = report["errors"].as_u64().context("the report has no error count")?;
    if errors > 0 {
        let first = report["first_error"].as_str().unwrap_or("unknown");
        bail!("{errors} wrong responses, the first: {first}");
    }
    Ok(report)
}

/// Returns a TCP port that is currently free.
pub(super) fn free_port() -> anyhow::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port().to_string())
}

/// Returns one number of the report.
pub(super) fn figure(report: &Value, name: &str) -> anyhow::Result<f64> {
    report[name].as_f64().with_context(|| format!("the report has no {name}"))
}

//! One run of the load generator (`bench/peers/mcp-load`): it starts the server, validates every answer and prints
//! one line of JSON.

use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::peer::{LOAD_GENERATOR, Peer, Way};
use crate::command;

/// What is asked of the server, in the way that the workload names.
pub(super) struct Load<'a> {
    pub(super) workload: &'a str,
    pub(super) count: u32,
    /// Requests in flight; connections, over HTTP.
    pub(super) depth: u32,
    /// Requests before the measured ones; a tenth of them unless told.
    pub(super) warmup: Option<u32>,
    pub(super) max_secs: u32,
}

/// Runs the load against a peer, which is started with `wrapper` before its command. Fails when the server did, or
/// gave one wrong answer.
pub(super) fn run(load: &Load<'_>, peer: Peer, wrapper: &[&str]) -> anyhow::Result<Value> {
    let (way, workload) = Way::of(load.workload);
    let (port, depth) = (free_port()?, load.depth.to_string());
    let mut command = Command::new(LOAD_GENERATOR);
    command.current_dir(command::root());
    match way {
        Way::Stdio => command.args(["--stdio", "--depth", &depth]),
        Way::Session | Way::Stateless => {
            let proto = if way == Way::Session { "session" } else { "2026" };
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
        bail!("the load generator gave up: {}", stderr.trim());
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let report = stdout.lines().last().context("the load generator printed nothing")?;
    let report: Value = serde_json::from_str(report).context("the load generator's report")?;
    let errors = report["errors"].as_u64().context("the report has no count of errors")?;
    if errors > 0 {
        let first = report["first_error"].as_str().unwrap_or("not told");
        bail!("{errors} wrong answers, the first: {first}");
    }
    Ok(report)
}

/// A port that nobody listens at now.
pub(super) fn free_port() -> anyhow::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port().to_string())
}

/// One number of the report.
pub(super) fn figure(report: &Value, name: &str) -> anyhow::Result<f64> {
    report[name].as_f64().with_context(|| format!("the report has no {name}"))
}

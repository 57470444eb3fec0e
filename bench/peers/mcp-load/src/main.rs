//! Load generator that sends hand-written MCP messages (no SDK) to any server, validates every response and prints one
//! JSON line per measurement.
//!
//! ```text
//! mcp-load --stdio [options] -- SERVER ARGS…
//! mcp-load --url http://127.0.0.1:PORT/mcp [options] [-- SERVER ARGS…]
//! mcp-load --url … --pid PID [options]          (server already running)
//!
//! --workload LIST   comma-separated: echo:SIZE, add, list, ping, session,
//!                   idle, idle-get, startup; each may end in @N (its count)
//! --proto P         session (2025-11-25, initialize + Mcp-Session-Id, default)
//!                   | stateless (2025-11-25, no session) | 2026 (2026-07-28, no initialize)
//! --conns C         connections (stdio: server processes)      [1]
//! --depth D         requests in flight per stdio connection     [1]
//! --n N             requests per measurement                    [2000]
//! --warmup W        requests before measuring                   [N/10]
//! --max-secs S      stop a measurement after S seconds          [60]
//! --validate V      full | id                                   [full]
//! --tools T         tools that tools/list must return           [52]
//! --label L         copied to the output
//! ```
//!
//! Server CPU comes from the process CPU clock (ns), user and system time from `/proc/PID/stat`, peak memory from
//! `VmHWM` (reset before every workload). The load generator is single-threaded: the server needs the other core.

mod child;
mod http;
mod options;
mod report;
mod sessions;
mod startup;
mod stdio;
mod workload;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use tokio::{process::Child, runtime::Builder, task::LocalSet};

use crate::{options::Options, workload::Workload};

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run(&options))
}

async fn run(options: &Options) -> Result<()> {
    let mut server: Option<(Child, u32)> = None;
    let mut next_id: u64 = 1;
    for workload in &options.workloads {
        let (name, count) = match workload.split_once('@') {
            Some((name, count)) => (name, count.parse()?),
            None => (workload.as_str(), options.count),
        };
        if name == "startup" {
            if let Some((child, pid)) = server.take() {
                child::end(child, pid, true).await;
            }
            println!("{}", startup::measure(options, count.min(50)).await?);
            continue;
        }
        let pid = if options.stdio { 0 } else { find_server(options, &mut server).await? };
        let until = Instant::now() + Duration::from_secs(options.max_secs);
        let report = match (name, Workload::parse(name)) {
            (_, Some(work)) if options.stdio => {
                stdio::measure(options, name, &work, count, &mut next_id, until).await?
            }
            (_, Some(work)) => http::measure(options, name, &work, count, &mut next_id, (pid, until)).await?,
            ("session" | "idle" | "idle-get", _) if options.stdio => {
                bail!("{name} requires HTTP: use startup for stdio")
            }
            ("session", _) => sessions::open_and_close(options, count, pid, until).await?,
            ("idle", _) => sessions::idle(options, false, count, pid, until).await?,
            ("idle-get", _) => sessions::idle(options, true, count, pid, until).await?,
            _ => bail!("unknown workload {name}"),
        };
        println!("{report}");
    }
    if let Some((child, pid)) = server {
        child::end(child, pid, true).await;
    }
    Ok(())
}

/// Returns the process id of the HTTP server: from the options, of the server started before, or of a new one; 0 if the
/// server is not to be measured.
async fn find_server(options: &Options, server: &mut Option<(Child, u32)>) -> Result<u32> {
    if let Some(pid) = options.pid {
        return Ok(pid);
    }
    if let Some((_, pid)) = server {
        return Ok(*pid);
    }
    if options.command.is_empty() {
        return Ok(0);
    }
    let (child, pid) = startup::start_http(options).await?;
    *server = Some((child, pid));
    Ok(pid)
}

//! Start-up time: from spawning a server to its response to `initialize`.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench_common::process;
use serde_json::{Value, json};
use tokio::{net::TcpStream, process::Child};

use crate::{
    child,
    http::HttpConnection,
    options::{Options, Protocol},
    stdio::StdioConnection,
};

#[derive(Default)]
struct Samples {
    milliseconds: Vec<f64>,
    cpu_ms: Vec<f64>,
    resident_kb: Vec<f64>,
}

impl Samples {
    /// Records the measurement of a server that has just responded.
    async fn take(&mut self, pid: u32, started: Instant) {
        self.milliseconds.push(started.elapsed().as_secs_f64() * 1000.0);
        self.cpu_ms.push(process::cpu_ns(pid).unwrap_or(0) as f64 / 1e6);
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.resident_kb.push(process::status(pid, "VmRSS").unwrap_or(0) as f64);
    }
}

/// Starts the server `runs` times, one after the other.
pub async fn measure(options: &Options, runs: usize) -> Result<Value> {
    let mut samples = Samples::default();
    for _ in 0..runs.max(1) {
        let started = Instant::now();
        if options.stdio {
            let connection = StdioConnection::open(options).await?;
            samples.take(connection.pid, started).await;
            connection.close().await;
        } else {
            let (server, pid) = start_http(options).await?;
            let mut connection = HttpConnection::open(options).await?;
            if options.protocol != Protocol::V2026 {
                connection.initialize(options).await?;
            }
            samples.take(pid, started).await;
            drop(connection);
            child::end(server, pid, true).await;
        }
    }
    let least = samples.milliseconds.iter().copied().fold(f64::MAX, f64::min);
    Ok(json!({
        "label": options.label,
        "workload": "startup",
        "transport": options.transport(),
        "proto": format!("{:?}", options.protocol),
        "n": samples.milliseconds.len(),
        "errors": 0,
        "min_ms": least,
        "median_ms": median(samples.milliseconds),
        "cpu_ms": median(samples.cpu_ms),
        "rss_kb": median(samples.resident_kb),
    }))
}

/// Starts an HTTP server and waits until it listens.
pub async fn start_http(options: &Options) -> Result<(Child, u32)> {
    if TcpStream::connect(&options.host).await.is_ok() {
        bail!("{} is already in use", options.host);
    }
    let (server, pid) = child::spawn(&options.command, false)?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(120) {
        if TcpStream::connect(&options.host).await.is_ok() {
            return Ok((server, pid));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    bail!("nothing listens on {}", options.host)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

//! Cost of the gateway of the hub: the same requests are sent directly to a server, through the gateway, and calls also
//! through npm's `mcp-proxy`. Load, gateway and server are processes of their own.
//!
//! ```text
//! cargo run --release -p bench --bin bench-gateway -- [--json] [--session] [CALLS]
//! ```
//!
//! The client has the token of an agent with a rate limit, the server a bearer credential; policy, history and audit are
//! on. `CALLS` is the number of calls of each run. Each measurement has five alternating runs; the figures are medians of
//! the runs, in microseconds. The CPU time of `direct` is that of client and server; `gateway_cpu_us` and
//! `mcp_proxy_cpu_us` are those of the gateway process alone. With `--session`, clients use the newest revision with sessions.

use anyhow::bail;
use bench::cpu_time::{cpu_time, resident_memory};
use bench::gateway_load::{self, Endpoint, Load, RequestKind, Requests};
use bench::gateway_processes::{Hub, McpProxy};
use bench::requests::{Latencies, as_float, median, micros};
use bench::upstream::{self, Upstream};
use serde_json::{Value, json};

const RUNS: usize = 5;
/// Requests before the first measurement: connections are opened and caches filled.
const WARM_UP: usize = 200;
const IDLE_SESSIONS: usize = 1_000;

/// Way to the server, with the processes whose CPU time counts.
struct Route {
    load: Load,
    /// Prefix of the tool names.
    prefix: &'static str,
    /// Gateway, unless the route is direct.
    gateway: Option<u32>,
    server: u32,
}

/// Figures of one run, in microseconds per request.
struct Run {
    latencies: Latencies,
    gateway_cpu: f64,
    /// CPU time of client and server.
    ends_cpu: f64,
}

impl Route {
    fn run(&mut self, requests: &Requests) -> anyhow::Result<Run> {
        let mut requests = requests.clone();
        if let RequestKind::Call(tool, _) = &mut requests.kind {
            tool.insert_str(0, self.prefix);
        }
        let ends = [self.load.pid(), self.server];
        let cpu_times = || -> anyhow::Result<_> {
            let ends = cpu_time(ends[0])? + cpu_time(ends[1])?;
            Ok((ends, self.gateway.map(cpu_time).transpose()?.unwrap_or_default()))
        };
        let before = cpu_times()?;
        let latencies = self.load.run(&requests)?;
        let after = cpu_times()?;
        let each = |before, after: std::time::Duration| {
            micros(&after.saturating_sub(before)) / as_float(requests.count)
        };
        Ok(Run { latencies, ends_cpu: each(before.0, after.0), gateway_cpu: each(before.1, after.1) })
    }
}

/// Runs the same requests on all routes in turns, and returns the runs of each route.
fn alternate(routes: &mut [&mut Route], requests: &Requests) -> anyhow::Result<Vec<Vec<Run>>> {
    for route in routes.iter_mut() {
        route.run(&Requests { count: WARM_UP, ..requests.clone() })?;
    }
    let mut runs: Vec<Vec<Run>> = routes.iter().map(|_| Vec::new()).collect();
    for _ in 0..RUNS {
        for (route, runs) in routes.iter_mut().zip(&mut runs) {
            runs.push(route.run(requests)?);
        }
    }
    Ok(runs)
}

/// Returns the median over the runs of a figure.
fn median_of(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    median(runs.iter().map(figure))
}

/// Returns the median of a figure of both runs of each turn.
fn median_of_pairs(ours: &[Run], direct: &[Run], figure: impl Fn(&Run, &Run) -> f64) -> f64 {
    median(ours.iter().zip(direct).map(|(ours, direct)| figure(ours, direct)))
}

fn main() -> anyhow::Result<()> {
    if upstream::serve_if_requested()? || gateway_load::send_if_requested()? {
        return Ok(());
    }
    let (mut json, mut session, mut calls) = (false, false, 10_000);
    for argument in std::env::args().skip(1) {
        match &*argument {
            "--json" => json = true,
            "--session" => session = true,
            number => match number.parse() {
                Ok(number) if number > 0 => calls = number,
                _ => bail!("`{argument}` is unknown: use [--json] [--session] [CALLS]"),
            },
        }
    }
    let report = measure(calls, session)?;
    print(&report, json);
    Ok(())
}

fn measure(calls: usize, session: bool) -> anyhow::Result<Value> {
    let upstream = Upstream::start()?;
    let hub = Hub::start(&upstream.url)?;
    let proxy = McpProxy::start()?;
    let load = |url: &str, token| Load::start(&Endpoint { url: url.to_owned(), token, session });
    let token = Some(hub.token.clone());
    let mut direct =
        Route { load: load(&upstream.url, None)?, prefix: "", gateway: None, server: upstream.pid() };
    let mut gateway = Route {
        load: load(&hub.url, token.clone())?,
        prefix: "mcp_up__",
        gateway: Some(hub.pid()),
        server: upstream.pid(),
    };
    // Its server on stdio is not measured.
    let mut other =
        Route { load: load(&proxy.url, None)?, prefix: "", gateway: Some(proxy.pid()), server: proxy.pid() };

    let call = |tool: &str, arguments, count, in_flight| Requests {
        kind: RequestKind::Call(tool.to_owned(), arguments),
        count,
        in_flight,
    };
    let echo = |in_flight| call("echo", json!({ "message": "hello" }), calls, in_flight);
    let concurrent = alternate(&mut [&mut direct, &mut gateway, &mut other], &echo(32))?;
    let single = alternate(&mut [&mut direct, &mut gateway], &echo(1))?;
    let large = alternate(&mut [&mut direct, &mut gateway], &call("large", json!({}), calls.div_ceil(5), 8))?;
    let list = Requests { kind: RequestKind::List, count: calls.div_ceil(5), in_flight: 8 };
    let list = alternate(&mut [&mut direct, &mut gateway], &list)?;

    let mut idle = Load::start(&Endpoint { url: hub.url.clone(), token, session: true })?;
    let before = resident_memory(hub.pid())?;
    idle.run(&Requests { kind: RequestKind::Connect, count: IDLE_SESSIONS, in_flight: 8 })?;
    let memory = resident_memory(hub.pid())?.saturating_sub(before);

    let [direct, ours, other] = &concurrent[..] else { bail!("three routes were measured") };
    let echo_32 = json!({
        "direct_cpu_us": median_of(direct, |run| run.ends_cpu),
        "gateway_cpu_us": median_of(ours, |run| run.gateway_cpu),
        "mcp_proxy_cpu_us": median_of(other, |run| run.gateway_cpu),
        "gateway_to_direct": median_of_pairs(ours, direct, |ours, direct| ours.gateway_cpu / direct.ends_cpu),
        "gateway_to_mcp_proxy": median_of_pairs(ours, other, |ours, other| ours.gateway_cpu / other.gateway_cpu),
        "direct_per_s": median_of(direct, |run| run.latencies.per_second),
        "gateway_per_s": median_of(ours, |run| run.latencies.per_second),
        "mcp_proxy_per_s": median_of(other, |run| run.latencies.per_second),
    });
    let added = |figure: fn(&Latencies) -> f64| {
        median_of_pairs(&single[1], &single[0], |ours, direct| {
            figure(&ours.latencies) - figure(&direct.latencies)
        })
    };
    Ok(json!({
        "calls": calls,
        "session": session,
        "echo_32": echo_32,
        "echo_1": {
            "direct_p50_us": median_of(&single[0], |run| run.latencies.p50),
            "added_p50_us": added(|latencies| latencies.p50),
            "added_p99_us": added(|latencies| latencies.p99),
        },
        "list_52_tools": compare(&list),
        "result_64_kib": compare(&large),
        "idle_sessions": { "count": IDLE_SESSIONS, "megabytes": bytes_to_megabytes(memory) },
    }))
}

/// Compares requests through the gateway with direct ones: CPU time of all processes, and throughput.
fn compare(runs: &[Vec<Run>]) -> Value {
    let (direct, ours) = (&runs[0], &runs[1]);
    let all_cpu = |run: &Run| run.ends_cpu + run.gateway_cpu;
    json!({
        "direct_cpu_us": median_of(direct, all_cpu),
        "gateway_cpu_us": median_of(ours, |run| run.gateway_cpu),
        "total_cpu_us": median_of(ours, all_cpu),
        "total_cpu_to_direct": median_of_pairs(ours, direct, |ours, direct| all_cpu(ours) / all_cpu(direct)),
        "p50_to_direct": median_of_pairs(ours, direct, |ours, direct| ours.latencies.p50 / direct.latencies.p50),
    })
}

fn bytes_to_megabytes(bytes: u64) -> f64 {
    as_float(usize::try_from(bytes / 1_000).unwrap_or(usize::MAX)) / 1_000.0
}

#[expect(clippy::print_stdout, reason = "the report")]
fn print(report: &Value, as_json: bool) {
    if as_json {
        return println!("{report}");
    }
    for (case, figures) in report.as_object().into_iter().flatten() {
        let Some(figures) = figures.as_object() else {
            println!("{case}: {figures}");
            continue;
        };
        println!("\n{case}");
        for (name, figure) in figures {
            println!("  {name:24} {:>10.2}", figure.as_f64().unwrap_or_default());
        }
    }
}

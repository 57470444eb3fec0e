//! Overhead of the hub's call pipeline: authentication, policy, argument validation, call record and audit. The same
//! tool of the same server, which runs in a process of its own, is called alternately directly and through the hub.
//!
//! ```text
//! cargo run --release -p bench --bin bench-call-overhead -- [--json] [CALLS] [IN_FLIGHT] [power]
//! ```
//!
//! Case `user`: a call of an authenticated user, without credentials. Case `agent`: a call with the token of an agent
//! that has a rate limit, to a server with a bearer credential; arguments and results are stored.
//!
//! `CALLS` is the number of calls of each kind and run, and each case has five runs. The figures are medians of the
//! runs; CPU times include the upstream process. With `power`, each call waits for the disk before it is sent and
//! after its result; `TMPDIR` selects the disk. `--hub-only CASE` makes only the calls through the hub, once, for
//! profilers.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use bench::cpu_time::cpu_time;
use bench::hub_caller::{self, Caller};
use bench::requests::{Latencies, as_float, median, micros, send_requests};
use bench::upstream::{self, Upstream};
use linchpin::Client;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_store::{Durability, Sqlite};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const RUNS: usize = 5;
/// Calls before the first measurement: connections are opened and caches filled.
const WARM_UP_CALLS: usize = 200;
const CASES: [&str; 2] = ["user", "agent"];

/// Command line.
struct Options {
    json: bool,
    durability: Durability,
    hub_only: Option<String>,
    calls: usize,
    in_flight: usize,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Options {
            json: false,
            durability: Durability::Process,
            hub_only: None,
            calls: 5_000,
            in_flight: 1,
        };
        let mut numbers = 0;
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--json" => options.json = true,
                "power" => options.durability = Durability::Power,
                "--hub-only" => options.hub_only = Some(arguments.next().context("--hub-only needs a case")?),
                number => {
                    let number =
                        number.parse::<usize>().with_context(|| format!("`{argument}` is no number"))?;
                    match numbers {
                        0 => options.calls = number.max(1),
                        1 => options.in_flight = number.max(1),
                        _ => bail!("at most two numbers: CALLS and IN_FLIGHT"),
                    }
                    numbers += 1;
                }
            }
        }
        Ok(options)
    }
}

/// Hub with its caller, and a direct client of the same server.
struct Bench {
    upstream: Upstream,
    client: Client,
    hub: Arc<Hub>,
    caller: Caller,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn new(case: &str, durability: Durability) -> anyhow::Result<Self> {
        let upstream = Upstream::start()?;
        let client = Client::http(&upstream.url).connect().await?;
        let folder = tempfile::tempdir()?;
        let store = Arc::new(Sqlite::open_with(&folder.path().join("hub.db"), durability)?);
        let hub = hub_caller::new_hub(store, folder.path())?;
        let caller = match case {
            "user" => Caller::user(&hub, &upstream.url).await?,
            "agent" => Caller::agent(&hub, &upstream.url).await?,
            _ => bail!("unknown case `{case}`: use one of {}", CASES.join(", ")),
        };
        let bench = Bench { upstream, client, hub, caller, _folder: folder };
        bench.direct(WARM_UP_CALLS, 1).await?;
        bench.through_hub(WARM_UP_CALLS, 1).await?;
        Ok(bench)
    }

    async fn direct(&self, calls: usize, in_flight: usize) -> anyhow::Result<Run> {
        let call = || {
            let client = self.client.clone();
            async move { Ok(client.call("echo", json!({ "message": "hello" })).await.map(drop)?) }
        };
        Run::measure(calls, in_flight, self.upstream.pid(), call).await
    }

    async fn through_hub(&self, calls: usize, in_flight: usize) -> anyhow::Result<Run> {
        let call = || self.caller.clone().call(self.hub.clone());
        Run::measure(calls, in_flight, self.upstream.pid(), call).await
    }
}

/// Figures of one run.
struct Run {
    latencies: Latencies,
    /// CPU time of this process and of the upstream server per call, in microseconds.
    cpu: f64,
}

impl Run {
    async fn measure<F, Fut>(calls: usize, in_flight: usize, upstream: u32, call: F) -> anyhow::Result<Run>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let cpu_times = || Ok::<_, anyhow::Error>(cpu_time(std::process::id())? + cpu_time(upstream)?);
        let before = cpu_times()?;
        let latencies = send_requests(calls, in_flight, call).await?;
        let cpu = cpu_times()?.saturating_sub(before);
        Ok(Run { latencies, cpu: micros(&cpu) / as_float(calls) })
    }
}

/// Runs of one case.
struct Case {
    name: &'static str,
    /// Pairs of a direct run and one through the hub.
    runs: Vec<(Run, Run)>,
}

impl Case {
    async fn measure(name: &'static str, options: &Options) -> anyhow::Result<Self> {
        let bench = Bench::new(name, options.durability).await?;
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let direct = bench.direct(options.calls, options.in_flight).await?;
            runs.push((direct, bench.through_hub(options.calls, options.in_flight).await?));
        }
        Ok(Case { name, runs })
    }

    /// Returns the median of a figure over the runs.
    fn median(&self, figure: impl Fn(&(Run, Run)) -> f64) -> f64 {
        median(self.runs.iter().map(figure))
    }

    fn direct_cpu(&self) -> f64 {
        self.median(|(direct, _)| direct.cpu)
    }

    fn pipeline_cpu(&self) -> f64 {
        self.median(|(direct, hub)| hub.cpu - direct.cpu)
    }

    fn added_p50(&self) -> f64 {
        self.median(|(direct, hub)| hub.latencies.p50 - direct.latencies.p50)
    }

    fn added_p99(&self) -> f64 {
        self.median(|(direct, hub)| hub.latencies.p99 - direct.latencies.p99)
    }

    fn calls_per_second(&self) -> f64 {
        self.median(|(_, hub)| hub.latencies.per_second)
    }
}

fn main() -> anyhow::Result<()> {
    if upstream::serve_if_requested()? {
        return Ok(());
    }
    bench::hub_runtime()?.block_on(run())
}

#[expect(clippy::print_stdout, reason = "the report")]
async fn run() -> anyhow::Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    if let Some(case) = &options.hub_only {
        Bench::new(case, options.durability).await?.through_hub(options.calls, options.in_flight).await?;
        return Ok(());
    }
    let mut cases = Vec::new();
    for name in CASES {
        cases.push(Case::measure(name, &options).await?);
    }
    if options.json {
        let cases = cases.iter().map(|case| {
            json!({
                "case": case.name,
                "direct_cpu_us": case.direct_cpu(),
                "pipeline_cpu_us": case.pipeline_cpu(),
                "added_p50_us": case.added_p50(),
                "added_p99_us": case.added_p99(),
                "calls_per_s": case.calls_per_second(),
            })
        });
        println!("{}", json!({ "cases": cases.collect::<Vec<_>>() }));
        return Ok(());
    }
    let Options { calls, in_flight, durability, .. } = options;
    println!(
        "{RUNS} runs of {calls} calls, {in_flight} in flight, {durability:?}; medians, microseconds per call"
    );
    println!(
        "{:8} {:>11} {:>13} {:>6} {:>10} {:>10} {:>8}",
        "case", "direct CPU", "pipeline CPU", "ratio", "added p50", "added p99", "calls/s"
    );
    for case in &cases {
        let (direct, pipeline) = (case.direct_cpu(), case.pipeline_cpu());
        println!(
            "{:8} {direct:>11.1} {pipeline:>13.1} {:>6.2} {:>10.1} {:>10.1} {:>8.0}",
            case.name,
            pipeline / direct,
            case.added_p50(),
            case.added_p99(),
            case.calls_per_second()
        );
    }
    Ok(())
}

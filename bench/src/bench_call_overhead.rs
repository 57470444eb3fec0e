//! Overhead of the hub's call pipeline: authentication, policy, argument validation, call record and audit. The same
//! tool of the same server is called alternately directly and through the hub, in one process.
//!
//! ```text
//! cargo run --release -p bench --bin bench-call-overhead -- [calls] [at once] [power]
//! ```
//!
//! With `power`, each call waits for the disk before it is sent and after its result; `TMPDIR` selects the disk.

mod upstream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use linchpin::Client;
use linchpin_hub_store::{Durability, Sqlite};
use serde_json::json;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: usize = 5;

/// Measurements of the direct calls or of those through the hub.
#[derive(Default)]
struct Measurement {
    times: Vec<Duration>,
    wall: Duration,
    cpu: Duration,
}

#[expect(clippy::print_stdout, reason = "the report")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (words, numbers): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|text| text == "power");
    let durability = if words.is_empty() { Durability::Process } else { Durability::Power };
    let mut numbers = numbers.iter().map(|text| text.parse::<usize>());
    let calls = numbers.next().transpose()?.unwrap_or(5_000);
    let at_once = numbers.next().transpose()?.unwrap_or(1).max(1);
    let mut running = JoinSet::new();
    let url = upstream::serve(&mut running).await?;

    let client = Client::http(&url).connect().await?;
    let place = tempfile::tempdir()?;
    let store = Arc::new(Sqlite::open_with(&place.path().join("hub.db"), durability)?);
    let hub = upstream::hub(store, place.path())?;
    upstream::add(&hub, &url).await?;

    let (mut direct, mut through) = (Measurement::default(), Measurement::default());
    for _ in 0..ROUNDS {
        direct
            .measure(calls / ROUNDS, at_once, || {
                let client = client.clone();
                async move { Ok(client.call("echo", json!({ "message": "hello" })).await.map(drop)?) }
            })
            .await?;
        through.measure(calls / ROUNDS, at_once, || upstream::call(hub.clone())).await?;
    }
    println!("{calls} calls each, {at_once} in flight, {durability:?}; microseconds");
    println!("{:10} {:>8} {:>8} {:>8} {:>10}", "", "p50", "p99", "CPU", "calls/s");
    println!("{}\n{}", direct.line("direct"), through.line("hub"));
    println!(
        "{:10} {:>8.1} {:>8.1} {:>8.1}",
        "overhead",
        through.percentile(50) - direct.percentile(50),
        through.percentile(99) - direct.percentile(99),
        through.cpu_each() - direct.cpu_each()
    );
    Ok(())
}

impl Measurement {
    async fn measure<F, Fut>(&mut self, calls: usize, at_once: usize, call: F) -> anyhow::Result<()>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (cpu, begin) = (cpu_time()?, Instant::now());
        let (mut all, mut left) = (JoinSet::new(), calls);
        while left > 0 || !all.is_empty() {
            while left > 0 && all.len() < at_once {
                let call = call();
                all.spawn(async move {
                    let begin = Instant::now();
                    call.await.map(|()| begin.elapsed())
                });
                left -= 1;
            }
            if let Some(done) = all.join_next().await {
                self.times.push(done??);
            }
        }
        self.wall += begin.elapsed();
        self.cpu += cpu_time()?.saturating_sub(cpu);
        Ok(())
    }

    /// Returns a percentile of the durations.
    fn percentile(&self, percent: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() * percent / 100).map_or(0.0, micros)
    }

    fn cpu_each(&self) -> f64 {
        micros(&self.cpu) / count(self.times.len())
    }

    fn line(&self, name: &str) -> String {
        let rate = count(self.times.len()) / self.wall.as_secs_f64();
        format!(
            "{name:10} {:>8.1} {:>8.1} {:>8.1} {rate:>10.0}",
            self.percentile(50),
            self.percentile(99),
            self.cpu_each()
        )
    }
}

fn micros(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Returns the CPU time of this process, user and system.
fn cpu_time() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').context("/proc/self/stat is malformed")?.1;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks: u64 = fields.get(11).context("no user time")?.parse::<u64>()?
        + fields.get(12).context("no system time")?.parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

//! Throughput of hubs in recorded calls per second: one hub on `SQLite`, then one and three hubs on PostgreSQL, which
//! receive calls in turn, as from a load balancer. The hubs run in this process; the upstream server and PostgreSQL are
//! started.
//!
//! ```text
//! cargo run --release -p bench --bin bench-hub-throughput -- [calls] [at once]
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bench::hub_caller::{self, Caller};
use bench::upstream::{self, Upstream};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::Store;
use linchpin_hub_store::{Durability, Postgres, Sqlite};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> anyhow::Result<()> {
    if upstream::serve_if_requested()? {
        return Ok(());
    }
    bench::hub_runtime()?.block_on(run())
}

#[expect(clippy::print_stdout, reason = "the report")]
async fn run() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let calls = numbers.next().transpose()?.unwrap_or(20_000);
    let at_once = numbers.next().transpose()?.unwrap_or(64).max(1);
    let upstream = Upstream::start()?;
    let url = &upstream.url;

    println!("{calls} calls each, {at_once} in flight; recorded calls per second");
    let place = tempfile::tempdir()?;
    let sqlite: Arc<dyn Store> = Arc::new(Sqlite::open(&place.path().join("hub.db"))?);
    println!("{:20} {:>8.0}", "SQLite, 1 hub", measure(&[sqlite], place.path(), url, calls, at_once).await?);
    for hubs in [1, 3] {
        let place = tempfile::tempdir()?;
        let database = test_postgres::server().url(&test_postgres::server().create_database());
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..hubs {
            let store = Postgres::join(&database, Durability::default(), Arc::new(SystemPlatform)).await?;
            stores.push(Arc::new(store));
        }
        let name = format!("PostgreSQL, {hubs} hub{}", if hubs == 1 { "" } else { "s" });
        println!("{name:20} {:>8.0}", measure(&stores, place.path(), url, calls, at_once).await?);
    }
    Ok(())
}

/// Returns the calls per second of one hub per store, which receive calls in turn.
async fn measure(
    stores: &[Arc<dyn Store>],
    place: &Path,
    url: &str,
    calls: usize,
    at_once: usize,
) -> anyhow::Result<f64> {
    let mut hubs = Vec::new();
    for store in stores {
        hubs.push(hub_caller::new_hub(store.clone(), place)?);
    }
    let caller = Caller::user(hubs.first().context("no hub")?, url).await?;
    // Warm up: each hub opens its connection and syncs the tool before the measurement.
    for hub in &hubs {
        caller.clone().call(hub.clone()).await?;
    }
    let (begin, mut all, mut left) = (Instant::now(), JoinSet::new(), calls);
    while left > 0 || !all.is_empty() {
        while left > 0 && all.len() < at_once {
            left -= 1;
            all.spawn(caller.clone().call(hubs[left % hubs.len()].clone()));
        }
        if let Some(done) = all.join_next().await {
            done??;
        }
    }
    Ok(f64::from(u32::try_from(calls)?) / begin.elapsed().as_secs_f64())
}

//! How many calls hubs record in a second: one with `SQLite`, and one and three on PostgreSQL, which take turns as a
//! balancer would have them do. Everything runs in this process but PostgreSQL, which is started for it.
//!
//! ```text
//! cargo run --release -p bench --bin bench-hubs -- [calls] [at once]
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use linchpin::egress::Egress;
use linchpin::{Server, args};
use linchpin_hub_core::hub::{Hub, LOCAL, LOCAL_USER, Options, Wanted, Which};
use linchpin_hub_core::store::{Status, Store};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::world::System;
use linchpin_hub_core::{Scope, Subject};
use linchpin_hub_store::{Durability, Postgres, Sqlite};
use serde_json::json;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SCOPE: Scope = Scope::new(LOCAL, Subject::User(LOCAL_USER));

#[args]
struct Echo {
    message: String,
}

#[expect(clippy::print_stdout, reason = "the report")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let calls = numbers.next().transpose()?.unwrap_or(20_000);
    let at_once = numbers.next().transpose()?.unwrap_or(64).max(1);
    let server = Server::new("upstream", "1").tool("echo", "", |Echo { message }| async move { message });
    let listening = server.http().bind("127.0.0.1:0").await.map_err(|error| anyhow!("{error}"))?;
    let (url, mut running) = (listening.url(), JoinSet::new());
    running.spawn(async move { listening.run_until(std::future::pending()).await });

    println!("{calls} calls each, {at_once} at once; recorded calls a second");
    let place = tempfile::tempdir()?;
    let sqlite: Arc<dyn Store> = Arc::new(Sqlite::open(&place.path().join("hub.db"))?);
    println!("{:20} {:>8.0}", "SQLite, 1 hub", measure(&[sqlite], place.path(), &url, calls, at_once).await?);
    for hubs in [1, 3] {
        let place = tempfile::tempdir()?;
        let database = test_postgres::server().url(&test_postgres::server().database());
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..hubs {
            let store = Postgres::join(&database, Durability::default(), Arc::new(System)).await?;
            stores.push(Arc::new(store));
        }
        let name = format!("PostgreSQL, {hubs} hub{}", if hubs == 1 { "" } else { "s" });
        println!("{name:20} {:>8.0}", measure(&stores, place.path(), &url, calls, at_once).await?);
    }
    Ok(())
}

/// Calls a second, by a hub on each of these stores in turns.
async fn measure(
    stores: &[Arc<dyn Store>],
    place: &Path,
    url: &str,
    calls: usize,
    at_once: usize,
) -> anyhow::Result<f64> {
    let mut hubs = Vec::new();
    for store in stores {
        let (keys, _) = KeyFile::open(&place.join("keys"), &System)?;
        let options = Options::default();
        hubs.push(Arc::new(Hub::new(Arc::new(System), store.clone(), keys, Egress::default(), options)));
    }
    let first = hubs.first().context("no hub")?;
    first.add_server(SCOPE, json!({ "name": "Up", "url": url })).await?;
    first.sync_server(SCOPE, "up", None).await?;
    // Each has a connection and knows the tool before it counts.
    for hub in &hubs {
        call(hub.clone()).await?;
    }
    let (begin, mut all, mut left) = (Instant::now(), JoinSet::new(), calls);
    while left > 0 || !all.is_empty() {
        while left > 0 && all.len() < at_once {
            left -= 1;
            all.spawn(call(hubs[left % hubs.len()].clone()));
        }
        if let Some(done) = all.join_next().await {
            done??;
        }
    }
    Ok(f64::from(u32::try_from(calls)?) / begin.elapsed().as_secs_f64())
}

async fn call(hub: Arc<Hub>) -> anyhow::Result<()> {
    let tool = Which::Local("mcp_up__echo".into());
    let call = hub.call_tool(SCOPE, Wanted { tool, arguments: json!({ "message": "hello" }) }, true).await?;
    (call.status == Status::Success).then_some(()).context("the call failed")
}

//! A thousand servers with descendants that resist termination: however the clients close them, no process, zombie,
//! thread or file descriptor is left. This is the only test in this file: it counts for the whole process.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "this is a test")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use linchpin::Revision;
use linchpin::client::{Client, Command};
use serde_json::json;
use tokio::task::JoinSet;

const CYCLES: usize = 1_000;
const AT_ONCE: usize = 8;
const TAG: &str = "LINCHPIN_CYCLES_TAG";
/// Timeout for threads and processes to finish after the last client is gone.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Responds to `initialize` only. Its children: one that ignores `SIGTERM`, one that has left the process group, one
/// whose parent has exited. All of them hold its standard output open.
const SERVER: &str = r#"
(trap '' TERM HUP; exec sleep 1000) &
setsid sleep 1000 &
(setsid sh -c 'sleep 1000 & exit' &)
read -r greeting
printf '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"%s","capabilities":{"tools":{}},"serverInfo":%s}}\n' \
    "$1" '{"name":"stubborn","version":"1"}'
while read -r line; do :; done
"#;

fn command(tag: &str) -> Command {
    let revision = Revision::V2025_11_25.as_str();
    let command = Command::new("sh").args(["-c", SERVER, "sh", revision]).env(TAG, tag);
    command.close_timeout(Duration::from_millis(20))
}

async fn connect(tag: &str) -> Client {
    let client = Client::command(command(tag)).revisions([Revision::V2025_11_25]);
    client.connect().await.unwrap()
}

/// Runs one server, and ends it in one of three ways.
async fn cycle(tag: &str, round: usize) {
    let client = connect(tag).await;
    match round % 3 {
        0 => client.close().await,
        1 => drop(client),
        _ => {
            let waiting = client.clone();
            let call = async move { waiting.call("never", json!({ "round": round })).await };
            // The call is in flight when everything is dropped, the call first.
            let limit = Duration::from_millis(1);
            assert!(tokio::time::timeout(limit, call).await.is_err(), "nothing answers");
        }
    }
}

/// Returns the running processes with the tag in their environment.
fn tagged(tag: &str) -> Vec<PathBuf> {
    let variable = format!("{TAG}={tag}").into_bytes();
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let has_tag = |path: &PathBuf| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == variable)
    };
    processes.filter(has_tag).collect()
}

/// Returns the number of exited children that were not reaped.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let stats = processes.filter_map(|path| fs::read_to_string(path.join("stat")).ok());
    let is_zombie = |stat: &String| {
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.next() == Some("Z") && fields.next() == Some(&own)
    };
    stats.filter(is_zombie).count()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the number of threads of connections.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let names = tasks.filter_map(|path| fs::read_to_string(path.join("comm")).ok());
    names.filter(|name| name.starts_with("linchpin")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_after_a_thousand_servers() {
    let tag = format!("{}-cycles", std::process::id());
    let client = connect(&tag).await;
    assert!(tagged(&tag).len() >= 3, "the server and its children are seen while they live");
    drop(client);
    for round in 0..3 {
        cycle(&tag, round).await; // initializes per-process state
    }
    let before = settled(&tag).await;
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (tag, next) = (tag.clone(), next.clone());
        workers.spawn(async move {
            while let round = next.fetch_add(1, Ordering::Relaxed)
                && round < CYCLES
            {
                cycle(&tag, round).await;
            }
        });
    }
    workers.join_all().await;
    assert_eq!(settled(&tag).await, before, "descriptors that stay open");
}

/// Waits until nothing is left, and returns the number of open descriptors.
async fn settled(tag: &str) -> usize {
    let begun = Instant::now();
    loop {
        let left = (tagged(tag).len(), zombies(), threads());
        if left == (0, 0, 0) {
            return descriptors();
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "{left:?} processes, zombies and threads are left");
        tokio::task::yield_now().await;
    }
}

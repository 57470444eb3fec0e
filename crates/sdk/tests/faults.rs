//! Thousands of conversations over faulty connections: nothing hangs, nothing panics, no resources are left, and
//! every call finishes with a result or a reason.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/paused.rs"]
mod paused;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use linchpin::client::RevisionCache;
use linchpin::testing::faults::{Fault, FaultEvent};
use linchpin::testing::{Faults, Random, in_memory};
use linchpin::{Client, ClientError, Context, NoArgs, Revision, Server, Service, args};
use paused::pass;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::time::timeout;

const SCENARIOS: u64 = 8_000;
const WORKERS: u64 = 2;
/// Limit of one conversation in paused time.
const LIMIT: Duration = Duration::from_hours(1);
/// Limit in real time without progress of the workers. Only a failing test reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[args]
struct Echo {
    message: String,
}

fn service() -> Service {
    Server::new("target", "1")
        .page_size(2)
        .tool("echo", "", |Echo { message }| async move { message })
        .tool("slow", "", |_: NoArgs, cx: Context| async move {
            for step in 0..4 {
                cx.progress(f64::from(step));
                pass(Duration::from_secs(2)).await;
            }
            "done"
        })
        .tool("never", "", |_: NoArgs| std::future::pending::<()>())
        .resource("memory://status", "status", || async { "ok" })
        .prompt("greet", "", || async { "Hello!" })
        .build()
        .unwrap()
}

/// Runs the client actions that the seed determines; returns the first unexpected outcome.
async fn talk(client: &Client, random: &mut Random, faults: &Faults) -> Result<(), String> {
    for _ in 0..3 + random.next_below(4) {
        let outcome = act(client, random).await;
        if let Err(error) = &outcome
            && error.to_string().trim().is_empty()
        {
            return Err(format!("an error has no text: {error:?}"));
        }
        let cut = faults.log().last().is_some_and(|event| event.fault == Fault::Cut);
        if cut && !client.is_closed() {
            return Err("the connection was cut, and the client does not notice".into());
        }
        if client.is_closed() {
            let error = client.ping().await.err().ok_or("a call succeeds on a connection that has ended")?;
            let says_so = error.to_string().contains("the connection is closed: ");
            return if says_so {
                Ok(())
            } else {
                Err(format!("a call on a connection that has ended: {error}"))
            };
        }
    }
    Ok(())
}

async fn act(client: &Client, random: &mut Random) -> Result<(), ClientError> {
    let echo = || client.call("echo", json!({ "message": "hello" }));
    match random.next_below(9) {
        0 => drop(client.tools().all().await?),
        1 => drop(client.read("memory://status").await?),
        2 => drop(client.prompt("greet", [("", ""); 0]).await?),
        3 => drop(client.call("slow", ()).progress(|_| ()).await?),
        4 => {
            let call = client.call("slow", ()).timeout(Duration::from_secs(3));
            drop(call.extend_on_progress(Duration::from_secs(20)).await?);
        }
        5 => {
            let (first, second) = tokio::join!(echo(), client.call("slow", ()));
            first.and(second)?;
        }
        6 => {
            // Dropped while in flight, which cancels it.
            let limit = Duration::from_millis(random.next() % 5_000);
            let _ = timeout(limit, client.call("never", ()).into_future()).await;
        }
        7 => client.ping().await?,
        _ => drop(echo().await?),
    }
    Ok(())
}

async fn scenario(seed: u64, service: &Service) -> (Vec<FaultEvent>, Result<(), String>) {
    let faults = Faults::new(in_memory(service), seed);
    let mut random = Random::new(!seed);
    let mut builder = Client::over(faults.clone()).revision_cache(RevisionCache::new());
    if random.next_below(2) == 0 {
        builder = builder.revisions([*random.pick(&Revision::ALL)]);
    }
    let talked = async {
        match builder.connect().await {
            Ok(client) => talk(&client, &mut random, &faults).await,
            Err(error) if error.to_string().trim().is_empty() => {
                Err("the connection error has no text".into())
            }
            Err(_) => Ok(()),
        }
    };
    let mut outcome = timeout(LIMIT, talked).await.unwrap_or_else(|_| Err(format!("it hangs for {LIMIT:?}")));
    pass(LIMIT).await;
    let left = Handle::current().metrics().num_alive_tasks();
    if outcome.is_ok() && left > 0 {
        outcome = Err(format!("{left} tasks are left"));
    }
    (faults.log(), outcome)
}

/// Runs one conversation; a failure names the seed to reproduce it.
fn run(seed: u64, service: &Service) -> Result<Vec<FaultEvent>, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(scenario(seed, service))));
    let again = format!("to reproduce: LINCHPIN_SEED={seed} cargo test -p linchpin --test faults");
    let (log, outcome) = ended.map_err(|_| format!("seed {seed}: a panic; {again}"))?;
    let Err(failure) = outcome else { return Ok(log) };
    let log: Vec<_> = log.iter().map(ToString::to_string).collect();
    Err(format!("seed {seed}: {failure}; {again}\n{}", log.join("\n")))
}

#[expect(clippy::disallowed_methods, reason = "the seed to reproduce is passed in the environment")]
fn wanted() -> Option<u64> {
    std::env::var("LINCHPIN_SEED").ok().map(|seed| seed.parse().expect("LINCHPIN_SEED is a number"))
}

#[test]
fn every_conversation_ends_whatever_the_line_does() {
    if let Some(seed) = wanted() {
        match run(seed, &service()) {
            Ok(log) => log.iter().for_each(|event| println!("{event}")),
            Err(failure) => panic!("{failure}"),
        }
        return;
    }
    let (report, reports) = mpsc::sync_channel(64);
    let current: Arc<[AtomicU64]> = (0..WORKERS).map(AtomicU64::new).collect();
    for worker in 0..WORKERS {
        let (report, current) = (report.clone(), current.clone());
        let share = (worker..SCENARIOS).step_by(usize::try_from(WORKERS).unwrap());
        thread::spawn(move || {
            let (service, place) = (service(), &current[usize::try_from(worker).unwrap()]);
            for seed in share {
                place.store(seed, Ordering::Relaxed);
                report.send(run(seed, &service)).unwrap();
            }
        });
    }
    drop(report);
    let mut met = HashMap::<_, usize>::new();
    for _ in 0..SCENARIOS {
        let log = match reports.recv_timeout(TEST_TIMEOUT) {
            Ok(Ok(log)) => log,
            Ok(Err(failure)) => panic!("{failure}"),
            Err(error) => panic!("one of the seeds {current:?} does not finish in real time: {error}"),
        };
        for event in log {
            *met.entry(std::mem::discriminant(&event.fault)).or_default() += 1;
        }
    }
    // Faults that never happen would make the test meaningless.
    assert!(met.len() == 9 && met.values().all(|times| *times > 200), "{met:?}");
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    for seed in 0..300 {
        let stories = [run(seed, &service()).unwrap(), run(seed, &service()).unwrap()];
        assert!(stories[0] == stories[1], "seed {seed}:\n{stories:#?}");
    }
}

//! Streams that are cut at any moment, on several threads: nothing is lost, duplicated or out of order.
#![cfg(feature = "http-server")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use http::StatusCode;
use linchpin::server::HttpService;
use linchpin::{Context, Revision, Server};
use serde_json::{Value, json};
use support::call_scenarios::Count;
use support::web::{BackgroundTask, Events, TestClient, serve, text_of};

const SESSIONS: u64 = 8;
const CALLS: usize = 40;

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn endpoint() -> HttpService {
    let server = Server::new("cuts", "1")
        .tool("chat", "", |Count { count }, cx: Context| async move {
            for step in 1..=count {
                cx.progress(f64::from(step));
                if step % 3 != 0 {
                    tokio::task::yield_now().await;
                }
            }
            format!("{count} said")
        })
        .tool("tell", "", |Count { count }, cx: Context| async move {
            cx.session()?.notify("x-told", &json!({"count": count}));
            Ok::<_, linchpin::Error>("told")
        });
    serve(server.http())
}

/// Reads up to `most` messages into `seen`; `false` at the end.
async fn read(events: &mut Events, most: u64, seen: &mut Vec<Value>) -> bool {
    for _ in 0..most {
        match events.next().await {
            Some(message) => seen.push(message),
            None => return false,
        }
    }
    true
}

/// Runs one call whose stream is cut after some messages, repeatedly. Returns the number of cuts.
async fn cut_call(guest: &TestClient, dice: &mut Dice) -> usize {
    let count = 1 + dice.roll(30);
    let answer = guest.watch("chat", json!({"count": count})).await;
    let (mut events, mut seen, mut cuts) = (answer.events(), Vec::new(), 0);
    while read(&mut events, 1 + dice.roll(4), &mut seen).await {
        if seen.len() as u64 > count {
            break; // the response has arrived
        }
        let last = events.last.clone().unwrap();
        if dice.roll(2) == 0 {
            drop(events); // otherwise the server notices when the client resumes
        }
        if dice.roll(2) == 0 {
            tokio::task::yield_now().await;
        }
        events = guest.get(Some(&last)).await.events();
        cuts += 1;
    }
    let steps: Vec<_> = seen.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
    let expected: Vec<_> = (1..=u32::try_from(count).unwrap()).map(f64::from).collect();
    assert_eq!(steps, expected, "after {cuts} cuts");
    assert_eq!(text_of(seen.last().unwrap()), format!("{count} said"));
    cuts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls() {
    let web = endpoint();
    let workers = (1..=SESSIONS).map(|seed| {
        let web = web.clone();
        BackgroundTask::start(async move {
            let revision = if seed % 2 == 0 { Revision::LATEST_SESSION } else { Revision::V2025_03_26 };
            let (guest, mut dice, mut cuts) = (TestClient::open(&web, revision).await, Dice(seed), 0);
            for _ in 0..CALLS {
                cuts += cut_call(&guest, &mut dice).await;
            }
            cuts
        })
    });
    let mut cuts = 0;
    for worker in workers.collect::<Vec<_>>() {
        cuts += worker.end().await;
    }
    eprintln!("{cuts} cuts");
    assert!(cuts > 1_000, "{cuts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_stream_of_no_request() {
    let web = endpoint();
    let workers = (1..=SESSIONS).map(|seed| {
        let web = web.clone();
        BackgroundTask::start(async move {
            let guest = TestClient::open(&web, Revision::LATEST_SESSION).await;
            let (mut dice, teller, count) = (Dice(seed), guest.clone(), 300);
            let telling = BackgroundTask::start(async move {
                for number in 0..count {
                    assert_eq!(teller.call_text("tell", json!({"count": number})).await, "told");
                    tokio::task::yield_now().await;
                }
            });
            let (mut events, mut seen) = (guest.get(None).await.events(), Vec::new());
            while seen.len() < count {
                let most = (count - seen.len()) as u64;
                assert!(
                    read(&mut events, (1 + dice.roll(5)).min(most), &mut seen).await,
                    "it is still running"
                );
                let last = events.last.clone().unwrap();
                if dice.roll(2) == 0 {
                    drop(events);
                }
                events = guest.get(Some(&last)).await.events();
            }
            let told: Vec<_> =
                seen.iter().map(|message| message["params"]["count"].as_u64().unwrap()).collect();
            assert_eq!(told, (0..count as u64).collect::<Vec<_>>());
            telling.end().await;
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_who_want_the_same_stream() {
    let web = endpoint();
    for _ in 0..100 {
        let guest = TestClient::open(&web, Revision::LATEST_SESSION).await;
        let both = [(); 4].map(|()| {
            let guest = guest.clone();
            BackgroundTask::start(async move { guest.get(None).await })
        });
        let mut answers = Vec::new();
        for one in both {
            answers.push(one.end().await);
        }
        let count = |status: StatusCode| answers.iter().filter(|answer| answer.status == status).count();
        assert_eq!((count(StatusCode::OK), count(StatusCode::CONFLICT)), (1, 3));
        guest.delete().await;
    }
}

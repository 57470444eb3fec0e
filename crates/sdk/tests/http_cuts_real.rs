//! The real client and the real server with a connection that breaks at random bytes. A call in a session that has
//! received an event gets everything once and in order; every other call fails at once, and no call is executed
//! twice.
#![cfg(all(feature = "http-client", feature = "http-server"))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::client::RevisionCache;
use linchpin::testing::Random;
use linchpin::{Client, ClientError, Context, Revision, Server, args};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const SEED: u64 = 20_251_125;
const CALLS: usize = 1_500;
const AT_ONCE: usize = 48;
/// Progress notifications before a response.
const STEPS: u32 = 5;

#[args]
struct Count {
    number: usize,
}

/// How often each call was executed.
type Done = Arc<Mutex<HashMap<usize, usize>>>;

fn server(done: &Done) -> Server {
    let done = done.clone();
    Server::new("cuts", "1").tool("count", "Counts", move |Count { number }, cx: Context| {
        *done.lock().unwrap().entry(number).or_default() += 1;
        async move {
            for step in 1..=STEPS {
                cx.progress(f64::from(step));
                tokio::task::yield_now().await;
            }
            number
        }
    })
}

/// A breaking proxy: every connection carries a number of bytes to the client, and is closed.
struct Breaking {
    server: String,
    random: Mutex<Random>,
    cuts: AtomicUsize,
    whole: Mutex<bool>,
}

impl Breaking {
    async fn carry(self: Arc<Self>, mut client: TcpStream) {
        let Ok(mut server) = TcpStream::connect(&self.server).await else { return };
        let is_whole = *self.whole.lock().unwrap();
        let mut left = if is_whole { usize::MAX } else { 1 + self.random.lock().unwrap().next_below(1_500) };
        let (mut up, mut down) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                count = client.read(&mut up) => match count {
                    Ok(count) if count > 0 && server.write_all(&up[..count]).await.is_ok() => {}
                    _ => return,
                },
                count = server.read(&mut down) => match count {
                    Ok(count) if count > 0 => {
                        let carried = count.min(left);
                        left -= carried;
                        if client.write_all(&down[..carried]).await.is_err() {
                            return;
                        }
                        if left == 0 {
                            self.cuts.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    }
                    _ => return,
                },
            }
        }
    }
}

async fn breaking(server: &str, background: &mut JoinSet<()>) -> (String, Arc<Breaking>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let (random, cuts, whole) = (Mutex::new(Random::new(SEED)), AtomicUsize::new(0), Mutex::new(true));
    let line = Arc::new(Breaking { server, random, cuts, whole });
    let carrier = line.clone();
    background.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            open.spawn(carrier.clone().carry(client));
            while open.try_join_next().is_some() {}
        }
    });
    (format!("http://{address}/mcp"), line)
}

/// Outcome of a call, and its progress.
struct Ended {
    number: usize,
    result: Result<String, ClientError>,
    steps: Vec<f64>,
}

async fn call(client: Client, number: usize) -> Ended {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let call = client.call("count", json!({ "number": number })).timeout(Duration::from_mins(2));
    let call = call.progress(move |progress| seen.lock().unwrap().push(progress.done()));
    let result = call.await.map(|output| output.to_text());
    let steps = steps.lock().unwrap().clone();
    Ended { number, result, steps }
}

/// Makes all calls, several at a time.
async fn calls(client: &Client) -> Vec<Ended> {
    let (mut running, mut ended) = (JoinSet::new(), Vec::new());
    for number in 0..CALLS {
        if running.len() >= AT_ONCE {
            ended.push(running.join_next().await.unwrap().unwrap());
        }
        running.spawn(call(client.clone(), number));
    }
    ended.extend(running.join_all().await);
    ended
}

async fn scene(revision: Revision) -> (Vec<Ended>, Done, usize) {
    let done = Done::default();
    let endpoint = server(&done).http().stream_after(Duration::ZERO).bind("127.0.0.1:0").await.unwrap();
    let mut background = JoinSet::new();
    let (url, line) = breaking(&endpoint.url(), &mut background).await;
    background.spawn(async { endpoint.run_until(std::future::pending()).await.unwrap() });
    let client =
        Client::http(url).max_reconnects(1_000).revisions([revision]).revision_cache(RevisionCache::new());
    let client = client.connect().await.unwrap();
    *line.whole.lock().unwrap() = false;
    let ended = calls(&client).await;
    *line.whole.lock().unwrap() = true;
    let cuts = line.cuts.load(Ordering::Relaxed);
    assert!(cuts > CALLS / 2, "only {cuts} cuts");
    (ended, done, cuts)
}

/// Checks the invariants of every call, however its connection broke.
fn check(ended: &Ended, done: &Done, can_be_resumed: bool) -> bool {
    let Ended { number, result, steps } = ended;
    let times = done.lock().unwrap().get(number).copied().unwrap_or_default();
    assert!(times <= 1, "call {number} was done {times} times");
    let in_order = steps.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(in_order, "call {number}: {steps:?}");
    match result {
        Ok(text) => {
            assert_eq!(*text, number.to_string(), "the response of another call");
            assert_eq!(times, 1, "a response without an execution");
            assert_eq!(steps.len(), usize::try_from(STEPS).unwrap(), "call {number}: {steps:?}");
            true
        }
        Err(ClientError::OutcomeUnknown { .. }) => {
            assert!(
                !can_be_resumed || steps.is_empty(),
                "call {number} had events and was not resumed: {steps:?}"
            );
            false
        }
        // Nothing was sent: the connection broke before.
        Err(ClientError::Call(_)) if times == 0 => false,
        Err(other) => panic!("call {number}: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_session_what_has_begun_arrives_whole() {
    let (ended, done, cuts) = scene(Revision::LATEST_SESSION).await;
    let whole = ended.iter().filter(|ended| check(ended, &done, true)).count();
    assert_eq!(ended.len(), CALLS);
    assert!(whole > CALLS / 4, "{whole} of {CALLS} calls completed over {cuts} cuts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_session_a_cut_is_said_at_once() {
    let (ended, done, cuts) = scene(Revision::LATEST).await;
    let whole = ended.iter().filter(|ended| check(ended, &done, false)).count();
    assert!(whole > 0 && whole < CALLS, "{whole} of {CALLS} calls completed over {cuts} cuts");
}

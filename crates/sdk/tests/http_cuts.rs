//! Ten thousand streams cut at random bytes. A call whose stream has delivered an event id loses nothing, sees
//! nothing twice and preserves the order; every other call fails at once with an unknown outcome; none is sent
//! twice. The same seed cuts a call of the same name at the same bytes, as long as its id has as many digits.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HttpScript, ReceivedRequest, Reply, TEST_TIMEOUT, client, plain_reply, said, text};
use linchpin::testing::Random;
use linchpin::{Client, ClientError, Revision};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

const SEED: u64 = 20_260_728;
/// Number of cut streams: resumable ones, and as many for each kind of unresumable stream.
const RESUMABLE_COUNT: usize = 6_000;
const UNRESUMABLE_COUNT: usize = 2_000;
/// Number of concurrent calls.
const AT_ONCE: usize = 32;
/// Notifications before a response.
const NOTICES: usize = 6;

/// State of the calls at the server.
struct Calls {
    seed: u64,
    /// Events of a call by its tool, and what its first connection delivered.
    known: HashMap<String, Call>,
    cuts: usize,
    sent: usize,
}

struct Call {
    random: Random,
    events: Vec<Value>,
    /// Whether an event with an id has arrived completely.
    is_resumable: bool,
}

impl Calls {
    fn new(seed: u64) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Calls { seed, known: HashMap::new(), cuts: 0, sent: 0 }))
    }

    /// Returns some events of a call, cut at a random byte.
    fn cut(&mut self, name: &str, from: usize, ids: bool) -> Reply {
        let Call { random, events, is_resumable } = self.known.get_mut(name).unwrap();
        let mut reply = Reply::events();
        let head = reply.len();
        let mut first_end = usize::MAX;
        for (number, event) in events.iter().enumerate().skip(from) {
            let id = if ids { format!("id: {name}/{number}\nretry: 0\n") } else { String::new() };
            reply = reply.chunk(format!("{id}data: {event}\n\n").as_bytes());
            // The end of a chunk need not have arrived.
            first_end = first_end.min(reply.len() - 2);
        }
        let whole = reply.end();
        // A stream that is always cut near its end would never finish.
        let luck = if from < NOTICES { 1 } else { 9 };
        if from > 0 && random.next_below(luck + 1) < luck {
            return whole;
        }
        let at = 1 + random.next_below(whole.len() - 1);
        // Most cuts are within the events: the head is a small part of a stream.
        let at = if at < head { head + random.next_below(whole.len() - head) } else { at };
        self.cuts += 1;
        *is_resumable |= ids && at >= first_end;
        whole.cut_after(at)
    }

    fn called(&mut self, seen: &ReceivedRequest, ids: bool) -> Reply {
        let name = seen.body["params"]["name"].as_str().unwrap().to_owned();
        let token = &seen.body["params"]["_meta"]["progressToken"];
        let notice = |number: usize| {
            let params =
                json!({ "progressToken": token, "progress": number, "message": "x".repeat(number * 7) });
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
        };
        let mut events: Vec<_> = (0..NOTICES).map(notice).collect();
        events.push(seen.answer(&text(&name)));
        let number: u64 = name.trim_start_matches("call-").parse().unwrap();
        let call = Call { random: Random::new(self.seed + number), events, is_resumable: false };
        assert!(self.known.insert(name.clone(), call).is_none(), "{name} was received twice");
        self.sent += 1;
        self.cut(&name, 0, ids)
    }

    fn resumed(&mut self, last: &str) -> Reply {
        let (name, number) = last.split_once('/').unwrap();
        self.cut(name, number.parse::<usize>().unwrap() + 1, true)
    }
}

async fn server(revision: Revision, ids: bool, calls: &Arc<Mutex<Calls>>) -> HttpScript {
    let calls = calls.clone();
    HttpScript::start(move |seen| match (seen.method(), seen.headers.get("last-event-id")) {
        ("tools/call", _) => calls.lock().unwrap().called(seen, ids),
        ("GET", Some(last)) => calls.lock().unwrap().resumed(last),
        _ => plain_reply(revision, seen),
    })
    .await
}

/// Outcome of one call: its result, its notifications, and its duration.
struct Outcome {
    name: String,
    result: Result<String, ClientError>,
    told: Vec<f64>,
    at: Instant,
}

async fn call(client: Client, name: String) -> Outcome {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hear = told.clone();
    let call = client.call(&name, ()).progress(move |progress| hear.lock().unwrap().push(progress.done()));
    let result = timeout(TEST_TIMEOUT * 3, call).await.unwrap_or_else(|_| panic!("{name} hangs"));
    let told = told.lock().unwrap().clone();
    Outcome { result: result.map(|result| said(&result).to_owned()), told, name, at: Instant::now() }
}

/// Makes calls until this many streams were cut, and checks each outcome.
async fn run(client: &Client, calls: &Mutex<Calls>, cuts: usize, mut check: impl FnMut(&Outcome)) {
    let (mut under_way, mut number) = (JoinSet::new(), 0);
    loop {
        while under_way.len() < AT_ONCE && calls.lock().unwrap().cuts < cuts {
            number += 1;
            under_way.spawn(call(client.clone(), format!("call-{number}")));
        }
        let Some(outcome) = under_way.join_next().await else { break };
        check(&outcome.unwrap());
    }
    let calls = calls.lock().unwrap();
    assert!(calls.cuts >= cuts);
    assert_eq!(calls.sent, number, "a call was sent twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_with_event_ids_lose_nothing() {
    let calls = Calls::new(SEED);
    let script = server(Revision::LATEST_SESSION, true, &calls).await;
    let client = client(&script).max_reconnects(1_000).connect().await.unwrap();
    let (mut resumed, mut lost) = (0, 0);
    run(&client, &calls, RESUMABLE_COUNT, |outcome| {
        let Outcome { name, result, told, .. } = outcome;
        let is_resumable = calls.lock().unwrap().known[name].is_resumable;
        let expected: Vec<f64> = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0][..NOTICES].to_vec();
        match result {
            Ok(text) => {
                assert_eq!((text, told), (name, &expected), "seed {SEED}");
                resumed += 1;
            }
            Err(ClientError::OutcomeUnknown { .. }) => {
                assert!(!is_resumable && told.is_empty(), "{name} of seed {SEED}: {told:?}");
                lost += 1;
            }
            Err(other) => panic!("{name} of seed {SEED}: {other:?}"),
        }
    })
    .await;
    assert!(resumed > RESUMABLE_COUNT / 10 && lost > 0, "{resumed} resumed, {lost} lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_streams_are_lost_at_once() {
    for (revision, ids) in [(Revision::LATEST_SESSION, false), (Revision::LATEST, true)] {
        let calls = Calls::new(SEED + 1);
        let script = server(revision, ids, &calls).await;
        let client = client(&script).connect().await.unwrap();
        let (mut lost, mut late) = (0, 0);
        run(&client, &calls, UNRESUMABLE_COUNT, |outcome| {
            let Outcome { name, result, told, at } = outcome;
            let in_order: Vec<f64> = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0][..told.len()].to_vec();
            assert_eq!(told, &in_order, "{name} of seed {SEED}");
            match result {
                // The cut came after the response.
                Ok(text) => assert_eq!((text, told.len()), (name, NOTICES)),
                Err(ClientError::OutcomeUnknown { .. }) => {
                    let cut = script.cut_at(name).unwrap_or(*at);
                    late += usize::from(at.saturating_duration_since(cut) > Duration::from_millis(100));
                    lost += 1;
                }
                Err(other) => panic!("{name} of seed {SEED}: {other:?}"),
            }
        })
        .await;
        assert!(lost > UNRESUMABLE_COUNT / 2, "{lost}");
        // The machine may be busy for a moment.
        assert!(late <= lost / 100, "{late} of {lost} calls learned late of their cut");
        assert!(script.of("GET").iter().all(|seen| !seen.headers.contains_key("last-event-id")));
    }
}

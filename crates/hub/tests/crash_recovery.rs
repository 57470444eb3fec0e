//! The hub is killed a hundred times during five thousand calls: its responses stay true, no call runs twice,
//! no call and no process is left over, and it restarts at once.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hint::spin_loop;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use hub::{Home, Hub};
use linchpin_hub_core::digest::Digest;
use rest::{HttpResponse, Rest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::{Value, json};

const KILLS: usize = 100;
const CALLS: usize = 5_000;
const WORKERS: usize = 6;
/// Maximum time until all processes have exited after a kill, and until a started hub is ready.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);
const TEST_TIMEOUT: Duration = Duration::from_mins(1);
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/counting.py");

/// Pseudo-random numbers with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Call that a hub has acknowledged.
struct AcknowledgedCall {
    key: String,
    status: String,
}

/// Record of the calls so far.
#[derive(Default)]
struct CallLog {
    /// Next key.
    keys: AtomicUsize,
    /// Calls that were sent to a running hub.
    sent: AtomicUsize,
    /// Acknowledged calls by id.
    acknowledged: Mutex<BTreeMap<String, AcknowledgedCall>>,
}

impl CallLog {
    /// Makes calls until the hub stops responding, and signals when this number of calls has started.
    fn work(&self, rest: &Rest, begun: &AtomicUsize, calls: usize, started: &SyncSender<()>) {
        loop {
            if begun.fetch_add(1, Ordering::SeqCst) == calls {
                started.send(()).unwrap();
            }
            let key = format!("key-{}", self.keys.fetch_add(1, Ordering::SeqCst));
            let form = json!({ "server": "counting", "name": "count", "arguments": { "key": key } });
            let answer = rest.send("POST", "/api/v1/calls", Some(&form));
            let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
            if !answer.as_ref().is_err_and(refused) {
                self.sent.fetch_add(1, Ordering::SeqCst);
            }
            let Ok(answer) = answer else { return };
            assert!(answer.is_success(), "{}", answer.text());
            let call = answer.json();
            let (id, status) = (text(&call["id"]), text(&call["status"]));
            self.acknowledged.lock().unwrap().insert(id, AcknowledgedCall { key, status });
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// A hub with the counting server, killed and restarted.
struct Place {
    home: Home,
    ready: PathBuf,
    slowest_start: Duration,
    slowest_end: Duration,
}

impl Place {
    fn new() -> Self {
        let home = Home::new();
        let file = home.file("keys-that-came").display().to_string();
        home.write(&format!(
            "demo = false\n[servers.counting]\ncommand = \"python3\"\nargs = [\"-IS\", {SERVER:?}, {file:?}]\n"
        ));
        let ready = home.file("ready.json");
        Place { home, ready, slowest_start: Duration::ZERO, slowest_end: Duration::ZERO }
    }

    /// Starts the hub and asserts that it is ready soon.
    fn start(&mut self) -> (Hub, Rest) {
        let _ = fs::remove_file(&self.ready); // of the previous hub, if any
        let begun = Instant::now();
        let hub = self.home.start_with(&["--ready-file", self.ready.to_str().unwrap()]);
        let rest = Rest::ready(&self.ready);
        let answer = rest.request("GET", "/readyz", &[], "").unwrap();
        let took = begun.elapsed();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(took < RECOVERY_TIMEOUT, "it was ready after {took:?}");
        self.slowest_start = self.slowest_start.max(took);
        (hub, rest)
    }

    /// Returns the lineage of the running hub.
    fn mark(&self) -> String {
        fs::read_to_string(self.home.data().join("hub.guard")).unwrap().trim_end().to_owned()
    }

    fn get(rest: &Rest, path: &str) -> HttpResponse {
        let answer = rest.send("GET", path, None).unwrap();
        assert!(answer.is_success(), "{}", answer.text());
        answer
    }

    /// Returns the status of all call records, by id.
    fn calls(rest: &Rest) -> BTreeMap<String, String> {
        let (mut all, mut after) = (BTreeMap::new(), String::new());
        loop {
            let page = Self::get(rest, &format!("/api/v1/calls?limit=500{after}")).json();
            let items = page["items"].as_array().unwrap();
            all.extend(items.iter().map(|call| (text(&call["id"]), text(&call["status"]))));
            let Some(next) = page["next"].as_str() else { return all };
            after = format!("&after={next}");
        }
    }
}

/// Waits until no process of the lineage is left. Returns the time since `begun`.
fn wait_until_gone(mark: &str, begun: Instant) -> Duration {
    loop {
        let alive = lineage_processes(mark);
        let passed = begun.elapsed();
        assert!(passed < RECOVERY_TIMEOUT, "{alive:?} are alive after {passed:?}");
        if alive.is_empty() {
            return passed;
        }
        for id in alive.into_iter().filter_map(Pid::from_raw) {
            let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { continue }; // it is gone
            let left = Timespec::try_from(RECOVERY_TIMEOUT.saturating_sub(begun.elapsed())).unwrap();
            poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)).unwrap();
        }
    }
}

/// Returns the live processes of a lineage.
fn lineage_processes(mark: &str) -> Vec<i32> {
    let carries = |id: &i32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    ids.filter(carries).collect()
}

/// Returns the digests of the arguments, as recorded in the audit.
fn digest(key: &str) -> String {
    Digest::of("linchpin arguments").json(&json!({ "key": key })).finish().to_string()
}

#[test]
fn nothing_is_lost_or_done_twice_however_often_the_hub_is_killed() {
    let (mut place, mut dice, done) = (Place::new(), Dice(6), CallLog::default());
    let (mut hub, mut rest) = place.start();
    let connected = rest.send("POST", "/api/v1/servers/counting/connect", None).unwrap();
    assert!(connected.is_success(), "{}", connected.text());
    let mut children = 0;
    for kill in 1..=KILLS {
        let mark = place.mark();
        // The last round makes all remaining calls.
        let missing = if kill == KILLS { CALLS.saturating_sub(done.sent.load(Ordering::SeqCst)) } else { 0 };
        let calls = missing + usize::try_from(dice.roll(110)).unwrap();
        let (begun, (sender, started)) = (AtomicUsize::new(0), sync_channel(1));
        let killed = std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| done.work(&rest, &begun, calls, &sender));
            }
            started.recv_timeout(TEST_TIMEOUT).unwrap();
            // Kill at a random point of this call or of the next ones.
            let moment = Instant::now() + Duration::from_micros(dice.roll(15_000));
            while Instant::now() < moment {
                spin_loop();
            }
            children += usize::from(lineage_processes(&mark).len() >= 2); // the server and its child
            hub.signal(Signal::KILL);
            Instant::now()
        });
        drop(hub);
        // Every other time, the next hub starts while the guard of the previous one is still working.
        if kill % 2 == 0 {
            place.slowest_end = place.slowest_end.max(wait_until_gone(&mark, killed));
        }
        (hub, rest) = place.start();
        wait_until_gone(&mark, killed);
    }

    let calls = Place::calls(&rest);
    let exported = String::from_utf8(Place::get(&rest, "/api/v1/audit/export").body).unwrap();
    let rows: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut intents, mut digests, mut ends) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    for row in &rows {
        let fields = &row["fields"];
        if row["action"] == "call.intent" {
            assert!(
                intents.insert(text(&fields["call"])) && digests.insert(text(&fields["arguments"])),
                "{row}"
            );
        } else if row["action"] == "call.finished" {
            assert_eq!(ends.insert(text(&fields["call"]), text(&fields["status"])), None, "{row}");
        }
    }
    assert_eq!(ends, calls, "every call has finished, and audit and history agree");
    assert!(intents.iter().eq(calls.keys()), "each call has an intent, and each intent a call");
    let is_over = |status: &String| ["success", "error", "unknown"].contains(&status.as_str());
    assert!(calls.values().all(is_over), "{calls:?}");
    let acknowledged = done.acknowledged.into_inner().unwrap();
    let missing = acknowledged
        .iter()
        .filter(|(id, call)| calls.get(*id) != Some(&call.status) || !digests.contains(&digest(&call.key)));
    let missing = missing.count();

    let came = fs::read_to_string(place.home.file("keys-that-came")).unwrap();
    let (ran, different) = (came.lines().count(), came.lines().collect::<BTreeSet<_>>());
    let twice = ran - different.len();
    assert!(
        different.iter().all(|key| digests.contains(&digest(key))),
        "a call was executed without an intent"
    );
    let succeeded = acknowledged.values().filter(|call| call.status == "success");
    assert!(
        succeeded.clone().all(|call| different.contains(&*call.key)),
        "an acknowledged call was not executed"
    );
    assert!(place.home.json(&["audit", "verify"])["intact"] == true);
    let (status, log) = hub.end();
    assert!(status.success(), "{log}");
    assert!(place.home.json(&["audit", "verify"])["intact"] == true);

    let unknown = calls.values().filter(|status| *status == "unknown").count();
    let sent = done.sent.load(Ordering::SeqCst);
    println!(
        "kills={KILLS} sent={sent} acknowledged={} (success {}) recorded={} unknown={unknown} ran={ran} twice={twice} \
         missing={missing} kills with grandchildren={children} slowest start={} ms slowest end of children={} ms",
        acknowledged.len(),
        succeeded.count(),
        calls.len(),
        place.slowest_start.as_millis(),
        place.slowest_end.as_millis(),
    );
    assert_eq!((twice, missing), (0, 0));
    assert!(sent >= CALLS && acknowledged.len() > CALLS / 2 && children > KILLS / 2);
}

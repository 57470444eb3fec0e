//! Three hubs on one database, behind a round-robin load balancer: clients do not
//! notice which hub responds, nor that one of them is killed.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hub::{Home, Hub};
use rest::{HttpResponse, Rest};
use rustix::process::Signal;
use serde_json::{Value, json};
use test_postgres::server;

const COUNTING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/counting.py");
const TEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Public host name.
const HOST: &str = "hub.example";

/// Forwards each connection to the next hub that accepts it.
fn balance(hubs: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let turn = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let first = turn.fetch_add(1, Ordering::SeqCst);
            let order = (0..hubs.len()).map(|next| &hubs[(first + next) % hubs.len()]);
            let Some(hub) = order.into_iter().find_map(|hub| TcpStream::connect(hub).ok()) else { continue };
            for (from, to) in [(&client, &hub), (&hub, &client)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to); // either side may close it
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address
}

/// The hubs and their public address.
struct Hubs {
    homes: Vec<Home>,
    running: Vec<Option<Hub>>,
    address: String,
    /// API token of a user, valid on all hubs.
    token: String,
}

impl Hubs {
    fn start() -> Self {
        let database = server().create_database();
        let homes: Vec<_> = (0..3).map(|_| Home::with_database(server().url(&database))).collect();
        let came = homes[0].file("keys-that-came").display().to_string();
        for home in &homes {
            home.write(&format!(
                "url = \"https://{HOST}\"\ndemo = false\n[servers.counting]\ncommand = \"python3\"\n\
                 args = [\"-IS\", {COUNTING:?}, {came:?}]\n"
            ));
        }
        // The first hub creates the keys; then all start at the same time.
        let first = start_hub(&homes[0], &homes[0]);
        assert!(first.end().0.success());
        let running: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> =
                homes.iter().map(|home| scope.spawn(|| Some(start_hub(home, &homes[0])))).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        let urls = running.iter().flatten().map(|hub| hub.url.strip_prefix("http://").unwrap().to_owned());
        let address = balance(urls.collect());
        let token = homes[0].ok(&["token", "add", "test"]).trim().to_owned();
        Hubs { homes, running, address, token }
    }

    fn rest(&self) -> Rest {
        Rest::new(&format!("http://{}", self.address), &self.token)
    }
}

fn start_hub(home: &Home, first: &Home) -> Hub {
    home.start_with(&["--key-file", first.keys().to_str().unwrap()])
}

/// Sends a request to any hub.
fn request(rest: &Rest, method: &str, path: &str, body: Option<&Value>) -> io::Result<HttpResponse> {
    let (authorization, body) = (rest.authorization(), body.map(Value::to_string).unwrap_or_default());
    let headers = [("host", HOST), ("authorization", &*authorization), ("content-type", "application/json")];
    let headers = &headers[..if body.is_empty() { 2 } else { 3 }];
    rest.request(method, &format!("/api/v1{path}"), headers, &body)
}

#[track_caller]
fn ok(rest: &Rest, method: &str, path: &str, body: Option<&Value>) -> Value {
    let answer = request(rest, method, path, body).unwrap();
    assert!(answer.is_success(), "{}", answer.text());
    answer.json()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// A call of the counting server.
fn count(key: &str) -> Value {
    json!({ "server": "counting", "name": "count", "arguments": { "key": key } })
}

/// Event stream of one hub.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(rest: &Rest) -> Self {
        let authorization = rest.authorization();
        let headers = [("host", HOST), ("authorization", &*authorization)];
        let socket = rest.open("GET", "/api/v1/events", &headers, 0).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut stream = Stream(BufReader::new(socket));
        while !stream.line().starts_with("retry:") {}
        stream
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
        line
    }

    /// Waits for the event of a call with this status, and returns the event id.
    fn until(&mut self, call: &str, status: &str) -> String {
        self.wait_for(&[&format!("{call:?}"), &format!("{status:?}")])
    }

    /// Waits for an event that contains all these texts, and returns its id.
    fn wait_for(&mut self, texts: &[&str]) -> String {
        let mut id = String::new();
        loop {
            let line = self.line();
            match line.split_once(": ") {
                Some(("id", event)) => event.trim().clone_into(&mut id),
                Some(("data", data)) if texts.iter().all(|text| data.contains(text)) => return id,
                _ => {}
            }
        }
    }
}

#[test]
fn three_hubs_are_one() {
    let hubs = Hubs::start();
    let rest = hubs.rest();
    ok(&rest, "POST", "/servers/counting/connect", None);
    let tools = ok(&rest, "GET", "/tools", None);
    assert_eq!(tools["items"].as_array().unwrap().len(), 1, "{tools}");
    let agent = json!({ "name": "helper", "servers": { "counting": {} }, "approval": "always-ask" });
    let agent = text(&ok(&rest, "POST", "/agents", Some(&agent))["id"]);
    let token = ok(&rest, "POST", &format!("/agents/{agent}/tokens"), Some(&json!({ "name": "test" })));
    let helper = Rest::new(&format!("http://{}", hubs.address), token["token"].as_str().unwrap());

    // An approval at one hub releases a call that waits at another, and all hubs publish it.
    let mut streams = [Stream::open(&rest), Stream::open(&rest), Stream::open(&rest)];
    for round in 0..12 {
        let wanted = count(&format!("asked-{round}"));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ok(&helper, "POST", "/calls", Some(&wanted)));
            let open = loop {
                let open = ok(&rest, "GET", "/approvals?decision=open", None);
                if let Some(open) = open["items"].get(0) {
                    break open.clone();
                }
            };
            let decided =
                ok(&rest, "POST", &format!("/approvals/{}/approve", text(&open["id"])), Some(&json!({})));
            assert_eq!(decided["decision"], "used");
            let call = waits.join().unwrap();
            assert_eq!((&call["status"], &call["summary"]), (&json!("success"), &wanted["arguments"]["key"]));
            let heard: BTreeSet<_> = streams
                .iter_mut()
                .map(|stream| stream.until(call["id"].as_str().unwrap(), "success"))
                .collect();
            assert_eq!(heard.len(), 1, "the same event, with the same id: {heard:?}");
        });
    }

    // A change at one hub takes effect at all hubs at once: no call runs under the old rules.
    let path = format!("/agents/{agent}");
    for round in 0..30 {
        let (approval, status) = if round % 2 == 0 { ("auto", "success") } else { ("always-ask", "pending") };
        ok(&rest, "PATCH", &path, Some(&json!({ "approval": approval })));
        for (at, stream) in streams.iter_mut().enumerate() {
            let call = ok(&helper, "POST", "/calls?wait=false", Some(&count(&format!("rules-{round}-{at}"))));
            let id = call["id"].as_str().unwrap();
            if status == "pending" {
                assert_eq!(call["status"], status);
                ok(&rest, "POST", &format!("/calls/{id}/cancel"), None);
            } else {
                stream.until(id, status);
            }
        }
    }

    // Rate limits are counted across all hubs.
    ok(
        &rest,
        "PATCH",
        &format!("/agents/{agent}"),
        Some(&json!({ "approval": "auto", "calls_per_minute": 5 })),
    );
    let limited =
        (0..12).map(|number| request(&helper, "POST", "/calls", Some(&count(&format!("limited-{number}")))));
    let statuses: Vec<_> = limited.map(|answer| answer.unwrap().status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 7, "{statuses:?}");
    println!("{}", kill_one_hub(hubs));
}

/// Kills one hub during the calls, and returns the outcomes.
fn kill_one_hub(mut hubs: Hubs) -> String {
    let rest = hubs.rest();
    let (acknowledged, killed) = (AtomicUsize::new(0), hubs.running[1].take().unwrap());
    let told: BTreeMap<String, String> = std::thread::scope(|scope| {
        let work = |worker: usize| {
            let (rest, acknowledged) = (&rest, &acknowledged);
            move || {
                let mut told = BTreeMap::new();
                for number in 0..100 {
                    let key = format!("work-{worker}-{number}");
                    // An interrupted call may or may not have run, so it is not repeated.
                    let Ok(answer) = request(rest, "POST", "/calls", Some(&count(&key))) else { continue };
                    assert!(answer.is_success(), "{}", answer.text());
                    told.insert(text(&answer.json()["id"]), text(&answer.json()["status"]));
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                told
            }
        };
        let workers: Vec<_> = (0..6).map(|worker| scope.spawn(work(worker))).collect();
        while acknowledged.load(Ordering::SeqCst) < 150 {
            std::thread::yield_now();
        }
        killed.signal(Signal::KILL);
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    drop(killed);
    assert!(told.len() > 500, "{}", told.len());
    // No acknowledged outcome is missing or different; the outcome of calls that ran on the killed hub is unknown.
    let calls = loop {
        let calls = all_calls(&rest);
        if calls.values().all(|status| status != "running") {
            break calls;
        }
    };
    for (call, status) in &told {
        assert_eq!(calls.get(call), Some(status));
    }
    let came = fs::read_to_string(hubs.homes[0].file("keys-that-came")).unwrap();
    let distinct: BTreeSet<_> = came.lines().collect();
    assert_eq!(distinct.len(), came.lines().count(), "no call runs twice");
    let verified = hubs.homes[0].run(&["--json", "audit", "verify"]).expect_output(0, &[]).json();
    assert_eq!(verified["intact"], true, "{verified}");
    let unknown = calls.values().filter(|status| *status == "unknown").count();
    // The killed hub starts again and rejoins the cluster.
    hubs.running[1] = Some(start_hub(&hubs.homes[1], &hubs.homes[0]));
    for hub in hubs.running.into_iter().flatten() {
        assert!(hub.end().0.success());
    }
    format!("acknowledged={} recorded={} unknown={unknown} twice=0 missing=0", told.len(), calls.len())
}

/// Returns the status of every call, by id.
fn all_calls(rest: &Rest) -> BTreeMap<String, String> {
    let (mut calls, mut after) = (BTreeMap::new(), String::new());
    loop {
        let page = ok(rest, "GET", &format!("/calls?limit=500{after}"), None);
        let items = page["items"].as_array().unwrap();
        calls.extend(items.iter().map(|call| (text(&call["id"]), text(&call["status"]))));
        let Some(next) = page["next"].as_str() else { return calls };
        after = format!("&after={next}");
    }
}

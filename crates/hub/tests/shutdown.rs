//! Shutdown of a hub: gracefully, with requests in flight completed and stdio servers stopped; at once after a second
//! signal.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use hub::Home;
use rest::Rest;
use rustix::process::Signal;
use serde_json::json;
use support::LINCHPIN;

const TROUBLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/trouble.py");

#[test]
fn what_is_under_way_is_answered_and_the_database_closed_before_the_hub_has_ended() {
    let home = Home::new();
    let ready = home.file("ready.json");
    let mut hub = home.start_with(&["--ready-file", ready.to_str().unwrap()]);
    home.ok(&["server", "connect", "demo"]);
    let rest = Rest::ready(&ready);
    let authorization = rest.authorization();
    let who = ("authorization", authorization.as_str());
    let mut events = BufReader::new(rest.open("GET", "/api/v1/events", &[who], 0).unwrap()).lines();
    assert!(events.any(|line| line.unwrap().starts_with("retry")), "the event stream is open");
    let form = json!({ "server": "demo", "name": "echo", "arguments": { "message": "hi" } }).to_string();
    let headers = [who, ("content-type", "application/json"), ("expect", "100-continue")];
    let mut call = BufReader::new(rest.open("POST", "/api/v1/calls", &headers, form.len()).unwrap());
    let mut line = String::new();
    call.read_line(&mut line).unwrap();
    assert!(line.contains(" 100 "), "the hub waits for the rest: {line}");

    hub.signal(Signal::TERM);
    hub.wait_for("hub shutting down");
    assert_eq!(events.map_while(Result::ok).last().as_deref(), Some(""), "the event stream is closed");
    call.get_mut().write_all(form.as_bytes()).unwrap();
    let mut answer = String::new();
    call.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 OK") && answer.contains(r#""status":"success""#), "{answer}");
    let (status, written) = hub.wait();
    assert!(status.success() && !written.contains("WARN"), "{written}");
    for file in ["hub.db-wal", "hub.db-shm", "hub.json"] {
        assert!(!home.data().join(file).exists(), "{file}");
    }
    let _hub = home.start();
    assert_eq!(home.json(&["calls"])[0]["status"], "success");
}

#[test]
fn a_hub_that_ends_lets_its_programs_end_in_good_order() {
    let home = Home::new();
    fs::create_dir_all(home.data()).unwrap();
    let last = home.file("last words");
    let script = "\"$0\" demo; echo ended > \"$1\"";
    let words = [script, LINCHPIN, last.to_str().unwrap()].map(|word| format!("{word:?}")).join(", ");
    home.write(&format!("[servers.polite]\ncommand = \"sh\"\nargs = [\"-c\", {words}]\n"));
    let hub = home.start();
    home.ok(&["server", "connect", "polite"]);
    assert!(!last.exists());
    let (status, written) = hub.end();
    assert!(status.success(), "{written}");
    assert_eq!(fs::read_to_string(&last).unwrap(), "ended\n");
}

#[test]
fn whoever_waits_for_a_person_is_told_how_far_it_is() {
    let home = Home::new();
    let ready = home.file("ready.json");
    let hub = home.start_with(&["--ready-file", ready.to_str().unwrap()]);
    home.ok(&["server", "connect", "demo"]);
    home.ok(&["agent", "add", "Ada", "--server", "demo"]);
    let token = home.ok(&["token", "add", "test", "--agent", "Ada"]);
    let as_agent = Rest::new(&hub.url, token.trim());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let form = json!({ "server": "demo", "name": "echo", "arguments": { "message": "hi" } });
            as_agent.send("POST", "/api/v1/calls", Some(&form)).unwrap()
        });
        let mut looks = (0..1_000).map(|_| home.json(&["approvals"]));
        assert!(looks.any(|open| !open.as_array().unwrap().is_empty()));
        let (status, written) = hub.end();
        assert!(status.success(), "{written}");
        let answer = waiting.join().unwrap();
        assert_eq!((answer.status, &answer.json()["status"]), (202, &"pending".into()), "{}", answer.text());
    });
    let _hub = home.start();
    assert_eq!(home.json(&["approvals"]).as_array().unwrap().len(), 1, "the approval is still pending");
}

#[test]
fn the_second_signal_ends_it_at_once() {
    let home = Home::new();
    let called = home.file("called").display().to_string();
    home.write(&format!(
        "[servers.trouble]\ncommand = \"python3\"\nargs = [\"-IS\", {TROUBLE:?}, {called:?}]\ntimeout_ms = 300000\n"
    ));
    let mut hub = home.start();
    home.ok(&["server", "connect", "trouble"]);
    home.ok(&["tool", "call", "mcp_trouble__hang", "--no-wait"]);
    let mut looks = (0..1_000).map(|_| fs::read_to_string(&called).unwrap());
    assert!(looks.any(|text| text == "hang\n"), "the call is running");
    hub.signal(Signal::TERM);
    hub.wait_for("hub shutting down");
    hub.signal(Signal::INT);
    let (status, written) = hub.wait();
    assert!(status.success() && written.contains("second signal; stopping at once"), "{written}");
    let _hub = home.start();
    assert_eq!(home.json(&["calls"])[0]["status"], "unknown");
}

#[test]
fn a_hub_that_nobody_reads_stays() {
    let home = Home::new();
    let mut child = std::process::Command::new(LINCHPIN)
        .arg("--data-dir")
        .arg(home.data())
        .args(["--listen", "127.0.0.1:0"])
        .stdin(std::process::Stdio::null())
        .stdout(fs::File::options().write(true).open("/dev/full").unwrap())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("failed to print the hub URL")));
    assert!(lines.any(|line| line.contains("hub ready")));
    home.ok(&["server", "list"]);
    child.kill().unwrap();
    child.wait().unwrap();
}

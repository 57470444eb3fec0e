//! `linchpin gateway`, and clients of the gateway whose hub is killed.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use hub::Home;
use rest::Rest;
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{LINCHPIN, Run, run};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/counting.py");

/// Starts a hub with a server that counts its calls, and an agent whose calls require approval. Also returns the file
/// with the keys of the calls.
fn hub_with_agent() -> (Home, hub::Hub, std::path::PathBuf) {
    let home = Home::new();
    let keys = home.file("keys");
    home.ok(&["server", "add", "counting", "--", "python3", SERVER, keys.to_str().unwrap()]);
    let hub = home.start();
    home.ok(&["server", "sync", "counting"]);
    home.ok(&["agent", "add", "Asks", "--server", "counting"]);
    (home, hub, keys)
}

/// Calls the tool once through `linchpin gateway`, with a client that cannot elicit.
fn call(home: &Home, key: &str) -> Child {
    let arguments = json!({ "key": key }).to_string();
    Command::new(LINCHPIN)
        .args(["call", "--revision", "2024-11-05", "mcp_counting__count", "--args", &arguments, "--"])
        .args([LINCHPIN, "--data-dir"])
        .arg(home.data())
        .args(["gateway", "--agent", "Asks"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills a hub.
fn kill(hub: hub::Hub) {
    hub.signal(Signal::KILL);
    drop(hub.wait());
}

/// Waits for a condition.
fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "{what}");
        yield_now();
    }
}

fn open_approval(home: &Home) -> Option<String> {
    let listed = home.run(&["--json", "approvals", "list"]);
    let all: Value = serde_json::from_str(&listed.stdout).ok()?;
    let open = all.as_array()?.iter().find(|approval| approval["decision"] == "open")?;
    open["id"].as_str().map(str::to_owned)
}

fn finish(child: Child) -> (bool, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn a_call_that_waits_while_the_hub_is_killed_runs_once_when_it_is_approved() {
    let (home, hub, keys) = hub_with_agent();
    let waiting = call(&home, "one");
    let approval = wait_for("no approval was requested", || open_approval(&home));
    kill(hub);
    let (succeeded, text) = finish(waiting);
    assert!(!succeeded, "{text}");
    let hub = home.start();
    // Approved while no client waits: the tool runs now, and its result waits for the client.
    home.ok(&["approvals", "approve", &approval]);
    let (succeeded, text) = finish(call(&home, "one"));
    assert!(succeeded && text.contains("one"), "{text}");
    assert_eq!(std::fs::read_to_string(&keys).unwrap(), "one\n");
    // The same request again is a new call.
    let waiting = call(&home, "one");
    let next = wait_for("no approval was requested", || open_approval(&home));
    assert_ne!(next, approval);
    home.ok(&["approvals", "deny", &next]);
    let (succeeded, text) = finish(waiting);
    assert!(!succeeded && text.contains("denied"), "{text}");
    assert_eq!(std::fs::read_to_string(&keys).unwrap(), "one\n");
    drop(hub.end());
}

#[test]
fn a_client_that_returns_after_the_kill_of_the_hub_waits_for_the_same_approval() {
    let (home, hub, keys) = hub_with_agent();
    let waiting = call(&home, "one");
    let approval = wait_for("no approval was requested", || open_approval(&home));
    kill(hub);
    finish(waiting);
    let hub = home.start();
    let returned = call(&home, "one");
    let calls = || home.json(&["calls", "list"]).as_array().map(Vec::len);
    assert_eq!(wait_for("no open approval", || open_approval(&home)), approval);
    home.ok(&["approvals", "approve", &approval]);
    let (succeeded, text) = finish(returned);
    assert!(succeeded && text.contains("one"), "{text}");
    assert_eq!(std::fs::read_to_string(&keys).unwrap(), "one\n");
    assert_eq!(calls(), Some(1));
    drop(hub.end());
}

#[test]
fn the_gateway_runs_the_hub_itself_if_none_is_running() {
    let home = Home::new();
    let data = home.data();
    let gateway = [LINCHPIN, "--data-dir", data.to_str().unwrap(), "gateway"];
    for revision in ["2024-11-05", "2026-07-28"] {
        let arguments =
            ["call", "--revision", revision, "mcp_demo__add", "--args", r#"{"a": 2, "b": 40}"#, "--"];
        let Run { code, stdout, stderr } = run(&[&arguments[..], &gateway].concat());
        assert_eq!((code, stdout.contains("42")), (Some(0), true), "{stdout}{stderr}");
        assert!(home.data().join("hub.db").exists());
    }
}

#[test]
fn a_second_gateway_uses_the_hub_of_the_first() {
    let home = Home::new();
    let mut first = Command::new(LINCHPIN)
        .arg("--data-dir")
        .arg(home.data())
        .args(["gateway"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let url = wait_for("the hub of the first gateway does not start", || {
        let text = std::fs::read_to_string(home.data().join("hub.json")).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["url"].as_str().map(str::to_owned)
    });
    let data = home.data();
    let arguments = ["call", "mcp_demo__add", "--args", r#"{"a": 2, "b": 40}"#, "--", LINCHPIN, "--data-dir"];
    let second = run(&[&arguments[..], &[data.to_str().unwrap(), "gateway"]].concat());
    assert!(second.stdout.contains("42"), "{}{}", second.stdout, second.stderr);
    // Both use the hub that also serves the REST API.
    let text = std::fs::read_to_string(home.data().join("hub.json")).unwrap();
    let running: Value = serde_json::from_str(&text).unwrap();
    let rest = Rest::new(&url, running["token"].as_str().unwrap());
    let calls = rest.send("GET", "/api/v1/calls", None).unwrap().json();
    assert_eq!(calls["items"].as_array().map(Vec::len), Some(1), "{calls}");
    // The end of its input ends the first gateway with its hub.
    let mut input = first.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    drop(input);
    assert!(first.wait().unwrap().success());
    assert!(!home.data().join("hub.json").exists());
}

#[test]
fn an_unknown_agent_is_a_clear_error() {
    let home = Home::new();
    let hub = home.start();
    home.run(&["gateway", "--agent", "Missing"]).expect_output(1, &["there is no agent `Missing`"]);
    drop(hub.end());
    home.run(&["gateway", "--agent", "Missing"]).expect_output(1, &["there is no agent `Missing`"]);
}

#[test]
fn a_hub_is_not_its_own_server() {
    let home = Home::new();
    let data = home.data();
    home.ok(&["server", "add", "own", "--", LINCHPIN, "--data-dir", data.to_str().unwrap(), "gateway"]);
    let hub = home.start();
    home.run(&["server", "sync", "own"]).expect_output(1, &["a hub cannot be its own server"]);
    drop(hub.end());
}

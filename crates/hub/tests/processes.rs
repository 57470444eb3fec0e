//! Limits of a stdio server, which runs as the user of the hub: secrets of the hub do not reach its callers, the memory
//! of the hub is closed to it, and no process that it starts outlives it.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hub::{Home, Hub};
use rest::Rest;
use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::{Value, json};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/reaching.py");
/// Time after which nothing of a server may be left: two seconds, and more on a busy machine. A call may take longer.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

fn start() -> (Home, Hub) {
    let home = Home::new();
    home.write(&format!("[servers.reaching]\ncommand = \"python3\"\nargs = [\"-IS\", {SERVER:?}]\n"));
    let hub = home.start_with(&["-v", "--ready-file", home.file("ready.json").to_str().unwrap()]);
    home.ok(&["server", "sync", "reaching"]);
    (home, hub)
}

/// Calls a tool with a path, and returns everything that the hub says about it.
fn call(home: &Home, tool: &str, path: &Path) -> String {
    let arguments = json!({ "path": path }).to_string();
    let run = home.run(&["--json", "tool", "call", &format!("mcp_reaching__{tool}"), "--args", &arguments]);
    run.stdout + &run.stderr
}

fn running(home: &Home) -> Value {
    serde_json::from_slice(&fs::read(home.data().join("hub.json")).unwrap()).unwrap()
}

/// Asserts that a text has no part of a secret that could be used, in no spelling.
#[track_caller]
fn assert_lacks(said: &str, secret: &str) {
    let digits = secret.bytes().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    let mut parts = vec![secret[4..44].to_owned(), digits[8..80].to_owned()];
    for before in ["", "a", "ab"] {
        let encoded = STANDARD_NO_PAD.encode(format!("{before}{secret}"));
        parts.push(encoded[8..48].to_owned());
    }
    for part in parts {
        assert!(!said.contains(&part), "{part} of {secret} is in:\n{said}");
    }
}

#[test]
fn a_tool_that_reads_the_files_of_the_hub_returns_no_secret() {
    let (home, hub) = start();
    let token = running(&home)["token"].as_str().unwrap().to_owned();
    let issued = home.json(&["token", "add", "script"])["token"].as_str().unwrap().to_owned();
    let note = home.file("note");
    fs::write(&note, format!("two: {token} {issued}\n")).unwrap();
    home.ok(&["key", "rotate"]);
    let keys = fs::read_to_string(home.keys()).unwrap();
    let keys: Vec<_> = keys.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    assert!(keys.len() >= 2 && keys.iter().all(|key| key.len() == 64), "{}", keys.len());
    let secrets = || keys.iter().chain([&token, &issued]);
    let rest = Rest::ready(&home.file("ready.json"));
    for path in [home.data().join("hub.json"), home.file("ready.json"), home.keys(), note] {
        let read = call(&home, "read", &path);
        let failed = call(&home, "fail", &path);
        let uri = json!({ "uri": format!("file://{}", path.display()) });
        let resource =
            rest.send("POST", "/api/v1/servers/reaching/resources/read", Some(&uri)).unwrap().text();
        for said in [read, failed, resource] {
            assert!(said.contains("***"), "{}: {said}", path.display());
            secrets().for_each(|secret| assert_lacks(&said, secret));
        }
    }
    let (_, log) = hub.end();
    secrets().for_each(|secret| assert_lacks(&log, secret));
}

#[test]
fn a_server_cannot_open_the_memory_or_the_environment_of_the_hub() {
    let (home, _hub) = start();
    let opened = call(&home, "open", Path::new("/proc/self/environ"));
    assert!(opened.contains("opened /proc/self/environ"), "{opened}");
    for process in hub_processes(&running(&home)["pid"].to_string()) {
        for file in ["mem", "environ", "maps", "auxv"] {
            let said = call(&home, "open", Path::new(&format!("/proc/{process}/{file}")));
            assert!(said.contains("PermissionError"), "{file} of {process}: {said}");
        }
    }
}

/// The hub and its children that are `linchpin`, too: its guard and the supervisors of its servers.
fn hub_processes(hub: &str) -> Vec<String> {
    let mut found = vec![hub.to_owned()];
    for entry in fs::read_dir("/proc").unwrap() {
        let id = entry.unwrap().file_name().into_string().unwrap();
        let read = |name: &str| fs::read_to_string(format!("/proc/{id}/{name}")).unwrap_or_default();
        let stat = read("stat");
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent == Some(hub) && read("cmdline").contains("linchpin\0__") {
            found.push(id);
        }
    }
    assert!(found.len() >= 3, "the hub, its guard and a supervisor: {found:?}");
    found
}

/// Lets the server start a process that tries to escape, and returns the process.
fn detached(home: &Home) -> Pid {
    let file = home.file("detached");
    let said = call(home, "detach", &file);
    assert!(said.contains("started"), "{said}");
    let process = read_process_id(&file);
    assert!(test_kill_process(process).is_ok());
    process
}

#[track_caller]
fn assert_gone_soon(process: Pid) {
    let begun = Instant::now();
    while test_kill_process(process).is_ok() {
        assert!(begun.elapsed() < CLEANUP_TIMEOUT, "the process still runs");
        std::thread::yield_now();
    }
}

/// Waits for the process that writes its id to a file.
#[track_caller]
fn read_process_id(file: &Path) -> Pid {
    let begun = Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < CLEANUP_TIMEOUT, "the process was not started");
        std::thread::yield_now();
    }
    Pid::from_raw(fs::read_to_string(file).unwrap().trim().parse().unwrap()).unwrap()
}

#[test]
fn a_server_that_is_disabled_ends_while_a_call_is_running() {
    let (home, _hub) = start();
    let file = home.file("detached");
    let (process, said) = std::thread::scope(|scope| {
        let calling = scope.spawn(|| call(&home, "hang", &file));
        let process = read_process_id(&file);
        home.ok(&["server", "disable", "reaching"]);
        assert_gone_soon(process);
        (process, calling.join().unwrap())
    });
    assert!(test_kill_process(process).is_err());
    assert!(said.contains("\"unknown\""), "{said}");
}

#[test]
fn a_part_of_a_file_of_the_hub_has_no_usable_part_of_a_secret() {
    let (home, _hub) = start();
    let token = running(&home)["token"].as_str().unwrap().to_owned();
    let file = fs::read_to_string(home.data().join("hub.json")).unwrap();
    let begin = file.find(&token).unwrap();
    let note = home.file("note");
    for part in [&file[..begin + 104], &file[begin + 41..begin + 103], &file[begin + 60..]] {
        fs::write(&note, part).unwrap();
        let said = call(&home, "read", &note);
        assert!(said.contains("***") && !said.contains(&token[64..100]), "{part}: {said}");
    }
}

#[test]
fn a_process_that_tries_to_get_away_ends_with_its_server() {
    let (home, _hub) = start();
    let process = detached(&home);
    home.ok(&["server", "disable", "reaching"]);
    assert_gone_soon(process);
}

#[test]
fn a_process_that_tries_to_get_away_ends_with_the_hub() {
    for signal in [Signal::KILL, Signal::TERM] {
        let (home, hub) = start();
        let process = detached(&home);
        hub.signal(signal);
        hub.wait();
        assert_gone_soon(process);
    }
}

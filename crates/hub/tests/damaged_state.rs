//! Tests that require a real process: damaged or insecure files of the hub, and misbehaving servers.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use hub::Home;
use rest::Rest;
use serde_json::{Value, json};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/trouble.py");

/// A stopped hub with a call in its history.
fn used_home() -> Home {
    let home = Home::new();
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    home.ok(&["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "hi"}"#]);
    assert!(hub.end().0.success());
    home
}

/// Returns the data of the hub: the rows of the database, or its bytes if it cannot be read.
fn stored_data(home: &Home) -> (Vec<u8>, Option<Vec<u8>>) {
    let database = home.data().join("hub.db");
    let script = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).iterdump(), sep='\\n')";
    let said = Command::new("python3").args(["-c", script]).arg(&database).output().unwrap();
    let content = if said.status.success() { said.stdout } else { fs::read(database).unwrap() };
    (content, fs::read(home.data().join("checkpoints")).ok())
}

/// Asserts that a hub fails to start with these texts, and changes nothing.
#[track_caller]
fn assert_refused(home: &Home, arguments: &[&str], texts: &[&str]) {
    let before = stored_data(home);
    home.run(&[arguments, &["--listen", "127.0.0.1:0"]].concat()).expect_output(1, texts);
    assert!(stored_data(home) == before, "the data were changed");
    assert!(!home.data().join("hub.json").exists(), "no `hub.json` is left");
}

#[test]
fn a_folder_above_data_or_keys_that_others_can_write_to_is_refused() {
    let home = used_home();
    let above = home.data().parent().unwrap().to_owned();
    let before = fs::metadata(&above).unwrap().permissions();
    fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).unwrap();
    assert_refused(&home, &[], &["other users can write to the folder", "chmod go-w"]);
    fs::set_permissions(&above, before).unwrap();
    let open = above.join("open");
    fs::create_dir(&open).unwrap();
    fs::copy(home.keys(), open.join("keys")).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let keys = open.join("keys");
    assert_refused(&home, &["--key-file", keys.to_str().unwrap()], &["the key file", "chmod go-w"]);
    // Sticky, like `/tmp`.
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    home.ok(&["--key-file", keys.to_str().unwrap(), "audit", "verify"]);
}

#[test]
fn the_keys_of_another_hub_are_refused_and_change_nothing() {
    let (home, other) = (used_home(), used_home());
    let keys = other.keys();
    assert_refused(
        &home,
        &["--key-file", keys.to_str().unwrap()],
        &["does not have the root key", "use the key file of this hub"],
    );
    fs::set_permissions(home.keys(), fs::Permissions::from_mode(0o640)).unwrap();
    assert_refused(&home, &[], &["other users can read", "chmod 600"]);
    fs::set_permissions(home.keys(), fs::Permissions::from_mode(0o600)).unwrap();
    let _hub = home.start();
    assert_eq!(home.json(&["calls"])[0]["status"], "success");
}

#[test]
fn a_damaged_database_is_told_and_left_as_it_is() {
    let home = used_home();
    let database = home.data().join("hub.db");
    // Checkpoint the journal first, since it would repair the damage.
    let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('PRAGMA wal_checkpoint(TRUNCATE)'); db.close()";
    assert!(Command::new("python3").args(["-c", script]).arg(&database).status().unwrap().success());
    let _ = fs::remove_file(home.data().join("hub.db-wal"));
    let whole = fs::read(&database).unwrap();
    let mut damaged = whole.clone();
    damaged[100..].fill(0xa5);
    for bytes in [&damaged[..], &whole[..whole.len() / 2 + 100]] {
        fs::write(&database, bytes).unwrap();
        assert_refused(&home, &[], &["the database is damaged", "backup"]);
    }
    fs::write(&database, whole).unwrap();
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version = 99')";
    let done = Command::new("python3").args(["-c", script]).arg(&database).status().unwrap();
    assert!(done.success());
    assert_refused(&home, &[], &["used by a newer hub", "run that version"]);
}

#[test]
fn a_server_that_makes_trouble_makes_it_for_itself_alone() {
    let home = Home::new();
    let (file, ready) = (home.file("called"), home.file("ready.json"));
    let name = file.display().to_string();
    home.write(&format!(
        "[servers.trouble]\ncommand = \"python3\"\nargs = [\"-IS\", {SERVER:?}, {name:?}]\ntimeout_ms = 1000\n"
    ));
    let _hub = home.start_with(&["--ready-file", ready.to_str().unwrap()]);
    let rest = Rest::ready(&ready);
    for server in ["trouble", "demo"] {
        home.ok(&["server", "connect", server]);
    }
    let call = |server: &str, tool: &str, arguments: Value| {
        let form = json!({ "server": server, "name": tool, "arguments": arguments });
        let answer = rest.send("POST", "/api/v1/calls", Some(&form)).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let demo = || call("demo", "echo", json!({ "message": "hi" }))["status"].clone();
    assert_eq!(call("trouble", "echo", json!({}))["summary"], "done", "stray output is ignored");
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| call("trouble", "hang", json!({})));
        assert_eq!(demo(), "success");
        let hung = hanging.join().unwrap();
        assert_eq!(hung["status"], "unknown", "{hung}");
        assert!(hung["error"].as_str().unwrap().contains("no response within 1"), "{hung}");
    });
    let died = call("trouble", "die", json!({}));
    assert_eq!(died["status"], "unknown", "{died}");
    assert_eq!(demo(), "success");
    // A server that exits early is restarted only after a backoff, unless a user requests it.
    home.ok(&["server", "connect", "trouble"]);
    assert_eq!(call("trouble", "echo", json!({}))["status"], "success", "the server is restarted");
    assert_eq!(fs::read_to_string(&file).unwrap(), "echo\nhang\ndie\necho\n", "each call was made once");
    let running = rest.send("GET", "/api/v1/calls?status=running", None).unwrap().json();
    assert_eq!(running["items"], json!([]), "no call is still running");
}

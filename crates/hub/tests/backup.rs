//! Backup of a hub into one file, and restore.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use hub::{Home, is_private};
use serde_json::Value;
use test_postgres::server;

const SECRET: &str = "canary-5c1f0a";

/// Uses many features of a hub.
fn exercise_hub(home: &Home) {
    home.ok(&["server", "connect", "demo"]);
    for number in 0..3 {
        let arguments = format!(r#"{{"message": "{number}"}}"#);
        home.ok(&["tool", "call", "mcp_demo__echo", "--args", &arguments]);
    }
    home.ok(&["agent", "add", "Helper", "--server", "demo"]);
    home.ok(&["server", "add", "Remote", "--url", "https://mcp.example/mcp", "--auth", "bearer"]);
    home.run_with(SECRET, &["server", "credential", "set", "remote"]).expect_output(0, &[]);
}

/// Returns the state of a running hub over REST, without sessions.
fn rest_state(home: &Home) -> Vec<Value> {
    let asked: [&[&str]; 4] = [&["calls"], &["agent", "list"], &["tool", "list"], &["token", "list"]];
    asked.into_iter().map(|arguments| home.json(arguments)).collect()
}

/// Returns the exported audit entries, without the signed last line.
fn exported(home: &Home) -> Vec<String> {
    let mut lines: Vec<_> = home.ok(&["audit", "export"]).lines().map(str::to_owned).collect();
    assert!(lines.pop().is_some_and(|last| last.contains("\"signature\"")));
    lines
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Another data directory with the same keys.
fn with_keys_of(home: &Home, other: Home) -> Home {
    fs::copy(home.keys(), other.keys()).unwrap();
    other
}

/// Asserts that the backup of a running hub restores to an equal hub, whatever the database.
fn assert_restored(one: &Home, other: Home) {
    let hub = one.start();
    exercise_hub(one);
    let (before, file) = (rest_state(one), one.file("hub.backup"));
    let made = one.json(&["backup", text(&file)]);
    let entries = exported(one);
    assert_eq!((&made["with_keys"], &made["entries"]), (&false.into(), &entries.len().into()));
    assert!(is_private(&file));
    let written = fs::read_to_string(&file).unwrap();
    let keys = fs::read_to_string(one.keys()).unwrap();
    assert!(
        !written.contains(SECRET)
            && keys.lines().skip(1).all(|line| !written.contains(&line[line.len() - 64..]))
    );
    assert!(hub.end().0.success());

    let other = with_keys_of(one, other);
    let restored = other.json(&["restore", text(&file)]);
    assert_eq!((&restored["records"], &restored["unknown"]), (&made["records"], &0.into()));
    assert_eq!((&restored["audit"]["intact"], &restored["digest"]), (&true.into(), &made["digest"]));
    assert_eq!(exported(&other)[..entries.len()], entries, "the audit chain continues");
    assert!(exported(&other)[entries.len()].contains("store.restored"));
    let hub = other.start();
    assert_eq!(rest_state(&other), before);
    let servers = other.ok(&["server", "show", "remote"]);
    assert!(!servers.contains(SECRET), "{servers}");
    other.ok(&["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "on"}"#]);
    assert_eq!(other.json(&["audit", "verify"])["intact"], true);
    // A restored hub is not overwritten.
    assert!(hub.end().0.success());
    let entries = exported(&other);
    let again = other.run(&["restore", text(&file)]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("has a checkpoint of audit entry"), "{}", again.stderr);
    fs::rename(other.data().join("checkpoints"), other.file("checkpoints")).unwrap();
    other.run(&["restore", text(&file)]).expect_output(1, &["is not empty: restore into an empty"]);
    assert_eq!(exported(&other), entries);
}

#[test]
fn from_file_to_file() {
    assert_restored(&Home::new(), Home::new());
}

#[test]
fn from_file_to_postgres() {
    assert_restored(&Home::new(), Home::with_database(server().url(&server().create_database())));
}

#[test]
fn from_postgres_to_file() {
    assert_restored(&Home::with_database(server().url(&server().create_database())), Home::new());
}

/// A stopped hub with data, and its backup.
fn backed_up(arguments: &[&str]) -> (Home, PathBuf) {
    let home = Home::new();
    let hub = home.start();
    exercise_hub(&home);
    assert!(hub.end().0.success());
    let file = home.file("hub.backup");
    home.ok(&[&["backup", text(&file)], arguments].concat());
    (home, file)
}

#[test]
fn calls_that_were_under_way_are_unknown() {
    let (home, file) = backed_up(&[]);
    let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
                  db.execute(\"UPDATE calls SET status = 'running', completed = NULL WHERE id = (SELECT max(id) FROM calls)\"); db.commit()";
    let database = home.data().join("hub.db");
    assert!(Command::new("python3").args(["-c", script]).arg(&database).status().unwrap().success());
    home.ok(&["backup", text(&file), "--force"]);
    let other = with_keys_of(&home, Home::new());
    assert_eq!(other.json(&["restore", text(&file)])["unknown"], 1);
    let _hub = other.start();
    let calls = other.json(&["calls"]);
    let unknown = calls.as_array().unwrap().iter().filter(|call| call["status"] == "unknown");
    assert_eq!(unknown.count(), 1);
}

#[test]
fn the_keys_are_in_it_if_they_are_asked_for() {
    let (home, file) = backed_up(&["--with-keys"]);
    assert!(
        home.run(&["backup", text(&home.file("other")), "--with-keys"])
            .stderr
            .contains("The backup contains the keys")
    );
    let other = Home::new();
    other.ok(&["restore", text(&file)]);
    assert_eq!(fs::read(other.keys()).unwrap(), fs::read(home.keys()).unwrap());
    assert!(is_private(&other.keys()));
    let _hub = other.start();
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_over() {
    let (home, file) = backed_up(&[]);
    let before = fs::read(&file).unwrap();
    home.run(&["backup", text(&file)])
        .expect_output(1, &["already exists: choose another file, or add --force"]);
    assert_eq!(fs::read(&file).unwrap(), before);
    home.ok(&["backup", text(&file), "--force"]);
    home.run(&["backup", text(&home.file("hub.backup/x"))]).expect_output(1, &["hub.backup/x`: "]);
    home.run(&["--hub", "http://127.0.0.1:1", "backup", "x"])
        .expect_output(2, &["on the machine of the hub"]);
    Home::new().run(&["backup", "x"]).expect_output(1, &["no database at"]);
    let other = Home::new();
    assert!(other.start().end().0.success());
    let key_file = other.keys();
    let file = home.file("another.backup");
    home.run(&["--key-file", text(&key_file), "backup", text(&file)])
        .expect_output(1, &["does not have the root key"]);
    let names = fs::read_dir(file.parent().unwrap()).unwrap();
    let names: Vec<_> = names.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with(".linchpin") || name == "another.backup"), "{names:?}");
}

#[test]
fn what_is_wrong_with_a_backup_is_said_and_nothing_is_changed() {
    let (home, file) = backed_up(&[]);
    let whole = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = whole.lines().collect();
    let other = with_keys_of(&home, Home::new());
    let refused = |text: &str, said: &[&str]| {
        let file = other.file("wrong.backup");
        fs::write(&file, text).unwrap();
        other.run(&["restore", file.to_str().unwrap()]).expect_output(1, said);
        assert!(!other.data().exists(), "nothing was created");
    };
    let last = lines.len() - 1;
    let without = |left_out: usize| {
        let kept = lines.iter().enumerate().filter(|(index, _)| *index != left_out);
        kept.flat_map(|(_, line)| [*line, "\n"]).collect::<String>()
    };
    let cut_off = format!("wrong.backup`: the backup is cut off at line {}", last + 1);
    refused(&whole[..whole.len() / 2], &["the backup is cut off at line "]);
    refused(&whole[..whole.len() - 1], &[&cut_off]);
    refused(&without(last), &[&cut_off]);
    refused("", &["not a backup"]);
    refused("{}\n", &["not a backup"]);
    refused(&whole.replacen("backup", "backlog", 1), &["not a backup"]);
    refused(&whole.replacen("\"version\":1", "\"version\":2", 1), &["written by a newer hub"]);
    let changed = "its digest does not match";
    refused(&whole.replacen("mcp.example", "evil.example", 1), &[changed]);
    refused(&whole.replacen("Helper", "Hacker", 1), &[changed]);
    refused(&without(last / 2), &[changed]);
    refused(&whole.replacen("{\"kept\"", "{\"kerb\"", 1), &["the backup is damaged at line 2"]);
    refused(&format!("{whole}{{}}\n"), &["the backup is damaged"]);
    let count = whole.rfind("\"records\":").unwrap();
    refused(&format!("{}1{}", &whole[..count + 10], &whole[count + 10..]), &["the backup is damaged"]);

    // A missing key file, and the keys of another hub.
    fs::remove_file(other.keys()).unwrap();
    other.run(&["restore", text(&file)]).expect_output(1, &["no key file at", "--key-file"]);
    let stranger = Home::new();
    assert!(stranger.start().end().0.success());
    fs::copy(stranger.keys(), other.keys()).unwrap();
    other.run(&["restore", text(&file)]).expect_output(1, &["belongs to a hub with another key file"]);
    fs::set_permissions(other.keys(), fs::Permissions::from_mode(0o644)).unwrap();
    other.run(&["restore", text(&file)]).expect_output(1, &["other users can read"]);
    other.run(&["restore", text(&home.file("none"))]).expect_output(1, &["none`: "]);
    assert!(!other.data().exists(), "nothing was created");
    // A running hub is not overwritten.
    let _hub = home.start();
    fs::remove_file(home.data().join("checkpoints")).unwrap();
    home.run(&["restore", text(&file)]).expect_output(1, &["a hub runs on"]);
}

#[test]
fn an_older_state_comes_back_by_command_alone() {
    let (home, file) = backed_up(&[]);
    let (older, newer) = (home.file("older"), home.file("newer"));
    copy(&home.data(), &older);
    let hub = home.start();
    make_one_call(&home);
    assert!(hub.end().0.success());
    let signed = home.json(&["audit", "verify"])["head"].clone();
    fs::rename(home.data(), &newer).unwrap();
    home.run(&["audit", "verify"]).expect_output(1, &["no database at", "all_removed"]);

    // An older copy of the directory.
    copy(&older, &home.data());
    let found = home.run(&["audit", "verify", "--json"]).json();
    assert_eq!((&found["kind"], &found["head"]), (&"older_copy".into(), &signed), "{found}");
    let mut hub = home.start();
    home.run(&["audit", "verify"]).expect_output(1, &[]);
    home.run(&["audit", "accept"]).expect_output(1, &["a hub is already running on"]);
    assert!(hub.end().0.success());
    home.run(&["audit", "verify"]).expect_output(1, &[]);
    home.ok(&["audit", "accept"]);
    assert_eq!(home.json(&["audit", "verify"])["intact"], true);

    // The backup, restored into the same directory.
    fs::remove_dir_all(home.data()).unwrap();
    assert_eq!(home.json(&["restore", text(&file)])["audit"]["intact"], true);
    hub = home.start();
    make_one_call(&home);
    assert_eq!(home.json(&["audit", "verify"])["intact"], true);
    assert!(hub.end().0.success());
    assert_eq!(home.json(&["audit", "verify"])["intact"], true);

    // The state before the restore is a different history now.
    fs::remove_dir_all(home.data()).unwrap();
    copy(&newer, &home.data());
    let found = home.run(&["audit", "verify", "--json"]).json();
    assert_eq!(found["kind"], "other_store", "{found}");
}

fn make_one_call(home: &Home) {
    home.ok(&["server", "connect", "demo"]);
    home.ok(&["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "again"}"#]);
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

//! The configuration file and the options of the hub, as a real process reads them.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use std::fs;

use hub::Home;
use serde_json::{Value, json};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import/server.py");
const SECRET: &str = "canary-secret-1";

/// A hub that has a configured server with a secret, and an agent that may use it.
fn configured() -> Home {
    let home = Home::new();
    home.write(&file());
    let hub = home.start();
    home.run_with(&format!("{SECRET}\n"), &["server", "secret", "set", "files", "GITHUB_TOKEN"]).said(0, &[]);
    home.ok(&["server", "sync", "files"]);
    home.ok(&["agent", "add", "Helper", "--server", "files"]);
    assert!(hub.end().0.success());
    home
}

fn file() -> String {
    format!("[servers.files]\ncommand = \"python3\"\nargs = [\"{SERVER}\"]\nsecrets = [\"GITHUB_TOKEN\"]\n")
}

/// The server, if the hub has it.
fn files(home: &Home) -> Option<Value> {
    let servers = home.json(&["server", "list"]);
    servers.as_array().unwrap().iter().find(|server| server["slug"] == "files").cloned()
}

#[test]
fn a_named_file_that_is_missing_is_refused_and_nothing_is_lost() {
    let home = configured();
    let missing = home.file("misspelt.toml");
    let expected = ["misspelt.toml`, named by --config, does not exist", "create the file"];
    let config = ["--config", missing.to_str().unwrap()];
    home.run(&config).said(2, &expected);
    home.run(&[&config[..], &["server", "remove", "files"]].concat()).said(2, &expected);
    assert!(!missing.exists());

    let _hub = home.start();
    let server = files(&home).unwrap();
    assert_eq!((&server["enabled"], &server["missing_secrets"]), (&json!(true), &json!([])));
    home.ok(&["tool", "call", "show", "--server", "files"]);
}

#[test]
fn a_server_that_leaves_the_file_keeps_its_id_and_its_secret() {
    let home = configured();
    let before = {
        let _hub = home.start();
        files(&home).unwrap()
    };
    // Another file that exists, an empty one, and none at all: none of them deletes anything.
    let other = home.file("other.toml");
    linchpin_hub_core::private::write(&other, b"", &linchpin_hub_core::world::System).unwrap();
    for option in [vec!["--config", other.to_str().unwrap()], vec![]] {
        if option.is_empty() {
            fs::remove_file(home.config()).unwrap();
        }
        let mut hub = home.start_with(&option); // it has ended before the next one starts
        let left = files(&home).unwrap();
        assert_eq!(
            (&left["id"], &left["enabled"], &left["has_left_file"]),
            (&before["id"], &json!(false), &json!(true))
        );
        assert!(home.ok(&["server", "list"]).contains("not in the configuration file"));
        home.run(&["tool", "call", "show", "--server", "files"]).said(1, &[]);
        let enable = [&option[..], &["server", "enable", "files"]].concat();
        home.run(&enable).said(1, &["not in the configuration file: add it there again"]);
        if !option.is_empty() {
            continue;
        }
        home.write(&file());
        hub.wait_for("the operator's file has changed");
        home.ok(&["server", "sync", "files"]);
    }
    let _hub = home.start();
    let back = files(&home).unwrap();
    let facts =
        |server: &Value| [server["id"].clone(), server["enabled"].clone(), server["missing_secrets"].clone()];
    assert_eq!(facts(&back), facts(&before));
    home.ok(&["tool", "call", "show", "--server", "files"]);
    let agent = home.json(&["agent", "show", "Helper"]);
    assert!(agent.to_string().contains(back["id"].as_str().unwrap()), "{agent}");
}

#[test]
fn server_remove_deletes_everything_whether_a_hub_runs_or_not() {
    for is_running in [true, false] {
        let home = configured();
        let hub = is_running.then(|| home.start());
        home.ok(&["server", "remove", "files"]);
        assert!(!fs::read_to_string(home.config()).unwrap().contains("files"));
        if let Some(hub) = hub {
            assert!(files(&home).is_none());
            hub.end();
        }
        home.write(&file());
        let _hub = home.start();
        assert_eq!(files(&home).unwrap()["missing_secrets"], json!(["GITHUB_TOKEN"]), "{is_running}");
    }
}

#[test]
fn a_server_that_left_the_file_can_be_removed_and_added_again() {
    let home = configured();
    home.write("");
    let _hub = home.start();
    home.ok(&["server", "add", "Files", "--secret", "GITHUB_TOKEN", "--", "python3", SERVER]);
    let back = files(&home).unwrap();
    assert_eq!((&back["has_left_file"], &back["missing_secrets"]), (&json!(false), &json!([])));
    home.ok(&["server", "remove", "files"]);
    assert!(files(&home).is_none());
}

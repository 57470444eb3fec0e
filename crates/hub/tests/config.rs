//! The configuration file and the options of the hub, as a real process reads them.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;

use hub::Home;
use serde_json::{Value, json};
use support::{LINCHPIN, run};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import/server.py");
const SECRET: &str = "canary-secret-1";

/// A hub that has a configured server with a secret, and an agent that may use it.
fn configured() -> Home {
    let home = Home::new();
    home.write(&file());
    let hub = home.start();
    home.run_with(&format!("{SECRET}\n"), &["server", "secret", "set", "files", "GITHUB_TOKEN"])
        .expect_output(0, &[]);
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
    home.run(&config).expect_output(2, &expected);
    home.run(&[&config[..], &["server", "remove", "files"]].concat()).expect_output(2, &expected);
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
    linchpin_hub_core::private_file::write(&other, b"", &linchpin_hub_core::platform::SystemPlatform)
        .unwrap();
    for option in [vec!["--config", other.to_str().unwrap()], vec![]] {
        if option.is_empty() {
            fs::remove_file(home.config()).unwrap();
        }
        let mut hub = home.start_with(&option); // it has ended before the next one starts
        let left = files(&home).unwrap();
        assert_eq!(
            (&left["id"], &left["enabled"], &left["is_undeclared"]),
            (&before["id"], &json!(false), &json!(true))
        );
        assert!(home.ok(&["server", "list"]).contains("not in the configuration file"));
        home.run(&["tool", "call", "show", "--server", "files"]).expect_output(1, &[]);
        let enable = [&option[..], &["server", "enable", "files"]].concat();
        home.run(&enable).expect_output(1, &["not in the configuration file any more: add it there again"]);
        if !option.is_empty() {
            continue;
        }
        home.write(&file());
        hub.wait_for("configuration file changed");
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
    assert_eq!((&back["is_undeclared"], &back["missing_secrets"]), (&json!(false), &json!([])));
    home.ok(&["server", "remove", "files"]);
    assert!(files(&home).is_none());
}

#[test]
fn localhost_can_be_listened_at() {
    let home = Home::new();
    let hub = home.start_through(&["bash", "-c", "exec \"$1\" \"$2\" \"$3\" --listen localhost:0", "-"], &[]);
    assert!(hub.url.starts_with("http://127.0.0.1:"), "{}", hub.url);
    run(&["--listen", "hub.example:9000"])
        .expect_output(2, &["must be an IP address and a port", "`localhost:7420`"]);
}

#[test]
fn a_backup_is_not_restored_while_a_hub_runs() {
    let home = configured();
    let backup = home.file("hub.backup");
    home.ok(&["backup", backup.to_str().unwrap()]);
    let hub = home.start();
    let expected =
        ["a hub runs on `", &hub.url, "stop it first, or choose an empty directory with --data-dir"];
    home.run(&["restore", backup.to_str().unwrap()]).expect_output(1, &expected);
}

/// Runs a program as a user without root permissions.
const AS_USER: &str = "import os, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.execv(sys.argv[1], sys.argv[1:])";

#[test]
fn a_data_directory_that_cannot_be_written_is_named() {
    let home = configured();
    let (data, folder) = (home.data(), home.data().parent().unwrap().to_owned());
    let mut owned: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
    owned.extend([folder, data.clone(), home.keys()]);
    for path in owned {
        let _ = chown(path, Some(65_534), Some(65_534)); // fails without root: the user owns the files then
    }
    let start = || {
        let mut command = Command::new("python3");
        command.args(["-c", AS_USER, LINCHPIN, "--listen", "127.0.0.1:0", "--data-dir"]);
        let output = command.arg(&data).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    fs::set_permissions(&data, fs::Permissions::from_mode(0o500)).unwrap();
    let said = start();
    let expected = format!("the data directory `{}` cannot be written: Permission denied", data.display());
    assert!(said.contains(&expected) && said.contains("--data-dir"), "{said}");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(data.join("hub.db"), fs::Permissions::from_mode(0o400)).unwrap();
    let said = start();
    assert!(said.contains("hub.db` cannot be used: Permission denied"), "{said}");
}

#[test]
fn a_server_that_prints_something_else_fails_soon_with_its_first_lines() {
    let home = Home::new();
    let script = "echo \"$API_TOKEN is stray\"; yes more";
    let file = format!(
        "[servers.noise]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\nsecrets = [\"API_TOKEN\"]\n"
    );
    home.write(&file);
    let _hub = home.start();
    home.run_with(&format!("{SECRET}\n"), &["server", "secret", "set", "noise", "API_TOKEN"])
        .expect_output(0, &[]);
    let expected = ["instead of protocol messages", "\"*** is stray\", \"more\""];
    let failed = home.run(&["server", "test", "noise"]).expect_output(1, &expected);
    assert!(!failed.stderr.contains("canary"), "{}", failed.stderr);
    run(&["inspect", "--", "yes", "no protocol"]).expect_output(1, &["\"no protocol\""]);
}

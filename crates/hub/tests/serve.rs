//! `linchpin`: the hub is started, found, reloaded, ended, killed and started again.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use hub::{Home, is_private, write_open};
use rest::Rest;
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{LINCHPIN, on_terminal};

const ADD: [&str; 5] = ["tool", "call", "mcp_demo__add", "--args", r#"{"a": 2, "b": 40}"#];

#[test]
fn a_newcomer_calls_a_tool_and_finds_it_again() {
    let home = Home::new();
    let ready = home.file("ready.json");
    let hub = home.start_with(&["--ready-file", ready.to_str().unwrap()]);
    let read: Value = serde_json::from_slice(&fs::read(&ready).unwrap()).unwrap();
    assert_eq!(read["url"], *hub.url);
    let token = read["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("lp_") && read.as_object().unwrap().len() == 2, "{read}");
    home.ok(&["server", "connect", "demo"]);
    let tools = home.ok(&["tool", "list"]);
    assert!(tools.contains("mcp_demo__add") && tools.contains("Adds two numbers"), "{tools}");
    assert_eq!(home.ok(&ADD), "{\"sum\":42.0}\n");
    let calls = home.json(&["calls"]);
    assert_eq!((&calls[0]["name"], &calls[0]["status"]), (&"mcp_demo__add".into(), &"success".into()));
    for file in
        [&ready, &home.keys(), &home.data(), &home.data().join("hub.db"), &home.data().join("hub.json")]
    {
        assert!(is_private(file), "{}", file.display());
    }
    let (status, written) = hub.end();
    assert!(status.success(), "{written}");
    assert!(!written.contains(&token), "{written}");
    assert!(!home.data().join("hub.json").exists());

    let _hub = home.start();
    let again = home.json(&["calls", "show", calls[0]["id"].as_str().unwrap()]);
    assert_eq!((&again["summary"], &again["arguments"]["b"]), (&"{\"sum\":42.0}".into(), &40.into()));
    assert_ne!(
        token,
        fs::read_to_string(home.data().join("hub.json")).unwrap(),
        "each start has its own token"
    );
}

#[test]
fn options_stand_before_or_after_the_command() {
    let home = Home::new();
    let [first, second] = ["first.json", "second.json"].map(|name| home.file(name));
    let [before, after] = [&first, &second].map(|path| path.to_str().unwrap());
    let hub = home.start_with(&["--log", "json", "--ready-file", before, "serve"]);
    assert!(first.exists());
    let (_, written) = hub.end();
    assert!(written.lines().any(|line| line.starts_with('{')), "{written}");
    let _hub = home.start_with(&["--ready-file", before, "serve", "--ready-file", after]);
    assert!(second.exists());
    home.run(&["--listen", "127.0.0.1:0", "calls"]).expect_output(2, &["apply only to `serve`"]);
}

#[test]
fn one_hub_for_each_directory_and_none_that_others_reach() {
    let home = Home::new();
    let first = home.start();
    let second = home.run(&["--listen", "127.0.0.1:0"]);
    second.expect_output(1, &["a hub is already running on", &first.url, "--data-dir"]);
    let taken = first.url.strip_prefix("http://").unwrap();
    let other = Home::new();
    other.run(&["--listen", taken]).expect_output(1, &[taken, "cannot listen on"]);
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        other.run(&["--listen", address]).expect_output(2, &[address, "without TLS", "proxy"]);
    }
    other.run(&["--listen", "here"]).expect_output(2, &["here"]);
    assert!(!other.data().join("hub.db").exists());
}

#[test]
fn others_come_through_a_proxy_that_is_named() {
    let home = Home::new();
    let ready = home.file("ready.json");
    home.write("url = \"http://hub.example\"");
    home.run(&[]).expect_output(1, &["`url`", "its TLS proxy", "https://hub.example"]);
    home.write("url = \"https://hub.example/\"");
    let _hub = home.start_with(&["--ready-file", ready.to_str().unwrap()]);
    home.run_with("a long password\n", &["user", "password", "local"]).expect_output(0, &[]);
    let rest = Rest::ready(&ready);
    let status = |host: &str| {
        let headers = [("host", host)];
        rest.request("GET", "/healthz", &headers, "").unwrap().status
    };
    assert_eq!((status("hub.example"), status("evil.example")), (200, 403));
    let sign_in = |origin: &str| {
        let form = json!({ "name": "local", "password": "a long password" }).to_string();
        let kind = ("content-type", "application/json");
        rest.request("POST", "/api/v1/session", &[("host", "hub.example"), ("origin", origin), kind], &form)
            .unwrap()
    };
    assert_eq!(sign_in("https://evil.example").status, 403);
    let signed_in = sign_in("https://hub.example");
    let cookie = signed_in.header("set-cookie").unwrap_or_else(|| panic!("{}", signed_in.text()));
    assert!(cookie.starts_with("__Host-linchpin=") && cookie.ends_with("; Secure"), "{cookie}");
}

#[test]
fn nobody_else_can_put_files_into_the_data_directory() {
    let home = Home::new();
    home.start().end();
    fs::set_permissions(home.data(), fs::Permissions::from_mode(0o777)).unwrap();
    home.run(&[]).expect_output(1, &["data`", "other users can put files into the folder", "chmod 700"]);
    fs::set_permissions(home.data(), fs::Permissions::from_mode(0o700)).unwrap();
    let database = home.data().join("hub.db");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o644)).unwrap();
    home.start().end();
    assert!(is_private(&database));
}

#[test]
fn on_a_terminal_the_first_sign_in_is_shown_and_nowhere_else() {
    let home = Home::new();
    let data = home.data();
    let arguments = ["--data-dir", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let shown = on_terminal(&[("Ctrl-C to stop", "\u{3}")], &arguments).expect_output(0, &[]).stdout;
    let url = shown.split_whitespace().find(|word| word.contains("/sign-in?token=")).unwrap();
    let token = url.split_once("token=").unwrap().1.trim_end_matches("\u{1b}[0m");
    assert_eq!(token.len(), 64, "{url}");
    assert_eq!(shown.matches(token).count(), 1, "{shown}");
    let next = format!("In another terminal: linchpin --data-dir {} tool list", data.display());
    assert!(shown.contains(&next), "{shown}");
    let (status, written) = home.start().end();
    assert!(status.success() && !written.contains("sign-in"), "{written}");
}

#[test]
fn what_a_killed_hub_has_left_is_not_believed() {
    let home = Home::new();
    let hub = home.start();
    let url = hub.url.clone();
    hub.signal(Signal::KILL);
    drop(hub);
    assert!(fs::read_to_string(home.data().join("hub.json")).unwrap().contains(&url));
    home.run(&["server", "list"]).expect_output(1, &["no hub runs on", "start one with `linchpin`"]);
    let failed = home.run(&["server", "list", "--json"]);
    assert_eq!((failed.code, &failed.json()["error"]["kind"]), (Some(1), &"connection".into()));
    let _hub = home.start();
    home.ok(&["server", "list"]);
}

#[test]
fn a_hub_does_not_start_without_its_keys_or_with_a_file_that_is_wrong() {
    let home = Home::new();
    home.start().end();
    let keys = home.file("elsewhere");
    fs::rename(home.keys(), &keys).unwrap();
    home.run(&[]).expect_output(1, &["data.keys` is missing", "--key-file"]);
    assert!(!home.keys().exists());

    let other = Home::new();
    other.start().end();
    home.run(&["--key-file", other.keys().to_str().unwrap()]).expect_output(1, &["key", "--key-file"]);
    let broken = home.file("private");
    linchpin_hub_core::private_file::write(&broken, b"no keys", &linchpin_hub_core::platform::SystemPlatform)
        .unwrap();
    home.run(&["--key-file", broken.to_str().unwrap()])
        .expect_output(1, &["is not a key file", "set another path with --key-file"]);
    let broken = home.file("broken");
    write_open(&broken, "no keys");
    home.run(&["--key-file", broken.to_str().unwrap()])
        .expect_output(1, &["other users can read", "chmod 600"]);

    let with_keys = ["--key-file", keys.to_str().unwrap()];
    write_open(&home.config(), "");
    home.run(&with_keys).expect_output(1, &["linchpin.toml`", "other users can read", "chmod 600"]);
    fs::remove_file(home.config()).unwrap();
    home.write("[servers.a]\ncommand = \"x\"\ntimeout = 1\n");
    let expected = ["linchpin.toml`, line 3, column 1: `servers.a.timeout`", "did you mean `timeout_ms`?"];
    home.run(&with_keys).expect_output(1, &expected);
    home.write("listen = \"0.0.0.0:1\"");
    home.run(&with_keys).expect_output(2, &["0.0.0.0:1", "without TLS"]);
    home.write("");
    fs::write(home.data().join("hub.db"), "this is no database, but it is long enough to be read as one")
        .unwrap();
    home.run(&with_keys).expect_output(1, &["the database is damaged: restore it from a backup"]);
}

#[test]
fn the_operators_file_is_reloaded_and_a_mistake_changes_nothing() {
    let home = Home::new();
    let mut hub = home.start_with(&["--log", "json"]);
    let line: Value = serde_json::from_str(&hub.wait_for("hub ready")).unwrap();
    assert_eq!((&line["level"], &line["url"]), (&"INFO".into(), &(*hub.url).into()));
    let program = format!("[servers.one]\ncommand = {LINCHPIN:?}\nargs = [\"demo\"]\n");
    home.write(&program);
    hub.signal(Signal::HUP);
    hub.wait_for("configuration file changed");
    home.ok(&["server", "test", "one"]);

    home.write(&format!("{program}enabled = maybe\n"));
    let line: Value = serde_json::from_str(&hub.wait_for("using the previous configuration")).unwrap();
    assert!(line["problem"].as_str().unwrap().contains("linchpin.toml`, line 4, column 11"), "{line}");
    home.ok(&["server", "test", "one"]);
    home.run(&["server", "disable", "one"]).expect_output(1, &["line 4, column 11"]);

    home.write(&format!("listen = \"127.0.0.1:1\"\n{program}"));
    let line: Value = serde_json::from_str(&hub.wait_for("only after a restart")).unwrap();
    assert_eq!((&line["level"], &line["restart_required"]), (&"WARN".into(), &"listen".into()));

    home.write(&program);
    home.ok(&["server", "disable", "one"]);
    assert_eq!(home.json(&["server", "show", "one"])["enabled"], false);
    home.run(&["server", "test", "nothing"]).expect_output(1, &["there is no server `nothing`"]);
}

#[test]
fn what_is_for_serving_is_not_for_other_commands() {
    let home = Home::new();
    home.run(&["--listen", "127.0.0.1:0", "server", "list"]).expect_output(2, &["apply only to `serve`"]);
    let wrong = support::run(&["dmeo"]).expect_output(2, &["dmeo", "demo"]);
    assert_eq!(wrong.stdout, "");
    for shell in ["bash", "zsh", "fish"] {
        let script = support::run(&["completions", shell]).expect_output(0, &[]).stdout;
        assert!(script.contains("approvals"), "{shell}");
    }
}

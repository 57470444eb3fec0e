//! Data directory written before the wire and stored names changed: the hub reads all of it.
//!
//! `fixtures/previous_names` has the database and the key file of a hub with these contents:
//! - server `upstream` with a concurrency limit of 7, the tools `echo` and `old` (removed) and the skipped tool `bad`;
//! - agent `Helper` with a concurrency limit of 5;
//! - a call whose arguments a user has edited in the approval;
//! - user `local` with the password `a long password`, set once, and a session of this user.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use hub::Home;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::private_file;
use rest::Rest;
use serde_json::json;

const DATABASE: &[u8] = include_bytes!("fixtures/previous_names/hub.db");
const KEYS: &[u8] = include_bytes!("fixtures/previous_names/hub.keys");
/// Number of audit entries in the database.
const ENTRIES: u64 = 19;

fn previous_home() -> Home {
    let home = Home::new();
    private_file::create_private_folder(&home.data()).unwrap();
    private_file::write(&home.data().join("hub.db"), DATABASE, &SystemPlatform).unwrap();
    private_file::write(&home.keys(), KEYS, &SystemPlatform).unwrap();
    home
}

#[test]
fn the_audit_is_intact_with_its_old_actions() {
    let home = previous_home();
    let verified = home.json(&["audit", "verify"]);
    assert_eq!((&verified["intact"], &verified["entries"]), (&json!(true), &json!(ENTRIES)), "{verified}");
    let exported = home.ok(&["audit", "export"]);
    for action in ["key.made", "approval.asked", "approval.approved", "call.done", "session.begun"] {
        assert!(exported.contains(&format!("\"{action}\"")), "{action}: {exported}");
    }
    home.start().end();
    let verified = home.json(&["audit", "verify"]);
    assert!(verified["intact"] == true && verified["entries"].as_u64() >= Some(ENTRIES), "{verified}");
}

#[test]
fn servers_tools_agents_and_calls_are_read() {
    let home = previous_home();
    let _hub = home.start();
    let server = home.json(&["server", "show", "upstream"]);
    assert_eq!((&server["max_concurrent_calls"], &server["is_configured"]), (&json!(7), &json!(false)));
    assert_eq!((&server["skipped"][0]["name"], &server["is_undeclared"]), (&json!("bad"), &json!(false)));
    let removed = |tool: &str| home.json(&["tool", "describe", tool])["is_removed"].clone();
    assert_eq!((removed("mcp_upstream__echo"), removed("mcp_upstream__old")), (json!(false), json!(true)));
    assert_eq!(home.json(&["agent", "show", "Helper"])["max_concurrent_calls"], 5);
    let id = home.json(&["calls"])[0]["id"].as_str().unwrap().to_owned();
    let call = home.json(&["calls", "show", &id]);
    assert_eq!(
        (&call["arguments"], &call["requested_arguments"]),
        (&json!({ "message": "edited" }), &json!({ "message": "requested" })),
        "{call}"
    );

    // A change writes the document with the current names.
    home.ok(&["server", "update", "upstream", "--description", "changed"]);
    home.ok(&["agent", "update", "Helper", "--instructions", "changed"]);
    assert_eq!(home.json(&["server", "show", "upstream"])["max_concurrent_calls"], 7);
    assert_eq!(home.json(&["agent", "show", "Helper"])["max_concurrent_calls"], 5);
}

#[test]
fn the_user_logs_in_with_the_old_password() {
    let home = previous_home();
    let ready = home.file("ready.json");
    let hub = home.start_with(&["--ready-file", ready.to_str().unwrap()]);
    let (rest, host) = (Rest::ready(&ready), hub.url.trim_start_matches("http://").to_owned());
    let log_in = |password: &str| {
        let form = json!({ "name": "local", "password": password }).to_string();
        let headers = [("host", &*host), ("origin", &*hub.url), ("content-type", "application/json")];
        rest.request("POST", "/api/v1/session", &headers, &form).unwrap()
    };
    assert_eq!(log_in("another password").status, 401);
    let session = log_in("a long password");
    assert_eq!(session.status, 201, "{}", session.text());
    let cookie = session.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let own = rest.request("GET", "/api/v1/session", &[("host", &*host), ("cookie", &*cookie)], "").unwrap();
    assert_eq!(own.status, 200, "{}", own.text());
}

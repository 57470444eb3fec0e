//! What servers report and offer, the search of the audit, and limits, on the command line.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use hub::Home;
use support::LINCHPIN;

#[test]
fn a_server_is_shown_with_what_it_reports_and_offers() {
    let home = Home::new();
    let _hub = home.start();
    let connected = home.ok(&["server", "connect", "demo"]);
    let tested = home.ok(&["server", "test", "demo"]);
    for text in [&connected, &tested] {
        for expected in ["capabilities", "resources", "prompts", "add", "memory://status", "review"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
    let server = home.json(&["server", "show", "demo"]);
    assert!(server["info"]["revision"].is_string() && server["info"]["name"].is_string(), "{server}");
    assert!(server["resources"].as_u64().unwrap() > 0 && server["prompts"].as_u64().unwrap() > 0, "{server}");
    assert!(home.ok(&["server", "show", "demo"]).contains("negotiated revision"));
}

#[test]
fn limits_are_set_and_shown() {
    let home = Home::new();
    let options =
        ["--open-timeout", "10s", "--max-response", "65536", "--max-call", "1h", "--sync-interval", "5m"];
    home.ok(&[&["server", "add", "Mine"][..], &options, &["--", LINCHPIN, "demo"]].concat());
    let _hub = home.start();
    let shown = home.ok(&["server", "show", "mine"]);
    for expected in ["10s", "65536", "1h", "300s"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let refused = |option: &str, value: &str, expected: &str| {
        home.run(&["server", "add", "X", option, value, "--", "x"]).expect_output(2, &[expected]);
    };
    refused("--sync-interval", "10s", "must be from 60s to 168h");
    refused(
        "--read-timeout",
        "10s",
        "linchpin: --read-timeout: must not be set: a stdio server has no streams",
    );
    refused("--max-call", "10s", "linchpin: --max-call: must not be below `timeout_ms`");
}

#[test]
fn the_audit_is_searched_and_shows_names() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    home.ok(&["tool", "call", "mcp_demo__add", "--args", r#"{"a": 1, "b": 2}"#]);
    let found = home.ok(&["audit", "list", "--action", "call."]);
    for expected in ["call.intent", "call.finished", "demo", "add"] {
        assert!(found.contains(expected), "{expected}: {found}");
    }
    assert!(!found.contains("server."), "{found}");
    let entries = home.json(&["audit", "list", "--action", "call.intent"]);
    let [entry] = &entries.as_array().unwrap()[..] else { panic!("{entries}") };
    let name = entry["actor_name"].as_str().unwrap();
    assert!(found.contains(name) && !found.contains(entry["actor"].as_str().unwrap()), "{found}");
    assert_eq!(home.json(&["audit", "list", "--actor", name, "--action", "call.intent"]), entries);
    assert!(home.ok(&["audit", "list", "--until", "2000-01-01T00:00:00Z"]).contains("no audit entries"));
    home.run(&["audit", "list", "--actor", "Nobody"]).expect_output(1, &["no user or agent has this name"]);
    let call = ["tool", "call", "mcp_demo__add", "--as-agent", "Helper"];
    home.run(&call).expect_output(1, &["share one credential"]);
}

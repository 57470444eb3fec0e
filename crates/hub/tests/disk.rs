//! A failing disk: the hub executes nothing that it cannot record, and exits.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use hub::Home;
use serde_json::json;

/// Shell command that limits the size of files.
const SMALL_FILES: &str = "ulimit -f 2048; trap '' XFSZ; exec \"$@\"";

#[test]
fn a_hub_that_cannot_keep_what_it_does_ends_with_a_code_of_its_own() {
    let home = Home::new();
    let hub = home.start_through(&["bash", "-c", SMALL_FILES, "-"], &[]);
    home.ok(&["server", "connect", "demo"]);
    let message = json!({ "message": "x".repeat(20_000) }).to_string();
    let call = || home.run(&["--json", "tool", "call", "mcp_demo__echo", "--args", &message]);
    let mut calls = (0..500).map(|_| call());
    let refused = calls.find(|call| call.code != Some(0)).expect("the disk has failed");
    // The hub reported the failure, or had already exited because an earlier outcome could not be stored.
    let said = ["the disk failed to read or write", "no hub reachable", "the hub is shutting down"];
    assert!(said.iter().any(|said| refused.stdout.contains(said)), "{}", refused.stdout);
    let (status, log) = hub.wait();
    assert_eq!(status.code(), Some(74), "{log}");
    assert!(log.contains("linchpin: the disk failed to read or write: check it"), "{log}");

    // All acknowledged calls are stored, and the next hub continues.
    let _hub = home.start();
    assert!(home.json(&["audit", "verify"])["intact"].as_bool().unwrap());
    home.ok(&["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "again"}"#]);
}

#[test]
fn what_is_kept_survives_what_was_asked_for() {
    let home = Home::new();
    let ready = |variable: Option<&str>, arguments: &[&str]| {
        let set = variable.map(|value| format!("LINCHPIN_AUDIT_DURABILITY={value}"));
        let program: Vec<_> = set.as_deref().into_iter().collect();
        let mut hub = home.start_through(&[&["env"], &program[..]].concat(), arguments);
        hub.wait_for("hub ready")
    };
    assert!(ready(None, &[]).contains("durability=Process"));
    home.write("[audit]\ndurability = \"power\"\n");
    assert!(ready(None, &[]).contains("durability=Power"));
    assert!(ready(Some("process"), &[]).contains("durability=Process"));
    assert!(ready(Some("process"), &["--audit-durability", "power"]).contains("durability=Power"));
    home.run(&["--audit-durability", "disk"]).expect_output(2, &["process, power"]);
    home.run(&["--audit-durability", "power", "calls"]).expect_output(2, &["apply only to `serve`"]);
}

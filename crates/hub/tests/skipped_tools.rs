//! Servers that list unusable tools, or announce unsupported features: the hub and every command name them and
//! the reason.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use hub::Home;
use support::{Run, run};

/// A server with one good tool, a malformed one, and two of the same name, in Python.
const SERVER: &str = r#"
import json, sys
schema = {"type": "object"}
tools = [{"name": "good", "inputSchema": schema}, {"name": "bad", "inputSchema": schema, "description": 5},
         {"name": "good", "inputSchema": schema, "description": "again"}]
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    if message["method"] == "initialize":
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "sloppy", "version": "1"}}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": tools}
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"#;
const REASON: &str = "malformed at \"/description\": ";
const DOUBLED: &str = "the list contains another tool of this name";

/// Returns the output with single spaces.
fn collapsed_output(run: &Run) -> String {
    run.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn inspect_and_doctor_show_what_is_left_out() {
    let home = Home::new();
    let file = home.file("sloppy.py");
    std::fs::write(&file, SERVER).unwrap();
    let command = ["python3", file.to_str().unwrap()];
    let shown = collapsed_output(&run(&[&["inspect"], &command[..]].concat()).expect_output(0, &[]));
    assert!(shown.contains("Tools (1) good left out (2)"), "{shown}");
    assert!(shown.contains(&format!("left out (2) bad {REASON}")), "{shown}");
    assert!(shown.contains(&format!("good {DOUBLED}")), "{shown}");
    let found = run(&[&["inspect", "--json"], &command[..]].concat()).expect_output(0, &[]).json();
    let skipped = &found["skipped"]["tools"];
    assert_eq!((&skipped[0]["name"], &skipped[1]["name"]), (&"bad".into(), &"good".into()), "{found}");
    assert_eq!(found["skipped"]["prompts"], serde_json::json!([]));
    let shown = collapsed_output(&run(&[&["doctor"], &command[..]].concat()).expect_output(0, &[]));
    assert!(shown.contains(&format!("left out `bad`: {REASON}")), "{shown}");
}

#[test]
fn the_hub_stores_what_is_left_out_and_shows_it() {
    let home = Home::new();
    let file = home.file("sloppy.py");
    std::fs::write(&file, SERVER).unwrap();
    let _hub = home.start();
    home.ok(&["server", "add", "Sloppy", "--", "python3", file.to_str().unwrap()]);
    let table = |run: Run| {
        let shown = collapsed_output(&run);
        assert!(shown.contains("skipped tool reason"), "{shown}");
        assert!(shown.contains(&format!("bad {REASON}")), "{shown}");
        assert!(shown.contains(&format!("good {DOUBLED}")), "{shown}");
    };
    table(home.run(&["server", "sync", "sloppy"]).expect_output(0, &[]));
    table(home.run(&["server", "show", "sloppy"]).expect_output(0, &[]));
    table(home.run(&["server", "test", "sloppy"]).expect_output(0, &[]));
    let shown = home.json(&["server", "show", "sloppy"]);
    assert_eq!((&shown["tools"], shown["skipped"].as_array().unwrap().len()), (&1.into(), 2), "{shown}");
    let shown = collapsed_output(&home.run(&["doctor", "--server", "sloppy"]).expect_output(0, &[]));
    assert!(shown.contains(&format!("left out `bad`: {REASON}")), "{shown}");
}

/// A server of the stateless era that announces changes of its tools and has no subscriptions, in Python.
const MODERN: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    if message["method"] == "server/discover":
        answer["result"] = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
                            "cacheScope": "private", "capabilities": {"tools": {"listChanged": LIST_CHANGED}}}
    elif message["method"] == "tools/list":
        answer["result"] = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"#;

#[test]
fn warnings_of_the_hub_name_the_server() {
    let home = Home::new();
    let hub = home.start();
    for (name, list_changed) in [("Loud", "True"), ("Quiet", "False")] {
        let file = home.file(&format!("{name}.py"));
        std::fs::write(&file, MODERN.replace("LIST_CHANGED", list_changed)).unwrap();
        home.ok(&["server", "add", name, "--", "python3", file.to_str().unwrap()]);
        home.ok(&["server", "sync", &name.to_lowercase()]);
    }
    let (_, log) = hub.end();
    let warnings: Vec<_> =
        log.lines().filter(|line| line.contains("failed to subscribe to list changes")).collect();
    assert!(!warnings.is_empty(), "{log}");
    assert!(warnings.iter().all(|line| line.contains("server=\"loud\"")), "{log}");
}

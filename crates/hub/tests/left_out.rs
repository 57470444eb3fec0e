//! Tools that a server lists and nobody can use: every command shows each with the reason.
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
const REASON: &str = "it is malformed at \"/description\": ";
const DOUBLED: &str = "the list contains another tool of this name";

/// What was shown, with single spaces.
fn words(run: &Run) -> String {
    run.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn inspect_and_doctor_show_what_is_left_out() {
    let home = Home::new();
    let file = home.file("sloppy.py");
    std::fs::write(&file, SERVER).unwrap();
    let command = ["python3", file.to_str().unwrap()];
    let shown = words(&run(&[&["inspect"], &command[..]].concat()).said(0, &[]));
    assert!(shown.contains(&format!("left out (1) bad {REASON}")), "{shown}");
    let found = run(&[&["inspect", "--json"], &command[..]].concat()).said(0, &[]).json();
    assert_eq!(found["left_out"]["tools"][0]["name"], "bad", "{found}");
    assert_eq!(found["left_out"]["prompts"], serde_json::json!([]));
    let shown = words(&run(&[&["doctor"], &command[..]].concat()).said(0, &[]));
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
        let shown = words(&run);
        assert!(shown.contains("tool left out reason"), "{shown}");
        assert!(shown.contains(&format!("bad {REASON}")), "{shown}");
        assert!(shown.contains(&format!("good {DOUBLED}")), "{shown}");
    };
    table(home.run(&["server", "sync", "sloppy"]).said(0, &[]));
    table(home.run(&["server", "show", "sloppy"]).said(0, &[]));
    table(home.run(&["server", "test", "sloppy"]).said(0, &[]));
    let shown = home.json(&["server", "show", "sloppy"]);
    assert_eq!((&shown["tools"], shown["left_out"].as_array().unwrap().len()), (&1.into(), 2), "{shown}");
    let shown = words(&home.run(&["doctor", "--server", "sloppy"]).said(0, &[]));
    assert!(shown.contains(&format!("left out `bad`: {REASON}")), "{shown}");
}

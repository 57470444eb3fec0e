//! The first minute with the hub, and the second start.

use std::time::Duration;

use interop_tests::hub::HubDirectory;
use serde_json::json;

use crate::{strings_at, text};

#[test]
fn a_newcomer_lists_calls_and_finds_everything_again() {
    let home = HubDirectory::empty();
    let missing = home.fails(&["tool", "list"]);
    assert!(missing.contains("no hub runs on") && missing.contains("start one with `linchpin`"), "{missing}");
    let hub = home.start();
    let events = hub.subscribe(None);
    if hub.get("/servers/demo")["tools"] == 0 {
        events.until("tools", |body| body["tools"] == 5);
    }
    let listed = home.ok(&["tool", "list"]);
    assert!(listed.contains("mcp_demo__add") && listed.contains("Adds two numbers"), "{listed}");
    assert_eq!(
        home.ok(&["tool", "call", "mcp_demo__add", "--args", r#"{"a": 2, "b": 40}"#]),
        "{\"sum\":42.0}\n"
    );
    let shown = home.ok(&["calls"]);
    assert!(shown.contains("mcp_demo__add") && shown.contains("success"), "{shown}");
    let idle = hub.resident();
    println!("debug build: ready after {:?}, {} KiB resident", hub.startup_time, idle / 1024);
    assert!(hub.startup_time < Duration::from_secs(10), "{:?}", hub.startup_time);

    let (server, calls) = (hub.get("/servers/demo"), hub.list("/calls"));
    let (agent, _) = hub.agent("Ada", "auto", &json!({ "demo": {} }));
    let audit = hub.list("/audit?limit=500");
    hub.end();

    let hub = home.start();
    let again = hub.get("/servers/demo");
    for field in ["id", "created", "tools", "last_synced"] {
        assert_eq!(again[field].is_null(), server[field].is_null(), "{field}");
    }
    assert_eq!(
        (&again["id"], &again["created"], &again["tools"]),
        (&server["id"], &server["created"], &server["tools"])
    );
    assert_eq!(hub.list("/calls"), calls);
    assert_eq!(hub.get(&format!("/calls/{}", text(&calls[0]["id"])))["summary"], "{\"sum\":42.0}");
    assert_eq!(hub.get(&format!("/agents/{agent}"))["name"], "Ada");
    assert_eq!(strings_at(&hub.list("/tools"), "/name")[0], "mcp_demo__add");
    assert_eq!(home.ok(&["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "hi"}"#]), "hi\n");
    let on = hub.list("/audit?limit=500");
    assert!(on[..audit.len()] == audit && on.len() > audit.len(), "the audit continues");
    assert_eq!(home.json(&["audit", "verify"])["intact"], true);
    println!("debug build, second start: ready after {:?}", hub.startup_time);
}

//! E3: when the hub syncs the tools of servers, and with which credentials.

use interop_tests::hub::{HubDirectory, start_guarded};
use serde_json::{Value, json};

use crate::{strings_at, text};

#[test]
fn e3_tools_are_looked_at_when_asked_on_connecting_and_when_they_change() {
    let (home, server) = (HubDirectory::new(), start_guarded());
    let hub = home.start();
    hub.add_guarded(&server, json!({}));
    let first = hub.get("/servers/guarded");
    assert_eq!((&first["tools"], first["last_synced"].is_string()), (&9.into(), true));
    let synced = hub.post("/servers/guarded/sync", Value::Null);
    assert_eq!(
        synced,
        json!({ "tools": 9, "added": [], "changed": [], "removed": [], "restored": [], "skipped": [] })
    );

    let events = hub.subscribe(None);
    assert_eq!(hub.call("mcp_guarded__grow", json!({ "name": "novel" }))["summary"], "grown");
    events.until("tools", |body| body["added"]["first"] == json!(["novel"]));
    assert_eq!(hub.get("/tools/mcp_guarded__novel")["state"], "new");
    hub.end();

    // No sync is needed after a restart.
    drop(server);
    let hub = home.start();
    let server = hub.get("/servers/guarded");
    assert_eq!(
        (&server["tools"], &server["id"], &server["created"]),
        (&10.into(), &first["id"], &first["created"])
    );
    assert!(strings_at(&hub.list("/tools?server=guarded"), "/tool").contains(&"novel"));
    let shown = home.json(&["tool", "list", "--server", "guarded", "-q", "novel"]);
    assert_eq!(strings_at(shown.as_array().unwrap(), "/name"), ["mcp_guarded__novel"]);
    let failed = home.fails(&["server", "sync", "guarded"]);
    assert!(failed.contains("cannot connect to `guarded`"), "{failed}");
    assert_eq!(hub.get("/servers/guarded")["tools"], 10);
}

#[test]
fn e3_the_first_agent_with_a_credential_brings_the_tools() {
    let (home, server) = (HubDirectory::new(), start_guarded());
    let hub = home.start();
    let form =
        json!({ "authentication": { "type": "bearer" }, "credentials": "per-agent", "retry_attempts": 0 });
    hub.add("guarded", server.url(), form);
    let problem = hub.expect_error(503, "POST", "/servers/guarded/sync", Value::Null);
    assert!(text(&problem["detail"]).contains("--agent NAME"), "{problem}");
    let (ada, _) = hub.agent("Ada", "auto", &json!({ "guarded": {} }));
    let (bob, as_bob) = hub.agent("Bob", "auto", &json!({ "guarded": {} }));

    let events = hub.subscribe(None);
    hub.put(&format!("/servers/guarded/credential?agent={bob}"), json!({ "secret": "wrong" }));
    events.until("server", |body| body["change"] == "sync_failed");
    assert_eq!(hub.get("/servers/guarded")["tools"], 0);
    hub.put(&format!("/servers/guarded/credential?agent={ada}"), json!({ "secret": "secret-of-ada" }));
    events.until("tools", |body| body["tools"] == 9);
    assert_eq!(hub.get("/servers/guarded")["tools"], 9);
    assert_eq!(as_bob.list("/tools").len(), 9);
    let synced = hub.post(&format!("/servers/guarded/sync?agent={ada}"), Value::Null);
    assert_eq!(synced["tools"], 9);
    assert_eq!(home.json(&["server", "sync", "guarded", "--agent", "Ada"])["tools"], 9);
}

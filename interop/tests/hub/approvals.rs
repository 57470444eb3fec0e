//! F2: when a call requires approval, what the user sees, and who may decide.

use interop_tests::hub::{HubDirectory, everything_config};
use interop_tests::rest_client::RestClient;
use serde_json::{Value, json};

use crate::text;

const ECHO: &str = "mcp_everything__echo";

fn pending_call(agent: &RestClient, message: &str) -> (String, String) {
    let call = agent.call_async(ECHO, json!({ "message": message }));
    assert_eq!(call["status"], "pending", "{call}");
    (text(&call["id"]).to_owned(), text(&call["approval"]).to_owned())
}

#[test]
fn f2_a_person_decides_and_an_agent_never_does() {
    let home = HubDirectory::new();
    home.write(&everything_config());
    let hub = home.start();
    hub.post("/servers/everything/connect", Value::Null);
    let (id, agent) = hub.agent("Ada", "always-ask", &json!({ "everything": {} }));
    let usual = hub.post("/agents", json!({ "name": "Usual" }));
    assert_eq!(usual["approval"], "always-ask");

    // The waiting caller gets the decision of the user.
    let events = hub.subscribe(None);
    let waiting = agent.clone();
    let answer = std::thread::spawn(move || waiting.call(ECHO, json!({ "message": "hello" })));
    let asked = events.until("approval", |body| body["decision"] == "open").pop().unwrap().body;
    let path = format!("/approvals/{}", text(&asked["approval"]));
    let question = hub.get(&path);
    assert_eq!(
        (&question["call"]["arguments"], &question["decision"]),
        (&json!({ "message": "hello" }), &"open".into())
    );
    assert_eq!(question["call"]["subject"], format!("agent:{id}"));
    for (verb, path) in [
        ("GET", "/approvals".to_owned()),
        ("GET", path.clone()),
        ("POST", format!("{path}/approve")),
        ("POST", format!("{path}/deny")),
    ] {
        assert_eq!(agent.send(verb, &path, None).status, 403, "{verb} {path}");
    }
    assert_eq!(hub.with_token("lp_none").send("POST", &format!("{path}/approve"), None).status, 401);
    assert_eq!(hub.get(&path)["decision"], "open");
    hub.post(&format!("{path}/approve"), Value::Null);
    let call = answer.join().unwrap();
    assert_eq!((&call["status"], &call["summary"]), (&"success".into(), &"Echo: hello".into()));
    assert_eq!(call["approval"], asked["approval"]);
    hub.expect_error(409, "POST", &format!("{path}/approve"), Value::Null);
    assert_eq!(hub.list("/calls").len(), 1, "it was executed once");

    let waiting = agent.clone();
    let answer = std::thread::spawn(move || waiting.call(ECHO, json!({ "message": "no" })));
    let asked = events.until("approval", |body| body["decision"] == "open").pop().unwrap().body;
    home.ok(&["approvals", "deny", text(&asked["approval"]), "--reason", "not before lunch"]);
    let call = answer.join().unwrap();
    assert_eq!((&call["status"], &call["result"]), (&"denied".into(), &Value::Null));
    assert!(text(&call["error"]).contains("not before lunch"), "{call}");
    let approval = text(&asked["approval"]);
    let again = home.fails(&["approvals", "approve", approval]);
    assert!(!again.is_empty(), "{again}");

    // By REST, with a reason.
    let (call, approval) = pending_call(&agent, "third");
    let denied = hub.post(&format!("/approvals/{approval}/deny"), json!({ "reason": "never" }));
    assert!(text(&denied["decided_by"]).starts_with("user:"), "{denied}");
    assert!(text(&agent.get(&format!("/calls/{call}"))["error"]).contains("never"));

    // With arguments other than the requested ones.
    let (call, approval) = pending_call(&agent, "theirs");
    let before = hub.get(&format!("/approvals/{approval}"));
    let path = format!("/approvals/{approval}/approve");
    let wrong = hub.expect_error(422, "POST", &path, json!({ "arguments": { "message": 7 } }));
    assert!(text(&wrong["detail"]).contains("message"), "{wrong}");
    home.ok(&["approvals", "approve", &approval, "--args", r#"{"message": "mine"}"#]);
    let events = hub.subscribe(Some(&events.next().id));
    if hub.get(&format!("/calls/{call}"))["status"] != "success" {
        events.until("call", |body| body["call"] == *call && body["status"] == "success");
    }
    let made = agent.get(&format!("/calls/{call}"));
    assert_eq!((&made["summary"], &made["arguments"]["message"]), (&"Echo: mine".into(), &"mine".into()));
    assert_ne!(hub.get(&format!("/approvals/{approval}"))["digest"], before["digest"]);
    let audit = home.ok(&["audit", "export"]);
    assert!(audit.contains(text(&before["digest"])), "the digest of the requested arguments is recorded too");
}

#[test]
fn f2_auto_and_trusted_only_ask_less() {
    let home = HubDirectory::new();
    home.write(&everything_config());
    let hub = home.start();
    hub.post("/servers/everything/connect", Value::Null);
    let (id, agent) = hub.agent("Ada", "auto", &json!({ "everything": { "tools": ["echo", "get-sum"] } }));
    assert_eq!(agent.call(ECHO, json!({ "message": "a" }))["status"], "success");
    assert_eq!(agent.list("/tools").len(), 2);
    let call = json!({ "tool": "mcp_everything__get-env" });
    assert_eq!(agent.expect_error(404, "POST", "/calls", call)["code"], "not_found");

    let servers = json!({ "everything": { "tools": ["echo", "get-sum"], "trusted": ["get-sum"] } });
    let changed =
        hub.patch(&format!("/agents/{id}"), json!({ "approval": "trusted-only", "servers": servers }));
    assert_eq!(changed["approval"], "trusted-only");
    let sum = agent.call("mcp_everything__get-sum", json!({ "a": 1, "b": 1 }));
    assert_eq!(sum["status"], "success", "{sum}");
    let (call, approval) = pending_call(&agent, "b");
    assert!(home.ok(&["approvals"]).contains(r#"{"message":"b"}"#));
    home.ok(&["approvals", "deny", &approval]);
    assert_eq!(agent.get(&format!("/calls/{call}"))["status"], "denied");
    assert_eq!(
        hub.expect_error(422, "PATCH", &format!("/agents/{id}"), json!({ "approval": "never" }))["field"],
        "approval"
    );

    // A call of a user counts as approved by that user, and is recorded so.
    let own = hub.call(ECHO, json!({ "message": "mine" }));
    assert_eq!((&own["status"], &own["approval"]), (&"success".into(), &Value::Null));
    let audit = home.ok(&["audit", "export"]);
    let reason = |call: &str, action: &str| {
        let rows = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut rows = rows.filter(|row| row["fields"]["call"] == *call && row["action"] == action);
        text(&rows.next().unwrap()["fields"]["reason"]).to_owned()
    };
    assert_eq!(reason(text(&own["id"]), "call.intent"), "own_call");
    assert_eq!(reason(text(&sum["id"]), "call.intent"), "agent_trusts");
    assert!(audit.lines().any(|line| line.contains("call.rejected") && line.contains("not_selected")));
    assert_eq!(reason(&call, "approval.requested"), "not_trusted");

    // The agent cancels its pending call. A disabled agent is rejected.
    let (call, _) = pending_call(&agent, "c");
    assert_eq!(agent.post(&format!("/calls/{call}/cancel"), Value::Null)["status"], "cancelled");
    hub.patch(&format!("/agents/{id}"), json!({ "enabled": false }));
    assert!(matches!(agent.send("GET", "/tools", None).status, 401 | 403));
}

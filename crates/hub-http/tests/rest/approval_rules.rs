//! Approval rules: created with an approval or on their own, listed and revoked, and never by an agent.

use serde_json::{Value, json};

use crate::fixture::Site;

async fn echo(site: &Site, token: &str, session: Option<&str>) -> Value {
    let mut form = json!({"tool": "mcp_up__echo", "arguments": {"message": "a"}});
    if let Some(session) = session {
        form["session"] = json!(session);
    }
    site.send_as(token, "POST", "/calls?wait=false", Some(form)).await.ok()
}

#[tokio::test]
async fn an_approval_can_cover_the_rest_of_a_session() {
    let site = Site::with_server().await;
    let (agent, token) = site.agent("always-ask").await;
    let call = echo(&site, &token, Some("chat 7")).await;
    assert_eq!((&call["status"], &call["session"]), (&json!("pending"), &json!("chat 7")));
    let path = format!("/approvals/{}/approve", call["approval"].as_str().unwrap());
    for (rule, field) in [
        (json!("once"), "rule"),
        (json!({}), "rule.minutes"),
        (json!({"minutes": 10_081}), "rule.minutes"),
        (json!({"minute": 1}), "rule.minute"),
        (json!({"session": "chat 7"}), "rule.session"),
        (json!({"conditions": [{"pointer": "message", "equals": "a"}]}), "rule.conditions[0]"),
        (json!({"conditions": [{"pointer": "/message", "equals": "b"}]}), "rule.conditions[0]"),
    ] {
        site.post(&path, json!({"rule": rule})).await.assert_invalid_field(field);
    }
    assert_eq!(site.ran(), 0);
    site.post(&path, json!({"rule": {"session": true, "minutes": 10}})).await.ok();
    assert_ne!(echo(&site, &token, Some("chat 7")).await["status"], "pending");
    assert_eq!(echo(&site, &token, Some("chat 8")).await["status"], "pending");
    let tool = json!({"arguments": {"message": "a"}, "session": "chat 7"});
    let covered = site.send_as(&token, "POST", "/tools/mcp_up__echo/call", Some(tool)).await.ok();
    assert_eq!(covered["status"], "success");
    let rules = site.get(&format!("/approval-rules?agent={agent}&server=up")).await.ok();
    assert_eq!(rules["items"].as_array().unwrap().len(), 1);
    let rule = &rules["items"][0];
    assert_eq!((&rule["session"], &rule["agent_name"]), (&json!("chat 7"), &json!("agent always-ask")));
    let path = format!("/approval-rules/{}", rule["id"].as_str().unwrap());
    assert_eq!(&site.get(&path).await.ok(), rule);
    assert_eq!(site.delete(&path).await.status, 204);
    site.get(&path).await.assert_problem(404, "not_found");
    assert_eq!(echo(&site, &token, Some("chat 7")).await["status"], "pending");
}

#[tokio::test]
async fn a_rule_can_be_added_without_a_call() {
    let site = Site::with_server().await;
    let (agent, token) = site.agent("always-ask").await;
    let conditions = json!([{"pointer": "/message", "in": ["a", "b"]}]);
    let form = json!({"agent": agent, "server": "up", "name": "echo", "conditions": conditions});
    let changed = |field: &str, value: Value| {
        let mut form = form.clone();
        form[field] = value;
        form
    };
    for (form, field) in [
        (changed("agent", Value::Null), "agent"),
        (changed("agent", json!("Ada")), "agent"),
        (changed("name", Value::Null), "name"),
        (changed("tool", json!("mcp_up__echo")), "tool"),
        (changed("conditions", Value::Null), "minutes"),
        (changed("conditions", json!([{}])), "conditions[0]"),
        (changed("session", json!("")), "session"),
        (changed("other", json!(1)), "other"),
    ] {
        site.post("/approval-rules", form).await.assert_invalid_field(field);
    }
    site.post("/approval-rules", changed("name", json!("none"))).await.assert_problem(404, "not_found");
    let added = site.post("/approval-rules", form).await;
    let rule = added.ok();
    assert_eq!(
        (added.status, added.header("location")),
        (201, Some(&*format!("/api/v1/approval-rules/{}", rule["id"].as_str().unwrap())))
    );
    assert_eq!((&rule["conditions"], &rule["approval"]), (&conditions, &Value::Null));
    assert_ne!(echo(&site, &token, None).await["status"], "pending");
}

#[tokio::test]
async fn an_agent_has_no_access_to_rules() {
    let site = Site::with_server().await;
    let (agent, token) = site.agent("always-ask").await;
    let form = json!({"agent": agent, "tool": "mcp_up__echo", "minutes": 1});
    let added = site.post("/approval-rules", form.clone()).await.ok();
    let path = format!("/approval-rules/{}", added["id"].as_str().unwrap());
    for (method, path, body) in [
        ("GET", "/approval-rules", None),
        ("POST", "/approval-rules", Some(form)),
        ("GET", &*path, None),
        ("DELETE", &*path, None),
    ] {
        site.send_as(&token, method, path, body).await.assert_problem(403, "user_required");
    }
    assert_eq!(site.get("/approval-rules").await.ok()["items"].as_array().unwrap().len(), 1);
}

//! Resource subscriptions, the search of the audit, and calls with the credential of an agent.

use linchpin::{Context, Json, NoArgs, Tool};
use serde_json::{Value, json};

use crate::fixture::Site;

#[tokio::test]
async fn a_caller_subscribes_to_a_resource() {
    let site = Site::with_server().await;
    let (_, token) = site.agent("auto").await;
    let uri = || json!({"uri": "memory://a"});
    let listed = async |token: &str| {
        let page = site.send_as(token, "GET", "/servers/up/resources/subscriptions", None).await.ok();
        page["items"].as_array().unwrap().clone()
    };
    let made = site.send_as(&token, "POST", "/servers/up/resources/subscribe", Some(uri())).await.ok();
    assert_eq!((&made["uri"], &made["is_connected"]), (&json!("memory://a"), &json!(true)));
    assert_eq!(listed(&token).await, [made]);
    assert!(listed(&site.token).await.is_empty());
    site.post("/servers/up/resources/unsubscribe", uri()).await.assert_problem(404, "not_found");
    let ended = site.send_as(&token, "POST", "/servers/up/resources/unsubscribe", Some(uri())).await;
    assert_eq!(ended.status, 204);
    assert!(listed(&token).await.is_empty());
    for wrong in [json!({}), json!({"uri": ""}), json!({"uri": 1})] {
        site.post("/servers/up/resources/subscribe", wrong).await.assert_invalid_field("uri");
    }
    site.post("/servers/none/resources/subscribe", uri()).await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn the_audit_is_searched_page_by_page() {
    let site = Site::with_server().await;
    let (id, token) = site.agent("auto").await;
    for _ in 0..3 {
        let body = Some(json!({"arguments": {"message": "a"}}));
        site.send_as(&token, "POST", "/tools/mcp_up__echo/call", body).await.ok();
    }
    let (mut seen, mut path) =
        (Vec::new(), "/audit?actor=agent%20auto&action=call.intent&limit=2".to_owned());
    loop {
        let page = site.get(&path).await.ok();
        seen.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/audit?actor=agent%20auto&action=call.intent&limit=2&after={next}");
    }
    assert_eq!(seen.len(), 3);
    for entry in &seen {
        assert_eq!(
            (&entry["actor"], &entry["action"]),
            (&json!(format!("agent:{id}")), &json!("call.intent"))
        );
        assert_eq!((&entry["actor_name"], &entry["names"]["server"]), (&json!("agent auto"), &json!("up")));
    }
    let later = site.get("/audit?since=2999-01-01T00:00:00Z").await.ok();
    assert_eq!(later, json!({"items": [], "next": null}));
    site.get("/audit?actor=nobody").await.assert_invalid_field("actor");
    site.get("/audit?since=today").await.assert_invalid_field("since");
    let export = site.get("/audit/export").await;
    assert!(export.status == 200 && !export.body.contains("actor_name"), "an export contains what is stored");
}

#[tokio::test]
async fn an_agent_is_named_only_where_it_has_its_own_credential() {
    let site = Site::with_server().await;
    let (id, token) = site.agent("auto").await;
    let body = |agent: &str| json!({"arguments": {"message": "a"}, "as_agent": agent});
    let path = "/tools/mcp_up__echo/call";
    site.post(path, body("agent auto")).await.assert_invalid_field("as_agent");
    let changes = json!({"credentials": "per-agent", "authentication": {"type": "bearer"}});
    site.patch("/servers/up", changes).await.ok();
    let credential = format!("/servers/up/credential?agent={id}");
    site.put(&credential, json!({"secret": "token-of-the-agent"})).await.ok();
    let call = site.post(path, body("agent auto")).await.ok();
    assert_eq!(call["status"], "success", "{call}");
    assert!(call["subject"].as_str().unwrap().starts_with("user:"), "{call}");
    let call = json!({"tool": "mcp_up__echo", "arguments": {"message": "a"}, "as_agent": id});
    assert_eq!(site.post("/calls", call).await.ok()["status"], "success");
    let intents = site.get("/audit?action=call.intent").await.ok();
    let intents = intents["items"].as_array().unwrap();
    assert_eq!(intents.len(), 2);
    for intent in intents {
        assert_eq!(
            (&intent["fields"]["as_agent"], &intent["names"]["as_agent"]),
            (&json!(id), &json!("agent auto"))
        );
    }
    site.post(path, body("nobody")).await.assert_problem(404, "not_found");
    site.send_as(&token, "POST", path, Some(body("agent auto"))).await.assert_problem(403, "forbidden");
}

#[tokio::test]
async fn the_trace_of_a_request_reaches_the_server() {
    let site = Site::with_server().await;
    let tool =
        Tool::new("trace").description("Returns its trace").handler(|_: NoArgs, cx: Context| async move {
            let member = |name: &str| cx.meta().get(name).cloned();
            Json(json!({"parent": member("traceparent"), "state": member("tracestate")}))
        });
    site.handle.add(tool).unwrap();
    site.post("/servers/up/sync", json!({})).await.ok();
    let call = async |headers: &[(&str, &str)]| {
        let authorization = format!("Bearer {}", site.token);
        let mut all = vec![("Authorization", &*authorization), ("Content-Type", "application/json")];
        all.extend(headers);
        let answer = site.send("POST", "/api/v1/tools/mcp_up__trace/call", &all, Some("{}")).await.ok();
        answer["result"]["structuredContent"].clone()
    };
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let none = json!({"parent": null, "state": null});
    assert_eq!(call(&[("traceparent", parent)]).await, json!({"parent": parent, "state": null}));
    let both = [("traceparent", parent), ("tracestate", "a=1"), ("tracestate", "b=2")];
    assert_eq!(call(&both).await, json!({"parent": parent, "state": "a=1,b=2"}));
    assert_eq!(
        call(&[("traceparent", parent), ("tracestate", "=")]).await,
        json!({"parent": parent, "state": null})
    );
    for headers in [
        &[("tracestate", "a=1")][..],
        &[("traceparent", "00-0-0-01")],
        &[("traceparent", parent), ("traceparent", parent)],
    ] {
        assert_eq!(call(headers).await, none);
    }
    let other: Value = call(&[]).await;
    assert_eq!(other, none);
}

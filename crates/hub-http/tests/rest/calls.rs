//! Calls: started, with and without waiting, listed, and cancelled.

use linchpin_hub_core::hub::LOCAL;
use serde_json::{Value, json};

use crate::fixture::{RESPONSE_TIMEOUT, Site};

fn echo(message: &str) -> Value {
    json!({"tool": "mcp_up__echo", "arguments": {"message": message}})
}

#[tokio::test]
async fn a_call_is_made_and_remembered() {
    let site = Site::with_server().await;
    let answer = site.post("/calls", echo("hello")).await;
    let call = answer.ok();
    let id = call["id"].as_str().unwrap();
    assert_eq!((answer.status, answer.header("location")), (200, Some(&*format!("/api/v1/calls/{id}"))));
    assert_eq!((&call["status"], &call["summary"]), (&json!("success"), &json!("hello")));
    let by_server = json!({"server": "up", "name": "echo", "arguments": {"message": "again"}});
    assert_eq!(site.post("/calls", by_server).await.ok()["summary"], "again");
    let again = site.get(&format!("/calls/{id}")).await.ok();
    assert_eq!((&again["arguments"], &again["result"]), (&json!({"message": "hello"}), &call["result"]));
    let list = site.get("/calls?status=success&tool=echo&server=up").await.ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(list["items"][1]["id"], id, "the newest comes first");
    assert_eq!(list["items"][1]["arguments"], Value::Null, "lists have no arguments");
    for (filter, count) in [
        ("status=error", 0),
        ("tool=wait", 0),
        ("since=2000-01-01T00:00:00Z", 2),
        ("until=2000-01-01T00:00:00Z", 0),
        ("subject=agent:00000000-0000-0000-0000-000000000001", 0),
        ("subject=user:00000000-0000-0000-0000-000000000001", 2),
        ("limit=1", 1),
    ] {
        let list = site.get(&format!("/calls?{filter}")).await.ok();
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{filter}");
    }
    site.get("/calls?server=nobody").await.assert_problem(404, "not_found");
    site.get("/calls/nothing").await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn who_calls_too_often_is_told_how_long_to_wait() {
    let site = Site::with_server().await;
    site.patch("/servers/up", json!({"calls_per_minute": 1})).await.ok();
    assert_eq!(site.post("/calls", echo("a")).await.header("retry-after"), None);
    let answer = site.post("/calls", echo("b")).await;
    let detail = answer.assert_problem(429, "rate_limited")["detail"].as_str().unwrap().to_owned();
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait) && detail.ends_with(&format!("try again in {wait} s")), "{answer:?}");
}

#[tokio::test]
async fn what_is_to_be_called_must_be_clear() {
    let site = Site::with_server().await;
    for (form, field) in [
        (json!({}), "tool"),
        (json!({"server": "up"}), "name"),
        (json!({"name": "echo"}), "server"),
        (json!({"tool": "mcp_up__echo", "name": "echo"}), "tool"),
        (json!({"tool": 1}), "tool"),
        (json!({"tool": "mcp_up__echo", "arguments": "x"}), "arguments"),
        (json!({"tool": "mcp_up__echo", "argument": {}}), "argument"),
    ] {
        site.post("/calls", form).await.assert_invalid_field(field);
    }
    site.post("/calls?wait=perhaps", echo("x")).await.assert_invalid_field("wait");
    site.post("/calls", json!({"server": "nobody", "name": "echo"})).await.assert_problem(404, "not_found");
    site.post("/calls", json!({"server": "up", "name": "nothing"})).await.assert_problem(404, "not_found");
    assert_eq!(site.ran(), 0);
    assert_eq!(site.get("/calls").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn whoever_does_not_wait_is_told_where_the_call_is() {
    let site = Site::with_server().await;
    let wait = json!({"tool": "mcp_up__wait"});
    let answer = site.post("/calls?wait=false", wait.clone()).await;
    let id = answer.ok()["id"].as_str().unwrap().to_owned();
    assert_eq!((answer.status, answer.ok()["status"].as_str()), (202, Some("running")));
    assert_eq!(answer.header("location"), Some(&*format!("/api/v1/calls/{id}")));
    assert_eq!(answer.header("preference-applied"), None);
    tokio::time::timeout(RESPONSE_TIMEOUT, site.begun.notified()).await.unwrap();
    let cancelled = site.post(&format!("/calls/{id}/cancel"), json!({})).await.ok();
    assert_eq!(cancelled["status"], "cancelled");
    site.post(&format!("/calls/{id}/cancel"), json!({})).await.assert_problem(409, "call_finished");
    let token = format!("Bearer {}", site.token);
    let headers = [
        ("Authorization", &*token),
        ("Content-Type", "application/json"),
        ("Prefer", "wait=1, Respond-Async"),
    ];
    let answer = site.send("POST", "/api/v1/calls", &headers, Some(&wait.to_string())).await;
    assert_eq!((answer.status, answer.header("preference-applied")), (202, Some("respond-async")));
    assert_eq!(site.ran(), 0);
}

#[tokio::test]
async fn a_call_goes_on_when_whoever_wanted_it_has_left() {
    let site = Site::with_server().await;
    let mut watching = site.hub.events().subscribe(LOCAL, None);
    {
        let call = site.post("/calls", json!({"tool": "mcp_up__wait"}));
        let begun = tokio::time::timeout(RESPONSE_TIMEOUT, site.begun.notified());
        tokio::select! {
            answer = call => panic!("{answer:?}"),
            begun = begun => begun.unwrap(),
        }
    }
    site.go_on.notify_one();
    let over = async {
        loop {
            let event = watching.next().await.unwrap();
            if event.kind == "call" && event.body["status"] == "success" {
                return;
            }
        }
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, over).await.unwrap();
    assert_eq!(site.get("/calls?status=success").await.ok()["items"].as_array().unwrap().len(), 1);
}

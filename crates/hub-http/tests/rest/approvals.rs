//! Approvals: requested, decided once, and never by an agent.

use linchpin_hub_core::hub::LOCAL;
use serde_json::{Value, json};

use crate::fixture::{RESPONSE_TIMEOUT, Site};

/// Lets an agent request a call. Returns the call and its approval.
async fn request_approval(site: &Site, token: &str, message: &str) -> (String, String) {
    let form = json!({"tool": "mcp_up__echo", "arguments": {"message": message}});
    let answer = site.send_as(token, "POST", "/calls?wait=false", Some(form)).await;
    let call = answer.ok();
    assert_eq!((answer.status, &call["status"]), (202, &json!("pending")));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&call["id"]), text(&call["approval"]))
}

#[tokio::test]
async fn a_person_says_yes_and_whoever_waits_has_the_answer() {
    let site = Site::with_server().await;
    let (_, token) = site.agent("always-ask").await;
    let mut watching = site.hub.events().subscribe(LOCAL, None);
    let form = json!({"tool": "mcp_up__echo", "arguments": {"message": "please"}});
    let waits = site.send_as(&token, "POST", "/calls", Some(form));
    let answers = async {
        loop {
            let event = watching.next().await.unwrap();
            if event.kind == "approval" && event.body["decision"] == "open" {
                break event.body["approval"].as_str().unwrap().to_owned();
            }
        }
    };
    let approves = async {
        let id = answers.await;
        let approval = site.get(&format!("/approvals/{id}")).await.ok();
        assert_eq!(approval["call"]["arguments"], json!({"message": "please"}), "the exact arguments");
        site.post(&format!("/approvals/{id}/approve"), json!({})).await.ok();
        id
    };
    let both = async { tokio::join!(waits, approves) };
    let (answer, id) = tokio::time::timeout(RESPONSE_TIMEOUT, both).await.unwrap();
    assert_eq!((&answer.ok()["status"], &answer.ok()["summary"]), (&json!("success"), &json!("please")));
    let again = site.post(&format!("/approvals/{id}/approve"), json!({})).await;
    assert_eq!(again.status, 409, "{again:?}");
    assert_eq!(site.ran(), 1);
    let used = site.get("/approvals?decision=used").await.ok();
    assert_eq!((&used["items"][0]["id"], &used["next"]), (&json!(id), &Value::Null));
}

#[tokio::test]
async fn nobodys_questions_are_hidden_behind_large_ones() {
    let site = Site::with_server().await;
    let (_, token) = site.agent("always-ask").await;
    let (_, small) = request_approval(&site, &token, "small").await;
    let (_, large) = request_approval(&site, &token, &"x".repeat(3 << 20)).await;
    let listed = site.get("/approvals?decision=open").await;
    assert!(listed.body.len() < 100 << 10, "{}", listed.body.len());
    let listed = listed.ok();
    let arguments = |id: &str| {
        let found = listed["items"].as_array().unwrap().iter().find(|item| item["id"] == id);
        found.unwrap()["call"]["arguments"].clone()
    };
    assert_eq!(arguments(&small), json!({"message": "small"}));
    assert_eq!(arguments(&large), Value::Null);
    let whole = site.get(&format!("/approvals/{large}")).await.ok();
    assert_eq!(
        whole["call"]["arguments"]["message"].as_str().unwrap().len(),
        3 << 20,
        "complete in the single view"
    );
}

#[tokio::test]
async fn other_arguments_are_checked_and_recorded() {
    let site = Site::with_server().await;
    let (_, token) = site.agent("always-ask").await;
    let (call, id) = request_approval(&site, &token, "one").await;
    let path = format!("/approvals/{id}/approve");
    site.post(&path, json!({"arguments": {"message": 1}})).await.assert_invalid_field("arguments");
    site.post(&path, json!({"arguments": "x"})).await.assert_invalid_field("arguments");
    site.post(&path, json!({"argument": {}})).await.assert_invalid_field("argument");
    assert_eq!(site.ran(), 0);
    let mut watching = site.hub.events().subscribe(LOCAL, None);
    site.post(&path, json!({"arguments": {"message": "two"}})).await.ok();
    let over = async {
        loop {
            let seen = site.get(&format!("/calls/{call}")).await.ok();
            if seen["status"] == "success" {
                return seen;
            }
            let _ = watching.next().await;
        }
    };
    let seen = tokio::time::timeout(RESPONSE_TIMEOUT, over).await.unwrap();
    assert_eq!((&seen["summary"], &seen["arguments"]), (&json!("two"), &json!({"message": "two"})));
}

#[tokio::test]
async fn a_person_says_no() {
    let site = Site::with_server().await;
    let (_, token) = site.agent("always-ask").await;
    let (call, id) = request_approval(&site, &token, "one").await;
    site.post(&format!("/approvals/{id}/deny"), json!({"reason": 1})).await.assert_invalid_field("reason");
    site.post(&format!("/approvals/{id}/deny"), json!({"reason": "x".repeat(1_001)}))
        .await
        .assert_invalid_field("reason");
    let denied = site.post(&format!("/approvals/{id}/deny"), json!({"reason": "not today"})).await.ok();
    assert_eq!(denied["decision"], "denied");
    let seen = site.send_as(&token, "GET", &format!("/calls/{call}"), None).await.ok();
    assert_eq!(seen["status"], "denied");
    assert!(seen["error"].as_str().unwrap().contains("not today"), "{seen}");
    let late = site.post(&format!("/approvals/{id}/approve"), json!({})).await;
    assert_eq!((late.status, site.ran()), (409, 0));
}

#[tokio::test]
async fn an_agent_never_answers() {
    let site = Site::with_server().await;
    let (_, token) = site.agent("always-ask").await;
    let (_, other) = site.agent("auto").await;
    let (_, id) = request_approval(&site, &token, "one").await;
    for token in [&token, &other] {
        for (method, path) in [
            ("GET", "/approvals".to_owned()),
            ("GET", format!("/approvals/{id}")),
            ("POST", format!("/approvals/{id}/approve")),
            ("POST", format!("/approvals/{id}/deny")),
        ] {
            site.send_as(token, method, &path, None).await.assert_problem(403, "user_required");
        }
    }
    let open = site.get("/approvals?decision=open").await.ok();
    assert_eq!((open["items"].as_array().unwrap().len(), site.ran()), (1, 0));
    site.post("/approvals/nothing/approve", json!({})).await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn withdrawn_questions_can_be_listed() {
    let site = Site::with_server().await;
    let (_, token) = site.agent("always-ask").await;
    let (call, approval) = request_approval(&site, &token, "never mind").await;
    request_approval(&site, &token, "please").await;
    site.send_as(&token, "POST", &format!("/calls/{call}/cancel"), None).await.ok();
    let withdrawn = site.get("/approvals?decision=withdrawn").await.ok();
    assert_eq!(withdrawn["items"].as_array().unwrap().len(), 1, "{withdrawn}");
    assert_eq!(withdrawn["items"][0]["id"], approval);
}

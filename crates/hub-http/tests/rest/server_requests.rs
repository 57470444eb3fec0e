//! Server requests of calls over REST: listed, answered once, and declined without `replies`.

use linchpin::{Context, NoArgs, Server, args};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fixture::{RESPONSE_TIMEOUT, Site};

#[args]
struct Name {
    /// Name of the user
    name: String,
}

/// Starts a server `asks` with a tool that sends an elicitation, and adds it to the hub.
async fn site_with_asks() -> (Site, JoinSet<()>) {
    let site = Site::new().await;
    let server = Server::new("asks", "1").tool("greet", "Greets", |_: NoArgs, cx: Context| async move {
        let Name { name } = cx.elicit("Who are you?").await?;
        linchpin::Result::Ok(format!("Hello, {name}!"))
    });
    let listening = server.http().bind("127.0.0.1:0").await.unwrap();
    let form = json!({"name": "Asks", "url": listening.url(), "retry_attempts": 0});
    let mut running = JoinSet::new();
    running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
    site.post("/servers", form).await.ok();
    site.post("/servers/asks/sync", json!({})).await.ok();
    (site, running)
}

/// Starts a call with replies. Returns its path and its open server request.
async fn open_request(site: &Site) -> (String, Value) {
    let mut watching = site.hub.events().subscribe(linchpin_hub_core::hub::LOCAL, None);
    let call = site.post("/calls?wait=false", json!({"tool": "mcp_asks__greet", "replies": true})).await.ok();
    let opened = async {
        loop {
            let event = watching.next().await.unwrap();
            if event.kind == "server_request.opened" {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(RESPONSE_TIMEOUT, opened).await.unwrap();
    assert_eq!(event.body["call"], call["id"]);
    let path = format!("/calls/{}", call["id"].as_str().unwrap());
    let list = site.get(&format!("{path}/requests")).await.ok();
    assert_eq!(list["items"][0]["id"], event.body["server_request"]);
    (path, list["items"][0].clone())
}

#[tokio::test]
async fn a_form_is_listed_and_replied_to_once() {
    let (site, _running) = site_with_asks().await;
    let (call, request) = open_request(&site).await;
    assert_eq!((&request["kind"], &request["message"]), (&json!("form"), &json!("Who are you?")));
    assert_eq!(request["schema"]["properties"]["name"]["type"], "string");
    assert_eq!(site.get("/server-requests").await.ok()["items"], json!([request]));
    let path = format!("/server-requests/{}/reply", request["id"].as_str().unwrap());
    for (body, field) in [
        (json!({}), "action"),
        (json!({"action": "agree"}), "action"),
        (json!({"action": "accept"}), "content"),
        (json!({"action": "accept", "content": {}}), "content"),
        (json!({"action": "accept", "content": {"name": 1}}), "content"),
        (json!({"action": "decline", "content": {}}), "content"),
    ] {
        site.post(&path, body).await.assert_invalid_field(field);
    }
    let body = json!({"action": "accept", "content": {"name": "Ada"}});
    assert_eq!(site.post(&path, body.clone()).await.status, 204);
    site.post(&path, body).await.assert_problem(404, "not_found");
    let id = call.rsplit('/').next().unwrap().parse().unwrap();
    let actor = linchpin_hub_core::Actor::new(
        linchpin_hub_core::hub::LOCAL,
        linchpin_hub_core::Subject::User(linchpin_hub_core::hub::LOCAL_USER),
    );
    let done =
        tokio::time::timeout(RESPONSE_TIMEOUT, site.hub.calls().wait(actor, id)).await.unwrap().unwrap();
    assert_eq!(done.summary.as_deref(), Some("Hello, Ada!"));
    assert_eq!(site.get("/server-requests").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn without_replies_an_elicitation_is_declined() {
    let (site, _running) = site_with_asks().await;
    for path in ["/calls", "/tools/mcp_asks__greet/call"] {
        let body = if path == "/calls" { json!({"tool": "mcp_asks__greet"}) } else { json!({}) };
        let call = site.post(path, body).await.ok();
        assert_eq!(call["status"], "error", "{call}");
        assert!(call["warning"].as_str().unwrap().contains("does not reply to server requests"), "{call}");
    }
}

#[tokio::test]
async fn an_agent_sees_no_server_requests_of_others() {
    let (site, _running) = site_with_asks().await;
    let (call, request) = open_request(&site).await;
    let agent = site.post("/agents", json!({"name": "other", "approval": "auto"})).await.ok();
    let tokens = format!("/agents/{}/tokens", agent["id"].as_str().unwrap());
    let issued = site.post(&tokens, json!({"name": "test"})).await.ok();
    let token = issued["token"].as_str().unwrap();
    let list = site.send_as(token, "GET", "/server-requests", None).await.ok();
    assert_eq!(list["items"], json!([]));
    let of_call = site.send_as(token, "GET", &format!("{call}/requests"), None).await;
    of_call.assert_problem(404, "not_found");
    let path = format!("/server-requests/{}/reply", request["id"].as_str().unwrap());
    let reply = site.send_as(token, "POST", &path, Some(json!({"action": "decline"}))).await;
    reply.assert_problem(404, "not_found");
    assert_eq!(site.post(&path, json!({"action": "cancel"})).await.status, 204);
}

//! Clients that misbehave: they get clear errors, and other clients notice nothing.

use linchpin::Revision;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::fixture::{Site, TestAgent, USER, within_timeout};

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn echo(id: u32, message: &str) -> Value {
    let arguments = json!({ "message": message });
    request(id, "tools/call", &json!({ "name": "mcp_up__echo", "arguments": arguments }))
}

/// Opens a session of a client with these capabilities, and returns its id.
async fn open_session(site: &Site, token: &str, capabilities: &Value) -> String {
    let client = json!({ "name": "bad", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client });
    let opened = site.post("/mcp", token, None, &request(1, "initialize", &params)).await;
    assert_eq!(opened.status, 200, "{}", opened.body);
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(site.post("/mcp", token, Some(&session), &initialized).await.status, 202);
    session
}

async fn check_other_client(site: &Site, agent: &TestAgent) {
    let client = site.client(&agent.token, Revision::LATEST).connect().await.unwrap();
    let call = client.call("mcp_up__echo", json!({ "message": "other" }));
    assert_eq!(within_timeout(call.into_future()).await.unwrap().to_text(), "other");
}

#[tokio::test]
async fn an_id_that_is_in_use_is_refused_and_free_again_afterwards() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    let session = open_session(&site, &agent.token, &json!({})).await;
    let mut events = site.events();
    let first = echo(7, "first");
    let (waiting, ()) = tokio::join!(site.post("/mcp", &agent.token, Some(&session), &first), async {
        let approval = site.next_approval(&mut events).await;
        let second = site.post("/mcp", &agent.token, Some(&session), &echo(7, "second")).await;
        assert!(second.body.contains("-32600") && second.body.contains("id"), "{}", second.body);
        site.hub.calls().approve(USER, approval.id, None).await.unwrap();
    });
    assert!(waiting.body.contains("\"first\""), "{}", waiting.body);
    assert_eq!(site.executions(), 1);
    let list = request(7, "tools/list", &json!({}));
    let listed = site.post("/mcp", &agent.token, Some(&session), &list).await;
    assert!(listed.body.contains("mcp_up__echo"), "{}", listed.body);
}

#[tokio::test]
async fn the_second_answer_to_a_form_changes_nothing() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    let session = open_session(&site, &agent.token, &json!({ "elicitation": {} })).await;
    let mut events = site.events();
    let answer = |action: &str| {
        let result = json!({ "action": action, "content": { "decision": "approve" } });
        json!({ "jsonrpc": "2.0", "id": 1, "result": result })
    };
    let call = echo(2, "once");
    let (called, ()) = tokio::join!(site.post("/mcp", &agent.token, Some(&session), &call), async {
        site.next_approval(&mut events).await;
        // The form is the first request to this client.
        while site.executions() == 0 {
            let answered = site.post("/mcp", &agent.token, Some(&session), &answer("accept")).await;
            assert_eq!(answered.status, 202, "{}", answered.body);
        }
        for action in ["accept", "decline"] {
            let again = site.post("/mcp", &agent.token, Some(&session), &answer(action)).await;
            assert_eq!(again.status, 202, "{}", again.body);
        }
    });
    assert!(called.body.contains("\"once\"") && !called.body.contains("denied"), "{}", called.body);
    assert_eq!(site.executions(), 1);
}

#[tokio::test]
async fn many_sessions_of_one_caller_leave_room_for_others() {
    let site = Site::start().await;
    let greedy = site.agent("Greedy", json!({ "approval": "auto" })).await;
    let other = site.agent("Other", json!({ "approval": "auto" })).await;
    let mut sessions = Vec::new();
    for _ in 0..1_000 {
        sessions.push(open_session(&site, &greedy.token, &json!({})).await);
    }
    check_other_client(&site, &other).await;
    for session in [&sessions[0], &sessions[999]] {
        let called = site.post("/mcp", &greedy.token, Some(session), &echo(9, "mine")).await;
        assert!(called.body.contains("\"mine\""), "{}", called.body);
    }
}

#[tokio::test]
async fn a_client_that_never_reads_delays_no_other() {
    let site = Site::start().await;
    let agent = site.agent("Auto", json!({ "approval": "auto" })).await;
    let host = site.url.strip_prefix("http://").unwrap();
    let mut silent = Vec::new();
    for number in 0..8 {
        let body = echo(number, &"x".repeat(1 << 20)).to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\n\
             Mcp-Session-Id: {}\r\nContent-Length: {}\r\n\r\n",
            agent.token,
            open_session(&site, &agent.token, &json!({})).await,
            body.len()
        );
        let mut socket = TcpStream::connect(host).await.unwrap();
        socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
        silent.push(socket);
    }
    check_other_client(&site, &agent).await;
    within_timeout(async {
        while site.executions() < 9 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

//! Clients that misbehave: they get clear errors, and other clients notice nothing.

use linchpin::Revision;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::fixture::{Site, TestAgent, USER, within_timeout};

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn echo(id: u32, message: &str) -> Value {
    let arguments = json!({ "message": message });
    request(id, "tools/call", &json!({ "name": "mcp_up__echo", "arguments": arguments }))
}

/// Reads from a connection until a line with this text has ended, and returns what was read.
async fn read_until(socket: &mut TcpStream, text: &str) -> String {
    let (mut seen, mut bytes) = (String::new(), [0; 4_096]);
    within_timeout(async {
        while !seen.split_once(text).is_some_and(|(_, rest)| rest.contains('\n')) {
            let count = socket.read(&mut bytes).await.unwrap();
            assert!(count > 0, "the connection was closed after {seen}");
            seen.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    })
    .await;
    seen
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
    let session = site.open_session(&agent.token, &json!({})).await;
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
    let session = site.open_session(&agent.token, &json!({ "elicitation": {} })).await;
    let mut socket = site.send("/mcp", &agent.token, Some(&session), &echo(2, "once")).await;
    let form = read_until(&mut socket, "elicitation/create").await;
    let form = form.lines().find(|line| line.contains("elicitation/create")).unwrap();
    let form: Value = serde_json::from_str(form.strip_prefix("data: ").unwrap()).unwrap();
    for action in ["accept", "decline", "accept"] {
        let result = json!({ "action": action, "content": { "decision": "approve" } });
        let answer = json!({ "jsonrpc": "2.0", "id": form["id"], "result": result });
        let answered = site.post("/mcp", &agent.token, Some(&session), &answer).await;
        assert_eq!(answered.status, 202, "{}", answered.body);
    }
    let rest = read_until(&mut socket, "\"id\":2").await;
    assert!(rest.contains("\"once\""), "{rest}");
    assert_eq!(site.executions(), 1);
}

#[tokio::test]
async fn many_sessions_of_one_caller_leave_room_for_others() {
    let site = Site::start().await;
    let greedy = site.agent("Greedy", json!({ "approval": "auto" })).await;
    let other = site.agent("Other", json!({ "approval": "auto" })).await;
    let mut sessions = Vec::new();
    for _ in 0..1_000 {
        sessions.push(site.open_session(&greedy.token, &json!({})).await);
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
    let (mut events, mut silent) = (site.events(), Vec::new());
    for number in 0..8 {
        let session = site.open_session(&agent.token, &json!({})).await;
        let call = echo(number, &"x".repeat(1 << 20));
        silent.push(site.send("/mcp", &agent.token, Some(&session), &call).await);
    }
    check_other_client(&site, &agent).await;
    within_timeout(async {
        let mut succeeded = 0;
        while succeeded < 9 {
            let event = events.next().await.unwrap();
            succeeded += u32::from(event.kind == "call" && event.body["status"] == "success");
        }
    })
    .await;
    assert_eq!(site.executions(), 9);
}

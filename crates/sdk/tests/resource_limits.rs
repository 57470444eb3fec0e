//! Resource limits: clients that send many requests and read slowly, or send malicious input.

mod support;

use linchpin::{Context, Error, Json, NoArgs, Prompt, Revision, Server, args};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use support::{Peer, STATELESS, failure, text};

#[args]
struct Echo {
    message: String,
}

#[args]
struct Steps {
    #[schemars(range(min = 1))]
    from: u32,
    #[schemars(range(max = 9))]
    pause: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[args]
struct Strict {
    #[schemars(range(min = 1, max = 5))]
    level: u8,
}

fn server() -> Server {
    Server::new("test", "1")
        .tool("echo", "", |Echo { message }| async move { message })
        .tool("huge", "", || async { Json(Sum { sum: f64::INFINITY }) })
        .tool("steps", "", |Steps { from, pause }: Steps| async move { format!("{from} {pause:?}") })
        .tool("reports", "", |_: NoArgs, cx: Context| async move {
            for step in 1..=50 {
                cx.progress(f64::from(step));
            }
        })
        .resource("memory://one", "one", || async { "one" })
        .on_read(|uri: String| async move { uri })
        .add(Prompt::new("strict").handler(|Strict { level }| async move { level.to_string() }))
}

/// Sends everything in one write: the server reads it all before it writes anything.
fn at_once(peer: &mut Peer, messages: &[Value]) {
    let lines: Vec<String> = messages.iter().map(Value::to_string).collect();
    peer.send_bytes((lines.join("\n") + "\n").as_bytes());
}

#[test]
fn a_large_answer_before_it_costs_no_acknowledgement_and_no_progress() {
    let mut peer = Peer::open(STATELESS, server());
    let large = "x".repeat(1_500_000);
    let echo = peer.message("tools/call", json!({"name": "echo", "arguments": {"message": large}}));
    let reports = json!({"name": "reports", "_meta": {"progressToken": "t"}});
    let reports = peer.message("tools/call", reports);
    let listen = peer.message("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let last = peer.message("server/discover", json!({}));
    at_once(&mut peer, &[echo, reports, listen, last.clone()]);
    let (mut progress, mut acknowledged) = (0, 0);
    loop {
        let message = peer.read_any();
        match message["method"].as_str() {
            Some("notifications/progress") => progress += 1,
            Some("notifications/subscriptions/acknowledged") => acknowledged += 1,
            _ if message["id"] == last["id"] => break,
            _ => {}
        }
    }
    assert_eq!((progress, acknowledged), (50, 1));
}

#[test]
fn numbers_that_json_cannot_say_never_leave_as_null() {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        let result = peer.call("huge", json!({}));
        assert_eq!(failure(&result), "The tool `huge` failed because of an internal error.");
        assert_eq!(result.get("structuredContent"), None);
        peer.close();
    }
}

#[test]
fn null_is_absent_and_whole_numbers_are_integers_also_beside_constraints() {
    let mut peer = Peer::open(STATELESS, server());
    assert_eq!(text(&peer.call("steps", json!({"from": 2, "pause": null}))), "2 None");
    assert_eq!(text(&peer.call("steps", json!({"from": 2.0, "pause": 9e0}))), "2 Some(9)");
    let refused = failure(&peer.call("steps", json!({"from": 0, "pause": 10})));
    assert!(refused.contains("at /from: 0 is less than the minimum of 1"), "{refused}");
    assert!(refused.contains("at /pause: 10 is greater than the maximum of 9"), "{refused}");
    let prompt = |level: &str| json!({"name": "strict", "arguments": {"level": level}});
    assert_eq!(peer.result("prompts/get", prompt("5"))["messages"][0]["content"]["text"], "5");
    let (code, message) = peer.error("prompts/get", prompt("6"));
    assert_eq!(code, -32602);
    assert!(message.contains("at /level: 6 is greater than the maximum of 5"), "{message}");
    peer.close();
}

#[test]
fn what_a_client_makes_the_server_remember_is_bounded() {
    let mut peer = Peer::open(Revision::V2025_11_25, server());
    let (code, message) =
        peer.error("resources/subscribe", json!({"uri": "a:".to_owned() + &"x".repeat(9_000)}));
    assert_eq!(code, -32002, "{message}");
    peer.send_bytes(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"ping\"}}\n", "x".repeat(2_000)).as_bytes(),
    );
    let refused = peer.read_any();
    assert_eq!(refused["error"]["message"], "\"id\" must not be longer than 1,024 bytes (at byte 22)");
    peer.alive();
    peer.close();

    let mut peer = Peer::open(STATELESS, server());
    let uris: Vec<String> = (0..1_001).map(|number| format!("a:{number}")).collect();
    let (code, message) =
        peer.error("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": uris}}));
    assert_eq!((code, &*message), (-32603, "too many subscriptions on this connection: end some first"));
    peer.close();
}

#[test]
fn a_batch_is_bounded_and_one_bad_message_does_not_take_the_others_with_it() {
    let mut peer = Peer::open(Revision::V2025_03_26, server());
    let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    peer.send_bytes(format!("[{}]\n", vec![ping; 1_001].join(",")).as_bytes());
    assert_eq!(peer.read_any()["error"]["message"], "a batch may contain at most 1,000 messages: split it");
    peer.send_bytes(
        format!("[{{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":1,\"method\":\"ping\"}},{ping}]\n").as_bytes(),
    );
    let answers = peer.read_any();
    assert!(answers[0]["error"]["message"].as_str().unwrap().contains("occurs twice"), "{answers}");
    assert_eq!((&answers[1]["id"], &answers[1]["result"]), (&json!(7), &json!({})));
    peer.close();
}

#[test]
fn a_batch_that_the_end_of_input_cuts_short_is_answered_whole() {
    let server = server()
        .tool("never", "", std::future::pending::<String>)
        .shutdown_timeout(std::time::Duration::from_millis(1));
    let mut peer = Peer::open(Revision::V2025_03_26, server);
    let never = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"never"}}"#;
    peer.send_bytes(format!("[{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}},{never}]\n").as_bytes());
    let answers = peer.end_any();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0][0], json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert_eq!(answers[0][1]["error"]["message"], "the server is shutting down");
}

#[test]
fn layers_can_hand_values_to_handlers_and_sessions_can_be_told_later() {
    struct Caller(&'static str);
    let server = Server::new("test", "1")
        .tool("who", "", |_: NoArgs, cx: Context| async move {
            cx.session()?.notify("acme/hello", &json!({"after": "all"}));
            cx.get::<Caller>().map(|caller| caller.0).ok_or_else(|| Error::tool("nobody"))
        })
        .layer(|request, next| async move {
            request.context().set(Caller("ada"));
            next.run(request).await
        });
    let mut peer = Peer::open(Revision::V2025_06_18, server);
    let id = peer.message("tools/call", json!({"name": "who"}));
    at_once(&mut peer, std::slice::from_ref(&id));
    assert_eq!(peer.read_any()["method"], "acme/hello");
    assert_eq!(peer.read_any()["result"]["content"][0]["text"], "ada");
}

#[test]
fn what_cannot_be_carried_over_is_refused_in_words() {
    let said = |server: Server| server.build().err().unwrap().to_string();
    let inner = Server::new("inner", "1").visible(|_, _| true);
    assert_eq!(
        said(Server::new("outer", "1").mount("in", inner)),
        "the server `inner` cannot be mounted: it has a visibility filter (`visible`); register that on the outer server"
    );
    let replaced = Server::new("test", "1").on_request("initialize", |_: Value| async { json!({}) });
    assert_eq!(said(replaced), "the method `initialize` cannot be replaced: it creates the session");
}

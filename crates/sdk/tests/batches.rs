//! JSON-RPC batches, which only one revision supports.

mod support;

use std::sync::Arc;

use linchpin::{Context, NoArgs, Revision, Server, args};
use serde_json::{Value, json};
use support::{Clock, Peer, fault, initialize, stateless};
use tokio::sync::Barrier;

const BATCHES: Revision = Revision::V2025_03_26;

#[args]
struct Echo {
    message: String,
}

fn server() -> Server {
    let barrier = Arc::new(Barrier::new(2));
    Server::new("test", "1")
        .tool("echo", "", |Echo { message }| async move { message })
        .tool("never", "", |_: NoArgs| std::future::pending::<()>())
        .tool("meet", "", move |_: NoArgs| {
            let barrier = barrier.clone();
            async move {
                barrier.wait().await;
                "met"
            }
        })
        .tool("work", "", |_: NoArgs, cx: Context| async move {
            cx.progress(1.0);
            tokio::task::yield_now().await;
            cx.progress(2.0);
        })
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass `json!` literals")]
fn request(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn call(id: i64, tool: &str) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": {"message": "m"}}))
}

/// Returns the responses to a batch in order of their ids: a text, an error or an empty result.
fn said(batch: &Value) -> Vec<(i64, String)> {
    let one = |answer: &Value| {
        let text = answer["result"]["content"][0]["text"].as_str();
        let error = answer.get("error").map(|_| fault(answer).1);
        (answer["id"].as_i64().unwrap_or(-1), error.or(text.map(str::to_owned)).unwrap_or_default())
    };
    let mut answers: Vec<_> =
        batch.as_array().unwrap_or_else(|| panic!("no batch: {batch}")).iter().map(one).collect();
    answers.sort();
    answers
}

fn expect(answers: &[(i64, &str)]) -> Vec<(i64, String)> {
    answers.iter().map(|(id, text)| (*id, (*text).to_owned())).collect()
}

#[test]
fn a_batch_is_answered_in_one_line() {
    let mut peer = Peer::open(BATCHES, server());
    let noted = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    peer.raw(
        json!([call(101, "echo"), noted, request(102, "ping", json!({})), call(103, "none")]).to_string(),
    );
    let unknown = "Invalid params at /name: Unknown tool: none";
    assert_eq!(said(&peer.read()), expect(&[(101, "m"), (102, ""), (103, unknown)]));
    peer.raw(json!([noted, noted]).to_string());
    peer.alive();
    peer.close();
}

#[test]
fn requests_of_a_batch_are_worked_on_together() {
    let mut peer = Peer::open(BATCHES, server());
    peer.raw(json!([call(101, "meet"), call(102, "echo"), call(103, "meet")]).to_string());
    assert_eq!(said(&peer.read()), expect(&[(101, "met"), (102, "m"), (103, "met")]));
    peer.alive();
    peer.close();
}

#[test]
fn other_requests_are_answered_while_a_batch_waits() {
    let mut peer = Peer::open(BATCHES, server());
    peer.raw(json!([call(101, "meet"), call(102, "echo")]).to_string());
    peer.alive();
    peer.raw(call(102, "echo").to_string());
    assert_eq!(
        peer.answer(&json!(102))["result"]["content"][0]["text"],
        "m",
        "the id of a finished request is free"
    );
    peer.raw(call(101, "echo").to_string());
    assert_eq!(fault(&peer.answer(&json!(101))).0, -32600, "the id of a running request is in use");
    let id = peer.send("tools/call", json!({"name": "meet"}));
    let (one, other) = (peer.read(), peer.read());
    let (batch, single) = if one.is_array() { (one, other) } else { (other, one) };
    assert_eq!((&single["id"], &single["result"]["content"][0]["text"]), (&id, &json!("met")));
    assert_eq!(said(&batch), expect(&[(101, "met"), (102, "m")]));
    peer.close();
}

#[test]
fn notifications_of_handlers_stay_out_of_the_batch() {
    let mut peer = Peer::open(BATCHES, server());
    let mut work = call(101, "work");
    work["params"]["_meta"] = json!({"progressToken": "t"});
    peer.raw(json!([work, call(102, "echo")]).to_string());
    for progress in [1.0, 2.0] {
        assert_eq!(peer.read()["params"], json!({"progressToken": "t", "progress": progress}));
    }
    assert_eq!(said(&peer.read()), expect(&[(101, ""), (102, "m")]));
    peer.close();
}

#[test]
fn a_request_of_a_batch_can_be_given_up() {
    let mut peer = Peer::open(BATCHES, server());
    let cancel =
        |id: i64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    peer.raw(json!([call(101, "never"), call(102, "echo")]).to_string());
    peer.raw(cancel(101).to_string());
    assert_eq!(said(&peer.read()), expect(&[(102, "m")]));
    peer.raw(json!([call(103, "never"), cancel(103)]).to_string());
    peer.alive();
    peer.close();
}

#[test]
fn what_is_wrong_inside_a_batch_is_answered_inside_it() {
    let mut peer = Peer::open(BATCHES, server());
    let listen = request(105, "subscriptions/listen", stateless(json!({"notifications": {}})));
    let again = request(106, "initialize", initialize(BATCHES.as_str(), &json!({})));
    peer.raw(
        json!([7, call(101, "echo"), {"id": 102}, [request(103, "ping", json!({}))], listen, again])
            .to_string(),
    );
    let expected = [
        (-1, "a batch must not contain another batch"),
        (-1, "a message must be a JSON object (at byte 0)"),
        (101, "m"),
        (102, "the member \"jsonrpc\": \"2.0\" is missing (at byte 0)"),
        (105, "this connection carries only one response, not a stream of notifications"),
        (106, "the session is already initialized: send initialize only once"),
    ];
    assert_eq!(said(&peer.read()), expect(&expected));
    peer.raw("[]");
    assert_eq!(peer.read_error(), (-32600, "a batch must contain at least one message (at byte 0)".into()));
    peer.raw("[1,");
    assert_eq!(peer.read_error().0, -32700);
    peer.alive();
    peer.close();
}

#[test]
fn elsewhere_there_are_no_batches() {
    let refused = (-32600, "this revision does not support batches: send one message at a time".to_owned());
    for revision in Revision::ALL.into_iter().filter(|revision| *revision != BATCHES) {
        let mut peer = Peer::open(revision, server());
        peer.raw(json!([request(101, "ping", json!({}))]).to_string());
        assert_eq!(peer.read_error(), refused, "{revision}");
        peer.alive();
        peer.close();
    }
    let mut early = Peer::connect(BATCHES, server().build().unwrap(), Clock::Real);
    early.raw(json!([request(101, "initialize", initialize(BATCHES.as_str(), &json!({})))]).to_string());
    assert_eq!(early.read_error(), refused, "initialize is no part of a batch");
    early.close();
}

#[test]
fn a_batch_is_answered_when_the_input_ends() {
    let mut peer = Peer::open(BATCHES, server());
    peer.raw(json!([call(101, "meet"), call(102, "echo")]).to_string());
    peer.raw(json!([call(103, "meet")]).to_string());
    let (mut rest, ended) = peer.end();
    ended.unwrap();
    rest.sort_by_key(|batch| std::cmp::Reverse(batch.as_array().map(Vec::len)));
    assert_eq!(said(&rest[0]), expect(&[(101, "met"), (102, "m")]));
    assert_eq!(said(&rest[1]), expect(&[(103, "met")]));
}

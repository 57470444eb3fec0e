//! Arbitrary input: the session survives every line, and every line of output is JSON.

mod support;

use linchpin::{Context, NoArgs, Revision, Server, args};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{Clock, Peer, initialize, stateless};

#[args]
struct Echo {
    message: String,
}

fn server() -> Server {
    Server::new("test", "1")
        .max_message(4_000)
        .tool("echo", "", |Echo { message }| async move { message })
        .tool("later", "", |_: NoArgs, cx: Context| async move {
            cx.progress(1.0);
            tokio::task::yield_now().await;
        })
        .tool("never", "", |_: NoArgs| std::future::pending::<()>())
        .resource("a:b", "b", || async { vec![1_u8] })
        .prompt("p", "", || async { "p" })
}

const PARTS: [&str; 16] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"jsonrpc\"",
    "\"2.0\"",
    "\"id\"",
    "1",
    "null",
    "\"method\"",
    "\"ping\"",
    "\"params\"",
    "\\u00",
    "é",
];

/// Bytes that are invalid, or almost valid.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>().prop_filter("one line", |byte| *byte != b'\n'), 0..60),
        vec(proptest::sample::select(&PARTS[..]), 0..30).prop_map(|parts| parts.concat().into_bytes()),
        Just(vec![b'x'; 5_000]),
    ]
}

fn member() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!({"a": {"a": [1]}})),
    ]
}

fn method() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(
        &[
            "initialize",
            "ping",
            "server/discover",
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/read",
            "resources/templates/list",
            "resources/subscribe",
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "logging/setLevel",
            "subscriptions/listen",
            "notifications/initialized",
            "notifications/cancelled",
            "notifications/progress",
            "initialized",
            "x/own",
        ][..],
    )
}

fn params() -> impl Strategy<Value = Value> {
    let good = proptest::sample::select(vec![
        json!({}),
        json!({"name": "echo", "arguments": {"message": "m"}}),
        json!({"name": "later", "_meta": {"progressToken": 1}}),
        json!({"name": "never"}),
        json!({"name": "p"}),
        json!({"uri": "a:b"}),
        json!({"requestId": 3}),
        json!({"notifications": {"toolsListChanged": true}}),
        json!({"level": "debug"}),
        json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}),
        initialize(Revision::V2025_03_26.as_str(), &json!({})),
    ]);
    let odd = (proptest::sample::select(&["name", "uri", "_meta", "cursor", "arguments"][..]), member())
        .prop_map(|(key, value)| json!({key: value}));
    (prop_oneof![4 => good, 1 => odd], any::<bool>())
        .prop_map(|(params, modern)| if modern { stateless(params) } else { params })
}

/// A request or notification.
fn call() -> impl Strategy<Value = Value> {
    let id = prop_oneof![3 => (0..6_i64).prop_map(Value::from), 1 => member()];
    (method(), params(), proptest::option::of(id)).prop_map(|(method, params, id)| {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if let Some(id) = id {
            message["id"] = id;
        }
        message
    })
}

/// A message that is valid or almost valid.
fn message() -> impl Strategy<Value = Value> {
    let key = proptest::sample::select(&["jsonrpc", "id", "method", "params", "result", "error", "more"][..]);
    let answer = member().prop_map(|value| json!({"jsonrpc": "2.0", "id": 1, "result": value}));
    let changed = (call(), key, member()).prop_map(|(mut message, key, value)| {
        message[key] = value;
        message
    });
    prop_oneof![4 => call(), 1 => changed, 1 => answer]
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => garbage(),
        4 => message().prop_map(|message| message.to_string().into_bytes()),
        1 => vec(message(), 0..5).prop_map(|batch| Value::from(batch).to_string().into_bytes()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_input_ends_the_session(lines in vec(line(), 0..20), ended_early in any::<bool>()) {
        let service = server().build().unwrap();
        let mut peer = Peer::connect(Revision::LATEST_SESSION, service, Clock::Paused);
        for line in &lines {
            peer.send_bytes(line);
        }
        if !ended_early {
            peer.send_bytes(br#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#);
            let answer = loop {
                let line = peer.read_any();
                if line["id"] == "last" {
                    break line;
                }
            };
            prop_assert_eq!(&answer["result"], &json!({}));
        }
        // A handler that never returns fails with its timeout.
        let answers = peer.end_any();
        prop_assert!(answers.iter().all(|answer| answer["jsonrpc"] == "2.0" || answer.is_array()), "{answers:?}");
    }
}

//! Whatever bytes a server sends, in whatever pieces, the client neither panics nor hangs, and understands a valid
//! response after them.

#[path = "support/paused.rs"]
mod paused;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::client::RevisionCache;
use linchpin::model::{ElicitAction, ElicitResult, Root};
use linchpin::testing::{Reaction, Script};
use linchpin::{Client, LogLevel, Revision};
use paused::pass;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::timeout;

const PARTS: [&str; 20] = [
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
    "2",
    "null",
    "\"method\"",
    "\"ping\"",
    "\"result\"",
    "\"error\"",
    "\"params\"",
    "\\u00",
    "é",
    "\n",
];

/// Bytes that are invalid, or almost valid.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..60),
        vec(proptest::sample::select(&PARTS[..]), 0..30).prop_map(|parts| parts.concat().into_bytes()),
        Just(vec![b'x'; 5_000]),
        Just(b"\n\n \r\n".to_vec()),
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

/// A request or notification of the server, sometimes with valid parameters.
fn call() -> impl Strategy<Value = Value> {
    let method = proptest::sample::select(vec![
        "ping",
        "roots/list",
        "elicitation/create",
        "sampling/createMessage",
        "notifications/progress",
        "notifications/cancelled",
        "notifications/message",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
        "notifications/subscriptions/acknowledged",
        "notifications/tasks/status",
        "x/own",
    ]);
    let params = prop_oneof![
        2 => member(),
        1 => Just(json!({"progressToken": 3, "progress": 1})),
        1 => Just(json!({"requestId": 1})),
        1 => Just(json!({"level": "error", "data": 1})),
        1 => Just(json!({"uri": "a:b"})),
        1 => Just(json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}})),
        1 => Just(json!({"messages": [], "maxTokens": 1})),
        1 => Just(json!({"_meta": {"io.modelcontextprotocol/subscriptionId": "3"}})),
    ];
    let id = prop_oneof![3 => (0..6_i64).prop_map(Value::from), 1 => member()];
    (method, params, proptest::option::of(id)).prop_map(|(method, params, id)| {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if let Some(id) = id {
            message["id"] = id;
        }
        message
    })
}

/// A message that is valid or almost valid. Its id matches no request: a response to the call, or an error without
/// an id, would end the call.
fn message() -> impl Strategy<Value = Value> {
    let key = proptest::sample::select(vec!["jsonrpc", "method", "params", "more"]);
    let changed = (call(), key, member()).prop_map(|(mut message, key, value)| {
        message[key] = value;
        message
    });
    let id = prop_oneof![Just(json!(0)), Just(json!(-7)), Just(json!("3")), Just(json!(4_000))];
    let answer = (id, proptest::sample::select(vec!["result", "error"]), member())
        .prop_map(|(id, kind, value)| json!({"jsonrpc": "2.0", "id": id, kind: value}));
    prop_oneof![3 => call(), 1 => changed, 2 => answer]
}

fn lines() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        1 => garbage(),
        3 => message().prop_map(|message| message.to_string().into_bytes()),
        1 => vec(message(), 0..5).prop_map(|batch| Value::from(batch).to_string().into_bytes()),
    ];
    vec(line, 0..12).prop_map(|lines| lines.join(&b'\n'))
}

/// Sends `bytes` cut at `cuts`, with a pause at each cut.
fn in_pieces(bytes: &[u8], cuts: &[usize]) -> Reaction {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let (mut reaction, mut from) = (Reaction::new(), 0);
    for cut in cuts {
        reaction = reaction.bytes(&bytes[from..cut]).wait(Duration::from_millis(1));
        from = cut;
    }
    reaction.bytes(&bytes[from..])
}

async fn survives(revision: Revision, bytes: Vec<u8>, cuts: Vec<usize>) -> Result<(), TestCaseError> {
    let done = json!({ "resultType": "complete", "content": [] });
    let asked = AtomicUsize::new(0);
    let script = Script::with_revision(revision).on("tools/call", move |_| {
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => in_pieces(&bytes, &cuts).bytes("\n").result(done.clone()),
            _ => Reaction::new().result(done.clone()),
        }
    });
    let script = script.on("logging/setLevel", |_| json!({})).on("subscriptions/listen", |request| {
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": request["id"] });
        Reaction::new().notify("notifications/subscriptions/acknowledged", &json!({ "_meta": meta }))
    });
    let decline = || ElicitResult { action: ElicitAction::Decline, content: None, meta: None };
    let client = Client::over(script)
        .revision_cache(RevisionCache::new())
        .revisions([revision])
        .max_response(4_000)
        .roots([Root { uri: "file:///".into(), name: None, meta: None }])
        .on_elicit(move |_| std::future::ready(Ok(decline())))
        .on_log(LogLevel::Debug, |_| ())
        .on_list_changed(|_| ())
        .on_resource_updated(|_| ())
        .on_notification(|_, _| ());
    let Ok(client) = client.connect().await else { return Err(TestCaseError::fail("no connection")) };
    let first = timeout(Duration::from_mins(1), client.call("x", ()).progress(|_| ()).into_future()).await;
    let Ok(first) = first else { return Err(TestCaseError::fail("the call hangs")) };
    if let Err(error) = first {
        prop_assert!(error.to_string().contains("larger than 4000 bytes"), "{}", error);
    }
    pass(Duration::from_secs(1)).await; // until the rest has arrived
    let second = client.call("x", ()).await;
    prop_assert!(second.is_ok(), "{:?}", second);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_input_ends_the_client(
        revision in proptest::sample::select(&Revision::ALL[..]),
        bytes in lines(),
        cuts in vec(any::<usize>(), 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(survives(revision, bytes, cuts))?;
    }

    #[test]
    fn no_input_ends_the_opening(bytes in lines(), cuts in vec(any::<usize>(), 0..6), ends in any::<bool>()) {
        let opening = in_pieces(&bytes, &cuts);
        let opening = if ends { opening.close("it ended") } else { opening };
        let script = Script::new().on("server/discover", move |_| opening.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let connected = runtime.unwrap().block_on(async {
            timeout(Duration::from_mins(10), Client::over(script).revision_cache(RevisionCache::new()).connect()).await
        });
        prop_assert!(connected.is_ok(), "connecting hangs");
    }
}

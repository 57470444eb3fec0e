//! Without the feature `validate`: constraints that decoding enforces work, and others are rejected with an error.
//! Run with `cargo test -p linchpin --no-default-features --test no_validate`.
#![cfg(not(feature = "validate"))]

mod support;

use linchpin::{Json, Revision, Server, Tool, args};
use serde_json::{Map, Value, json};
use support::{Peer, failure};

#[args]
struct Plain {
    a: u8,
}

#[args]
struct Bounded {
    #[schemars(range(min = 1))]
    count: i64,
}

#[test]
fn typed_tools_work() {
    for revision in Revision::ALL {
        let server =
            Server::new("test", "1").tool("plain", "", |Plain { a }| async move { Json(vec![a]) }).add(
                Tool::raw("any", json!({"type": "object"}))
                    .handler(|args: Map<String, Value>| async move { args.len() }),
            );
        let mut peer = Peer::open(revision, server);
        assert_eq!(peer.call_text("plain", json!({"a": 1})), "[1]");
        assert_eq!(peer.call_text("any", json!({"a": 1})), "1");
        let said = failure(&peer.call("plain", json!({"a": 256})));
        assert_eq!(
            said,
            "Invalid arguments for the tool `plain`: at /a: invalid value: integer `256`, expected u8"
        );
        peer.close();
    }
}

#[test]
fn constraints_that_decoding_cannot_prove_are_refused() {
    let said = |server: Server| server.build().err().unwrap().to_string();
    let words = |place: &str| {
        format!(
            "the tool `t` cannot be registered: its schema has a constraint that decoding does not enforce ({place}): \
             enable the feature `validate` of linchpin, or remove the constraint"
        )
    };
    let typed = Server::new("test", "1").tool("t", "", |Bounded { count }| async move { count });
    assert_eq!(said(typed), words("/properties/count/minimum"));
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let raw = Tool::raw("t", schema.clone()).handler(|_: Map<String, Value>| async { "never" });
    assert_eq!(said(Server::new("test", "1").add(raw)), words("hand-written input schema"));
    let output = Tool::new("t").output_schema(schema).handler(|| async { "never" });
    assert_eq!(said(Server::new("test", "1").add(output)), words("hand-written output schema"));
}

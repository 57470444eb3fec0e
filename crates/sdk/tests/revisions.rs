//! One server definition in the wire formats of all five revisions.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use linchpin::model::{CacheHints, CacheScope, Icon, Meta, ResourceLink, key};
use linchpin::{
    Audio, Content, Error, Image, Json, NoArgs, Prompt, ResourceContents, Revision, Server, Tool, args,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use support::{Clock, Peer, STATELESS, fault, initialize, one_shot, session_revisions, stateless};

use Revision::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25};

#[args]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
}

fn server() -> Server {
    let icon = Icon { src: "https://example.com/i.png".into(), mime_type: None, sizes: None, theme: None };
    let meta = Meta::from_iter([("example.com/kept".to_owned(), json!(true))]);
    Server::new("everything", "1.2.3")
        .title("Everything")
        .description("Has one of each")
        .website("https://example.com")
        .instructions("Try them all")
        .cache(CacheHints { ttl_ms: 60_000, scope: CacheScope::Public })
        .add(
            Tool::new("add")
                .title("Addition")
                .description("Adds")
                .read_only()
                .icons([icon])
                .meta(meta)
                .handler(|Add { a, b }| async move { Json(Sum { sum: a + b }) }),
        )
        .tool("list", "A list", || async { Json(vec![1, 2]) })
}

/// Checks the members that every stateless result has, and returns the result without them.
fn plain(revision: Revision, mut result: Value) -> Value {
    let members = result.as_object_mut().unwrap();
    if revision == STATELESS {
        assert_eq!(members.shift_remove("resultType"), Some("complete".into()));
        let meta = members.shift_remove("_meta").unwrap();
        assert_eq!(meta[key::SERVER_INFO]["name"], "everything", "{meta}");
    }
    result
}

/// Adds a member if the revision is `since` or newer.
fn since(revision: Revision, since: Revision, value: &mut Value, member: &str, added: Value) {
    if revision >= since {
        value[member] = added;
    }
}

#[test]
fn a_server_says_who_it_is_and_what_it_can_do() {
    for revision in Revision::ALL {
        let server = server().resource("memory://status", "status", || async { "ok" }).add(
            Prompt::new("p")
                .argument("a", "An argument", true)
                .complete("a", |_: String| async { vec!["x"] })
                .handler(|| async { "hello" }),
        );
        let peer = Peer::open(revision, server);
        let mut info = json!({"name": "everything", "version": "1.2.3"});
        since(revision, V2025_06_18, &mut info, "title", "Everything".into());
        since(revision, V2025_11_25, &mut info, "description", "Has one of each".into());
        since(revision, V2025_11_25, &mut info, "websiteUrl", "https://example.com".into());
        let mut capabilities = json!({
            "tools": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": true},
            "prompts": {"listChanged": true},
            "logging": {},
        });
        since(revision, V2025_03_26, &mut capabilities, "completions", json!({}));
        let expected = if revision == STATELESS {
            json!({
                "resultType": "complete", "supportedVersions": [STATELESS.as_str()], "capabilities": capabilities,
                "instructions": "Try them all", "ttlMs": 60_000, "cacheScope": "public",
                "_meta": {key::SERVER_INFO: info},
            })
        } else {
            json!({
                "protocolVersion": revision.as_str(), "capabilities": capabilities, "serverInfo": info,
                "instructions": "Try them all",
            })
        };
        assert_eq!(peer.opened, expected, "{revision}");
        peer.close();
    }
}

#[test]
fn capabilities_follow_from_what_is_registered() {
    for revision in Revision::ALL {
        let bare = Peer::open(revision, Server::new("bare", "1"));
        assert_eq!(bare.opened["capabilities"], json!({"logging": {}}));
        let mut later = Server::new("later", "1");
        let _handle = later.handle();
        let later = Peer::open(revision, later);
        assert!(later.opened["capabilities"]["tools"]["listChanged"] == true, "tools may be added later");
        assert!(later.opened["capabilities"].get("completions").is_none());
    }
}

#[test]
fn tools_are_listed_with_what_the_revision_knows() {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        let list = plain(revision, peer.result("tools/list", json!({})));
        let integers = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
        let mut add = json!({
            "name": "add", "description": "Adds",
            "inputSchema": {"type": "object", "properties": integers, "required": ["a", "b"]},
        });
        let sum = json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
        let annotations = match revision {
            V2025_03_26 => json!({"title": "Addition", "readOnlyHint": true}),
            _ => json!({"readOnlyHint": true}),
        };
        since(revision, V2025_03_26, &mut add, "annotations", annotations);
        since(revision, V2025_06_18, &mut add, "title", "Addition".into());
        since(revision, V2025_06_18, &mut add, "outputSchema", sum);
        since(revision, V2025_11_25, &mut add, "icons", json!([{"src": "https://example.com/i.png"}]));
        since(revision, V2025_06_18, &mut add, "_meta", json!({"example.com/kept": true}));
        let mut numbers = json!({
            "name": "list", "description": "A list", "inputSchema": {"type": "object", "properties": {}},
        });
        let schema = json!({"type": "array", "items": {"type": "integer"}});
        let wrapped = json!({"type": "object", "properties": {"result": schema}, "required": ["result"]});
        since(
            revision,
            V2025_06_18,
            &mut numbers,
            "outputSchema",
            if revision == STATELESS { schema } else { wrapped },
        );
        let mut expected = json!({"tools": [add, numbers]});
        since(revision, STATELESS, &mut expected, "ttlMs", 60_000.into());
        since(revision, STATELESS, &mut expected, "cacheScope", "public".into());
        assert_eq!(list, expected, "{revision}");
        assert_eq!(
            plain(revision, peer.result("tools/list", Value::Null)),
            expected,
            "without params, and kept"
        );
        peer.close();
    }
}

/// A server whose tools return one kind of value each, and the expected results in a revision.
fn returns(revision: Revision) -> (Server, Vec<(&'static str, Value)>) {
    let link = || ResourceLink { uri: "a:b".into(), name: "n".into(), ..ResourceLink::default() };
    let fail = |text: &'static str| move || async move { Err::<String, _>(Error::tool(text)) };
    let server = Server::new("everything", "1")
        .tool("text", "", || async { "hello" })
        .tool("integer", "", || async { -7_i64 })
        .tool("byte", "", || async { 7_u8 })
        .tool("float", "", || async { 0.5_f64 })
        .tool("bool", "", || async { true })
        .tool("unit", "", || async {})
        .tool("json", "", || async { Json(Sum { sum: 3 }) })
        .tool("json_list", "", || async { Json(vec![1, 2]) })
        .tool("own_text", "", || async { ("three", Json(Sum { sum: 3 })) })
        .tool("image", "", || async { Image(vec![1, 2, 3], "image/png".into()) })
        .tool("audio", "", || async { Audio(vec![1, 2, 3], "audio/wav".into()) })
        .tool("link", "", move || async move { link() })
        .tool("embedded", "", || async { ResourceContents::text("a:b", "text/plain", "t") })
        .tool("bytes", "", || async { vec![1_u8, 2, 3] })
        .tool("blocks", "", || async { vec![Content::text("a"), Content::image([1], "image/gif")] })
        .tool("texts", "", || async { vec!["a", "b"] })
        .tool("some", "", || async { Some("x") })
        .tool("none", "", || async { None::<String> })
        .tool("value", "", || async { json!({"free": [1]}) })
        .tool("value_block", "", || async { json!({"type": "text", "text": "t"}) })
        .tool("ok", "", || async { Ok::<_, Error>("fine") })
        .tool("err", "", fail("try again"));
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}], "isError": false});
    let block = |block: Value| json!({"content": [block], "isError": false});
    let structured = |text: &str, value: Value| {
        let mut result = json!({"content": [{"type": "text", "text": text}], "isError": false});
        since(revision, V2025_06_18, &mut result, "structuredContent", value);
        result
    };
    let audio = json!({"uri": "attachment:audio", "mimeType": "audio/wav", "blob": "AQID"});
    let list = if revision == STATELESS { json!([1, 2]) } else { json!({"result": [1, 2]}) };
    let blob = json!({"uri": "attachment:result", "mimeType": "application/octet-stream", "blob": "AQID"});
    let expected = vec![
        ("text", text("hello")),
        ("integer", text("-7")),
        ("byte", text("7")),
        ("float", text("0.5")),
        ("bool", text("true")),
        ("unit", json!({"content": [], "isError": false})),
        ("json", structured(r#"{"sum":3}"#, json!({"sum": 3}))),
        ("json_list", structured("[1,2]", list)),
        ("own_text", structured("three", json!({"sum": 3}))),
        ("image", block(json!({"type": "image", "data": "AQID", "mimeType": "image/png"}))),
        (
            "audio",
            if revision == V2024_11_05 {
                block(json!({"type": "resource", "resource": audio}))
            } else {
                block(json!({"type": "audio", "data": "AQID", "mimeType": "audio/wav"}))
            },
        ),
        (
            "link",
            if revision < V2025_06_18 {
                text("n: a:b")
            } else {
                block(json!({"type": "resource_link", "uri": "a:b", "name": "n"}))
            },
        ),
        (
            "embedded",
            block(
                json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "text": "t"}}),
            ),
        ),
        ("bytes", block(json!({"type": "resource", "resource": blob}))),
        (
            "blocks",
            json!({"content": [
                {"type": "text", "text": "a"}, {"type": "image", "data": "AQ==", "mimeType": "image/gif"},
            ], "isError": false}),
        ),
        (
            "texts",
            json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "isError": false}),
        ),
        ("some", text("x")),
        ("none", json!({"content": [], "isError": false})),
        ("value", text(r#"{"free":[1]}"#)),
        ("value_block", text("t")),
        ("ok", text("fine")),
        ("err", json!({"content": [{"type": "text", "text": "try again"}], "isError": true})),
    ];
    (server, expected)
}

#[test]
fn return_values_become_results() {
    for revision in Revision::ALL {
        let (server, expected) = returns(revision);
        let mut peer = Peer::open(revision, server);
        for (tool, expected) in expected {
            assert_eq!(plain(revision, peer.call(tool, json!({}))), expected, "{tool} in {revision}");
        }
        peer.close();
    }
}

#[test]
fn what_a_revision_does_not_have_is_no_method_of_it() {
    let by_session =
        ["initialize", "ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel"];
    let never = ["notifications/initialized", "sampling/createMessage", "roots/list", "my/own", "tools/Call"];
    let not_served = ["tasks/get", "tasks/cancel", "tasks/list", "skills/get", "resources/directory/read"];
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        let missing: &[&str] =
            if revision == STATELESS { &by_session } else { &["server/discover", "subscriptions/listen"] };
        for method in missing.iter().chain(&never).chain(&not_served) {
            let expected = (-32601, format!("Method not found: {method}"));
            assert_eq!(peer.error(method, json!({"uri": "a:b"})), expected, "{revision}");
        }
        if revision != STATELESS {
            assert_eq!(peer.result("ping", json!({})), json!({}));
            assert_eq!(peer.result("ping", Value::Null), json!({}));
        }
        peer.alive();
        peer.close();
    }
}

#[test]
fn one_connection_serves_both_eras() {
    for revision in session_revisions() {
        let mut peer = Peer::connect(revision, server().build().unwrap(), Clock::Real);
        let call = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
        let ask = |id: i64, method: &str, params: Value| {
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
        };
        peer.raw(ask(101, "tools/call", stateless(call.clone())));
        assert_eq!(peer.answer(&json!(101))["result"]["resultType"], "complete");
        peer.raw(ask(102, "initialize", initialize(revision.as_str(), &json!({}))));
        assert_eq!(peer.answer(&json!(102))["result"]["protocolVersion"], revision.as_str());
        peer.raw(ask(103, "server/discover", stateless(json!({}))));
        assert_eq!(peer.answer(&json!(103))["result"]["supportedVersions"], json!([STATELESS.as_str()]));
        let in_session = peer.result("tools/call", call);
        assert_eq!((in_session["isError"].clone(), in_session.get("resultType")), (json!(false), None));
        peer.close();
    }
}

#[test]
fn a_client_is_offered_what_the_server_speaks() {
    let asked =
        [("1999-01-01", V2025_11_25), (STATELESS.as_str(), V2025_11_25), (V2025_03_26.as_str(), V2025_03_26)];
    for (version, expected) in asked {
        let mut peer = Peer::connect(expected, server().build().unwrap(), Clock::Real);
        let result = peer.result("initialize", initialize(version, &json!({})));
        assert_eq!(result["protocolVersion"], expected.as_str(), "requested {version}");
    }
    let mut peer = Peer::open(STATELESS, server());
    for version in ["1999-01-01", V2025_11_25.as_str()] {
        let id = peer.send("tools/list", json!({"_meta": {key::PROTOCOL_VERSION: version}}));
        let answer = peer.answer(&id);
        assert_eq!(fault(&answer), (-32022, format!("Unsupported protocol version: {version}")));
        let data = json!({"supported": [STATELESS.as_str()], "requested": version});
        assert_eq!(answer["error"]["data"], data);
    }
    for missing in [key::PROTOCOL_VERSION, key::CLIENT_CAPABILITIES] {
        let mut message = peer.message("tools/list", json!({}));
        message["params"]["_meta"].as_object_mut().unwrap().remove(missing);
        peer.raw(message.to_string());
        assert_eq!(
            fault(&peer.answer(&message["id"])),
            (-32602, format!("Invalid params at /_meta: missing field `{missing}`"))
        );
    }
    peer.alive();
}

#[test]
fn single_messages_are_served_without_a_connection() {
    let service = server().tool("slow", "", |_: NoArgs| tokio::task::yield_now()).build().unwrap();
    let request =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let call = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
    let bare = one_shot(&service, &request("tools/call", call.clone())).unwrap();
    assert_eq!(bare["result"]["structuredContent"], json!({"sum": 3}));
    assert_eq!(bare["result"].get("resultType"), None, "in the format of the newest revision with sessions");
    let modern = one_shot(&service, &request("tools/call", stateless(call))).unwrap();
    assert_eq!(modern["result"]["resultType"], "complete");
    let waited = one_shot(&service, &request("tools/call", json!({"name": "slow"}))).unwrap();
    assert_eq!(waited["result"]["content"], json!([]));
    let opened =
        one_shot(&service, &request("initialize", initialize(V2025_03_26.as_str(), &json!({})))).unwrap();
    assert_eq!(opened["result"]["protocolVersion"], V2025_03_26.as_str());
    assert_eq!(one_shot(&service, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})), None);
    let listen =
        one_shot(&service, &request("subscriptions/listen", stateless(json!({"notifications": {}}))))
            .unwrap();
    assert_eq!(
        fault(&listen),
        (-32600, "this connection carries only one response, not a stream of notifications".into())
    );
    let batch = one_shot(&service, &json!([request("ping", json!({}))])).unwrap();
    assert_eq!(
        fault(&batch),
        (-32600, "this revision does not support batches: send one message at a time".into())
    );
    let long = Server::new("s", "1").max_message(10).build().unwrap();
    let too_long = "the message exceeds the maximum size of 10 bytes and was skipped";
    assert_eq!(fault(&one_shot(&long, &request("ping", json!({}))).unwrap()), (-32600, too_long.into()));
}

//! Invalid client messages and misbehaving handlers: each gets a clear error, and the next request works.

mod support;

use std::future::pending;
use std::sync::{Arc, Mutex};

use linchpin::{Context, Error, NoArgs, Revision, Server, args};
use serde_json::{Value, json};
use support::{Clock, Peer, STATELESS, failure, fault, initialize, session_revisions};
use tokio::sync::oneshot;

use Revision::{V2025_03_26, V2025_11_25};

#[args]
struct Echo {
    message: String,
}

fn server() -> Server {
    Server::new("test", "1").tool("echo", "", |Echo { message }| async move { message }).tool(
        "wait",
        "",
        |_: NoArgs| pending::<String>(),
    )
}

#[test]
fn lines_that_are_no_messages() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":90,"method":"ping","params":{{"a":{}1{}}}}}"#,
        "[".repeat(70),
        "]".repeat(70)
    );
    let ping = |members: &str| format!(r#"{{"jsonrpc":"2.0",{members}}}"#);
    let twice =
        r#""id":90,"method":"tools/call","params":{"name":"echo","arguments":{"message":"a","message":"b"}}"#;
    // Each line, and the id, code and text of the error response.
    let cases: [(String, Option<i64>, i64, &str); 16] = [
        ("hello".into(), None, -32700, "expected a JSON value (at byte 0)"),
        (
            r#"{"jsonrpc":"2.0","id":90"#.into(),
            None,
            -32700,
            "expected a comma or a closing brace (at byte 24)",
        ),
        (ping(r#""id":90}"#), None, -32700, "unexpected characters after the JSON value (at byte 25)"),
        ("7".into(), None, -32600, "a message must be a JSON object (at byte 0)"),
        ("null".into(), None, -32600, "a message must be a JSON object (at byte 0)"),
        ("{}".into(), None, -32600, "the member \"jsonrpc\": \"2.0\" is missing (at byte 0)"),
        (
            r#"{"jsonrpc":"1.0","id":90,"method":"ping"}"#.into(),
            Some(90),
            -32600,
            "\"jsonrpc\" must be the string \"2.0\" (at byte 11)",
        ),
        (
            ping(r#""id":90"#),
            Some(90),
            -32600,
            "the message has neither \"method\" nor \"result\" nor \"error\" (at byte 0)",
        ),
        (ping(r#""id":90,"method":5"#), Some(90), -32600, "\"method\" must be a string (at byte 34)"),
        (
            ping(r#""id":null,"method":"ping""#),
            None,
            -32600,
            "\"id\" must be a string or an integer, not null (at byte 0)",
        ),
        (
            ping(r#""id":1.5,"method":"ping""#),
            None,
            -32600,
            "\"id\" must be an integer that fits into 64 bits (at byte 22)",
        ),
        (
            ping(r#""id":90,"method":"ping","params":[]"#),
            Some(90),
            -32602,
            "\"params\" must be an object (at byte 50)",
        ),
        (
            ping(r#""id":90,"id":91,"method":"ping""#),
            Some(90),
            -32600,
            "the key \"id\" occurs twice in one object (at byte 25)",
        ),
        (ping(twice), Some(90), -32600, "the key \"message\" occurs twice in one object (at byte 98)"),
        (deep, Some(90), -32600, "objects and arrays are nested too deeply (at byte 117)"),
        // A malformed response: its id is not that of a client request.
        (
            ping(r#""id":90,"result":1,"error":{}"#),
            None,
            -32600,
            "a response carries either \"result\" or \"error\", not both (at byte 0)",
        ),
    ];
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        for (line, id, code, message) in &cases {
            peer.raw(line);
            let answer = peer.read();
            assert_eq!(fault(&answer), (*code, (*message).to_owned()), "{line}");
            let unknown = (revision < V2025_11_25).then_some(Value::Null);
            assert_eq!(answer.get("id").cloned(), id.map(Value::from).or(unknown), "{revision}: {answer}");
            peer.alive();
        }
        for (line, at) in
            [(&b"{\"jsonrpc\":\"2.0\",\"id\":90,\"method\":\"\xff\"}"[..], 35), (b"\xff\xfe\x00", 0)]
        {
            peer.raw(line);
            assert_eq!(peer.read_error(), (-32700, format!("the message is not valid UTF-8 (at byte {at})")));
            peer.alive();
        }
        peer.close();
    }
}

#[test]
fn requests_that_cannot_be_served() {
    let missing = "Invalid params: missing field `name`";
    let cases = [
        ("my/own", json!({}), -32601, "Method not found: my/own"),
        ("notifications/initialized", json!({}), -32601, "Method not found: notifications/initialized"),
        ("initialized", json!({}), -32601, "Method not found: initialized"),
        (
            "notifications/cancelled",
            json!({"requestId": 1}),
            -32601,
            "Method not found: notifications/cancelled",
        ),
        ("tools/call", json!({}), -32602, missing),
        ("tools/call", json!({"name": 7}), -32602, "Invalid params at /name: must be a string"),
        ("tools/call", json!({"name": "none"}), -32602, "Invalid params at /name: Unknown tool: none"),
        (
            "tools/call",
            json!({"name": "echo", "arguments": "hi"}),
            -32602,
            "Invalid params at /arguments: must be an object",
        ),
        ("tools/list", json!({"cursor": 7}), -32602, "Invalid params at /cursor: must be a string"),
        ("resources/read", json!({}), -32602, "Invalid params: missing field `uri`"),
        ("prompts/get", json!({"name": "none"}), -32602, "Invalid params at /name: Unknown prompt: none"),
        ("completion/complete", json!({}), -32602, "Invalid params: missing field `ref`"),
    ];
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        for (method, params, code, message) in cases.clone() {
            assert_eq!(peer.error(method, params), (code, message.to_owned()), "{revision}");
            peer.alive();
        }
        let mut bare = peer.message("tools/call", Value::Null);
        if revision != STATELESS {
            bare.as_object_mut().unwrap().remove("params");
            peer.raw(bare.to_string());
            assert_eq!(fault(&peer.answer(&bare["id"])), (-32602, missing.into()), "no params at all");
        }
        peer.close();
    }
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let said = "the message exceeds the maximum size of 1000 bytes and was skipped";
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server().max_message(1000));
        for length in [1_001, 200_000] {
            peer.raw("x".repeat(length));
            assert_eq!(peer.read_error(), (-32600, said.into()));
            peer.alive();
        }
        let message = "m".repeat(500);
        assert_eq!(peer.call_text("echo", json!({"message": message})), message, "accepted up to the limit");
        peer.close();
    }
}

#[test]
fn what_wants_no_answer_gets_none() {
    let lines = [
        "",
        "  \t",
        "\r",
        r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/unheard-of"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"wait"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"never sent"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":[1]}"#,
        r#"{"jsonrpc":"2.0","method":"initialized"}"#,
    ];
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        for line in lines {
            peer.raw(line);
        }
        peer.alive();
        peer.raw([&b"\r"[..], peer_message(revision).as_bytes(), b"\r"].concat());
        assert_eq!(peer.read()["id"], "crlf", "a line may end in CRLF");
        peer.close();
    }
}

fn peer_message(revision: Revision) -> String {
    let params = if revision == STATELESS { support::stateless(json!({})) } else { json!({}) };
    json!({"jsonrpc": "2.0", "id": "crlf", "method": "tools/list", "params": params}).to_string()
}

#[test]
fn an_id_in_use_is_refused_and_the_first_request_goes_on() {
    for revision in Revision::ALL {
        let (go, wait) = oneshot::channel::<()>();
        let wait = Mutex::new(Some(wait));
        let server = server().tool("gate", "", move |_: NoArgs| {
            let wait = wait.lock().unwrap().take().unwrap();
            async move { Ok::<_, Error>(wait.await.map(|()| "open")?) }
        });
        let mut peer = Peer::open(revision, server);
        let first = peer.message("tools/call", json!({"name": "gate"}));
        peer.raw(first.to_string());
        let mut second = peer.message("tools/list", json!({}));
        second["id"] = first["id"].clone();
        peer.raw(second.to_string());
        let id = first["id"].clone();
        let said = format!("the id {id} is already used by a request in flight");
        assert_eq!(fault(&peer.answer(&id)), (-32600, said));
        peer.alive();
        peer.raw(first.to_string()); // the same id again
        assert_eq!(fault(&peer.answer(&id)).0, -32600);
        go.send(()).unwrap();
        assert_eq!(peer.answer(&id)["result"]["content"][0]["text"], "open");
        peer.raw(second.to_string());
        assert!(peer.answer(&id)["result"]["tools"].is_array(), "the id is free again after the response");
        peer.close();
    }
}

#[test]
fn requests_before_initialize() {
    let mut peer = Peer::connect(V2025_11_25, server().build().unwrap(), Clock::Real);
    peer.raw("nonsense");
    assert_eq!(peer.read()["id"], Value::Null, "the session is not initialized yet");
    let hint = "was sent before initialize: send initialize first, or put io.modelcontextprotocol/protocolVersion and \
                /clientCapabilities into params._meta";
    for method in ["tools/list", "my/own", "logging/setLevel", "server/discover"] {
        assert_eq!(peer.error(method, json!({})), (-32600, format!("{method} {hint}")));
    }
    peer.notify("notifications/initialized", Value::Null);
    assert_eq!(peer.result("ping", json!({})), json!({}), "works before the handshake");
    peer.raw("nonsense");
    assert_eq!(peer.read()["id"], Value::Null, "a ping does not name a revision");
    for params in [json!({}), json!({"protocolVersion": 7}), json!({"protocolVersion": V2025_11_25.as_str()})]
    {
        assert_eq!(peer.error("initialize", params).0, -32602);
    }
    peer.result("initialize", initialize(V2025_11_25.as_str(), &json!({})));
    peer.alive();
    peer.close();
}

#[test]
fn a_second_initialize() {
    for revision in session_revisions() {
        let mut peer = Peer::open(revision, server());
        let again = peer.error("initialize", initialize(V2025_03_26.as_str(), &json!({})));
        assert_eq!(again, (-32600, "the session is already initialized: send initialize only once".into()));
        peer.alive();
        peer.close();
    }
}

#[args]
struct Nothing {}

fn boom(text: &str) -> String {
    panic!("{text}")
}

#[test]
fn handlers_that_panic() {
    let server = |reported: Arc<Mutex<Vec<String>>>| {
        Server::new("test", "1")
            .on_error(move |report| {
                reported.lock().unwrap().push(format!("{}: {}", report.method, report.error));
            })
            .tool("early", "", |_: Nothing| std::future::ready(boom("early")))
            .tool("at_once", "", |_: NoArgs| async { boom("at once") })
            .tool("late", "", |_: NoArgs| async {
                tokio::task::yield_now().await;
                boom("late")
            })
            .resource("a:at_once", "r", || async { boom("r") })
            .resource("a:early", "r", || std::future::ready(boom("r")))
            .prompt("at_once", "", || async { boom("p") })
            .prompt("late", "", || async {
                tokio::task::yield_now().await;
                boom("p")
            })
            .on_request("my/own", |_: Nothing| async { json!({"never": boom("m")}) })
            .on_notification("x/early", |_: Nothing| {
                drop(boom("n"));
                async {}
            })
            .on_notification("x/late", |_: Nothing| async { drop(boom("n")) })
    };
    for revision in Revision::ALL {
        let reported = Arc::default();
        let mut peer = Peer::open(revision, server(Arc::clone(&reported)));
        for tool in ["early", "at_once", "late"] {
            let said = failure(&peer.call(tool, json!({})));
            assert_eq!(said, format!("The tool `{tool}` failed because of an internal error."));
            peer.alive();
        }
        let cases = [
            ("resources/read", json!({"uri": "a:at_once"})),
            ("resources/read", json!({"uri": "a:early"})),
            ("prompts/get", json!({"name": "at_once"})),
            ("prompts/get", json!({"name": "late"})),
            ("my/own", json!({})),
        ];
        for (method, params) in cases {
            assert_eq!(peer.error(method, params), (-32603, "Internal error".into()), "{method}");
            peer.alive();
        }
        for method in ["x/early", "x/late"] {
            peer.notify(method, json!({}));
            peer.alive();
        }
        peer.close();
        let reported = reported.lock().unwrap();
        assert_eq!(reported[0], "tools/call: the handler panicked: early");
        assert_eq!(reported.len(), 10, "{reported:?}");
        assert!(reported.contains(&"x/late: the handler panicked: n".to_owned()), "{reported:?}");
    }
}

#[test]
fn hooks_that_panic() {
    let server = Server::new("test", "1")
        .instrument(|_| panic!("instrument"))
        .on_error(|_| panic!("on_error"))
        .visible(|item, _| if item.name() == "hidden" { panic!("visible") } else { true })
        .tool("fail", "", |_: NoArgs, _: Context| async {
            Ok::<String, _>(std::fs::read_to_string("/none")?)
        })
        .tool("hidden", "", || async { "never" });
    let mut peer = Peer::connect(STATELESS, server.build().unwrap(), Clock::Real);
    assert_eq!(peer.error("tools/call", json!({"name": "hidden"})), (-32603, "Internal error".into()));
    let said = failure(&peer.call("fail", json!({})));
    assert_eq!(said, "The tool `fail` failed because of an internal error.");
    peer.result("server/discover", json!({}));
    peer.close();
}

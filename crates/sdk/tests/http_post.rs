//! Messages by POST: valid and invalid requests, with the status and code of each.
#![cfg(feature = "http-server")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use linchpin::server::HttpService;
use linchpin::{Revision, Server};
use serde_json::{Value, json};
use support::call_scenarios::CallControls;
use support::web::{self, ChunkedBody, TestClient, borrowed, modern, post, serve, with};
use support::{STATELESS, fault, initialize, session_revisions, stateless};

const INVALID_REQUEST: i64 = -32600;
const NO_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const MISMATCH: i64 = -32020;
const LACKS: i64 = -32021;
const VERSION: i64 = -32022;

fn endpoint() -> HttpService {
    serve(CallControls::new().server().http())
}

fn ping(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

/// Returns the status and error code of a message with additional headers.
async fn refused(guest: &TestClient, message: &Value, headers: &[(&str, &str)]) -> (u16, i64) {
    guest.record_sent(message);
    let own = guest.headers(message);
    let request = with(post(message, &borrowed(&own)), headers);
    guest.handle(request).await.refusal().await
}

/// Returns the status of a message with additional headers.
async fn status(guest: &TestClient, message: &Value, headers: &[(&str, &str)]) -> u16 {
    guest.record_sent(message);
    let own = guest.headers(message);
    guest.handle(with(post(message, &borrowed(&own)), headers)).await.status.as_u16()
}

#[tokio::test]
async fn quick_calls_are_answered_with_one_message_in_every_revision() {
    let web = endpoint();
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        assert_eq!(guest.session.is_some(), revision != STATELESS);
        assert_eq!(guest.call_text("echo", json!({"message": "hi"})).await, "hi", "{revision}");
        let list = guest.ask("tools/list", json!({})).await;
        assert_eq!((list.status, list.header("mcp-session-id")), (StatusCode::OK, None));
        assert!(list.message().await["result"]["tools"].as_array().unwrap().len() > 5);
        let read = guest.ask("resources/read", json!({"uri": "memo://one"})).await.message().await;
        assert_eq!(read["result"]["contents"][0]["text"], "the memo");
    }
}

#[tokio::test]
async fn only_json_is_taken() {
    let web = endpoint();
    let wrong = [
        "",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/json-rpc",
        "application/vnd.api+json",
        "text/json",
        "application/json, text/plain",
        "text/plain; application/json",
        "\"application/json\"",
    ];
    let right =
        ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;x"];
    let mut counts = (0, 0);
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        let message = guest.message("tools/list", json!({}));
        for content in wrong {
            assert_eq!(
                refused(&guest, &message, &[("content-type", content)]).await,
                (415, INVALID_REQUEST),
                "{content}"
            );
            counts.0 += 1;
        }
        let twice = [("content-type", "application/json"), ("content-type", "text/plain")];
        assert_eq!(refused(&guest, &message, &twice).await, (415, INVALID_REQUEST));
        for content in right {
            assert_eq!(status(&guest, &message, &[("content-type", content)]).await, 200, "{content}");
            counts.1 += 1;
        }
        for encoding in ["gzip", "br", "deflate", "zstd", "gzip, identity", "x"] {
            assert_eq!(
                refused(&guest, &message, &[("content-encoding", encoding)]).await,
                (415, INVALID_REQUEST)
            );
        }
        assert_eq!(status(&guest, &message, &[("content-encoding", "identity")]).await, 200);
    }
    eprintln!("content types: rejected={} accepted={}", counts.0, counts.1);
    assert_eq!(counts, (60, 20));
}

#[tokio::test]
async fn clients_must_take_both_kinds_of_answers() {
    let web = endpoint();
    let wrong = [
        "",
        "application/json",
        "text/event-stream",
        "text/html",
        "application/*",
        "text/*",
        "application/json, text/plain",
        "application/jsonx, text/event-stream",
        "application/json, text/event-stream;q=0",
        "application/json;q=0.000, */*;q=0",
        "json, event-stream",
        "application/json/text/event-stream",
    ];
    let right = [
        "application/json, text/event-stream",
        "text/event-stream,application/json",
        "*/*",
        "application/*, text/*",
        "application/json;q=0.9, text/event-stream;q=0.1",
        "APPLICATION/JSON, Text/Event-Stream",
        "text/html, application/json, */*;q=0.8",
    ];
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        let message = guest.message("tools/list", json!({}));
        for accept in wrong {
            assert_eq!(
                refused(&guest, &message, &[("accept", accept)]).await,
                (406, INVALID_REQUEST),
                "{accept}"
            );
        }
        for accept in right {
            assert_eq!(status(&guest, &message, &[("accept", accept)]).await, 200, "{accept}");
        }
        let apart = [("accept", "application/json"), ("accept", "text/event-stream")];
        assert_eq!(status(&guest, &message, &apart).await, 200);
    }
}

#[tokio::test]
async fn the_version_header_of_sessions() {
    let web = endpoint();
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let message = guest.message("tools/list", json!({}));
        assert_eq!(
            status(&guest, &message, &[("mcp-protocol-version", "")]).await,
            200,
            "it is known from the session"
        );
        for known in session_revisions() {
            assert_eq!(status(&guest, &message, &[("mcp-protocol-version", known.as_str())]).await, 200);
        }
        for unknown in
            ["1999-01-01", "2025-11-25 ", "latest", "2025-11-2", "DRAFT-2026-v1", "2025-11-25, 2025-06-18"]
        {
            let expected = if unknown.trim() == "2025-11-25" { None } else { Some((400, VERSION)) };
            if let Some(expected) = expected {
                assert_eq!(refused(&guest, &message, &[("mcp-protocol-version", unknown)]).await, expected);
            }
        }
        let twice =
            [("mcp-protocol-version", revision.as_str()), ("mcp-protocol-version", STATELESS.as_str())];
        assert_eq!(refused(&guest, &message, &twice).await, (400, MISMATCH), "ambiguous: duplicate headers");
        // The header of the other era: the request is stateless and lacks its required fields.
        let other = [("mcp-protocol-version", STATELESS.as_str())];
        assert_eq!(refused(&guest, &message, &other).await, (400, INVALID_PARAMS));
        // The body of the other era: its header is missing or different.
        let (modern, _) = modern(7, "tools/list", json!({}));
        let without = [("mcp-protocol-version", "")];
        assert_eq!(refused(&guest, &modern, &without).await, (400, MISMATCH));
        assert_eq!(
            refused(&guest, &modern, &[("mcp-protocol-version", revision.as_str())]).await,
            (400, MISMATCH)
        );
    }
}

#[tokio::test]
async fn sessions_must_be_named_and_known() {
    let web = endpoint();
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let id = guest.session.clone().unwrap();
        assert_eq!(id.len(), 64, "256 bits");
        for message in [
            guest.message("tools/list", json!({})),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        ] {
            assert_eq!(refused(&guest, &message, &[("mcp-session-id", "")]).await, (400, INVALID_REQUEST));
            let other = id.chars().rev().collect::<String>();
            let longer = format!("{id}0");
            let both = format!("{id}, {id}");
            for unknown in [
                &other,
                &id[1..],
                &longer,
                &both,
                "x",
                "0",
                &id.to_uppercase(),
                &" ".repeat(3),
                &"f".repeat(64),
            ] {
                let unknown = [("mcp-session-id", unknown)];
                let same = id == id.to_uppercase();
                if !same {
                    assert_eq!(
                        refused(&guest, &message, &unknown).await,
                        (404, INVALID_REQUEST),
                        "{unknown:?}"
                    );
                }
            }
            let twice = [("mcp-session-id", &*id), ("mcp-session-id", &*id)];
            assert_eq!(refused(&guest, &message, &twice).await, (400, INVALID_REQUEST));
        }
        // An open session is not opened again; an unknown one is not opened by its id.
        let again = guest.message("initialize", initialize(revision.as_str(), &json!({})));
        assert_eq!(refused(&guest, &again, &[]).await, (400, INVALID_REQUEST));
        let unknown = "0".repeat(64);
        assert_eq!(refused(&guest, &again, &[("mcp-session-id", &unknown)]).await, (404, INVALID_REQUEST));
        // The stateless era ignores the session id.
        let modern = TestClient::new(&web, STATELESS);
        let message = modern.message("tools/list", json!({}));
        assert_eq!(status(&modern, &message, &[("mcp-session-id", "whatever")]).await, 200);
    }
}

#[tokio::test]
async fn headers_must_repeat_the_body_without_sessions() {
    let web = endpoint();
    let guest = TestClient::new(&web, STATELESS);
    let call = guest.message("tools/call", json!({"name": "echo", "arguments": {"message": "m"}}));
    let list = guest.message("tools/list", json!({}));
    let read = guest.message("resources/read", json!({"uri": "memo://größe"}));
    let latest = STATELESS.as_str();
    let mismatches: [(&Value, &[(&str, &str)]); 17] = [
        (&call, &[("mcp-protocol-version", "")]),
        (&call, &[("mcp-protocol-version", "2025-11-25")]),
        (&call, &[("mcp-protocol-version", latest), ("mcp-protocol-version", latest)]),
        (&call, &[("mcp-method", "")]),
        (&call, &[("mcp-method", "tools/list")]),
        (&call, &[("mcp-method", "TOOLS/CALL")]),
        (&call, &[("mcp-method", "tools/call"), ("mcp-method", "tools/call")]),
        (&call, &[("mcp-method", "=?base64?dG9vbHMvY2FsbA==?=")]),
        (&call, &[("mcp-name", "")]),
        (&call, &[("mcp-name", "Echo")]),
        (&call, &[("mcp-name", "other")]),
        (&call, &[("mcp-name", "echo"), ("mcp-name", "echo")]),
        (&call, &[("mcp-name", "=?BASE64?ZWNobw==?=")]),
        (&call, &[("mcp-name", "=?base64?ZWNobw?=")]),
        (&call, &[("mcp-name", "=?base64?Z W N o?=")]),
        (&read, &[("mcp-name", "=?base64?/w==?=")]),
        (&list, &[("mcp-method", "tools/call")]),
    ];
    for (message, headers) in mismatches {
        assert_eq!(refused(&guest, message, headers).await, (400, MISMATCH), "{headers:?}");
    }
    let raw = post(&read, &borrowed(&guest.headers(&read)));
    let mut raw = with(raw, &[("mcp-name", "")]);
    raw.headers_mut().insert("mcp-name", http::HeaderValue::from_bytes("memo://größe".as_bytes()).unwrap());
    assert_eq!(guest.handle(raw).await.refusal().await, (400, MISMATCH), "not allowed in a header");
    assert_eq!(status(&guest, &call, &[("mcp-name", "=?base64?ZWNobw==?=")]).await, 200);
    assert_eq!(status(&guest, &read, &[("mcp-name", "=?base64?bWVtbzovL2dyw7bDn2U=?=")]).await, 200);
    assert_eq!(status(&guest, &list, &[("mcp-name", "ignored")]).await, 200, "there is nothing to repeat");
    assert_eq!(status(&guest, &call, &[("mcp-param-region", "ignored")]).await, 200);
}

#[tokio::test]
async fn mirrored_parameters_must_say_the_same() {
    let web = endpoint();
    let guest = TestClient::new(&web, STATELESS);
    let call =
        |arguments: Value| guest.message("tools/call", json!({"name": "region", "arguments": arguments}));
    let (west, both, none) =
        (call(json!({"region": "west"})), call(json!({"region": "größe", "count": 42})), call(json!({})));
    let null = call(json!({"region": null}));
    let region = |value| ("mcp-param-region", value);
    for (message, headers) in [
        (&west, &[][..]),
        (&west, &[region("east")]),
        (&west, &[region("West")]),
        (&west, &[region("west"), region("west")]),
        (&west, &[region("=?base64?d2VzdA?=")]),
        (&west, &[region("west"), ("mcp-param-count", "1")]),
        (&none, &[region("west")]),
        (&null, &[region("null")]),
        (&both, &[region("=?base64?Z3LDtsOfZQ==?="), ("mcp-param-count", "43")]),
        (&both, &[region("=?base64?Z3LDtsOfZQ==?=")]),
    ] {
        assert_eq!(refused(&guest, message, headers).await, (400, MISMATCH), "{headers:?}");
    }
    for (message, headers) in [
        (&west, &[region("west")][..]),
        (&west, &[region("=?base64?d2VzdA==?=")]),
        (&none, &[]),
        (&null, &[]),
        (&both, &[region("=?base64?Z3LDtsOfZQ==?="), ("mcp-param-count", "42.0")]),
    ] {
        assert_eq!(status(&guest, message, headers).await, 200, "{headers:?}");
    }
    // Sessions do not use these headers.
    let guest = TestClient::open(&web, Revision::LATEST_SESSION).await;
    assert_eq!(guest.call_text("region", json!({"region": "west"})).await, "there");
}

#[tokio::test]
async fn what_requests_without_sessions_must_carry() {
    let web = endpoint();
    let guest = TestClient::new(&web, STATELESS);
    let bare = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(refused(&guest, &bare, &[]).await, (400, INVALID_PARAMS));
    let keys = ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"];
    for key in keys {
        let mut message = guest.message("tools/list", json!({}));
        message["params"]["_meta"].as_object_mut().unwrap().remove(key);
        assert_eq!(refused(&guest, &message, &[]).await, (400, INVALID_PARAMS), "{key}");
        message["params"]["_meta"][key] = json!(7);
        assert_eq!(refused(&guest, &message, &[]).await, (400, INVALID_PARAMS), "{key}");
    }
    let mut future = guest.message("tools/list", json!({}));
    future["params"]["_meta"][keys[0]] = json!("2099-01-01");
    assert_eq!(refused(&guest, &future, &[]).await, (400, MISMATCH));
    guest.record_sent(&future);
    let answer = guest
        .handle(with(
            post(&future, &borrowed(&guest.headers(&future))),
            &[("mcp-protocol-version", "2099-01-01")],
        ))
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let answer = answer.message().await;
    assert_eq!(fault(&answer).0, VERSION);
    assert_eq!(answer["error"]["data"]["requested"], "2099-01-01");
    assert!(answer["error"]["data"]["supported"].as_array().unwrap().contains(&json!(STATELESS.as_str())));
    // A server request to a client that does not support it.
    let mut call = guest.message("tools/call", json!({"name": "ask", "arguments": {}}));
    call["params"]["_meta"][keys[1]] = json!({});
    assert_eq!(refused(&guest, &call, &[]).await, (400, LACKS));
}

#[tokio::test]
async fn unknown_methods_are_not_found_only_without_sessions() {
    let web = endpoint();
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        let expected = if revision == STATELESS { 404 } else { 200 };
        for method in ["no/such", "tools/cal", "x"] {
            let answer = guest.ask(method, json!({})).await;
            assert_eq!(answer.refusal().await, (expected, NO_METHOD), "{method} in {revision}");
        }
        let foreign = if revision == STATELESS { "ping" } else { "server/discover" };
        assert_eq!(guest.ask(foreign, json!({})).await.refusal().await, (expected, NO_METHOD));
        // Errors of a handler do not change the HTTP status.
        assert_eq!(guest.call("fails", json!({})).await.refusal().await, (200, -31_000));
        assert_eq!(guest.call("none", json!({})).await.refusal().await, (200, INVALID_PARAMS));
    }
}

#[tokio::test]
async fn notifications_and_answers_are_taken_without_a_word() {
    let web = endpoint();
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        for method in ["notifications/roots/list_changed", "notifications/cancelled", "acme/own"] {
            let answer = guest.notify(method, Value::Null).await;
            assert_eq!((answer.status, answer.header("content-type")), (StatusCode::ACCEPTED, None));
            assert_eq!(answer.text().await, "");
        }
        let reply = json!({"jsonrpc": "2.0", "id": 77, "result": {}});
        let answer = guest.send(&reply).await;
        if revision == STATELESS {
            assert_eq!(answer.refusal().await, (400, INVALID_REQUEST));
        } else {
            assert_eq!((answer.status, answer.text().await), (StatusCode::ACCEPTED, String::new()));
        }
    }
}

#[tokio::test]
async fn a_notification_is_answered_without_a_word_whatever_its_handler_says() {
    let server =
        Server::new("s", "1").on_notification("acme/own", |_: Value, cx: linchpin::Context| async move {
            cx.notify("acme/heard", &json!({}));
            tokio::task::yield_now().await;
            cx.notify("acme/heard", &json!({}));
        });
    let web = serve(server.http());
    for revision in [STATELESS, Revision::LATEST_SESSION] {
        let guest = TestClient::open(&web, revision).await;
        let answer = guest.notify("acme/own", json!({})).await;
        assert_eq!((answer.status, answer.text().await), (StatusCode::ACCEPTED, String::new()), "{revision}");
    }
}

#[tokio::test]
async fn batches_are_of_one_revision() {
    let web = endpoint();
    let note = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        let call = |id: i64| {
            let params = json!({"name": "echo", "arguments": {"message": format!("m{id}")}});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        };
        let batch = json!([call(101), note, call(102), ping(103)]);
        let answer = guest.send(&batch).await;
        if revision != Revision::V2025_03_26 {
            assert_eq!(answer.refusal().await, (400, INVALID_REQUEST), "{revision}");
            assert_eq!(guest.send(&json!([note])).await.refusal().await, (400, INVALID_REQUEST));
            continue;
        }
        assert_eq!(answer.status, StatusCode::OK);
        let mut answers = answer.message().await;
        let answers = answers.as_array_mut().unwrap();
        answers.sort_by_key(|answer| answer["id"].as_i64());
        assert_eq!(answers.len(), 3);
        assert_eq!(web::text_of(&answers[1]), "m102");
        let answer = guest.send(&json!([note, note])).await;
        assert_eq!((answer.status, answer.text().await), (StatusCode::ACCEPTED, String::new()));
        let replies = json!([{"jsonrpc": "2.0", "id": 9, "result": {}}, note]);
        assert_eq!(guest.send(&replies).await.status, StatusCode::ACCEPTED);
        assert_eq!(guest.send(&json!([])).await.refusal().await, (400, INVALID_REQUEST));
        // Messages streamed in the meantime come first.
        let mut talk = call(104);
        talk["params"] = json!({"name": "talk", "arguments": {"count": 2}, "_meta": {"progressToken": 1}});
        let answer = guest.send(&json!([talk, call(105)])).await;
        let messages = answer.events().rest().await;
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[0]["method"], "notifications/progress");
        assert_eq!(messages[2].as_array().unwrap().len(), 2);
    }
    let opening = json!([{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize("2025-03-26", &json!({}))}]);
    assert_eq!(
        TestClient::new(&web, Revision::V2025_03_26).send(&opening).await.refusal().await,
        (400, INVALID_REQUEST)
    );
}

/// Bodies that different parsers read differently, and that must be rejected.
fn smuggled() -> Vec<(String, i64)> {
    const PARSE: i64 = -32700;
    let call = r#""jsonrpc":"2.0","id":1,"method":"tools/call""#;
    let mut all: Vec<(String, i64)> = [
        "",
        " ",
        "{",
        "[",
        "nul",
        "{]",
        "\u{feff}{}",
        "{}{}",
        "{},",
        "NaN",
        "'a'",
        "{\"a\":01}",
        "{\"a\":1,}",
        "\"\\x\"",
        "{\"a\":\"\u{1}\"}",
        "/* */{}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} trailing",
    ]
    .map(|text| (text.to_owned(), PARSE))
    .to_vec();
    let invalid = [
        "1".into(),
        "null".into(),
        "\"text\"".into(),
        "{}".into(),
        "[1]".into(),
        "true".into(),
        format!("{{{call},\"method\":\"tools/list\"}}"),
        format!("{{{call},\"id\":2}}"),
        format!("{{{call},\"jsonrpc\":\"2.0\"}}"),
        format!("{{{call},\"params\":{{}},\"params\":{{\"name\":\"echo\"}}}}"),
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.into(),
        r#"{"id":1,"method":"ping"}"#.into(),
        r#"{"JSONRPC":"2.0","id":1,"method":"ping"}"#.into(),
        r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#.into(),
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#.into(),
        r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#.into(),
        r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#.into(),
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#.into(),
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#.into(),
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}"#.into(),
        r#"{"jsonrpc":"2.0","id":1}"#.into(),
    ];
    all.extend(invalid.into_iter().map(|text: String| (text, INVALID_REQUEST)));
    all
}

#[tokio::test]
async fn what_cannot_be_read_in_one_way_is_refused() {
    let web = endpoint();
    let mut count = 0;
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        for (body, code) in smuggled() {
            if body == "[1]" && revision == Revision::V2025_03_26 {
                continue; // a batch with an invalid message
            }
            let headers = guest.headers(&json!({"method": "tools/call", "params": {"name": "echo"}}));
            let answer = guest.handle(post(&body, &borrowed(&headers))).await;
            let status = answer.status;
            let answer: Value = serde_json::from_str(&answer.text().await).unwrap();
            assert_eq!(status, StatusCode::BAD_REQUEST, "{body} in {revision}: {answer}");
            let found = fault(&answer).0;
            assert!(
                found == code || (code == INVALID_REQUEST && found == MISMATCH),
                "{body} in {revision}: {answer}"
            );
            count += 1;
        }
        // Keys inside the parameters that are duplicated or not strings.
        let inner = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"wait","arguments":{"message":"m"}}}"#;
        let headers = guest.headers(&json!({"method": "tools/call", "params": {"name": "echo"}}));
        let answer = guest.handle(post(inner, &borrowed(&headers))).await;
        assert!(
            answer.status == StatusCode::BAD_REQUEST || fault(&answer.message().await).0 == INVALID_PARAMS
        );
        let latin = guest.handle(post("", &borrowed(&headers)).map(|_| String::new())).await;
        assert_eq!(latin.refusal().await, (400, -32700));
        count += 2;
    }
    eprintln!("smuggled: rejected={count} accepted=0");
    assert_eq!(count, 5 * (smuggled().len() + 2) - 1);
}

#[tokio::test]
async fn bodies_that_are_too_long_are_not_read() {
    let web = serve(CallControls::new().server().max_message(1_000).http());
    for (length, pieces) in [
        (Some(1_001), vec![]),
        (Some(u64::MAX), vec![]),
        (None, vec![Some(Bytes::from(vec![b' '; 600])), Some(Bytes::from(vec![b' '; 600]))]),
        (None, vec![Some(Bytes::from(vec![b' '; 1_001]))]),
        (None, vec![Some(Bytes::from(vec![b' '; 1_000])), Some(Bytes::from_static(b" "))]),
    ] {
        let body = ChunkedBody { pieces: pieces.into(), length };
        let request = web::request(Method::POST, "/mcp").body(body).unwrap();
        let answer = web.handle(request).await;
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    let message = post(ping(1).to_string() + &" ".repeat(960), &[("mcp-session-id", "")]);
    assert_eq!(message.body().len(), 1_000);
    assert_eq!(
        web.handle(message).await.status(),
        StatusCode::BAD_REQUEST,
        "long enough to be read: it lacks a session"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let web = serve(CallControls::new().server().http().body_timeout(Duration::from_secs(7)));
    let begun = tokio::time::Instant::now();
    let body = ChunkedBody { pieces: vec![Some(Bytes::from_static(b"{\"json")), None].into(), length: None };
    let answer = web.handle(web::request(Method::POST, "/mcp").body(body).unwrap()).await;
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(begun.elapsed(), Duration::from_secs(7));
}

#[tokio::test]
async fn a_body_in_pieces_is_read_as_a_whole() {
    let web = endpoint();
    let (message, headers) =
        modern(1, "tools/call", json!({"name": "echo", "arguments": {"message": "in pieces"}}));
    let text = message.to_string();
    for size in 1..text.len() {
        let pieces = text.as_bytes().chunks(size).map(|piece| Some(Bytes::copy_from_slice(piece))).collect();
        let request = with(web::request(Method::POST, "/mcp").body(()).unwrap(), &borrowed(&headers));
        let answer = web.handle(request.map(|()| ChunkedBody { pieces, length: None })).await;
        assert_eq!(answer.status(), StatusCode::OK, "{size}");
    }
}

#[tokio::test]
async fn other_paths_and_methods() {
    let guest = TestClient::new(&endpoint(), STATELESS);
    for path in ["/", "/mcp/", "/MCP", "/mcp/x", "/mc", "//mcp", "/%6dcp", "/sse", "/messages", "*"] {
        let request = web::request(Method::POST, path).body(ping(1).to_string()).unwrap();
        let answer = guest.handle(request).await;
        assert_eq!(answer.status, 404, "{path}");
        // Other paths do not speak MCP, so the response is plain text.
        assert_eq!(answer.text().await, "Not found. The endpoint is /mcp.\n");
    }
    for method in ["PUT", "PATCH", "HEAD", "TRACE", "OPTIONS", "PROPFIND", "CONNECT"] {
        let request = web::request(Method::POST, "/mcp").method(method).body(String::new()).unwrap();
        let answer = guest.handle(request).await;
        assert_eq!(answer.header("allow"), Some("GET, POST, DELETE"), "{method}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert_eq!(answer.refusal().await, (405, INVALID_REQUEST));
    }
    let query = web::request(Method::POST, "/mcp?x=1&sessionId=2").body(String::new()).unwrap();
    assert_eq!(guest.handle(query).await.refusal().await, (400, -32700), "the query is ignored");
    // The stateless era has only POST.
    for method in [Method::GET, Method::DELETE] {
        let headers = [("mcp-protocol-version", STATELESS.as_str())];
        let request = with(web::request(method, "/mcp").body(String::new()).unwrap(), &headers);
        let answer = guest.handle(request).await;
        assert_eq!(answer.header("allow"), Some("POST"));
        assert_eq!(answer.refusal().await, (405, INVALID_REQUEST));
    }
    for method in [Method::GET, Method::DELETE] {
        for (headers, expected) in [
            (vec![("mcp-protocol-version", "1999-01-01")], (400, VERSION)),
            (
                vec![("mcp-protocol-version", "2025-11-25"), ("mcp-protocol-version", "2025-11-25")],
                (400, MISMATCH),
            ),
            (vec![], (400, INVALID_REQUEST)),
            (vec![("mcp-session-id", "x"), ("mcp-session-id", "x")], (400, INVALID_REQUEST)),
            (vec![("mcp-session-id", "x")], (404, INVALID_REQUEST)),
        ] {
            let request = with(web::request(method.clone(), "/mcp").body(String::new()).unwrap(), &headers);
            assert_eq!(guest.handle(request).await.refusal().await, expected, "{method} {headers:?}");
        }
    }
    let request =
        with(web::request(Method::GET, "/mcp").body(String::new()).unwrap(), &[("accept", "text/html")]);
    assert_eq!(guest.handle(request).await.refusal().await, (406, INVALID_REQUEST));
}

#[tokio::test]
async fn pages_are_told_of_allowed_origins_only() {
    let web = serve(CallControls::new().server().http().allow_origin("https://app.example"));
    let guest = TestClient::new(&web, STATELESS);
    let page = |origin: &'static str| [("origin", origin), ("access-control-request-method", "POST")];
    let options = |headers: &[(&str, &str)]| {
        with(web::request(Method::OPTIONS, "/mcp").body(String::new()).unwrap(), headers)
    };
    let answer = guest.handle(options(&page("https://app.example"))).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let headers = web::header_map(&answer.headers);
    assert_eq!(headers["access-control-allow-origin"], "https://app.example");
    assert_eq!(headers["access-control-allow-methods"], "GET, POST, DELETE");
    assert_eq!(headers["vary"], "origin");
    for name in [
        "content-type",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "authorization",
    ] {
        assert!(headers["access-control-allow-headers"].contains(name), "{name}");
    }
    assert!(!headers.contains_key("access-control-allow-credentials"));
    let answer = guest.handle(options(&page("https://evil.example"))).await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
    assert_eq!(answer.refusal().await, (403, INVALID_REQUEST));
    let answer = guest.handle(options(&page("http://localhost:8080"))).await;
    assert_eq!(
        answer.header("access-control-allow-origin"),
        None,
        "the server's own origin is always allowed"
    );
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    // The page can read responses, including errors.
    let message = guest.message("tools/list", json!({}));
    for (headers, expected) in [(&[][..], 200), (&[("accept", "x/y")][..], 406)] {
        let own = guest.headers(&message);
        let request =
            with(with(post(&message, &borrowed(&own)), headers), &[("origin", "https://app.example")]);
        let answer = guest.handle(request).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("access-control-allow-origin")),
            (expected, Some("https://app.example"))
        );
        assert_eq!(answer.header("access-control-expose-headers"), Some("mcp-session-id, www-authenticate"));
    }
}

#[tokio::test]
async fn a_server_of_one_era_says_so_to_the_other() {
    let modern_only =
        serve(CallControls::new().server().protocol_version(STATELESS.as_str()).http().legacy_sse());
    let guest = TestClient::new(&modern_only, Revision::LATEST_SESSION);
    let answer = guest.ask("initialize", initialize("2025-11-25", &json!({}))).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let text = answer.text().await;
    assert!(text.contains(STATELESS.as_str()), "{text}");
    for method in [Method::GET, Method::DELETE] {
        let request = web::request(method, "/mcp").body(String::new()).unwrap();
        assert_eq!(guest.handle(request).await.status, StatusCode::METHOD_NOT_ALLOWED);
    }
    let modern = TestClient::new(&modern_only, STATELESS);
    assert_eq!(modern.call_text("echo", json!({"message": "m"})).await, "m");
    let old_only = serve(CallControls::new().server().protocol_version("2025-06-18").http());
    let message = modern.message("tools/list", json!({}));
    let guest = TestClient::new(&old_only, STATELESS);
    guest.record_sent(&message);
    let answer = guest.handle(post(&message, &borrowed(&guest.headers(&message)))).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.text().await.contains("2025-06-18"));
    let guest = TestClient::open(&old_only, Revision::V2025_06_18).await;
    assert_eq!(guest.call_text("echo", json!({"message": "m"})).await, "m");
}

#[tokio::test]
async fn without_sessions_old_clients_are_served_one_by_one() {
    let web = serve(CallControls::new().server().http().stateless());
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        assert_eq!(guest.session, None);
        let mut message = guest.message("tools/call", json!({"name": "echo", "arguments": {"message": "m"}}));
        let version = [("mcp-protocol-version", revision.as_str())];
        let known: &[_] = if revision >= Revision::V2025_06_18 { &version } else { &[] };
        guest.record_sent(&message);
        let own = guest.headers(&message);
        let answer = guest.handle(with(post(&message, &borrowed(&own)), known)).await;
        assert_eq!(web::text_of(&answer.message().await), "m", "{revision}");
        if revision == STATELESS {
            continue;
        }
        // No server requests and no notifications are possible.
        message["params"] = json!({"name": "ask", "arguments": {}});
        let answer = guest.handle(with(post(&message, &[]), known)).await.message().await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        message["params"] = json!({"name": "talk", "arguments": {"count": 3}, "_meta": {"progressToken": 1}});
        let answer = guest.handle(with(post(&message, &[]), known)).await.message().await;
        assert_eq!(web::text_of(&answer), "talked");
        assert_eq!(guest.get(None).await.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(guest.delete().await.status, StatusCode::METHOD_NOT_ALLOWED);
        let reply = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
        assert_eq!(guest.send(&reply).await.refusal().await, (400, INVALID_REQUEST));
    }
    // The result has the form of the revision in the header: structured tools, titles and icons came later.
    let list = |version: &'static str| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "server/nothing"});
        post(message, &[("mcp-protocol-version", version)])
    };
    assert_eq!(web.handle(list("2025-06-18")).await.status(), StatusCode::OK);
    let batch = json!([ping(1), ping(2)]);
    assert_eq!(
        web.handle(post(&batch, &[])).await.status(),
        StatusCode::OK,
        "who names no revision may send batches"
    );
    let batch = post(&batch, &[("mcp-protocol-version", "2025-11-25")]);
    assert_eq!(web.handle(batch).await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn settings_that_make_no_sense_are_told() {
    let http = || CallControls::new().server().http();
    for path in ["mcp", "", "/a?b", "/a#b", "/a b", "/a\nb", "http://x/mcp", "*"] {
        assert!(http().path(path).into_service().is_err(), "{path:?}");
    }
    for origin in
        ["app.example", "https://", "https://a/b", "https://a:x", "ftp://a", "null", "*", "https://a:443 "]
    {
        assert!(http().allow_origin(origin).into_service().is_err(), "{origin:?}");
    }
    for host in ["", "a b", "a/b", "a:x", "a:", "u@a", "http://a", "a:99999", "a:+80"] {
        assert!(http().allow_host(host).into_service().is_err(), "{host:?}");
    }
    assert!(http().path("/some/where").allow_host("a:80").allow_origin("https://a").into_service().is_ok());
    assert!(stateless(json!({}))["_meta"].is_object());
}

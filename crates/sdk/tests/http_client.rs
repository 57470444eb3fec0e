//! HTTP client with a scripted server: requests in each era, and handling of responses.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;
#[path = "support/manual_clock.rs"]
mod manual_clock;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HttpScript, Reply, SESSION, TEST_TIMEOUT, client, connect, plain_reply, said, server, text};
use linchpin::client::RevisionCache;
use linchpin::transport::Direction;
use linchpin::{CallError, Client, ClientError, Revision};
use manual_clock::ManualClock;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// One revision of each era.
const ERAS: [Revision; 2] = [Revision::LATEST_SESSION, Revision::LATEST];

#[tokio::test]
async fn every_revision_is_found_and_used() {
    for revision in Revision::ALL {
        let script = server(revision, |_| None).await;
        let client = connect(&script).await;
        assert_eq!(client.revision(), revision);
        assert_eq!(client.tools().all().await.unwrap().len(), 1);
        assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo");
        client.close().await;
        let opening: &[&str] = if revision == Revision::LATEST {
            &["server/discover", "tools/list", "tools/call"]
        } else {
            &[
                "server/discover",
                "initialize",
                "notifications/initialized",
                "tools/list",
                "tools/call",
                "DELETE",
            ]
        };
        let methods = script.methods();
        let methods: Vec<_> = methods.iter().filter(|method| *method != "GET").collect();
        assert_eq!(methods, opening, "{revision}");
    }
}

#[tokio::test]
async fn the_headers_of_a_session_are_those_of_its_revision() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision != Revision::LATEST) {
        let script = server(revision, |_| None).await;
        let client = connect(&script).await;
        client.call("echo", ()).await.unwrap();
        script.wait_for("GET", 1).await;
        client.close().await;
        for seen in script.received() {
            assert_eq!(seen.header("accept"), "application/json, text/event-stream", "{seen:?}");
            let is_opening = ["server/discover", "initialize"].contains(&seen.method());
            let session = if is_opening { "" } else { SESSION };
            assert_eq!(seen.header("mcp-session-id"), session, "{seen:?}");
            let version = match seen.method() {
                "server/discover" => Revision::LATEST.as_str(),
                "initialize" => "",
                _ => revision.as_str(),
            };
            assert_eq!(seen.header("mcp-protocol-version"), version, "{seen:?}");
            let has_body = seen.verb == "POST";
            assert_eq!(seen.header("content-type"), if has_body { "application/json" } else { "" });
            assert!(!seen.headers.contains_key("mcp-name"), "{seen:?}");
            assert_eq!(seen.headers.contains_key("mcp-method"), seen.is("server/discover"), "{seen:?}");
        }
    }
}

#[tokio::test]
async fn in_the_stateless_era_headers_repeat_the_message() {
    let script = server(Revision::LATEST, |_| None).await;
    let client = connect(&script).await;
    client.tools().all().await.unwrap();
    client.call("echo", ()).await.unwrap();
    client.call("grüße", ()).await.unwrap();
    client.call("=?base64?x?=", ()).await.unwrap();
    client.read("file:///a b").await.unwrap();
    let task = client.task("t-1").get().await;
    assert!(matches!(task, Err(ClientError::Call(CallError::Rejected(error))) if error.code == -32601));
    client.close().await;
    let seen: Vec<_> = script
        .received()
        .iter()
        .map(|seen| {
            assert_eq!(seen.header("mcp-method"), seen.method());
            assert_eq!(seen.header("mcp-protocol-version"), Revision::LATEST.as_str());
            assert_eq!(seen.header("mcp-session-id"), "");
            (seen.method().to_owned(), seen.header("mcp-name").to_owned())
        })
        .collect();
    let expected = [
        ("server/discover", ""),
        ("tools/list", ""),
        ("tools/call", "echo"),
        ("tools/call", "=?base64?Z3LDvMOfZQ==?="),
        ("tools/call", "=?base64?PT9iYXNlNjQ/eD89?="),
        ("resources/read", "file:///a b"),
        ("tasks/get", "t-1"),
    ];
    assert_eq!(seen, expected.map(|(method, name)| (method.to_owned(), name.to_owned())));
}

#[tokio::test]
async fn an_answer_is_one_message_or_a_stream_under_whatever_content_type() {
    type Answering = fn(&Value, &Value) -> Reply;
    let notice = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
    let answers: [Answering; 8] = [
        |_, answer| Reply::json(answer),
        |_, answer| Reply::new(200, &[("content-type", "text/plain")], answer.to_string().as_bytes()),
        |_, answer| Reply::new(200, &[("content-type", "text/event-stream")], answer.to_string().as_bytes()),
        |_, answer| {
            let body = format!("\u{feff}\n {answer}");
            Reply::chunked(&[("content-type", "application/json")])
                .chunk(&body.as_bytes()[..4])
                .chunk(&body.as_bytes()[4..])
                .end()
        },
        |notice, answer| Reply::events().event(notice).event(answer).end(),
        |notice, answer| {
            let body = format!(": hello\n\nevent: message\ndata: {notice}\n\ndata: {answer}\n\n");
            Reply::new(200, &[("content-type", "application/json; charset=utf-8")], body.as_bytes())
        },
        |notice, answer| {
            let body = format!("id: 1\rdata: {notice}\r\rdata: {answer}\r\r");
            body.as_bytes().iter().fold(Reply::chunked(&[]), |reply, byte| reply.chunk(&[*byte])).end()
        },
        |notice, answer| {
            Reply::events().event(notice).chunk(b"event: other\ndata: {\n\n").event(answer).close()
        },
    ];
    for revision in ERAS {
        for (number, answering) in answers.into_iter().enumerate() {
            let notice = notice.clone();
            let script = server(revision, move |seen| {
                seen.is("tools/call").then(|| answering(&notice, &seen.answer(&text("hi"))))
            })
            .await;
            let client = connect(&script).await;
            let called = timeout(TEST_TIMEOUT, client.call("echo", ())).await.unwrap();
            assert_eq!(said(&called.unwrap()), "hi", "{revision}: {number}");
        }
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    for revision in ERAS {
        let script = server(revision, |seen| {
            let streamed = seen.is("tools/call") && seen.body["params"]["name"] == "streamed";
            streamed.then(|| Reply::events().event(&seen.answer(&text("streamed"))).end())
        })
        .await;
        let client = connect(&script).await;
        for _ in 0..20 {
            client.call("echo", ()).await.unwrap();
            client.call("streamed", ()).await.unwrap();
        }
        client.close().await;
        assert!(script.connections() <= 3, "{revision}: {} connections", script.connections());
    }
}

#[tokio::test]
async fn own_headers_go_with_every_request_and_some_are_refused() {
    let script = server(Revision::LATEST_SESSION, |_| None).await;
    let client = client(&script).header("X-Api-Key", "secret").connect().await.unwrap();
    client.call("echo", ()).await.unwrap();
    script.wait_for("GET", 1).await;
    client.close().await;
    assert!(script.received().iter().all(|seen| seen.header("x-api-key") == "secret"));
    for (name, value) in [
        ("Mcp-Session-Id", "x"),
        ("mcp-param-region", "x"),
        ("Content-Length", "1"),
        ("bad name", "x"),
        ("x-good", "line\r\nx-evil: 1"),
    ] {
        let refused = http::client(&script).header(name, value).connect().await.unwrap_err();
        let ClientError::Open { .. } = &refused else { panic!("{refused}") };
        assert!(refused.to_string().to_ascii_lowercase().contains(&name.to_ascii_lowercase()), "{refused}");
        assert!(!refused.to_string().contains("evil"), "{refused}");
    }
}

#[tokio::test]
async fn wrong_urls_are_named_and_servers_that_are_not_there() {
    for url in ["", "not a url", "ftp://example.com/", "http://", "/mcp"] {
        let refused = Client::http(url).revision_cache(RevisionCache::new()).connect().await.unwrap_err();
        assert!(matches!(refused, ClientError::Open { .. }), "{url}: {refused}");
    }
    let gone = server(Revision::LATEST, |_| None).await.url();
    let refused = Client::http(&gone).revision_cache(RevisionCache::new()).connect().await.unwrap_err();
    assert!(matches!(refused, ClientError::Open { .. }), "{refused:?}");
}

#[tokio::test]
async fn the_session_is_ended_also_by_dropping_the_client() {
    let script = server(Revision::LATEST_SESSION, |_| None).await;
    drop(connect(&script).await);
    let ended = script.wait_for("DELETE", 1).await;
    assert_eq!(ended[0].header("mcp-session-id"), SESSION);
    let script = server(Revision::LATEST, |_| None).await;
    connect(&script).await.close().await;
    assert_eq!(script.methods(), ["server/discover"]);
}

#[tokio::test]
async fn a_session_that_cannot_be_used_is_ended() {
    let script = server(Revision::LATEST_SESSION, |_| None).await;
    let refused = client(&script).revisions([Revision::V2025_03_26]).connect().await.unwrap_err();
    assert!(matches!(refused, ClientError::UnsupportedVersion { .. }), "{refused:?}");
    assert_eq!(script.wait_for("DELETE", 1).await[0].header("mcp-session-id"), SESSION);
}

#[tokio::test]
async fn requests_go_through_a_proxy() {
    // The proxy only needs to see the request; its response does not lead anywhere.
    let proxy = HttpScript::start(|_| Reply::status(502)).await;
    let through = Client::http("http://server.example:8080/mcp")
        .revision_cache(RevisionCache::new())
        .proxy(&proxy.origin());
    let refused = through.connect().await.unwrap_err();
    assert!(matches!(refused, ClientError::Open { .. }), "{refused:?}");
    let wrong = Client::http("http://server.example/mcp")
        .revision_cache(RevisionCache::new())
        .proxy("nonsense")
        .connect()
        .await;
    assert!(matches!(wrong, Err(ClientError::Open { .. })), "{wrong:?}");
}

#[tokio::test]
async fn the_id_of_the_session_is_never_shown() {
    let script = server(Revision::LATEST_SESSION, |seen| {
        let text = format!("the session {SESSION} is mine");
        match seen.body["params"]["name"].as_str()? {
            "tell" => Some(Reply::json(&seen.answer(&http::text(&text)))),
            "refuse" => Some(Reply::new(500, &[], text.as_bytes())),
            _ => None,
        }
    })
    .await;
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let (messages, diagnostics) = (lines.clone(), lines.clone());
    let client = client(&script)
        .on_message(move |direction, text| messages.lock().unwrap().push(format!("{direction} {text}")))
        .on_diagnostic(move |line| diagnostics.lock().unwrap().push(line.to_owned()))
        .connect()
        .await
        .unwrap();
    client.call("tell", ()).await.unwrap();
    let refused = client.call("refuse", ()).await.unwrap_err();
    assert!(refused.to_string().contains("HTTP 500"), "{refused}");
    client.close().await;
    let shown = format!("{refused} {refused:?} {client:?} {}", lines.lock().unwrap().join("\n"));
    assert!(!shown.contains(SESSION), "{shown}");
    let has = |direction: Direction, text: &str| {
        lines
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.starts_with(&direction.to_string()) && line.contains(text))
    };
    assert!(has(Direction::Sent, "tools/call") && has(Direction::Received, "is mine"));
}

#[tokio::test]
async fn initialized_has_arrived_before_the_next_request() {
    let (held, arrived) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (until, told) = (held.clone(), arrived.clone());
    let script = server(Revision::LATEST_SESSION, move |seen| {
        seen.is("notifications/initialized").then(|| {
            told.notify_one();
            Reply::default().wait(&until).bytes(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        })
    })
    .await;
    let connecting = async {
        let client = client(&script).on_log(linchpin::LogLevel::Info, |_| ()).connect().await.unwrap();
        client.call("echo", ()).await.unwrap();
    };
    let server = async {
        arrived.notified().await;
        assert!(script.of("logging/setLevel").is_empty());
        held.notify_one();
    };
    timeout(TEST_TIMEOUT, async { tokio::join!(connecting, server) }).await.unwrap();
    assert_eq!(script.of("logging/setLevel").len(), 1);
}

#[tokio::test]
async fn giving_up_closes_the_stream_or_says_so_as_the_era_has_it() {
    let (clock, limit) = (ManualClock::stop(), Duration::from_mins(1));
    for revision in ERAS {
        let gone = Arc::new(Notify::new());
        let told = gone.clone();
        let script = server(revision, move |seen| {
            let hangs = seen.is("tools/call") && seen.body["params"]["name"] != "echo";
            let reply =
                if seen.body["params"]["name"] == "streams" { Reply::events() } else { Reply::default() };
            hangs.then(|| reply.until_closed(&told))
        })
        .await;
        let client = connect(&script).await;
        for (tool, number) in [("streams", 1), ("is silent", 2)] {
            let end = async {
                script.wait_for("tools/call", number).await;
                clock.advance(limit).await;
            };
            let call = client.call(tool, ()).timeout(limit).into_future();
            let late = tokio::join!(call, end).0.unwrap_err();
            assert!(matches!(late, ClientError::Call(CallError::TimedOut(_))), "{late:?}");
            timeout(TEST_TIMEOUT, gone.notified()).await.expect("the exchange is still running");
        }
        tokio::select! {
            ended = client.call("streams", ()).into_future() => panic!("{ended:?}"),
            _ = script.wait_for("tools/call", 3) => {}
        }
        timeout(TEST_TIMEOUT, gone.notified()).await.expect("the exchange is still running");
        client.call("echo", ()).await.unwrap();
        let cancelled = script.of("notifications/cancelled").len();
        assert_eq!(cancelled, if revision == Revision::LATEST { 0 } else { 3 }, "{revision}");
    }
}

#[tokio::test]
async fn many_calls_at_once_find_their_answers() {
    for revision in ERAS {
        let script = server(revision, |seen| {
            let name = seen.body["params"]["name"].as_str()?.to_owned();
            let number: usize = name.parse().ok()?;
            let answer = seen.answer(&text(&name));
            Some(if number.is_multiple_of(2) {
                Reply::json(&answer)
            } else {
                Reply::events().event(&answer).end()
            })
        })
        .await;
        let client = connect(&script).await;
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..100 {
            let call = client.call(number.to_string(), ());
            calls.spawn(async move { (number, call.await) });
        }
        while let Some(called) = calls.join_next().await {
            let (number, called) = called.unwrap();
            assert_eq!(said(&called.unwrap()), number.to_string());
        }
    }
}

#[tokio::test]
async fn a_silent_server_is_greeted_and_its_silence_ended() {
    let gone = Arc::new(Notify::new());
    let told = gone.clone();
    let script = server(Revision::LATEST_SESSION, move |seen| {
        seen.is("server/discover").then(|| Reply::default().until_closed(&told))
    })
    .await;
    let client = client(&script).probe_timeout(Duration::from_millis(20)).connect().await.unwrap();
    assert_eq!(client.revision(), Revision::LATEST_SESSION);
    timeout(TEST_TIMEOUT, gone.notified()).await.expect("the probe is still running");
}

#[tokio::test]
async fn whatever_status_answers_the_probe_a_session_is_tried() {
    for status in [400, 404, 405, 406, 415, 422, 500, 501] {
        let script = server(Revision::LATEST_SESSION, move |seen| {
            seen.is("server/discover").then(|| Reply::new(status, &[], b"what?"))
        })
        .await;
        assert_eq!(connect(&script).await.revision(), Revision::LATEST_SESSION, "{status}");
    }
    for status in [401, 403, 429, 503] {
        let script = HttpScript::start(move |_| Reply::new(status, &[], b"no")).await;
        let refused = client(&script).connect().await.unwrap_err();
        assert!(
            matches!(&refused, ClientError::Call(CallError::Transport { status: Some(given), .. }) if *given == status),
            "{refused:?}"
        );
        assert_eq!(script.methods(), ["server/discover"]);
    }
}

#[tokio::test]
async fn errors_of_the_stateless_era_are_no_sign_of_old() {
    let script = server(Revision::LATEST, |seen| {
        let error = seen.error(-32020, "Header mismatch");
        seen.is("server/discover").then(|| Reply::json_with(400, &[], &error))
    })
    .await;
    let refused = client(&script).connect().await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::Call(CallError::Rejected(error)) if error.code == -32020),
        "{refused:?}"
    );
    assert_eq!(script.methods(), ["server/discover"]);
    let script = server(Revision::LATEST, |seen| {
        let mut error = seen.error(-32022, "Unsupported protocol version");
        error["error"]["data"] = json!({ "supported": ["2031-01-01"] });
        seen.is("server/discover").then(|| Reply::json_with(400, &[], &error))
    })
    .await;
    let refused = client(&script).connect().await.unwrap_err();
    assert!(refused.to_string().contains("2031-01-01"), "{refused}");
}

#[tokio::test]
async fn a_greeting_that_is_answered_too_late_changes_nothing() {
    let [discovered, greeted, called] = [(); 3].map(|()| Arc::new(Notify::new()));
    let until = [&discovered, &greeted, &called].map(Arc::clone);
    let script = HttpScript::start(move |seen| {
        let [discovered, greeted, called] = &until;
        match seen.method() {
            "server/discover" => plain_reply(Revision::LATEST, seen).after(discovered),
            "initialize" => plain_reply(Revision::LATEST_SESSION, seen).after(greeted),
            "tools/call" => plain_reply(Revision::LATEST, seen).after(called),
            _ => plain_reply(Revision::LATEST, seen),
        }
    })
    .await;
    let (told, mut lines) = mpsc::channel(64);
    let connecting = client(&script)
        .probe_timeout(Duration::ZERO)
        .on_diagnostic(move |line| told.try_send(line.to_owned()).unwrap())
        .connect();
    let both = async {
        script.wait_for("initialize", 1).await;
        discovered.notify_one();
    };
    let (client, ()) = tokio::join!(connecting, both);
    let client = client.unwrap();
    assert_eq!(client.revision(), Revision::LATEST);
    let call = async { client.call("echo", ()).await };
    let answers = async {
        script.wait_for("tools/call", 1).await;
        greeted.notify_one();
        while lines.recv().await.unwrap() != "response to initialize: 200 OK" {}
        called.notify_one();
    };
    let (said_late, ()) =
        timeout(TEST_TIMEOUT, async { tokio::join!(call, answers) }).await.expect("it hangs");
    assert_eq!(said(&said_late.unwrap()), "echo");
    client.tools().all().await.unwrap();
    assert!(script.received().iter().all(|seen| seen.header("mcp-session-id").is_empty()));
}

#[tokio::test]
async fn texts_stay_readable_whatever_the_session_is_called() {
    let script = server(Revision::LATEST_SESSION, |seen| {
        let greeted = seen.is("initialize");
        greeted.then(|| plain_reply(Revision::LATEST_SESSION, seen).with_header("mcp-session-id", "e"))
    })
    .await;
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let told = lines.clone();
    let client = client(&script).on_message(move |_, text| told.lock().unwrap().push(text.to_owned()));
    client.connect().await.unwrap().call("echo", ()).await.unwrap();
    assert_eq!(script.of("tools/call")[0].header("mcp-session-id"), "e");
    let lines = lines.lock().unwrap();
    assert!(lines.iter().any(|line| line.contains("\"name\":\"echo\"")), "{lines:?}");
}

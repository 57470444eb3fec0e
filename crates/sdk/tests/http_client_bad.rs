//! Remote servers that violate the protocol: every response that is too long, truncated, malformed or unrelated
//! fails at once with its error code, nothing hangs, and the next call works.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;
#[path = "support/manual_clock.rs"]
mod manual_clock;

use std::sync::Arc;
use std::time::Duration;

use http::{HttpScript, ReceivedRequest, Reply, TEST_TIMEOUT, client, connect, said, server, text};
use linchpin::{CallError, Client, ClientError, Revision};
use manual_clock::ManualClock;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// One revision of each era.
const ERAS: [Revision; 2] = [Revision::LATEST_SESSION, Revision::LATEST];

/// A server whose tool `bad` gets the given response.
async fn bad(
    revision: Revision,
    answer: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
) -> HttpScript {
    server(revision, move |seen| (seen.body["params"]["name"] == "bad").then(|| answer(seen))).await
}

/// Calls the bad tool, then the good one, which must work.
async fn bad_then_good(client: &Client) -> ClientError {
    let failed = timeout(TEST_TIMEOUT, client.call("bad", ())).await.expect("it hangs").unwrap_err();
    assert_eq!(said(&client.call("good", ()).await.unwrap()), "good");
    failed
}

fn code(error: &ClientError) -> &str {
    match error {
        ClientError::Call(CallError::Transport { code, .. }) => code,
        ClientError::OutcomeUnknown { .. } => "unknown",
        ClientError::Call(CallError::Malformed(_)) => "malformed",
        ClientError::Call(CallError::Rejected(_)) => "rejected",
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_not_read() {
    const LIMIT: usize = 4_096;
    for revision in ERAS {
        let announced = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{{",
            1_u64 << 40
        );
        let large = json!({ "jsonrpc": "2.0", "x": "x".repeat(LIMIT) }).to_string();
        let bodies = [
            Reply::default().bytes(announced.as_bytes()).until_closed(&Arc::new(Notify::new())),
            Reply::new(200, &[("content-type", "application/json")], large.as_bytes()),
            // Without an end, and without a length.
            (0..64)
                .fold(Reply::chunked(&[]).chunk(b"{"), |reply, _| reply.chunk(&[b' '; 1_024]))
                .until_closed(&Arc::new(Notify::new())),
        ];
        for (number, body) in bodies.into_iter().enumerate() {
            let script = bad(revision, move |_| body.clone()).await;
            let client = client(&script).max_response(LIMIT).connect().await.unwrap();
            let failed = bad_then_good(&client).await;
            assert_eq!(code(&failed), "HTTP_BODY_TOO_LARGE", "{number}: {failed}");
        }
    }
}

/// Endless whitespace.
fn blanks(reply: Reply) -> Reply {
    (0..64).fold(reply, |reply, _| reply.chunk(&[b' '; 1_024])).until_closed(&Arc::new(Notify::new()))
}

#[tokio::test]
async fn blanks_without_end_are_not_read() {
    for revision in ERAS {
        for (head, code_of) in
            [(Reply::chunked(&[]), "HTTP_BODY_TOO_LARGE"), (Reply::events(), "SSE_EVENT_DATA_TOO_LARGE")]
        {
            let body = blanks(head);
            let script = bad(revision, move |_| body.clone()).await;
            let client = client(&script).max_response(4_096).connect().await.unwrap();
            let failed = bad_then_good(&client).await;
            assert_eq!(code(&failed), code_of, "{failed}");
        }
    }
}

#[tokio::test]
async fn blanks_without_end_on_the_stream_of_the_session_are_not_read() {
    let script =
        server(Revision::LATEST_SESSION, |seen| seen.is("GET").then(|| blanks(Reply::events()))).await;
    let client = client(&script).max_response(4_096).connect().await.unwrap();
    script.wait_for("GET", 2).await;
    assert_eq!(said(&client.call("good", ()).await.unwrap()), "good");
}

#[tokio::test]
async fn a_message_may_come_after_blanks() {
    for revision in ERAS {
        let script = bad(revision, |seen| {
            let body = format!("{}{}", " ".repeat(3_000), seen.answer(&text("late")));
            body.as_bytes().chunks(500).fold(Reply::chunked(&[]), Reply::chunk).end()
        })
        .await;
        assert_eq!(said(&connect(&script).await.call("bad", ()).await.unwrap()), "late");
    }
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let answer = |seen: &ReceivedRequest, length: usize| {
        let mut answer = seen.answer(&text("x")).to_string();
        answer += &" ".repeat(length - answer.len());
        answer
    };
    let script = server(Revision::LATEST, move |seen| {
        let length = seen.body["params"]["name"].as_str()?.parse().ok()?;
        Some(Reply::new(200, &[], answer(seen, length).as_bytes()))
    })
    .await;
    let client = client(&script).max_response(1_000).connect().await.unwrap();
    assert!(client.call("1000", ()).await.is_ok());
    assert_eq!(code(&client.call("1001", ()).await.unwrap_err()), "HTTP_BODY_TOO_LARGE");
}

#[tokio::test]
async fn an_event_above_the_limit_ends_its_stream() {
    let gone = Arc::new(Notify::new());
    for revision in ERAS {
        let events = [
            Reply::events().chunk(format!("data: {}\n\n", "x".repeat(5_000)).as_bytes()),
            (0..8).fold(Reply::events().chunk(b"data: "), |reply, _| reply.chunk(&[b'x'; 1_024])),
            (0..8).fold(Reply::events(), |reply, _| {
                reply.chunk(format!("data: {}\n", "x".repeat(1_000)).as_bytes())
            }),
            Reply::events().chunk(&[b'x'; 5_000]),
        ];
        for (number, events) in events.into_iter().enumerate() {
            let gone = gone.clone();
            let script = bad(revision, move |_| events.clone().until_closed(&gone)).await;
            let client = client(&script).max_response(4_096).connect().await.unwrap();
            let failed = bad_then_good(&client).await;
            assert_eq!(code(&failed), "SSE_EVENT_DATA_TOO_LARGE", "{number}: {failed}");
        }
    }
}

#[tokio::test]
async fn event_data_that_is_no_message_is_named() {
    let data: [&[u8]; 6] = [
        b"data: hello\n\n",
        b"data: {\"jsonrpc\":\"2.0\"}\n\n",
        b"data: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\n\n",
        b"data: \xff\xfe\n\n",
        b"data: null\n\n",
        b"data: {\"jsonrpc\":\"1.0\",\"id\":2,\"result\":{}}\n\n",
    ];
    for revision in ERAS {
        for data in data {
            let script =
                bad(revision, move |_| Reply::events().chunk(data).until_closed(&Arc::new(Notify::new())))
                    .await;
            let failed = bad_then_good(&connect(&script).await).await;
            assert_eq!(code(&failed), "INVALID_SSE_EVENT_DATA", "{failed}");
        }
    }
}

#[tokio::test]
async fn bodies_that_do_not_answer_are_said_at_once() {
    let other = json!({ "jsonrpc": "2.0", "id": 4711, "result": {} }).to_string();
    for revision in ERAS {
        for (status, body, expected) in [
            (200, "", "malformed"),
            (202, "", "malformed"),
            (204, "", "malformed"),
            (200, "{", "malformed"),
            (200, "{}", "malformed"),
            (200, "[]", "malformed"),
            (200, &*other, "malformed"),
            (200, "<html>hello</html>", "HTTP_CONTENT_TYPE"),
            (200, "OK", "HTTP_CONTENT_TYPE"),
            (301, "", "HTTP_STATUS"),
            (400, "what?", "HTTP_STATUS"),
            (500, "{\"error\":\"oops\"}", "HTTP_STATUS"),
            (503, "", "HTTP_STATUS"),
        ] {
            let answer = body.to_owned();
            let script = bad(revision, move |_| {
                Reply::new(status, &[("content-type", "text/html")], answer.as_bytes())
            })
            .await;
            let failed = bad_then_good(&connect(&script).await).await;
            assert_eq!(code(&failed), expected, "{status} {body}: {failed}");
        }
    }
}

#[tokio::test]
async fn an_error_in_a_refusal_is_the_answer_whatever_its_id() {
    for revision in ERAS {
        for id in [None, Some(Value::Null), Some(json!("server-error")), Some(json!(4711))] {
            let mut error = json!({ "jsonrpc": "2.0", "error": { "code": -32602, "message": "no" } });
            if let Some(id) = id {
                error["id"] = id;
            }
            let script = bad(revision, move |_| Reply::json_with(400, &[], &error)).await;
            let failed = bad_then_good(&connect(&script).await).await;
            assert!(
                matches!(&failed, ClientError::Call(CallError::Rejected(error)) if error.code == -32602),
                "{failed:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_at_any_byte_is_lost_at_once() {
    for revision in ERAS {
        for streams in [false, true] {
            let reply = move |seen: &ReceivedRequest| {
                let answer = seen.answer(&text("answer"));
                if streams { Reply::events().event(&answer).end() } else { Reply::json(&answer) }
            };
            let script = server(revision, move |seen| {
                let cut: usize = seen.body["params"]["name"].as_str()?.parse().ok()?;
                Some(reply(seen).cut_after(cut))
            })
            .await;
            let client = connect(&script).await;
            // Enough for the whole response, even if its id has one more digit.
            let whole = 250;
            let mut answered = 0;
            for cut in 1..whole {
                match timeout(TEST_TIMEOUT, client.call(cut.to_string(), ())).await.expect("it hangs") {
                    Ok(result) => {
                        assert_eq!(said(&result), "answer");
                        answered += 1;
                    }
                    Err(ClientError::OutcomeUnknown { .. }) => assert_eq!(answered, 0, "{cut}"),
                    Err(other) => panic!("{revision} {streams} {cut}: {other:?}"),
                }
            }
            assert!(answered > 5 && answered < whole - 100, "{answered}");
            assert_eq!(script.of("tools/call").len(), whole - 1);
        }
    }
}

#[tokio::test]
async fn a_stream_without_end_does_not_keep_a_call_beyond_its_time() {
    let (clock, limit) = (ManualClock::stop(), Duration::from_mins(1));
    for revision in ERAS {
        let gone = Arc::new(Notify::new());
        let told = gone.clone();
        let script = bad(revision, move |_| {
            let notice = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
            (0..5_000).fold(Reply::events(), |reply, _| reply.event(&notice)).until_closed(&told)
        })
        .await;
        let heard = Arc::new(Semaphore::new(0));
        let hear = heard.clone();
        let client = client(&script).timeout(limit).on_notification(move |_, _| hear.add_permits(1));
        let client = client.connect().await.unwrap();
        let end = async {
            let all = timeout(TEST_TIMEOUT, heard.acquire_many(5_000)).await;
            all.expect("the stream is not read").unwrap().forget();
            clock.advance(limit).await;
        };
        let failed = tokio::join!(client.call("bad", ()).into_future(), end).0.unwrap_err();
        assert!(matches!(failed, ClientError::Call(CallError::TimedOut(_))), "{failed:?}");
        timeout(TEST_TIMEOUT, gone.notified()).await.expect("the stream is still open");
    }
}

#[tokio::test]
async fn a_stream_that_goes_on_after_the_answer_does_not_keep_it() {
    for revision in ERAS {
        let gone = Arc::new(Notify::new());
        let told = gone.clone();
        let script =
            bad(revision, move |seen| Reply::events().event(&seen.answer(&text("done"))).until_closed(&told))
                .await;
        let client = connect(&script).await;
        assert_eq!(said(&timeout(TEST_TIMEOUT, client.call("bad", ())).await.unwrap().unwrap()), "done");
        timeout(TEST_TIMEOUT, gone.notified()).await.expect("the stream is still open");
    }
}

#[tokio::test]
async fn an_answer_that_dribbles_is_read() {
    let script = bad(Revision::LATEST, |seen| {
        let answer = seen.answer(&text("slow")).to_string();
        answer.as_bytes().iter().fold(Reply::chunked(&[]), |reply, byte| reply.chunk(&[*byte])).end()
    })
    .await;
    assert_eq!(said(&connect(&script).await.call("bad", ()).await.unwrap()), "slow");
}

#[tokio::test]
async fn session_ids_that_no_server_may_give_are_not_taken() {
    for id in ["with space", "", &"x".repeat(5_000), "gr\u{fc}n"] {
        let id = id.to_owned();
        let script = HttpScript::start(move |seen| {
            let plain = http::plain_reply(Revision::LATEST_SESSION, seen);
            if seen.is("initialize") { plain.with_header("mcp-session-id", &id) } else { plain }
        })
        .await;
        let client = connect(&script).await;
        client.call("echo", ()).await.unwrap();
        assert!(script.of("tools/call")[0].header("mcp-session-id").is_empty());
    }
}

#[tokio::test]
async fn arguments_cannot_write_headers() {
    let script = server(Revision::LATEST, |_| None).await;
    let client = connect(&script).await;
    for name in ["a\r\nx-evil: 1", "a\nGET / HTTP/1.1\r\n\r\n", "\0", "\u{7f}", " a ", "\t"] {
        client.call(name, ()).await.unwrap();
    }
    let long = client.read("x".repeat(20_000)).await.unwrap_err();
    assert_eq!(code(&long), "HTTP_REQUEST", "{long}");
    client.close().await;
    assert_eq!(script.received().len(), 7);
    for seen in script.received() {
        assert!(!seen.headers.contains_key("x-evil"), "{seen:?}");
        let name = seen.header("mcp-name");
        assert!(name.is_empty() || name.starts_with("=?base64?"), "{seen:?}");
    }
}

/// Statuses that do not reveal whether a tool has already started.
const REFUSALS: [u16; 4] = [401, 404, 429, 503];

#[tokio::test]
async fn a_call_whose_task_cannot_be_polled_may_have_run() {
    let at = "2026-01-01T00:00:00Z";
    let task = json!({ "resultType": "task", "taskId": "t1", "status": "working", "createdAt": at,
        "lastUpdatedAt": at, "ttlMs": null, "pollIntervalMs": 20 });
    for status in REFUSALS {
        let task = task.clone();
        let script = server(Revision::LATEST, move |seen| match seen.method() {
            "tools/call" => Some(Reply::json(&seen.answer(&task))),
            "tasks/get" => Some(Reply::status(status)),
            _ => None,
        })
        .await;
        let error = connect(&script).await.call("slow", ()).await.unwrap_err();
        let ClientError::Task { id, status: last, .. } = &error else { panic!("{status}: {error:?}") };
        assert_eq!((id.as_str(), last.as_str()), ("t1", "working"), "{status}");
        assert!(error.to_string().starts_with("the task t1 may still run: "), "{error}");
    }
}

#[tokio::test]
async fn a_call_that_is_refused_in_a_later_round_may_have_run() {
    for status in REFUSALS {
        let script = bad(Revision::LATEST, move |seen| match seen.body["params"].get("requestState") {
            None => {
                Reply::json(&seen.answer(&json!({ "resultType": "input_required", "requestState": "s" })))
            }
            Some(_) => Reply::status(status),
        })
        .await;
        let error = connect(&script).await.call("bad", ()).await.unwrap_err();
        assert_eq!(code(&error), "unknown", "{status}: {error}");
    }
}

#[test]
fn a_client_whose_runtime_has_ended_does_not_hang() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (script, client) = first.block_on(async {
        let script = server(Revision::LATEST, |_| None).await;
        let client = connect(&script).await;
        (script, client)
    });
    drop(first);
    let lost =
        second.block_on(async { timeout(TEST_TIMEOUT, client.call("echo", ())).await.expect("it hangs") });
    assert!(matches!(lost, Err(ClientError::OutcomeUnknown { .. })), "{lost:?}");
    drop((client, script));
}

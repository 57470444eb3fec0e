//! Servers that violate the protocol: pending requests fail at once or in time with the reason, and the next call
//! works or fails with a reason.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::CallError;
use linchpin::client::RevisionCache;
use linchpin::model::ElicitResult;
use linchpin::testing::{Reaction, Script};
use linchpin::{Client, ClientError, Revision};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

/// One revision of each era.
const ERAS: [Revision; 2] = [Revision::LATEST_SESSION, Revision::LATEST];
const SECOND: Duration = Duration::from_secs(1);

async fn connect(script: &Script) -> Client {
    Client::over(script.clone()).revision_cache(RevisionCache::new()).timeout(SECOND).connect().await.unwrap()
}

/// A script with the tool `bad`, which has the given reaction, and the tool `good`, which works.
fn script(revision: Revision, bad: impl Fn(&Value) -> Reaction + Send + Sync + 'static) -> Script {
    Script::with_revision(revision).on("tools/call", move |request| {
        match request["params"]["name"].as_str() {
            Some("bad") => bad(request),
            _ => Reaction::new().result(good()),
        }
    })
}

fn good() -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": "good" }] })
}

/// Calls the bad tool, then the good one, which must work.
async fn bad_then_good(client: &Client) -> Result<(), ClientError> {
    let bad = client.call("bad", ()).await;
    assert_eq!(client.call("good", ()).await.unwrap().content.len(), 1);
    bad.map(|_| ())
}

fn answer(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

#[tokio::test(start_paused = true)]
async fn noise_is_passed_over() {
    let lines =
        ["", "  ", "Debugger attached.", "{", "[]", "null", "[1,[2]]", "\"text\"", r#"{"jsonrpc":"2.0"}"#];
    let noisy =
        move || lines.iter().fold(Reaction::new().bytes(b"\xff\xfe\n"), |noisy, line| noisy.raw(line));
    for revision in ERAS {
        let script = script(revision, move |_| noisy().result(good())).on_open(noisy());
        bad_then_good(&connect(&script).await).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_fails_its_request_at_once() {
    let broken = |id: &Value| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"x":NaN}}}}"#);
    let unread = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"that is too long"}}"#;
    for revision in ERAS {
        let begun = Instant::now();
        let script = script(revision, move |request| match request["params"]["arguments"]["how"].as_str() {
            Some("broken") => Reaction::new().raw(&broken(&request["id"])),
            _ => Reaction::new().raw(unread),
        });
        let client = connect(&script).await;
        let error = client.call("bad", json!({ "how": "broken" })).await.unwrap_err();
        assert!(matches!(&error, ClientError::Call(CallError::Malformed(_))), "{error}");
        let error = client.call("bad", ()).await.unwrap_err().to_string();
        assert!(error.contains("that is too long"), "{error}");
        client.call("good", ()).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "no timeout was reached");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_has_one_limit_over_rounds_and_tasks() {
    let asks = |_: &Value| {
        Reaction::new().result(json!({ "resultType": "input_required", "requestState": "again and again" }))
    };
    let client = connect(&script(Revision::LATEST, asks)).await;
    let begun = Instant::now();
    let error = client.call("bad", ()).extend_on_progress(SECOND * 10).await.unwrap_err();
    assert!(matches!(error, ClientError::Call(CallError::TimedOut(_))), "{error}");
    assert!(begun.elapsed() < SECOND * 20, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_fails_what_waits_at_once() {
    for revision in ERAS {
        let script = script(revision, |_| Reaction::new().wait(SECOND / 2).close("it exited with status 3"));
        let script = script.on("resources/read", |_| Reaction::new());
        let client = connect(&script).await;
        let begun = Instant::now();
        let (call, read) = tokio::join!(client.call("bad", ()), client.read("a:b"));
        assert_eq!(begun.elapsed(), SECOND / 2);
        let ClientError::OutcomeUnknown { tool, reason } = call.unwrap_err() else { panic!("not unknown") };
        assert_eq!((&*tool, &*reason), ("bad", "it exited with status 3"));
        let read = read.unwrap_err().to_string();
        assert_eq!(read, "the connection closed before the response arrived: it exited with status 3");
        assert!(client.is_closed());
        let next = client.call("good", ()).await.unwrap_err().to_string();
        assert_eq!(next, "the connection is closed: it exited with status 3");
        assert_eq!(script.received_messages("tools/call").len(), 1, "a call is never resent automatically");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_times_out_and_is_cancelled() {
    for revision in ERAS {
        let script = script(revision, |_| Reaction::new());
        let client = connect(&script).await;
        let begun = Instant::now();
        let error = bad_then_good(&client).await.unwrap_err();
        assert_eq!(begun.elapsed(), SECOND);
        assert!(matches!(error, ClientError::Call(CallError::TimedOut(SECOND))), "{error:?}");
        let cancelled = script.received_messages("notifications/cancelled");
        assert_eq!(cancelled.len(), 1, "{revision}");
        let id = &script.received_messages("tools/call")[0]["id"];
        assert_eq!(cancelled[0]["params"]["requestId"], *id);
        assert_eq!(cancelled[0]["params"]["reason"], "timed out");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_of_two_answers_counts() {
    for revision in ERAS {
        let twice = Reaction::new().result(good()).error(-32603, "or not").result(json!({}));
        let script = script(revision, move |_| twice.clone());
        bad_then_good(&connect(&script).await).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_another_id_is_nobodys() {
    for id in [json!(4711), json!(-1), json!(1.5), json!("2"), json!(null), json!({}), json!([])] {
        let wrong = answer(&id, &good());
        let script = script(Revision::LATEST, move |_| Reaction::new().message(&wrong));
        let error = bad_then_good(&connect(&script).await).await.unwrap_err();
        assert!(matches!(error, ClientError::Call(CallError::TimedOut(_))), "{id}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_notifications_is_told_and_the_answer_found() {
    let flood = |_: &Value| {
        let log = json!({ "level": "info", "data": "spam" });
        let line = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": log });
        Reaction::new().bytes(format!("{line}\n").repeat(100_000)).result(good())
    };
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let client = Client::over(script(Revision::LATEST_SESSION, flood)).revision_cache(RevisionCache::new());
    let client = client.on_notification(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    bad_then_good(&client.connect().await.unwrap()).await.unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_long_fails_what_waits_and_is_skipped() {
    for revision in ERAS {
        let long = format!("\"{}\"", "x".repeat(20_000));
        let script = script(revision, move |_| Reaction::new().raw(&long));
        let client = Client::over(script.clone())
            .revision_cache(RevisionCache::new())
            .max_response(10_000)
            .connect()
            .await
            .unwrap();
        let begun = Instant::now();
        let error = bad_then_good(&client).await.unwrap_err().to_string();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(error.contains("larger than 10000 bytes"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_come_in_pieces() {
    let pieces = |request: &Value| {
        let line = format!("{}\n", answer(&request["id"], &good()));
        let pieces = line.as_bytes().chunks(7);
        pieces.fold(Reaction::new(), |all, piece| all.bytes(piece).wait(Duration::from_millis(1)))
    };
    bad_then_good(&connect(&script(Revision::LATEST, pieces)).await).await.unwrap();
    // The last message need not have a newline, and a truncated one is not a message.
    let unfinished = |request: &Value| {
        let line = answer(&request["id"], &good()).to_string();
        Reaction::new().bytes(line).close("it ended")
    };
    let client = connect(&script(Revision::LATEST, unfinished)).await;
    assert_eq!(client.call("bad", ()).await.unwrap().content.len(), 1);
    let client =
        connect(&script(Revision::LATEST, |_| Reaction::new().bytes("{\"jsonrpc\"").close("it ended"))).await;
    assert!(matches!(client.call("bad", ()).await, Err(ClientError::OutcomeUnknown { .. })));
}

#[tokio::test(start_paused = true)]
async fn lists_end() {
    for revision in ERAS {
        let same =
            Script::with_revision(revision).on("tools/list", |_| json!({ "tools": [], "nextCursor": "a" }));
        let error = connect(&same).await.tools().all().await.unwrap_err();
        assert!(matches!(error, ClientError::ListTooLong { method: "tools/list", .. }), "{error:?}");
        assert_eq!(same.received_messages("tools/list").len(), 2);

        let pages = AtomicUsize::new(0);
        let new = Script::with_revision(revision).on("prompts/list", move |_| {
            json!({ "prompts": [], "nextCursor": pages.fetch_add(1, Ordering::Relaxed).to_string() })
        });
        let client = Client::over(new.clone())
            .revision_cache(RevisionCache::new())
            .max_pages(50)
            .connect()
            .await
            .unwrap();
        let error = client.prompts().all().await.unwrap_err();
        assert!(matches!(error, ClientError::ListTooLong { pages: 50, .. }), "{error:?}");
        assert_eq!(new.received_messages("prompts/list").len(), 50);
        client.call("good", ()).await.unwrap_err(); // the connection is still open
        assert!(!client.is_closed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_failed_can_be_asked_for_again() {
    let asked = AtomicUsize::new(0);
    let script = Script::with_revision(Revision::LATEST).on("tools/list", move |request| {
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Reaction::new().result(json!({ "tools": [], "nextCursor": "second" })),
            1 => Reaction::new().error(-32603, "not now"),
            _ => {
                assert_eq!(request["params"]["cursor"], "second");
                Reaction::new().result(json!({ "tools": [] }))
            }
        }
    });
    let mut pages = connect(&script).await.tools();
    assert!(pages.next_page().await.unwrap().is_some());
    pages.next_page().await.unwrap_err();
    assert!(pages.next_page().await.unwrap().is_some());
    assert!(pages.next_page().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn questions_that_were_not_offered_are_refused() {
    let ask = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    for method in ["elicitation/create", "sampling/createMessage", "roots/list", "x/own"] {
        let params =
            if method.starts_with('e') { ask.clone() } else { json!({ "messages": [], "maxTokens": 1 }) };
        let pushed = Reaction::new().request("q", method, &params);
        let script =
            script(Revision::LATEST_SESSION, move |_| pushed.clone().wait(SECOND / 2).result(good()));
        bad_then_good(&connect(&script).await).await.unwrap();
        let refused = timeout(SECOND, script.wait_for(|message| message["id"] == "q")).await.unwrap();
        assert!(refused["error"]["code"].is_i64(), "{refused}");

        let asked = json!({ "q": { "method": method, "params": params } });
        let required = json!({ "resultType": "input_required", "inputRequests": asked, "requestState": "s" });
        let script = self::script(Revision::LATEST, move |_| Reaction::new().result(required.clone()));
        let error = bad_then_good(&connect(&script).await).await.unwrap_err();
        assert!(
            matches!(&error, ClientError::UnsupportedByClient { method: named } if named == method),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn questions_that_the_revision_does_not_have_are_refused() {
    let ask = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    for (revision, code) in
        [(Revision::V2025_03_26, Some(-32601)), (Revision::V2025_06_18, None), (Revision::V2025_11_25, None)]
    {
        let pushed = Reaction::new().request("q", "elicitation/create", &ask);
        let script = script(revision, move |_| pushed.clone().wait(SECOND / 2).result(good()));
        let client = Client::over(script.clone()).revision_cache(RevisionCache::new()).timeout(SECOND);
        let client = client.on_elicit(|_| async { Ok(ElicitResult::decline()) });
        bad_then_good(&client.connect().await.unwrap()).await.unwrap();
        let answer = timeout(SECOND, script.wait_for(|message| message["id"] == "q")).await.unwrap();
        assert_eq!(answer["error"]["code"].as_i64(), code, "{revision}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_the_stateless_era_is_not_answered() {
    let script =
        script(Revision::LATEST, |_| Reaction::new().request(1, "roots/list", &json!({})).result(good()));
    bad_then_good(&connect(&script).await).await.unwrap();
    assert!(script.messages().iter().all(|message| message.get("method").is_some()));
}

#[tokio::test(start_paused = true)]
async fn results_of_another_kind_are_not_taken() {
    let kind = |kind: &str| json!({ "resultType": kind, "content": [], "tools": [], "contents": [] });
    for wrong in ["weird", "", "task", "input_required"] {
        let result = kind(wrong);
        let script = script(Revision::LATEST, {
            let result = result.clone();
            move |_| Reaction::new().result(result.clone())
        });
        let (read, listed) = (result.clone(), result);
        let script =
            script.on("resources/read", move |_| read.clone()).on("tools/list", move |_| listed.clone());
        let client =
            Client::over(script).revision_cache(RevisionCache::new()).max_rounds(3).connect().await.unwrap();
        let error = bad_then_good(&client).await.unwrap_err();
        match wrong {
            "task" => assert!(matches!(error, ClientError::Malformed { .. }), "{error:?}"),
            "input_required" => assert!(matches!(error, ClientError::TooManyRounds(3)), "{error:?}"),
            _ => assert!(matches!(error, ClientError::UnexpectedResult { .. }), "{error:?}"),
        }
        client.read("a:b").await.unwrap_err();
        let error = client.tools().all().await.unwrap_err();
        assert!(matches!(error, ClientError::UnexpectedResult { .. }), "{wrong}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_results_say_what_is_wrong() {
    for (result, path) in [
        (json!({ "content": 5 }), "/content"),
        (json!({}), ""),
        (json!([]), ""),
        (json!("text"), ""),
        (json!({ "content": [{ "type": "text" }] }), "/content/0"),
    ] {
        for revision in ERAS {
            let result = result.clone();
            let script = script(revision, move |_| Reaction::new().result(result.clone()));
            let error = bad_then_good(&connect(&script).await).await.unwrap_err();
            let ClientError::Malformed { method, invalid } = &error else { panic!("{revision}: {error:?}") };
            assert_eq!((&**method, &*invalid.path), ("tools/call", path), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_answers_fail_their_request_at_once() {
    for wrong in [
        json!({ "jsonrpc": "1.0", "result": {} }),
        json!({ "jsonrpc": "2.0", "result": {}, "error": { "code": 1, "message": "" } }),
        json!({ "jsonrpc": "2.0", "error": {} }),
        json!({ "jsonrpc": "2.0", "error": "no" }),
        json!({ "jsonrpc": "2.0", "error": { "code": "1", "message": 2 } }),
    ] {
        for revision in ERAS {
            let template = wrong.clone();
            let script = script(revision, move |request| {
                let mut message = template.clone();
                message["id"] = request["id"].clone();
                Reaction::new().message(&message)
            });
            let client = connect(&script).await;
            let begun = Instant::now();
            let error = bad_then_good(&client).await.unwrap_err();
            assert!(matches!(error, ClientError::Call(CallError::Malformed(_))), "{wrong}: {error:?}");
            assert_eq!(begun.elapsed(), Duration::ZERO, "{wrong}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_may_come_in_a_batch() {
    let late = |request: &Value| {
        let (note, nobodys) =
            (json!({ "jsonrpc": "2.0", "method": "notifications/x" }), answer(&json!(99), &good()));
        Reaction::new().message(&json!([note, 5, [], nobodys, answer(&request["id"], &good())]))
    };
    bad_then_good(&connect(&script(Revision::V2025_03_26, late)).await).await.unwrap();
}

//! Options and lifecycle of one call: timeouts, ids, cancellation, server requests and result validation.

use std::io::{BufRead, BufReader, Write, pipe};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use linchpin::CallError;
use linchpin::client::RevisionCache;
use linchpin::model::{CreateMessageResult, ElicitAction, ElicitResult, Role, Root, SamplingContent};
use linchpin::testing::{Reaction, Script, StreamTransport};
use linchpin::{Client, ClientBuilder, ClientError, Content, Error, Revision};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

const ERAS: [Revision; 2] = [Revision::LATEST_SESSION, Revision::LATEST];
const SECOND: Duration = Duration::from_secs(1);

fn client(script: &Script) -> ClientBuilder {
    Client::over(script.clone()).revision_cache(RevisionCache::new())
}

fn done() -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": "done" }] })
}

/// Reports progress every 600 ms, `times` times, then finishes.
fn busy(revision: Revision, times: usize) -> Script {
    Script::with_revision(revision).on("tools/call", move |request| {
        let token = request["params"]["_meta"]["progressToken"].clone();
        let step = |all: Reaction, step: usize| {
            let params = json!({ "progressToken": token, "progress": step });
            all.wait(Duration::from_millis(600)).notify("notifications/progress", &params)
        };
        (0..times).fold(Reaction::new(), step).result(done())
    })
}

#[tokio::test(start_paused = true)]
async fn progress_extends_the_time_up_to_a_cap() {
    for revision in ERAS {
        let script = busy(revision, 5);
        let client = client(&script).timeout(SECOND).connect().await.unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let told_to = told.clone();
        let hear = move |progress: linchpin::server::Progress| told_to.lock().unwrap().push(progress.done());
        let begun = Instant::now();
        client.call("busy", ()).extend_on_progress(SECOND * 10).progress(hear).await.unwrap();
        assert_eq!(begun.elapsed(), SECOND * 3);
        assert_eq!(*told.lock().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0]);

        let begun = Instant::now();
        let error = client.call("busy", ()).extend_on_progress(SECOND * 2).await.unwrap_err();
        assert!(matches!(error, ClientError::Call(CallError::TimedOut(_))), "{error:?}");
        assert_eq!(begun.elapsed(), SECOND * 2, "the cap");

        let begun = Instant::now();
        client.call("busy", ()).progress(|_| ()).await.unwrap_err();
        assert_eq!(begun.elapsed(), SECOND, "progress extends the timeout only if allowed");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_it() {
    for revision in ERAS {
        for text_ids in [false, true] {
            let script = Script::with_revision(revision).on("tools/call", |_| Reaction::new());
            let builder = client(&script);
            let builder = if text_ids { builder.string_ids() } else { builder };
            let client = builder.connect().await.unwrap();
            timeout(SECOND, client.call("never", ()).into_future()).await.unwrap_err();
            let (call, cancelled) =
                (script.received_messages("tools/call"), script.received_messages("notifications/cancelled"));
            assert_eq!(cancelled[0]["params"]["requestId"], call[0]["id"]);
            assert_eq!(cancelled[0]["params"]["reason"], "no longer needed");
            assert_eq!(call[0]["id"].is_string(), text_ids);
            assert_eq!(cancelled.len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_awaited_is_not_sent() {
    let script = busy(Revision::LATEST, 0);
    let client = client(&script).connect().await.unwrap();
    drop(client.call("busy", ()));
    assert!(script.received_messages("tools/call").is_empty());
    assert!(script.received_messages("notifications/cancelled").is_empty());
}

#[tokio::test(start_paused = true)]
async fn ids_can_be_strings() {
    for revision in ERAS {
        let script = busy(revision, 1);
        let client = client(&script).string_ids().connect().await.unwrap();
        client.call("busy", ()).progress(|_| ()).await.unwrap();
        assert!(script.messages().iter().filter_map(|message| message.get("id")).all(Value::is_string));
    }
}

#[tokio::test(start_paused = true)]
async fn results_are_held_against_output_schemas() {
    let schema =
        json!({ "type": "object", "properties": { "sum": { "type": "integer" } }, "required": ["sum"] });
    for revision in ERAS {
        let tool = json!({ "name": "add", "inputSchema": { "type": "object" }, "outputSchema": schema });
        let script = Script::with_revision(revision)
            .on("tools/list", move |_| json!({ "tools": [tool] }))
            .on("tools/call", |request| {
                let mut result = request["params"]["arguments"].clone();
                result["content"] = json!([]);
                result
            });
        let client = client(&script).connect().await.unwrap();
        let wrong = || client.call("add", json!({ "structuredContent": { "sum": "three" } }));
        wrong().await.unwrap(); // no output schema is known yet
        client.tools().all().await.unwrap();
        client.call("add", json!({ "structuredContent": { "sum": 3 } })).await.unwrap();
        client.call("add", json!({ "isError": true })).await.unwrap();
        let error = wrong().await.unwrap_err();
        assert!(matches!(&error, ClientError::BadResult { tool, .. } if tool == "add"), "{error:?}");
        assert!(error.to_string().contains("sum"), "{error}");
        let error = client.call("add", json!({})).await.unwrap_err();
        assert!(matches!(error, ClientError::BadResult { .. }), "{error:?}");
    }
}

/// A client with all handlers.
fn able(script: &Script) -> ClientBuilder {
    client(script)
        .roots([Root { uri: "file:///work".into(), name: None, meta: None }])
        .on_elicit(|ask| async move {
            if ask.message == "fail" {
                return Err(Error::rpc(7, "nobody is there"));
            }
            assert_ne!(ask.message, "panic");
            let content = json!({ "name": "Ada" }).as_object().cloned();
            Ok(ElicitResult { action: ElicitAction::Accept, content, meta: None })
        })
        .on_sample(|_| async {
            Ok(CreateMessageResult {
                role: Role::Assistant,
                content: SamplingContent(vec![Content::text("Hello!")]),
                model: "m".into(),
                stop_reason: None,
                meta: None,
            })
        })
}

fn questions() -> [(&'static str, Value, &'static str, Value); 3] {
    let form = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    [
        ("roots/list", json!({}), "/roots/0/uri", json!("file:///work")),
        ("elicitation/create", form, "/content/name", json!("Ada")),
        (
            "sampling/createMessage",
            json!({ "messages": [], "maxTokens": 9 }),
            "/content/text",
            json!("Hello!"),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn handlers_answer_questions_that_are_pushed_in_a_session() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision != Revision::LATEST) {
        let has_forms = revision >= Revision::V2025_06_18;
        let questions =
            questions().into_iter().filter(|(method, ..)| has_forms || *method != "elicitation/create");
        for (method, params, path, expected) in questions {
            let asked = Reaction::new().request("q", method, &params);
            let script = Script::with_revision(revision)
                .on("tools/call", move |_| asked.clone().wait(SECOND).result(done()));
            able(&script).connect().await.unwrap().call("ask", ()).await.unwrap();
            let answer = script.wait_for(|message| message["id"] == "q").await;
            assert_eq!(answer["result"].pointer(path), Some(&expected), "{revision} {method}: {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_answer_questions_that_come_as_a_result() {
    for (method, params, path, expected) in questions() {
        let asked = json!({ "q": { "method": method, "params": params } });
        let script =
            Script::with_revision(Revision::LATEST).on("tools/call", move |request| match request["params"]
                .get("inputResponses")
            {
                None => {
                    json!({ "resultType": "input_required", "inputRequests": asked, "requestState": "s" })
                }
                Some(_) => done(),
            });
        able(&script).connect().await.unwrap().call("ask", json!({ "kept": 1 })).await.unwrap();
        let again = &script.received_messages("tools/call")[1]["params"];
        assert_eq!(again["inputResponses"]["q"].pointer(path), Some(&expected), "{method}: {again}");
        assert_eq!((&again["requestState"], &again["arguments"]["kept"]), (&json!("s"), &json!(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_that_fail_or_panic_are_told_as_errors() {
    for message in ["fail", "panic"] {
        let form = json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } });
        let asked = Reaction::new().request("q", "elicitation/create", &form);
        let script = Script::with_revision(Revision::LATEST_SESSION)
            .on("tools/call", move |_| asked.clone().wait(SECOND).result(done()));
        let client = able(&script).connect().await.unwrap();
        client.call("ask", ()).await.unwrap();
        let answer = timeout(SECOND, script.wait_for(|message| message["id"] == "q")).await;
        let answer = answer.unwrap_or_else(|_| panic!("{message}: the server request gets no response"));
        assert!(answer["error"]["code"].is_i64(), "{answer}");

        let asked = json!({ "q": { "method": "elicitation/create", "params": form } });
        let script = Script::with_revision(Revision::LATEST)
            .on("tools/call", move |_| json!({ "resultType": "input_required", "inputRequests": asked }));
        let error = able(&script).connect().await.unwrap().call("ask", ()).await.unwrap_err();
        assert!(matches!(error, ClientError::ServerRequest { .. }), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_withdrawn_is_not_answered() {
    let script = Script::with_revision(Revision::LATEST_SESSION).on("tools/call", |_| {
        let cancelled = json!({ "requestId": "q" });
        Reaction::new()
            .request(
                "q",
                "elicitation/create",
                &json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } }),
            )
            .notify("notifications/cancelled", &cancelled)
            .wait(SECOND)
            .result(done())
    });
    let builder = client(&script).on_elicit(|_| std::future::pending());
    builder.connect().await.unwrap().call("ask", ()).await.unwrap();
    assert!(script.messages().iter().all(|message| message["id"] != "q"));
}

#[tokio::test]
async fn a_server_that_does_not_read_does_not_keep_a_call_for_ever() {
    // It reads one line, responds, and holds the pipe, which is full after the next line.
    let kept = Arc::new(Mutex::new(Vec::new()));
    let deaf = StreamTransport::new("deaf", {
        let kept = kept.clone();
        move || {
            let (input, to_server) = pipe()?;
            let (from_server, mut output) = pipe()?;
            kept.lock().unwrap().push(thread::spawn(move || {
                let mut input = BufReader::new(input);
                input.read_line(&mut String::new()).unwrap();
                let discovered = json!({
                    "resultType": "complete", "supportedVersions": [Revision::LATEST.as_str()],
                    "capabilities": {}, "ttlMs": 0, "cacheScope": "private",
                });
                writeln!(output, "{}", json!({ "jsonrpc": "2.0", "id": 1, "result": discovered })).unwrap();
                (input, output)
            }));
            Ok((from_server, to_server))
        }
    });
    let client = Client::over(deaf).revision_cache(RevisionCache::new()).connect().await.unwrap();
    let large = json!({ "text": "x".repeat(2 << 20) });
    for _ in 0..3 {
        let call = client.call("tool", &large).timeout(Duration::from_millis(50)).into_future();
        let error = timeout(SECOND * 10, call).await.expect("it finishes in time").unwrap_err();
        assert!(matches!(error, ClientError::Call(CallError::TimedOut(_))), "{error:?}");
    }
    assert_eq!(kept.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_changes_that_the_server_has_ended_is_opened_again() {
    let script = Script::with_revision(Revision::LATEST).on("subscriptions/listen", |request| {
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": request["id"] });
        let params = json!({ "_meta": meta, "notifications": {} });
        let opened = Reaction::new().notify("notifications/subscriptions/acknowledged", &params);
        opened.wait(SECOND).result(json!({ "resultType": "complete", "_meta": meta }))
    });
    let (told, mut updated) = mpsc::channel(8);
    let client = client(&script).on_resource_updated(move |uri| told.try_send(uri).unwrap());
    let client = client.connect().await.unwrap();
    let watched = client.subscribe("memo://a").await.unwrap();
    for _ in 0..2 {
        assert_eq!(timeout(10 * SECOND, updated.recv()).await.unwrap().unwrap(), "memo://a");
    }
    assert_eq!(script.received_messages("subscriptions/listen").len(), 3);
    drop(watched);
    let ids: Vec<_> =
        script.received_messages("subscriptions/listen").iter().map(|sent| sent["id"].clone()).collect();
    let is_last = |message: &Value| message["params"]["requestId"] == ids[2];
    timeout(10 * SECOND, script.wait_for(is_last)).await.unwrap();
}

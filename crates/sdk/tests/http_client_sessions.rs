//! Sessions over HTTP: lost and renewed sessions, cut and resumed streams, and the standalone stream.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;
#[path = "support/manual_clock.rs"]
mod manual_clock;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{
    HttpScript, ReceivedRequest, Reply, TEST_TIMEOUT, client, connect, plain_reply, said, server, text,
};
use linchpin::client::ListChanged;
use linchpin::{CallError, Client, ClientError, LogLevel, Revision};
use manual_clock::ManualClock;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

const SESSION: Revision = Revision::LATEST_SESSION;

/// A server with numbered sessions, which it can lose.
#[derive(Clone, Default)]
struct Forgetful {
    /// The current session.
    known: Arc<AtomicUsize>,
}

impl Forgetful {
    fn forget(&self) {
        self.known.fetch_add(1, Ordering::SeqCst);
    }

    fn id(&self) -> String {
        format!("session-{}", self.known.load(Ordering::SeqCst))
    }

    async fn start(
        &self,
        special: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync + 'static,
    ) -> HttpScript {
        let this = self.clone();
        HttpScript::start(move |seen| {
            if seen.is("initialize") {
                let result = json!({
                    "protocolVersion": SESSION.as_str(),
                    "capabilities": { "tools": {}, "logging": {}, "resources": { "subscribe": true } },
                    "serverInfo": { "name": "script", "version": "1" },
                });
                return Reply::json_with(200, &[("mcp-session-id", &this.id())], &seen.answer(&result));
            }
            let given = seen.header("mcp-session-id");
            if !given.is_empty() && given != this.id() {
                return Reply::json_with(404, &[], &seen.error(-32001, "Session not found"));
            }
            special(seen).unwrap_or_else(|| plain_reply(SESSION, seen))
        })
        .await
    }
}

#[tokio::test]
async fn a_lost_session_is_renewed_and_what_only_reads_is_asked_again() {
    let server = Forgetful::default();
    let script = server.start(|_| None).await;
    let client = connect(&script).await;
    server.forget();
    assert_eq!(client.tools().all().await.unwrap().len(), 1);
    let lists = script.of("tools/list");
    let sessions: Vec<_> = lists.iter().map(|seen| seen.header("mcp-session-id")).collect();
    assert_eq!(sessions, ["session-0", "session-1"]);
    assert_ne!(lists[0].body["id"], lists[1].body["id"]);
    server.forget();
    client.read("memo://x").await.unwrap();
    server.forget();
    client.ping().await.unwrap();
    assert_eq!(script.of("initialize").len(), 4);
    assert_eq!(script.of("notifications/initialized").len(), 4);
    let greetings = script.of("initialize");
    assert!(greetings.iter().all(|seen| seen.header("mcp-session-id").is_empty()));
    assert_eq!(greetings[0].body, greetings[3].body);
}

#[tokio::test]
async fn a_call_on_a_lost_session_is_never_sent_again_and_the_next_one_works() {
    let server = Forgetful::default();
    let script = server.start(|_| None).await;
    let client = connect(&script).await;
    server.forget();
    let lost = client.call("echo", ()).await.unwrap_err();
    let ClientError::OutcomeUnknown { tool, reason } = &lost else { panic!("{lost:?}") };
    assert!(tool == "echo" && reason.contains("MCP_SESSION_NOT_FOUND"), "{lost}");
    assert!(!lost.to_string().contains("session-0"), "{lost}");
    assert_eq!(script.of("tools/call").len(), 1);
    assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo");
    assert_eq!(script.of("tools/call").len(), 2);
    assert_eq!(script.of("initialize").len(), 2);
}

#[tokio::test]
async fn many_losses_at_once_open_one_session() {
    let server = Forgetful::default();
    let script = server.start(|_| None).await;
    let client = connect(&script).await;
    server.forget();
    let mut lists = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        lists.spawn(async move { client.tools().all().await });
    }
    while let Some(listed) = lists.join_next().await {
        assert_eq!(listed.unwrap().unwrap().len(), 1);
    }
    assert_eq!(script.of("initialize").len(), 2);
}

#[tokio::test]
async fn a_session_is_renewed_to_the_end_even_if_nobody_waits_for_it() {
    let server = Forgetful::default();
    let accept = Arc::new(Notify::new());
    let until = accept.clone();
    let script = server
        .start(move |seen| {
            let renewed =
                seen.is("notifications/initialized") && seen.header("mcp-session-id") != "session-0";
            renewed.then(|| Reply::status(202).after(&until))
        })
        .await;
    let client = client(&script).on_log(LogLevel::Warning, |_| ()).connect().await.unwrap();
    script.wait_for("GET", 1).await;
    server.forget();
    tokio::select! {
        _ = client.tools().all() => panic!("the session is not renewed yet"),
        _ = script.wait_for("notifications/initialized", 2) => {}
    }
    client.notify("notifications/acme", &json!({}));
    script.wait_for("notifications/cancelled", 1).await;
    accept.notify_one();
    assert_eq!(script.wait_for("notifications/acme", 1).await[0].header("mcp-session-id"), "session-1");
    let levels = script.wait_for("logging/setLevel", 2).await;
    assert_eq!(levels[1].header("mcp-session-id"), "session-1");
    assert_eq!(script.wait_for("GET", 2).await[1].header("mcp-session-id"), "session-1");
    assert_eq!(client.tools().all().await.unwrap().len(), 1);
    assert_eq!(script.of("initialize").len(), 2);
}

#[tokio::test]
async fn the_new_session_is_like_the_one_before() {
    let server = Forgetful::default();
    let script = server.start(|_| None).await;
    let client = client(&script).on_log(LogLevel::Warning, |_| ()).connect().await.unwrap();
    let _watched = client.subscribe("memo://a").await.unwrap();
    drop(client.subscribe("memo://b").await.unwrap());
    script.wait_for("resources/unsubscribe", 1).await;
    server.forget();
    client.tools().all().await.unwrap();
    let levels = script.wait_for("logging/setLevel", 2).await;
    assert_eq!(levels[1].body["params"], json!({ "level": "warning" }));
    assert_eq!(levels[1].header("mcp-session-id"), "session-1");
    let watched = script.wait_for("resources/subscribe", 3).await;
    assert_eq!(watched[2].body["params"]["uri"], "memo://a");
    assert_eq!(watched[2].header("mcp-session-id"), "session-1");
}

#[tokio::test]
async fn who_watches_again_at_once_is_not_unsubscribed() {
    let answer = Arc::new(Notify::new());
    let until = answer.clone();
    let script = server(SESSION, move |seen| {
        seen.is("resources/unsubscribe").then(|| plain_reply(SESSION, seen).after(&until))
    })
    .await;
    let client = connect(&script).await;
    drop(client.subscribe("memo://a").await.unwrap());
    script.wait_for("resources/unsubscribe", 1).await;
    let again = client.subscribe("memo://a").await.unwrap();
    answer.notify_one();
    let told = script.wait_for("resources/subscribe", 3).await;
    assert!(told.iter().all(|seen| seen.body["params"]["uri"] == "memo://a"));
    drop(again);
    script.wait_for("resources/unsubscribe", 2).await;
}

#[tokio::test]
async fn a_subscription_that_is_refused_is_not_ended() {
    let refuse = |seen: &ReceivedRequest| {
        let refused = seen.body["params"]["uri"] == "memo://secret";
        refused.then(|| Reply::json(&seen.error(-32602, "no")))
    };
    let script = server(SESSION, refuse).await;
    let client = connect(&script).await;
    assert!(client.subscribe("memo://secret").await.is_err());
    drop(client.subscribe("memo://a").await.unwrap());
    let ended = script.wait_for("resources/unsubscribe", 1).await;
    assert_eq!(ended[0].body["params"]["uri"], "memo://a");
}

#[tokio::test]
async fn a_session_that_cannot_be_renewed_is_said_and_tried_again() {
    let refusing = Arc::new(AtomicUsize::new(0));
    let refuse = refusing.clone();
    let script = server(SESSION, move |seen| {
        let lost = refuse.load(Ordering::SeqCst) > 0;
        (lost && !seen.is("GET")).then(|| Reply::status(if seen.is("initialize") { 503 } else { 404 }))
    })
    .await;
    let client = connect(&script).await;
    refusing.store(1, Ordering::SeqCst);
    let lost = client.tools().all().await.unwrap_err();
    let ClientError::Call(CallError::Transport { code, message, .. }) = &lost else { panic!("{lost:?}") };
    assert!(*code == "MCP_SESSION_NOT_FOUND" && message.contains("503"), "{lost}");
    refusing.store(0, Ordering::SeqCst);
    assert_eq!(client.tools().all().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_session_of_another_revision_is_not_taken() {
    let revision = Arc::new(Mutex::new(SESSION));
    let now = revision.clone();
    let script = HttpScript::start(move |seen| {
        let revision = *now.lock().unwrap();
        let lost = revision != SESSION && !seen.is("initialize");
        if lost { Reply::status(404) } else { plain_reply(revision, seen) }
    })
    .await;
    let client = connect(&script).await;
    *revision.lock().unwrap() = Revision::V2025_03_26;
    let lost = client.tools().all().await.unwrap_err();
    assert!(lost.to_string().contains("2025-03-26"), "{lost}");
    script.wait_for("DELETE", 1).await;
}

#[tokio::test]
async fn a_method_that_is_not_found_is_no_lost_session() {
    for revision in [SESSION, Revision::LATEST] {
        let script = server(revision, |seen| {
            let unknown = seen.error(-32601, "Method not found");
            seen.is("acme/unknown").then(|| Reply::json_with(404, &[], &unknown))
        })
        .await;
        let client = connect(&script).await;
        let answer = client.request::<Value>("acme/unknown", ()).await.unwrap_err();
        let ClientError::Call(CallError::Rejected(error)) = &answer else { panic!("{answer:?}") };
        assert_eq!(error.code, -32601);
        assert!(script.of("initialize").len() <= 1);
    }
}

/// Responds to each GET with the next reply.
fn in_order(replies: Vec<Reply>) -> impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync {
    let replies = Mutex::new(replies.into_iter());
    move |seen| {
        let next = || replies.lock().unwrap().next().unwrap_or_else(|| Reply::status(500));
        (seen.is("GET") && seen.headers.contains_key("last-event-id")).then(next)
    }
}

fn progress(number: usize, token: &Value) -> Value {
    let params = json!({ "progressToken": token, "progress": number });
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
}

#[tokio::test]
async fn a_stream_that_was_cut_is_taken_up_again_without_loss_or_repetition() {
    let answers = Arc::new(Mutex::new(None::<Value>));
    let calls = answers.clone();
    let gets = AtomicUsize::new(0);
    let script = server(SESSION, move |seen| {
        if seen.is("tools/call") {
            *calls.lock().unwrap() = Some(seen.body["id"].clone());
            let token = &seen.body["params"]["_meta"]["progressToken"];
            let primed = Reply::events().chunk(b"id: 0\nretry: 1\ndata:\n\n");
            return Some(
                primed
                    .event_with_id("1", &progress(1, token))
                    .event_with_id("2", &progress(2, token))
                    .close(),
            );
        }
        let last = seen.headers.get("last-event-id")?;
        let id = calls.lock().unwrap().clone()?;
        let again = |numbers: &[usize]| {
            let event = |reply: Reply, number: &usize| {
                reply.event_with_id(&number.to_string(), &progress(*number, &id))
            };
            numbers.iter().fold(Reply::events(), event)
        };
        let number = gets.fetch_add(1, Ordering::SeqCst);
        Some(match number {
            // It repeats earlier events.
            0 => again(&[1, 2, 3]).end(),
            1 => Reply::status(503),
            2 => Reply::events().close(),
            _ => {
                assert_eq!(last, "3");
                let answer = json!({ "jsonrpc": "2.0", "id": id, "result": text("done") });
                again(&[4]).event_with_id("5", &answer).end()
            }
        })
    })
    .await;
    let client = connect(&script).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let hear = told.clone();
    let call = client.call("slow", ()).progress(move |progress| hear.lock().unwrap().push(progress.done()));
    assert_eq!(said(&timeout(TEST_TIMEOUT, call).await.unwrap().unwrap()), "done");
    assert_eq!(*told.lock().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(script.of("tools/call").len(), 1);
    let resumed: Vec<_> =
        script.of("GET").into_iter().filter(|seen| seen.headers.contains_key("last-event-id")).collect();
    let ids: Vec<_> = resumed.iter().map(|seen| seen.header("last-event-id")).collect();
    assert_eq!(ids, ["2", "3", "3", "3"]);
    assert!(resumed.iter().all(|seen| seen.header("mcp-session-id") == http::SESSION));
}

#[tokio::test]
async fn the_pause_that_the_server_asks_for_is_kept() {
    let clock = ManualClock::stop();
    let answer = Arc::new(Mutex::new(None::<Value>));
    let script = server(SESSION, move |seen| {
        if seen.is("tools/call") {
            *answer.lock().unwrap() = Some(seen.answer(&text("done")));
            return Some(Reply::events().chunk(b"id: 0\nretry: 300\ndata:\n\n").end());
        }
        seen.headers.get("last-event-id")?;
        Some(Reply::events().event(answer.lock().unwrap().as_ref()?).end())
    })
    .await;
    let (tell, mut told) = mpsc::channel(64);
    let client = client(&script).on_diagnostic(move |line| tell.try_send(line.to_owned()).unwrap());
    let client = client.connect().await.unwrap();
    let is_resumed = || script.of("GET").iter().any(|seen| seen.headers.contains_key("last-event-id"));
    let pause = async {
        while !told.recv().await.unwrap().contains("tools/call was cut") {}
        clock.advance(Duration::from_millis(290)).await;
        // Later messages arrive after earlier ones.
        client.ping().await.unwrap();
        assert!(!is_resumed());
        clock.advance(Duration::from_millis(10)).await;
    };
    let call = client.call("slow", ()).into_future();
    let (called, ()) = timeout(TEST_TIMEOUT, async { tokio::join!(call, pause) }).await.unwrap();
    assert!(called.is_ok() && is_resumed());
}

#[tokio::test]
async fn a_cut_without_an_event_id_is_said_at_once() {
    let _clock = ManualClock::stop(); // a waiting task would never wake up
    for revision in [SESSION, Revision::LATEST] {
        let script = server(revision, move |seen| {
            let id = if revision == SESSION { "" } else { "id: 7\n" };
            let notice = format!("{id}data: {}\n\n", progress(1, &json!(1)));
            seen.is("tools/call").then(|| Reply::events().chunk(notice.as_bytes()).close())
        })
        .await;
        let client = connect(&script).await;
        let lost = timeout(TEST_TIMEOUT, client.call("echo", ())).await.unwrap().unwrap_err();
        assert!(matches!(&lost, ClientError::OutcomeUnknown { .. }), "{lost:?}");
        assert_eq!(script.of("tools/call").len(), 1);
        assert!(script.of("GET").iter().all(|seen| !seen.headers.contains_key("last-event-id")));
    }
}

#[tokio::test]
async fn what_only_reads_is_asked_once_more_after_a_cut() {
    for revision in [SESSION, Revision::LATEST] {
        let lists = AtomicUsize::new(0);
        let script = server(revision, move |seen| {
            let first = seen.is("tools/list") && lists.fetch_add(1, Ordering::SeqCst) == 0;
            (first || seen.is("prompts/list")).then(|| Reply::events().close())
        })
        .await;
        let client = connect(&script).await;
        assert_eq!(client.tools().all().await.unwrap().len(), 1);
        assert_eq!(script.of("tools/list").len(), 2);
        let lost = client.prompts().all().await.unwrap_err();
        assert!(matches!(lost, ClientError::Call(CallError::Lost(_))), "{lost:?}");
        assert_eq!(script.of("prompts/list").len(), 2);
    }
}

#[tokio::test]
async fn reconnects_have_an_end() {
    for reply in [Reply::events().close(), Reply::status(503), Reply::events().end()] {
        let resumed = in_order(vec![reply.clone(), reply.clone(), reply.clone(), reply.clone()]);
        let script = server(SESSION, move |seen| {
            let primed = Reply::events().chunk(b"id: 0\nretry: 1\ndata:\n\n").close();
            if seen.is("tools/call") { Some(primed) } else { resumed(seen) }
        })
        .await;
        let client = client(&script).max_reconnects(3).connect().await.unwrap();
        let lost = timeout(TEST_TIMEOUT, client.call("echo", ())).await.unwrap().unwrap_err();
        assert!(
            matches!(&lost, ClientError::OutcomeUnknown { reason, .. } if reason.contains("3 reconnects")),
            "{lost:?}"
        );
        let gets =
            script.of("GET").into_iter().filter(|seen| seen.headers.contains_key("last-event-id")).count();
        assert_eq!(gets, 3);
    }
}

#[tokio::test]
async fn a_server_that_does_not_resume_ends_the_call() {
    for status in [400, 405] {
        let resumed = in_order(vec![Reply::status(status)]);
        let script = server(SESSION, move |seen| {
            let primed = Reply::events().chunk(b"id: 0\nretry: 1\ndata:\n\n").close();
            if seen.is("tools/call") { Some(primed) } else { resumed(seen) }
        })
        .await;
        let client = connect(&script).await;
        let lost = timeout(TEST_TIMEOUT, client.call("echo", ())).await.unwrap().unwrap_err();
        assert!(matches!(&lost, ClientError::OutcomeUnknown { .. }), "{lost:?}");
    }
}

#[tokio::test]
async fn a_silent_stream_counts_as_cut() {
    for revision in [SESSION, Revision::LATEST] {
        let gone = Arc::new(Notify::new());
        let told = gone.clone();
        let script = server(revision, move |seen| {
            seen.is("tools/call").then(|| Reply::events().chunk(b": here\n\n").until_closed(&told))
        })
        .await;
        let client = client(&script).read_timeout(Duration::from_millis(50)).connect().await.unwrap();
        let lost = timeout(TEST_TIMEOUT, client.call("echo", ())).await.unwrap().unwrap_err();
        assert!(
            matches!(&lost, ClientError::OutcomeUnknown { reason, .. } if reason.contains("silent")),
            "{lost:?}"
        );
        timeout(TEST_TIMEOUT, gone.notified()).await.unwrap();
    }
}

/// A server that reports changed tools on the standalone stream.
async fn telling(gets: Vec<Reply>) -> (HttpScript, Client, mpsc::Receiver<ListChanged>) {
    let gets = Mutex::new(gets.into_iter());
    let end = Arc::new(Notify::new());
    let script = server(SESSION, move |seen| {
        let last = || Reply::events().until_closed(&end);
        seen.is("GET").then(|| gets.lock().unwrap().next().unwrap_or_else(last))
    })
    .await;
    let (told, changes) = mpsc::channel(8);
    let client =
        client(&script).on_list_changed(move |list| told.try_send(list).unwrap()).connect().await.unwrap();
    (script, client, changes)
}

fn tools_changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
}

#[tokio::test]
async fn an_event_that_begins_with_the_answer_and_ends_after_it_is_heard() {
    let go_on = Arc::new(Notify::new());
    let until = go_on.clone();
    let script = server(SESSION, move |seen| {
        let event = format!("data: {}\n\n", tools_changed());
        let (begun, rest) = event.split_at(event.len() / 2);
        let first = format!("data: {}\n\n{begun}", seen.answer(&text("done")));
        seen.is("tools/call")
            .then(|| Reply::events().chunk(first.as_bytes()).wait(&until).chunk(rest.as_bytes()).end())
    })
    .await;
    let (told, mut changes) = mpsc::channel(8);
    let client =
        client(&script).on_list_changed(move |list| told.try_send(list).unwrap()).connect().await.unwrap();
    assert_eq!(said(&client.call("echo", ()).await.unwrap()), "done");
    go_on.notify_one();
    assert_eq!(timeout(TEST_TIMEOUT, changes.recv()).await.unwrap(), Some(ListChanged::Tools));
}

#[tokio::test]
async fn the_stream_of_the_session_is_read_and_taken_up_again() {
    let first = Reply::events().chunk(b"retry: 1\n\n").event_with_id("a-1", &tools_changed()).close();
    let second =
        Reply::events().event_with_id("a-1", &tools_changed()).event_with_id("a-2", &tools_changed()).end();
    let third =
        Reply::events().chunk(b"data: {\"no\":\"message\"}\n\n").event_with_id("a-3", &tools_changed()).end();
    let (script, _client, mut changes) =
        telling(vec![first, second, Reply::status(502), Reply::status(409), third]).await;
    for _ in 0..3 {
        assert_eq!(timeout(TEST_TIMEOUT, changes.recv()).await.unwrap(), Some(ListChanged::Tools));
    }
    let gets = script.wait_for("GET", 6).await;
    let ids: Vec<_> = gets.iter().map(|seen| seen.header("last-event-id")).collect();
    assert_eq!(ids, ["", "a-1", "a-2", "a-2", "a-2", "a-3"]);
    assert!(gets.iter().all(|seen| seen.header("mcp-session-id") == http::SESSION));
    assert!(changes.try_recv().is_err());
}

#[tokio::test]
async fn questions_on_the_stream_of_the_session_are_answered() {
    let ask = json!({ "jsonrpc": "2.0", "id": "q", "method": "ping" });
    let end = Arc::new(Notify::new());
    let script =
        server(SESSION, move |seen| seen.is("GET").then(|| Reply::events().event(&ask).until_closed(&end)))
            .await;
    let _client = connect(&script).await;
    let answers = script.wait_for("a response", 1).await;
    assert_eq!(answers[0].body, json!({ "jsonrpc": "2.0", "id": "q", "result": {} }));
    assert_eq!(answers[0].header("mcp-session-id"), http::SESSION);
}

#[tokio::test]
async fn a_session_that_is_lost_while_nothing_is_asked_is_renewed() {
    let server = Forgetful::default();
    let (cut, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let until = cut.clone();
    let script = server
        .start(move |seen| {
            let reply = if seen.header("mcp-session-id") == "session-0" {
                Reply::events().chunk(b"retry: 1\n\n").wait(&until).close()
            } else {
                Reply::events().until_closed(&end)
            };
            seen.is("GET").then_some(reply)
        })
        .await;
    let client = connect(&script).await;
    script.wait_for("GET", 1).await;
    server.forget();
    cut.notify_one();
    let gets = script.wait_for("GET", 3).await;
    let sessions: Vec<_> = gets.iter().map(|seen| seen.header("mcp-session-id")).collect();
    assert_eq!(sessions, ["session-0", "session-0", "session-1"]);
    client.call("echo", ()).await.unwrap();
    assert_eq!(script.of("initialize").len(), 2);
}

#[tokio::test]
async fn a_stream_of_changes_is_opened_again_in_the_stateless_era() {
    let opened = AtomicUsize::new(0);
    let end = Arc::new(Notify::new());
    let script = server(Revision::LATEST, move |seen| {
        if seen.is("server/discover") {
            return Some(Reply::json(&seen.answer(&json!({
                "resultType": "complete", "supportedVersions": [Revision::LATEST.as_str()],
                "capabilities": { "tools": { "listChanged": true } }, "ttlMs": 0, "cacheScope": "private",
            }))));
        }
        let stream = Reply::events().event(&seen.acknowledgement(&json!({ "toolsListChanged": true })));
        seen.is("subscriptions/listen").then(|| match opened.fetch_add(1, Ordering::SeqCst) {
            0 => stream.event(&tools_changed()).close(),
            1 => Reply::status(503),
            _ => stream.until_closed(&end),
        })
    })
    .await;
    let (told, mut changes) = mpsc::channel(8);
    let _client =
        client(&script).on_list_changed(move |list| told.try_send(list).unwrap()).connect().await.unwrap();
    // One for the notification, and one for possibly missed changes.
    for _ in 0..2 {
        assert_eq!(timeout(TEST_TIMEOUT, changes.recv()).await.unwrap(), Some(ListChanged::Tools));
    }
    assert_eq!(script.of("subscriptions/listen").len(), 3);
}

#[tokio::test]
async fn a_stream_of_changes_that_the_server_has_ended_is_opened_again() {
    let opened = AtomicUsize::new(0);
    let end = Arc::new(Notify::new());
    let script = server(Revision::LATEST, move |seen| {
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": seen.body["id"] });
        let stream = Reply::events().event(&seen.acknowledgement(&json!({})));
        let ended = seen.answer(&json!({ "resultType": "complete", "_meta": meta }));
        seen.is("subscriptions/listen").then(|| match opened.fetch_add(1, Ordering::SeqCst) {
            0 => stream.event(&ended).end(),
            _ => stream.until_closed(&end),
        })
    })
    .await;
    let (told, mut updated) = mpsc::channel(8);
    let client = client(&script).on_resource_updated(move |uri| told.try_send(uri).unwrap());
    let client = client.connect().await.unwrap();
    let _watched = client.subscribe("memo://a").await.unwrap();
    assert_eq!(timeout(TEST_TIMEOUT, updated.recv()).await.unwrap().unwrap(), "memo://a");
    assert_eq!(script.of("subscriptions/listen").len(), 2);
}

#[tokio::test]
async fn a_stream_of_changes_that_does_not_last_is_opened_ever_more_slowly() {
    let script = server(Revision::LATEST, |seen| {
        let stream = Reply::events().event(&seen.acknowledgement(&json!({})));
        seen.is("subscriptions/listen").then(|| stream.close())
    })
    .await;
    let client = connect(&script).await;
    let begin = Instant::now();
    let _watched = client.subscribe("memo://a").await.unwrap();
    script.wait_for("subscriptions/listen", 4).await;
    let pauses = Duration::from_millis(100 + 200 + 400);
    assert!(begin.elapsed() >= pauses, "{:?}", begin.elapsed());
}

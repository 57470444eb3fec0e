//! Responses that are streams: when, what they carry, how clients resume them, and how they end.
#![cfg(feature = "http-server")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use linchpin::model::LogLevel;
use linchpin::server::{EventStore, HttpService, SessionKey, StoredEvent};
use linchpin::{Context, NoArgs, Revision, Service, Tool};
use serde_json::{Value, json};
use support::call_scenarios::{CallControls, Count};
use support::paused::pass;
use support::task_server::TaskControls;
use support::web::{BackgroundTask, Events, TestClient, serve, text_of};
use support::{STATELESS, session_revisions};
use tokio::time::Instant;

const LATEST: Revision = Revision::LATEST_SESSION;
const SECOND: Duration = Duration::from_secs(1);

fn endpoint(scene: &CallControls) -> (HttpService, Service) {
    let service = scene.server().build().unwrap();
    (serve(service.http()), service)
}

fn progress(messages: &[Value]) -> Vec<f64> {
    let values = messages.iter().filter(|message| message["method"] == "notifications/progress");
    values.map(|message| message["params"]["progress"].as_f64().unwrap()).collect()
}

/// Returns the id of the event to resume from.
async fn primed(events: &mut Events) -> String {
    let event = events.event().await.unwrap();
    assert_eq!((event.data.as_deref(), event.name), (Some(""), None));
    event.id.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_before_the_answer_makes_a_stream() {
    let (web, _) = endpoint(&CallControls::new());
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        let quiet = guest.call("talk", json!({"count": 3})).await;
        assert_eq!(text_of(&quiet.message().await), "talked", "no progress was requested");
        let mut events = guest.watch("talk", json!({"count": 2})).await.events();
        let (mut ids, mut messages, mut first) = (Vec::new(), Vec::new(), true);
        while let Some(event) = events.event().await {
            if revision == LATEST && first {
                assert_eq!(event.data.as_deref(), Some(""), "it starts with an event for resumption");
            } else {
                messages.push(serde_json::from_str::<Value>(&event.data.unwrap()).unwrap());
            }
            ids.push(event.id);
            first = false;
        }
        assert_eq!(progress(&messages), [1.0, 2.0], "{revision}");
        assert_eq!(text_of(&messages[2]), "talked");
        let has_ids = revision != STATELESS;
        assert!(ids.iter().all(|id| id.is_some() == has_ids), "{revision}: {ids:?}");
        let different: std::collections::HashSet<_> = ids.iter().flatten().collect();
        assert_eq!(different.len(), if has_ids { ids.len() } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn log_messages_travel_with_their_call() {
    let (web, _) = endpoint(&CallControls::new());
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let mut stream = guest.get(None).await.events();
        let messages = guest.call("log", json!({})).await.events().rest().await;
        assert_eq!((&messages[0]["params"]["data"], messages.len()), (&json!("careful"), 2));
        assert_eq!(guest.ask("logging/setLevel", json!({"level": "error"})).await.status, StatusCode::OK);
        assert_eq!(guest.call_text("log", json!({})).await, "logged");
        if revision == LATEST {
            primed(&mut stream).await;
        }
        assert!(stream.is_quiet(SECOND).await);
    }
    let guest = TestClient::open(&web, STATELESS).await;
    assert_eq!(guest.call_text("log", json!({})).await, "logged", "no log messages were requested");
    let meta = json!({"io.modelcontextprotocol/logLevel": "info"});
    let params = json!({"name": "log", "arguments": {}, "_meta": meta});
    assert_eq!(guest.ask("tools/call", params).await.events().rest().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_becomes_a_stream_where_clients_can_come_back() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().stream_after(5 * SECOND));
    for revision in Revision::ALL {
        let guest = TestClient::open(&web, revision).await;
        let begun = Instant::now();
        let (gate, caller) = (scene.clone(), guest.clone());
        let ending = BackgroundTask::start(async move {
            pass(60 * SECOND).await;
            gate.step(1);
        });
        let answer = caller.call("wait", json!({"count": 1})).await;
        if revision == LATEST {
            assert_eq!(begun.elapsed(), 5 * SECOND);
            let mut events = answer.events();
            primed(&mut events).await;
            assert_eq!(text_of(&events.message().await), "1 steps");
            assert_eq!(events.next().await, None);
        } else {
            assert_eq!(text_of(&answer.message().await), "1 steps", "{revision}");
        }
        assert_eq!(begun.elapsed(), 60 * SECOND);
        ending.end().await;
        // Just in time.
        let gate = scene.clone();
        let ending = BackgroundTask::start(async move {
            pass(4 * SECOND).await;
            gate.step(1);
        });
        assert_eq!(guest.call_text("wait", json!({"count": 1})).await, "1 steps");
        ending.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn questions_are_asked_on_the_stream_of_their_call() {
    let (web, _) = endpoint(&CallControls::new());
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let mut stream = guest.get(None).await.events();
        let mut asked = vec![
            ("roots", "roots/list", json!({"roots": [{"uri": "file:///a"}]}), "1 roots"),
            (
                "think",
                "sampling/createMessage",
                json!({"role": "assistant", "content": {"type": "text", "text": "t"}, "model": "m"}),
                "m",
            ),
        ];
        if revision >= Revision::V2025_06_18 {
            let answer = json!({"action": "accept", "content": {"name": "Ada"}});
            asked.push(("ask", "elicitation/create", answer, "Ada"));
        }
        // All concurrently: each is answered by the reply to its own request.
        let mut calls = Vec::new();
        for (tool, method, answer, expected) in asked {
            let mut call = guest.call(tool, json!({})).await.events();
            let question = call.message().await;
            assert_eq!(question["method"], method);
            calls.push((call, question, answer, expected));
        }
        while let Some((call, question, answer, expected)) = calls.pop() {
            guest.reply(&question, answer).await;
            let rest = call.rest().await;
            assert_eq!((rest.len(), text_of(&rest[0])), (1, expected.to_owned()), "{revision}");
        }
        if revision == LATEST {
            primed(&mut stream).await;
        }
        assert!(stream.is_quiet(SECOND).await, "nothing on the other stream");
    }
}

#[tokio::test(start_paused = true)]
async fn without_sessions_questions_travel_with_the_answer() {
    let (web, _) = endpoint(&CallControls::new());
    let guest = TestClient::new(&web, STATELESS);
    let answer = guest.call("ask", json!({})).await.message().await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    let (key, _) = answer["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut params =
        json!({"name": "ask", "arguments": {}, "requestState": answer["result"]["requestState"]});
    params["inputResponses"][key] = json!({"action": "accept", "content": {"name": "Ada"}});
    assert_eq!(text_of(&guest.ask("tools/call", params).await.message().await), "Ada");
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_on_the_stream_that_belongs_to_no_request() {
    let (web, service) = endpoint(&CallControls::new());
    let handle = service.handle();
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let deaf = TestClient::open(&web, revision).await;
        assert_eq!(
            guest.ask("resources/subscribe", json!({"uri": "memo://one"})).await.status,
            StatusCode::OK
        );
        // Notifications sent before the stream is open wait for it.
        handle.tools_changed();
        pass(SECOND).await;
        let mut stream = guest.get(None).await.events();
        if revision == LATEST {
            primed(&mut stream).await;
        }
        assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        handle.resource_updated("memo://one");
        handle.resource_updated("memo://größe");
        handle.prompts_changed();
        let told = stream.message().await;
        assert_eq!(
            (&told["method"], &told["params"]["uri"]),
            (&json!("notifications/resources/updated"), &json!("memo://one"))
        );
        assert_eq!(stream.message().await["method"], "notifications/prompts/list_changed");
        assert_eq!(
            guest.ask("resources/unsubscribe", json!({"uri": "memo://one"})).await.status,
            StatusCode::OK
        );
        handle.resource_updated("memo://one");
        assert!(stream.is_quiet(SECOND).await, "each message once, and nothing unrequested");
        let mut other = deaf.get(None).await.events();
        for _ in 0..2 {
            let told = other.message().await;
            assert!(told["method"].as_str().unwrap().ends_with("/list_changed"), "{told}");
        }
        assert!(other.is_quiet(SECOND).await, "it has not subscribed");
        drop((stream, other));
        guest.delete().await;
        deaf.delete().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_has_one_such_stream() {
    let (web, service) = endpoint(&CallControls::new());
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let stream = guest.get(None).await;
        assert_eq!(stream.status, StatusCode::OK);
        assert_eq!(guest.get(None).await.refusal().await, (409, -32600));
        let mut stream = stream.events();
        service.handle().tools_changed();
        stream.message().await;
        // A client that resumes knows better than the server that its stream is gone.
        let last = stream.last.clone().unwrap();
        let mut again = guest.get(Some(&last)).await.events();
        assert_eq!(stream.next().await, None, "the first stream ends");
        drop(stream);
        assert_eq!(guest.get(None).await.refusal().await, (409, -32600), "the second stream stays open");
        service.handle().tools_changed();
        again.message().await;
        // A wrong event id changes nothing.
        assert_eq!(guest.get(Some("0-99")).await.refusal().await, (400, -32600));
        service.handle().tools_changed();
        again.message().await;
        drop(again);
        assert_eq!(guest.get(None).await.status, StatusCode::OK, "closed, so another may be opened");
        guest.delete().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_comes_back_to_the_stream_of_its_call_from_any_event() {
    for revision in session_revisions() {
        for cut in 0..4 {
            let scene = CallControls::new();
            let (web, _) = endpoint(&scene);
            let guest = TestClient::open(&web, revision).await;
            let caller = guest.clone();
            let call = BackgroundTask::start(async move { caller.watch("wait", json!({"count": 5})).await });
            scene.until_alive(1).await;
            scene.step(1);
            let mut call = call.end().await.events();
            let mut seen = Vec::new();
            for step in 0..=cut {
                if step > 0 {
                    scene.step(1);
                }
                seen.push(call.message().await);
            }
            let last = call.last.clone().unwrap();
            drop(call);
            // Half of the rest is sent while the client is disconnected.
            scene.step(1);
            pass(SECOND).await;
            let mut back = guest.get(Some(&last)).await.events();
            scene.step(5);
            while let Some(message) = back.next().await {
                seen.push(message);
            }
            assert_eq!(progress(&seen), [1.0, 2.0, 3.0, 4.0], "{revision}, cut at {cut}");
            assert_eq!((seen.len(), text_of(&seen[4])), (5, "5 steps".to_owned()));
            assert_eq!(scene.finished(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_doubled_however_often_a_stream_is_cut() {
    let scene = CallControls::new();
    let (web, _) = endpoint(&scene);
    let guest = TestClient::open(&web, LATEST).await;
    let steps: u32 = 200;
    let mut call = guest.watch("wait", json!({"count": steps})).await.events();
    let mut seen = Vec::new();
    let mut last = primed(&mut call).await;
    for turn in 0..1_000u32 {
        if scene.finished() == 1 && seen.len() == steps as usize {
            break;
        }
        scene.step((turn % 3) as usize);
        pass(Duration::from_millis(1)).await;
        // Some are read, some are only sent.
        for _ in 0..turn % 2 {
            if let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(1), call.next()).await {
                seen.push(message);
            }
        }
        last = call.last.clone().unwrap_or(last);
        let back = guest.get(Some(&last)).await;
        call = back.events();
    }
    assert_eq!(progress(&seen), (1..steps).map(f64::from).collect::<Vec<_>>());
    assert_eq!(text_of(&seen[steps as usize - 1]), "200 steps");
}

#[tokio::test(start_paused = true)]
async fn a_client_comes_back_to_the_stream_of_no_request() {
    let (web, service) = endpoint(&CallControls::new());
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let mut stream = guest.get(None).await.events();
        service.handle().tools_changed();
        stream.message().await;
        let last = stream.last.clone().unwrap();
        // One event that was sent and may not have arrived, and two while the client is disconnected.
        service.handle().resources_changed();
        stream.message().await;
        drop(stream);
        service.handle().prompts_changed();
        pass(SECOND).await;
        service.handle().tools_changed();
        pass(SECOND).await;
        let mut back = guest.get(Some(&last)).await.events();
        for kind in ["resources", "prompts", "tools"] {
            assert_eq!(back.message().await["method"], format!("notifications/{kind}/list_changed"));
        }
        assert!(back.is_quiet(SECOND).await);
        drop(back);
        guest.delete().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_known_is_a_gap_and_never_silence() {
    let scene = CallControls::new();
    let (web, _) = endpoint(&scene);
    let guest = TestClient::open(&web, LATEST).await;
    let mut calls = Vec::new();
    for _ in 0..12 {
        let mut call = guest.watch("talk", json!({"count": 1_500})).await.events();
        let mut ids = vec![primed(&mut call).await];
        while call.next().await.is_some() {
            ids.extend(call.last.clone());
        }
        assert_eq!(ids.len(), 1 + 1_501);
        calls.push(ids);
    }
    let (first, last) = (&calls[0], &calls[11]);
    assert_eq!(guest.get(Some(&first[0])).await.refusal().await, (400, -32600));
    assert_eq!(guest.get(Some(&first[400])).await.refusal().await, (400, -32600));
    assert_eq!(guest.get(Some(&last[1_000])).await.events().rest().await.len(), 501);
    let number = last[0].split('-').next().unwrap();
    for wrong in [
        "",
        "x",
        "1",
        "-",
        "1-",
        "-1",
        "1-x",
        "1--1",
        "99-1",
        "0-1",
        "4294967296-1",
        "1-18446744073709551616",
        "é",
        &format!("{number}-9999"),
        &format!("{number}-18446744073709551615"),
        &format!(" {number}-1 x"),
    ] {
        if wrong.is_ascii() && !wrong.is_empty() {
            assert_eq!(guest.get(Some(wrong)).await.refusal().await, (400, -32600), "{wrong:?}");
        }
    }
    // Events of another session are not found by their numbers.
    let other = TestClient::open(&web, LATEST).await;
    assert_eq!(other.get(Some(&last[1_000])).await.refusal().await, (400, -32600));
}

#[tokio::test(start_paused = true)]
async fn a_call_lets_its_stream_go_and_the_client_comes_back() {
    for revision in Revision::ALL {
        let scene = CallControls::new();
        let (web, _) = endpoint(&scene);
        let guest = TestClient::open(&web, revision).await;
        if revision != LATEST {
            // The stream could not be resumed.
            let caller = guest.clone();
            let call = BackgroundTask::start(async move { caller.call("leave", json!({})).await });
            scene.until_alive(1).await;
            scene.step(1);
            assert_eq!(text_of(&call.end().await.message().await), "1 steps", "{revision}");
            continue;
        }
        let mut call = guest.call("leave", json!({})).await.events();
        let last = primed(&mut call).await;
        let event = call.event().await.unwrap();
        assert_eq!((event.retry, event.data), (Some(3_000), None));
        assert_eq!(call.event().await, None, "the connection is closed");
        assert_eq!(scene.running(), 1, "and the call is not");
        pass(3 * SECOND).await;
        let mut back = guest.get(Some(&last)).await.events();
        scene.step(1);
        assert_eq!(text_of(&back.message().await), "1 steps");
        assert_eq!(back.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_let_go_also_after_something_was_sent() {
    let scene = CallControls::new();
    let leave = scene.clone();
    let server = scene.server().tool("later", "", move |_: NoArgs, cx: Context| {
        let scene = leave.clone();
        async move {
            cx.progress(1.0);
            scene.gate.acquire().await.unwrap().forget();
            cx.progress(2.0);
            cx.close_stream(Duration::ZERO);
            scene.gate.acquire().await.unwrap().forget();
            "later"
        }
    });
    let web = serve(server.http());
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let mut call = guest.watch("later", json!({})).await.events();
        assert_eq!(call.message().await["params"]["progress"], 1.0);
        scene.step(1);
        assert_eq!(call.message().await["params"]["progress"], 2.0);
        if revision == LATEST {
            assert_eq!(call.event().await.unwrap().retry, Some(1_000), "default: one second");
            assert_eq!(call.event().await, None);
            let last = call.last.clone().unwrap();
            scene.step(1);
            let rest = guest.get(Some(&last)).await.events().rest().await;
            assert_eq!((rest.len(), text_of(&rest[0])), (1, "later".to_owned()));
        } else {
            scene.step(1);
            assert_eq!(text_of(&call.message().await), "later");
            assert_eq!(call.next().await, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_gives_a_request_up_without_a_session() {
    let scene = CallControls::new();
    let (web, _) = endpoint(&scene);
    let guest = TestClient::new(&web, STATELESS);
    // While the response is pending, and while it streams.
    let caller = guest.clone();
    let call = BackgroundTask::start(async move { caller.call("wait", json!({"count": 1})).await });
    scene.until_alive(1).await;
    drop(call);
    scene.until_alive(0).await;
    let caller = guest.clone();
    let call = BackgroundTask::start(async move { caller.watch("wait", json!({"count": 5})).await });
    scene.until_alive(1).await;
    scene.step(1);
    let mut call = call.end().await.events();
    call.message().await;
    assert_eq!(scene.running(), 1);
    drop(call);
    scene.until_alive(0).await;
    assert_eq!(scene.finished(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_never_gives_a_request_of_a_session_up() {
    for revision in session_revisions() {
        let scene = CallControls::new();
        let (web, _) = endpoint(&scene);
        let guest = TestClient::open(&web, revision).await;
        let caller = guest.clone();
        let call = BackgroundTask::start(async move { caller.watch("wait", json!({"count": 2})).await });
        scene.until_alive(1).await;
        drop(call);
        pass(SECOND / 2).await;
        assert_eq!(scene.running(), 1);
        scene.step(2);
        scene.until_alive(0).await;
        assert_eq!(scene.finished(), 1, "{revision}: it finished, though its response cannot be delivered");
        let caller = guest.clone();
        let call = BackgroundTask::start(async move { caller.watch("wait", json!({"count": 3})).await });
        scene.until_alive(1).await;
        scene.step(1);
        let mut call = call.end().await.events();
        call.message().await;
        let last = call.last.clone().unwrap();
        drop(call);
        scene.step(2);
        scene.until_alive(0).await;
        assert_eq!(scene.finished(), 2);
        let flow_state = guest.get(Some(&last)).await.events().rest().await;
        assert_eq!((progress(&flow_state), text_of(&flow_state[1])), (vec![2.0], "3 steps".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn questions_of_a_call_whose_way_was_cut_are_asked_elsewhere() {
    let scene = CallControls::new();
    let ask = scene.clone();
    let server = scene.server().tool("ask_later", "", move |_: NoArgs, cx: Context| {
        let scene = ask.clone();
        async move {
            scene.gate.acquire().await.unwrap().forget();
            let roots = cx.roots().await?.len();
            scene.finished.fetch_add(roots, std::sync::atomic::Ordering::SeqCst);
            Ok::<_, linchpin::Error>("asked")
        }
    });
    let web = serve(server.http());
    let guest = TestClient::open(&web, LATEST).await;
    let mut stream = guest.get(None).await.events();
    primed(&mut stream).await;
    let caller = guest.clone();
    let call = BackgroundTask::start(async move { caller.call("ask_later", json!({})).await });
    pass(SECOND / 2).await;
    drop(call); // before any event that it could resume from
    scene.step(1);
    let question = stream.message().await;
    assert_eq!(question["method"], "roots/list");
    guest.reply(&question, json!({"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]})).await;
    pass(SECOND).await;
    assert_eq!(scene.finished(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_ends_without_an_answer() {
    let scene = CallControls::new();
    let (web, _) = endpoint(&scene);
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let message = guest.message(
            "tools/call",
            json!({"name": "wait", "arguments": {"count": 2}, "_meta": {"progressToken": 1}}),
        );
        let cancel = json!({"requestId": message["id"], "reason": "enough"});
        for streams in [false, true] {
            let (caller, sent) = (guest.clone(), message.clone());
            let call = BackgroundTask::start(async move { caller.send(&sent).await });
            scene.until_alive(1).await;
            let mut expected = 0;
            if streams {
                scene.step(1);
                expected = 1;
                pass(SECOND / 4).await;
            }
            assert_eq!(
                guest.notify("notifications/cancelled", cancel.clone()).await.status,
                StatusCode::ACCEPTED
            );
            scene.until_alive(0).await;
            let answer = call.end().await;
            assert_eq!(answer.events().rest().await.len(), expected, "{revision}");
            // The id is free again.
        }
        assert_eq!(scene.finished(), 0);
        // Another session cannot cancel it.
        let other = TestClient::open(&web, revision).await;
        let (caller, sent) = (guest.clone(), message.clone());
        let call = BackgroundTask::start(async move { caller.send(&sent).await });
        scene.until_alive(1).await;
        other.notify("notifications/cancelled", cancel.clone()).await;
        pass(SECOND / 4).await;
        assert_eq!(scene.running(), 1);
        guest.notify("notifications/cancelled", cancel).await;
        call.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_says_much_to_nobody_comes_to_its_end() {
    let scene = CallControls::new();
    let gate = scene.clone();
    let server = scene.server().tool("shout", "", move |Count { count }, cx: Context| {
        let scene = gate.clone();
        async move {
            cx.progress(1.0);
            scene.gate.acquire().await.unwrap().forget();
            for _ in 0..count {
                cx.log(LogLevel::Error, "x".repeat(64 << 10));
                tokio::task::yield_now().await;
            }
            scene.finished.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            "z".repeat(2 << 20)
        }
    });
    let web = serve(server.http());
    let guest = TestClient::open(&web, LATEST).await;
    let mut call = guest.watch("shout", json!({"count": 40})).await.events();
    call.message().await;
    let last = call.last.clone().unwrap();
    drop(call);
    scene.step(1);
    pass(SECOND).await;
    assert_eq!(scene.finished(), 1);
    let rest = guest.get(Some(&last)).await.events().rest().await;
    assert_eq!(rest.len(), 41, "all of it was stored");
    assert_eq!(text_of(&rest[40]).len(), 2 << 20);
    // A stream that cannot be resumed is not stored, and ends as well.
    let caller = guest.clone();
    let call = BackgroundTask::start(async move { caller.call("shout", json!({"count": 40})).await });
    pass(SECOND / 2).await;
    drop(call);
    scene.step(1);
    pass(SECOND).await;
    assert_eq!(scene.finished(), 2);
}

/// Counts stored events.
#[derive(Clone, Default)]
struct TestEventStore(Arc<Mutex<Vec<(SessionKey, u32, StoredEvent)>>>);

impl EventStore for TestEventStore {
    fn store(&self, session: &SessionKey, stream: u32, event: StoredEvent) {
        self.0.lock().unwrap().push((*session, stream, event));
    }

    fn load_after(
        &self,
        session: &SessionKey,
        stream: u32,
        number: u64,
    ) -> std::pin::Pin<Box<dyn Future<Output = Vec<StoredEvent>> + Send>> {
        let all = self.0.lock().unwrap();
        let found =
            all.iter().filter(|kept| kept.0 == *session && kept.1 == stream && kept.2.number > number);
        Box::pin(std::future::ready(found.map(|kept| kept.2.clone()).collect()))
    }

    fn delete(&self, session: &SessionKey) {
        self.0.lock().unwrap().retain(|kept| kept.0 != *session);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_session_that_has_ended() {
    let (scene, kept) = (CallControls::new(), TestEventStore::default());
    let service = scene.server().build().unwrap();
    let web = serve(service.http().event_store(kept.clone()));
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let stream = guest.get(None).await;
        let caller = guest.clone();
        let call = BackgroundTask::start(async move { caller.watch("wait", json!({"count": 9})).await });
        scene.until_alive(1).await;
        scene.step(1);
        let mut call = call.end().await.events();
        call.message().await;
        let caller = guest.clone();
        let cut = BackgroundTask::start(async move { caller.watch("wait", json!({"count": 9})).await });
        scene.until_alive(2).await;
        scene.step(2);
        let mut cut = cut.end().await.events();
        cut.message().await;
        drop(cut);
        service.handle().tools_changed();
        pass(SECOND / 4).await;
        assert!(!kept.0.lock().unwrap().is_empty());
        scene.step(1);
        assert_eq!(guest.delete().await.status, StatusCode::NO_CONTENT);
        scene.until_alive(0).await;
        // Events of calls that were running when the session ended are not stored.
        call.rest().await;
        stream.events().rest().await;
        pass(SECOND).await;
        assert_eq!(kept.0.lock().unwrap().len(), 0, "{revision}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_shows_that_it_lives() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().keep_alive(7 * SECOND).legacy_sse());
    let guest = TestClient::open(&web, LATEST).await;
    let mut stream = guest.get(None).await.events();
    primed(&mut stream).await;
    let listener = TestClient::new(&web, STATELESS);
    let mut listening = listener.ask("subscriptions/listen", json!({"notifications": {}})).await.events();
    listening.message().await;
    let mut call = guest.call("wait", json!({"count": 1})).await.events();
    primed(&mut call).await;
    for events in [&mut stream, &mut listening, &mut call] {
        for _ in 0..3 {
            let begun = Instant::now();
            let event = events.event().await.unwrap();
            assert!(event.is_comment && event.data.is_none() && event.id.is_none(), "{event:?}");
            assert!(begun.elapsed() <= 7 * SECOND);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_to_those_who_listen() {
    let scene = CallControls::new();
    let (web, service) = endpoint(&scene);
    let handle = service.handle();
    let guest = TestClient::new(&web, STATELESS);
    let wish = json!({"toolsListChanged": true, "resourceSubscriptions": ["memo://one", "memo://none"]});
    let message = guest.message("subscriptions/listen", json!({"notifications": wish}));
    let mut listening = guest.send(&message).await.events();
    let first = listening.message().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"]["toolsListChanged"], true);
    assert_eq!(first["params"]["notifications"]["resourceSubscriptions"], json!(["memo://one"]));
    let empty = guest.ask("subscriptions/listen", json!({"notifications": {}})).await;
    let mut other = empty.events();
    other.message().await;
    handle.tools_changed();
    handle.prompts_changed();
    handle.resource_updated("memo://one");
    handle.resource_updated("memo://größe");
    let told = [listening.message().await, listening.message().await];
    let mut methods: Vec<_> = told.iter().map(|told| told["method"].as_str().unwrap()).collect();
    methods.sort_unstable();
    assert_eq!(methods, ["notifications/resources/updated", "notifications/tools/list_changed"]);
    let id = &message["id"];
    assert!(told.iter().all(|told| told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == *id));
    assert!(listening.is_quiet(SECOND).await && other.is_quiet(SECOND).await);
    // Progress and log messages are never sent here.
    let talked = guest.watch("talk", json!({"count": 1})).await.events().rest().await;
    assert_eq!(talked.len(), 2);
    assert!(listening.is_quiet(SECOND).await);
    // Shutdown: every call is answered.
    web.close_streams();
    let rest = listening.rest().await;
    assert_eq!((rest.len(), &rest[0]["id"]), (1, id));
    assert_eq!(rest[0]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], *id);
    assert_eq!(other.rest().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tasks_are_told_to_those_who_listen() {
    let works = TaskControls::new();
    let web = serve(works.server().http());
    let guest = TestClient::new(&web, STATELESS);
    let extension = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let with_tasks = |mut params: Value| {
        params["_meta"] = json!({"io.modelcontextprotocol/clientCapabilities": extension});
        params
    };
    let begun = guest.ask("tools/call", with_tasks(json!({"name": "must_slow", "arguments": {}}))).await;
    let begun = begun.message().await;
    let task = begun["result"]["taskId"].clone();
    assert!(task.is_string(), "{begun}");
    let listen =
        guest.ask("subscriptions/listen", with_tasks(json!({"notifications": {"taskIds": [task]}}))).await;
    let mut listening = listen.events();
    assert_eq!(listening.message().await["params"]["notifications"]["taskIds"], json!([task]));
    works.gate.add_permits(1);
    let told = listening.message().await;
    assert_eq!((&told["method"], &told["params"]["taskId"]), (&json!("notifications/tasks"), &task));
    assert_eq!(told["params"]["status"], "completed");
    assert!(listening.is_quiet(SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_session_are_told_on_the_stream_of_no_request() {
    let works = TaskControls::new();
    let web = serve(works.server().http());
    let guest = TestClient::open(&web, LATEST).await;
    let other = TestClient::open(&web, LATEST).await;
    let (mut stream, mut foreign) = (guest.get(None).await.events(), other.get(None).await.events());
    primed(&mut stream).await;
    primed(&mut foreign).await;
    let begun = guest.ask("tools/call", json!({"name": "must_slow", "arguments": {}, "task": {}})).await;
    let task = begun.message().await["result"]["task"]["taskId"].clone();
    works.gate.add_permits(1);
    let told = stream.message().await;
    assert_eq!(
        (&told["method"], &told["params"]["status"]),
        (&json!("notifications/tasks/status"), &json!("completed"))
    );
    let result = guest.ask("tasks/result", json!({"taskId": task})).await.message().await;
    assert_eq!(text_of(&result), "done at last");
    // Server requests of a task, too.
    let begun = guest.ask("tools/call", json!({"name": "ask", "arguments": {}, "task": {}})).await;
    assert!(begun.message().await["result"]["task"]["taskId"].is_string());
    let mut questions = Vec::new();
    while questions.len() < 2 {
        let told = stream.message().await;
        if told["method"] == "elicitation/create" {
            questions.push(told);
        }
    }
    for question in &questions {
        let content = json!({"name": "Ada", "age": 36});
        guest.reply(question, json!({"action": "accept", "content": content})).await;
    }
    loop {
        let told = stream.message().await;
        if told["method"] == "elicitation/create" {
            guest.reply(&told, json!({"action": "accept", "content": {"name": "Bob"}})).await;
        } else if told["params"]["status"] == "completed" {
            break;
        }
    }
    assert!(foreign.is_quiet(SECOND).await, "nothing for another session");
}

#[tokio::test(start_paused = true)]
async fn sessions_do_not_see_each_other() {
    let scene = CallControls::new();
    let (web, _) = endpoint(&scene);
    let (one, two) = (TestClient::open(&web, LATEST).await, TestClient::open(&web, LATEST).await);
    // The same ids and tokens everywhere.
    let message = |who: &str| {
        let params = json!({"name": "ask", "arguments": {"who": who}, "_meta": {"progressToken": "same"}});
        json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params})
    };
    let mut first = one.send(&message("one")).await.events();
    let mut second = two.send(&message("two")).await.events();
    let (ask_one, ask_two) = (first.message().await, second.message().await);
    assert_eq!(ask_one["id"], ask_two["id"], "the ids of server requests are the same too");
    two.reply(&ask_two, json!({"action": "accept", "content": {"name": "Two"}})).await;
    assert_eq!(text_of(&second.message().await), "Two");
    assert!(first.is_quiet(SECOND).await);
    two.reply(&ask_one, json!({"action": "accept", "content": {"name": "Stolen"}})).await;
    one.reply(&ask_one, json!({"action": "accept", "content": {"name": "One"}})).await;
    assert_eq!(text_of(&first.message().await), "One");
    // An id in use in one session is free in another.
    let again = one.send(&message("one")).await.events();
    assert_eq!(one.send(&message("one")).await.refusal().await, (400, -32600));
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_server_ends_streams_and_answers_calls() {
    let scene = CallControls::new();
    let (web, _) = endpoint(&scene);
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let stream = guest.get(None).await.events();
        let caller = guest.clone();
        let call = BackgroundTask::start(async move { caller.call("wait", json!({"count": 1})).await });
        scene.until_alive(1).await;
        let asking = guest.call("roots", json!({})).await.events();
        web.close_streams();
        stream.rest().await;
        let asked = asking.rest().await;
        assert_eq!(asked.last().unwrap()["result"]["isError"], true, "no client can respond any more");
        scene.step(1);
        assert_eq!(text_of(&call.end().await.message().await), "1 steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_added_later_is_told_and_called() {
    let scene = CallControls::new();
    let (web, service) = endpoint(&scene);
    let guest = TestClient::open(&web, LATEST).await;
    let mut stream = guest.get(None).await.events();
    service.handle().add(Tool::new("new").handler(|| async { "new" })).unwrap();
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    assert_eq!(guest.call_text("new", json!({})).await, "new");
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_whether_the_client_of_its_session_is_connected() {
    let (kept, release) = (Arc::<Mutex<Option<Context>>>::default(), Arc::new(tokio::sync::Notify::new()));
    let (context, released) = (kept.clone(), release.clone());
    let server =
        linchpin::Server::new("attached", "1").tool("wait", "Waits", move |_: NoArgs, cx: Context| {
            let released = released.clone();
            cx.progress(0.5);
            *context.lock().unwrap() = Some(cx);
            async move {
                released.notified().await;
                "released"
            }
        });
    let web = serve(server.http());
    let guest = TestClient::open(&web, LATEST).await;
    let mut events = guest.watch("wait", json!({})).await.events();
    let id = primed(&mut events).await;
    let cx = kept.lock().unwrap().take().unwrap();
    assert!(cx.is_attached());
    drop(events);
    assert!(!cx.is_attached());
    let resumed = guest.get(Some(&id)).await.events();
    assert!(cx.is_attached());
    release.notify_one();
    let messages = resumed.rest().await;
    assert_eq!(text_of(messages.last().unwrap()), "released");
}

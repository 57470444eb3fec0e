//! Sessions over HTTP: ownership, limits and expiry.
#![cfg(feature = "http-server")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use linchpin::server::{
    EventStore, HttpService, PrincipalError, SavedSession, SessionKey, SessionStore, StoredEvent,
};
use linchpin::{Context, NoArgs, Revision};
use serde_json::{Value, json};
use support::call_scenarios::CallControls;
use support::log_capture::LogCapture;
use support::paused::pass;
use support::web::{self, BackgroundTask, TestClient, borrowed, post, serve, text_of};
use support::{STATELESS, initialize, session_revisions};
use tokio::task::JoinSet;

const LATEST: Revision = Revision::LATEST_SESSION;
const SECOND: Duration = Duration::from_secs(1);

fn identify(parts: &Parts) -> Result<Option<String>, PrincipalError> {
    match parts.headers.get("x-user").map(|user| user.to_str().unwrap()) {
        Some("nobody") => Err(PrincipalError::Unauthorized),
        Some("banned") => Err(PrincipalError::Forbidden),
        user => Ok(user.map(str::to_owned)),
    }
}

async fn is_alive(guest: &TestClient) -> bool {
    match guest.ask("ping", json!({})).await.status {
        StatusCode::OK => true,
        StatusCode::NOT_FOUND => false,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_session_is_opened_used_and_ended() {
    let web = serve(CallControls::new().server().http());
    for revision in session_revisions() {
        let guest = TestClient::open(&web, revision).await;
        let other = TestClient::open(&web, revision).await;
        assert_ne!(guest.session, other.session);
        for (message, before) in [("a", ""), ("b", "a"), ("c", "b")] {
            assert_eq!(guest.call_text("remember", json!({"message": message})).await, before);
        }
        assert_eq!(other.call_text("remember", json!({"message": "x"})).await, "", "each has its own");
        let ended = guest.delete().await;
        assert_eq!((ended.status, ended.text().await), (StatusCode::NO_CONTENT, String::new()));
        assert!(!is_alive(&guest).await);
        assert_eq!(guest.delete().await.refusal().await, (404, -32600));
        assert_eq!(guest.get(None).await.refusal().await, (404, -32600));
        assert_eq!(
            guest.notify("notifications/initialized", Value::Null).await.status,
            StatusCode::NOT_FOUND
        );
        assert!(is_alive(&other).await);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_ends_what_goes_on_in_it() {
    let scene = CallControls::new();
    let web = serve(scene.server().http());
    let guest = TestClient::open(&web, LATEST).await;
    let mut stream = guest.get(None).await.events();
    assert_eq!(stream.event().await.unwrap().data.as_deref(), Some(""));
    // One call that is already a stream, and one that may still become one.
    let mut call = guest.watch("wait", json!({"count": 2})).await.events();
    assert_eq!(call.event().await.unwrap().data.as_deref(), Some(""));
    let young = guest.clone();
    let pending = BackgroundTask::start(async move { young.call("wait", json!({"count": 1})).await });
    scene.until_alive(2).await;
    assert_eq!(guest.delete().await.status, StatusCode::NO_CONTENT);
    assert_eq!((stream.next().await, call.next().await), (None, None));
    assert_eq!(pending.end().await.events().rest().await, Vec::<Value>::new());
    scene.until_alive(0).await;
    assert_eq!(scene.finished(), 0, "they were cancelled");
}

#[tokio::test]
async fn a_session_is_its_principals() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().principal(identify));
    let mut refused = 0;
    let ada = TestClient::open_as(&web, LATEST, "ada").await;
    assert_eq!(ada.call_text("who", json!({})).await, "ada");
    for who in ["bob", "Ada", "", "ada "] {
        let mut thief = ada.clone();
        thief.always = if who.is_empty() { vec![] } else { vec![("x-user", who.to_owned())] };
        if who == "ada " {
            continue; // headers have no trailing space
        }
        for method in
            ["tools/list", "tools/call", "ping", "initialize", "resources/read", "tasks/list", "no/such"]
        {
            assert_eq!(
                thief.ask(method, json!({})).await.refusal().await,
                (404, -32600),
                "{method} by {who}"
            );
            refused += 1;
        }
        assert_eq!(thief.notify("notifications/cancelled", Value::Null).await.refusal().await, (404, -32600));
        let reply = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
        assert_eq!(thief.send(&reply).await.refusal().await, (404, -32600));
        assert_eq!(thief.get(None).await.refusal().await, (404, -32600));
        assert_eq!(thief.get(Some("0-0")).await.refusal().await, (404, -32600));
        assert_eq!(thief.delete().await.refusal().await, (404, -32600));
        refused += 5;
    }
    eprintln!("stolen sessions: rejected={refused} accepted=0");
    assert_eq!(refused, 36);
    assert!(is_alive(&ada).await);
    for (who, status) in [("nobody", 401), ("banned", 403)] {
        let mut guest = ada.clone();
        guest.always = vec![("x-user", who.to_owned())];
        let answer = guest.ask("ping", json!({})).await;
        assert_eq!(answer.header("www-authenticate"), (status == 401).then_some("Bearer"));
        assert_eq!(answer.refusal().await, (status, -32600));
        assert_eq!(guest.get(None).await.refusal().await, (status, -32600));
        assert_eq!(guest.delete().await.refusal().await, (status, -32600));
    }
    assert_eq!(ada.delete().await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn ids_cannot_be_guessed() {
    let web = serve(CallControls::new().server().http());
    let guest = TestClient::open(&web, LATEST).await;
    let id = guest.session.clone().unwrap();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let mut guesses = 0;
    // Each digit changed, left out and doubled; and many others.
    let digits = "0123456789abcdef";
    let others = (0..64).flat_map(|at| {
        let (head, digit, tail) = (&id[..at], &id[at..=at], &id[at + 1..]);
        let other = digits.chars().filter(move |other| !digit.starts_with(*other));
        let mut all: Vec<_> = other.map(|other| format!("{head}{other}{tail}")).collect();
        all.extend([
            format!("{head}{tail}"),
            format!("{head}{digit}{digit}{tail}"),
            format!("{head}%{tail}"),
        ]);
        all
    });
    let counted = (0..4_000u64).map(|number| format!("{number:064x}"));
    for guess in others.chain(counted) {
        let answer = web.handle(post(&ping, &[("mcp-session-id", &guess)])).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{guess}");
        guesses += 1;
    }
    eprintln!("guesses: rejected={guesses} accepted=0");
    assert_eq!(guesses, 64 * 18 + 4_000);
    assert!(is_alive(&guest).await);
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_end_and_used_ones_do_not() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().session_ttl(80 * SECOND));
    let [idle, used, streaming, working] = [(); 4].map(|()| TestClient::new(&web, LATEST));
    let mut guests = [idle, used, streaming, working];
    for guest in &mut guests {
        guest.initialize().await;
    }
    let [idle, used, streaming, working] = guests;
    let stream = streaming.get(None).await;
    let busy = working.clone();
    let call = BackgroundTask::start(async move { busy.call("wait", json!({"count": 1})).await });
    scene.until_alive(1).await;
    for _ in 0..10 {
        pass(20 * SECOND).await;
        assert!(is_alive(&used).await);
    }
    assert!(!is_alive(&idle).await);
    assert!(is_alive(&streaming).await);
    drop(stream);
    scene.step(1);
    let answer = call.end().await.events().rest().await;
    assert_eq!(text_of(&answer[0]), "1 steps", "a call of 200 seconds");
    pass(100 * SECOND).await;
    for guest in [&used, &streaming, &working] {
        assert!(!is_alive(guest).await);
    }
}

#[tokio::test(start_paused = true)]
async fn work_does_not_keep_a_session_that_its_client_has_left() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().session_ttl(80 * SECOND).max_sessions(2));
    // By time.
    let guest = TestClient::open(&web, LATEST).await;
    let caller = guest.clone();
    let call = BackgroundTask::start(async move { caller.call("wait", json!({"count": 1})).await });
    scene.until_alive(1).await;
    drop(call);
    pass(60 * SECOND).await;
    assert_eq!(scene.running(), 1);
    pass(60 * SECOND).await;
    assert_eq!(scene.running(), 0);
    assert!(!is_alive(&guest).await);
    // By other sessions.
    let guest = TestClient::open(&web, LATEST).await;
    let caller = guest.clone();
    let call = BackgroundTask::start(async move { caller.call("wait", json!({"count": 1})).await });
    scene.until_alive(1).await;
    drop(call);
    for _ in 0..2 {
        pass(SECOND).await;
        TestClient::open(&web, LATEST).await;
    }
    pass(SECOND).await;
    assert_eq!((scene.running(), scene.finished()), (0, 0));
    assert!(!is_alive(&guest).await);
}

#[tokio::test(start_paused = true)]
async fn the_session_that_is_idle_for_longest_goes_first() {
    let web = serve(CallControls::new().server().http().max_sessions(4));
    let mut guests = Vec::new();
    for _ in 0..4 {
        guests.push(TestClient::open(&web, LATEST).await);
        pass(SECOND).await;
    }
    // The oldest session is used last, the newest first.
    for guest in [&guests[2], &guests[1], &guests[3], &guests[0]] {
        assert!(is_alive(guest).await);
        pass(SECOND).await;
    }
    let mut known = vec![2, 1, 3, 0];
    for _ in 0..4 {
        let new = TestClient::open(&web, LATEST).await;
        pass(SECOND).await;
        let gone = known.remove(0);
        assert_eq!(guests[gone].delete().await.status, StatusCode::NOT_FOUND, "{gone} was idle for longest");
        drop(new);
    }
}

#[tokio::test(start_paused = true)]
async fn a_principal_at_its_bound_lets_its_own_go() {
    let http = CallControls::new().server().http().principal(identify);
    let web = serve(http.max_sessions_per_principal(2).max_sessions(5));
    let bob = TestClient::open_as(&web, LATEST, "bob").await;
    let anonymous = TestClient::open(&web, LATEST).await;
    pass(SECOND).await;
    let mut adas = Vec::new();
    for _ in 0..2 {
        adas.push(TestClient::open_as(&web, LATEST, "ada").await);
        pass(SECOND).await;
    }
    assert!(is_alive(&adas[0]).await);
    pass(SECOND).await;
    let third = TestClient::open_as(&web, LATEST, "ada").await;
    assert!(!is_alive(&adas[1]).await, "of her own, and the one idle for longest");
    assert!(is_alive(&adas[0]).await && is_alive(&third).await);
    // While all her sessions are in use she gets no more, but others do.
    let streams = (adas[0].get(None).await, third.get(None).await);
    let mut fourth = TestClient::new(&web, LATEST);
    fourth.always = vec![("x-user", "ada".into())];
    let opening = fourth.message("initialize", initialize("2025-11-25", &json!({})));
    let answer = fourth.send(&opening).await;
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert_eq!(answer.refusal().await, (503, -32600));
    let eve = TestClient::open_as(&web, LATEST, "eve").await;
    assert!(is_alive(&eve).await && is_alive(&bob).await && is_alive(&anonymous).await);
    // A session that has ended no longer counts.
    assert_eq!(third.delete().await.status, StatusCode::NO_CONTENT);
    drop(streams);
    fourth.initialize().await;
    assert!(is_alive(&fourth).await);
}

#[tokio::test(start_paused = true)]
async fn there_is_no_room_while_all_are_in_use() {
    let web = serve(CallControls::new().server().http().max_sessions(3));
    let mut guests = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..3 {
        let guest = TestClient::open(&web, LATEST).await;
        streams.push(guest.get(None).await);
        guests.push(guest);
    }
    let late = TestClient::new(&web, LATEST);
    let opening = late.message("initialize", initialize("2025-11-25", &json!({})));
    for _ in 0..3 {
        let answer = late.send(&opening).await;
        assert_eq!((answer.header("mcp-session-id"), answer.header("retry-after")), (None, Some("5")));
        assert_eq!(answer.refusal().await, (503, -32600));
        pass(SECOND).await;
    }
    // The stateless era needs no session.
    assert_eq!(TestClient::new(&web, STATELESS).call_text("echo", json!({"message": "m"})).await, "m");
    streams.remove(1);
    let new = TestClient::open(&web, LATEST).await;
    assert!(is_alive(&new).await && !is_alive(&guests[1]).await && is_alive(&guests[0]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_requests_at_once_cannot_have_the_same_id() {
    let (scene, both) = (CallControls::new(), Arc::new(Barrier::new(2)));
    let meet = scene.clone();
    let server = scene.server().tool("meet", "", move |_: NoArgs, cx: Context| {
        let (scene, both) = (meet.clone(), both.clone());
        async move {
            both.wait(); // both are running before either waits
            scene.wait(1, cx).await
        }
    });
    let web = serve(server.http().stream_after(20 * SECOND));
    for ends in [false, true] {
        let guest = TestClient::open(&web, LATEST).await;
        let message = guest.message("tools/call", json!({"name": "meet"}));
        let mut calls = JoinSet::new();
        for _ in 0..2 {
            let (guest, message) = (guest.clone(), message.clone());
            calls.spawn(async move { guest.send(&message).await });
        }
        let refused = calls.join_next().await.unwrap().unwrap();
        assert_eq!(refused.refusal().await, (400, -32600));
        scene.until_alive(1).await;
        if ends {
            guest.delete().await;
        } else {
            guest.notify("notifications/cancelled", json!({"requestId": message["id"]})).await;
        }
        scene.until_alive(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn session_ids_are_never_shown() {
    let ears = LogCapture::default();
    // For every thread: a callsite first hit by a thread without the subscriber would stay disabled for all.
    tracing::subscriber::set_global_default(ears.clone()).unwrap();
    let shown = Arc::new(Mutex::new(String::new()));
    let (show, scene) = (shown.clone(), CallControls::new());
    let server = scene.server().tool("show", "", move |_: NoArgs, cx: Context| {
        let parts = cx.http().unwrap();
        write!(show.lock().unwrap(), "{parts:?}").unwrap();
        async { "shown" }
    });
    let seen = shown.clone();
    let http = server.http().legacy_sse().principal(move |parts| {
        write!(seen.lock().unwrap(), "{parts:?}").unwrap();
        Ok(None)
    });
    let web = serve(http);
    let guest = TestClient::open(&web, LATEST).await;
    assert_eq!(guest.call_text("show", json!({})).await, "shown");
    let mut call = guest.watch("wait", json!({"count": 3})).await.events();
    scene.step(1);
    call.message().await;
    drop(call);
    guest.get(Some("1-0")).await.events();
    guest.get(Some("9-9")).await.refusal().await;
    guest.notify("notifications/cancelled", json!({"requestId": 3, "reason": "why"})).await;
    guest.send(&json!({"jsonrpc": "2.0", "id": 99, "result": {}})).await;
    let answer = guest.ask("tools/list", json!({})).await;
    write!(shown.lock().unwrap(), "{:?} {:?}", answer.headers, answer.body).unwrap();
    let opening = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize("2025-11-25", &json!({}))});
    let opened = guest.handle(post(&opening, &[("authorization", "Bearer canary")])).await;
    write!(shown.lock().unwrap(), "{:?}", opened.headers).unwrap();
    let second = opened.header("mcp-session-id").unwrap().to_owned();
    guest.delete().await;
    let refused = guest.ask("ping", json!({})).await.text().await;
    // The URL of the HTTP+SSE transport contains one.
    let get = web::request(http::Method::GET, "/sse").body(String::new()).unwrap();
    let mut line = guest.handle(get).await.events();
    let address = line.event().await.unwrap().data.unwrap();
    let third = address.split_once("sessionId=").unwrap().1;
    let address = format!("/mcp?before=1&sessionId={third}&after=2&sessionId={third}");
    for message in [opening, guest.message("tools/call", json!({"name": "show"}))] {
        let request = web::request(http::Method::POST, &address).body(message.to_string()).unwrap();
        assert_eq!(guest.handle(request).await.status, StatusCode::ACCEPTED);
        assert!(line.event().await.unwrap().data.unwrap().contains("\"result\""));
    }
    let said = format!("{}{}{refused}", ears.take(), shown.lock().unwrap());
    assert!(said.contains("request cancelled") && said.contains("Sensitive"), "{said}");
    assert!(said.contains("/mcp?before=1&after=2,"), "{said}");
    for secret in [&guest.session.clone().unwrap(), &second, third, "canary"] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[linchpin::args]
struct Memo {
    number: String,
}

/// Sessions and events that two endpoints share.
#[derive(Clone, Default)]
struct Shared {
    sessions: Arc<Mutex<HashMap<SessionKey, SavedSession>>>,
    events: Arc<Mutex<Vec<SharedEvent>>>,
    loads: Arc<AtomicUsize>,
    /// Number of saves in progress.
    saves: Arc<AtomicUsize>,
}

type SharedEvent = (SessionKey, u32, StoredEvent);
type Coming<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

impl SessionStore for Shared {
    fn save(&self, key: &SessionKey, session: SavedSession) {
        let others = self.saves.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        self.sessions.lock().unwrap().insert(*key, session);
        self.saves.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(others, 0, "concurrent saves have no order");
    }

    fn load(&self, key: &SessionKey) -> Coming<Option<SavedSession>> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        let found = self.sessions.lock().unwrap().get(key).cloned();
        Box::pin(async move {
            tokio::task::yield_now().await;
            found
        })
    }

    fn remove(&self, key: &SessionKey) {
        self.sessions.lock().unwrap().remove(key);
    }
}

impl EventStore for Shared {
    fn store(&self, session: &SessionKey, stream: u32, event: StoredEvent) {
        self.events.lock().unwrap().push((*session, stream, event));
    }

    fn load_after(&self, session: &SessionKey, stream: u32, number: u64) -> Coming<Vec<StoredEvent>> {
        let events = self.events.lock().unwrap();
        let of = |kept: &&SharedEvent| kept.0 == *session && kept.1 == stream && kept.2.number > number;
        let found = events.iter().filter(of).map(|kept| kept.2.clone()).collect();
        Box::pin(std::future::ready(found))
    }

    fn delete(&self, session: &SessionKey) {
        self.events.lock().unwrap().retain(|kept| kept.0 != *session);
    }
}

fn sharing(scene: &CallControls, shared: &Shared) -> HttpService {
    let http = scene.server().http().principal(identify).session_store(shared.clone());
    serve(http.event_store(shared.clone()).max_sessions_per_principal(2))
}

fn moved(guest: &TestClient, to: &HttpService) -> TestClient {
    let mut guest = guest.clone();
    guest.web = to.clone();
    guest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_at_once_are_all_kept_and_none_after_the_end() {
    let (scene, shared) = (CallControls::new(), Shared::default());
    let memos = |Memo { number }| async move { number };
    let server = scene.server().resource_template("memo://{number}", "memos", memos);
    let web = serve(server.http().principal(identify).session_store(shared.clone()));
    for _ in 0..50 {
        let guest = TestClient::open_as(&web, LATEST, "ada").await;
        let uris: Vec<_> = (0..20).map(|number| format!("memo://{number}")).collect();
        let subscribe = |uri: &String| {
            let (guest, uri) = (guest.clone(), uri.clone());
            async move { guest.ask("resources/subscribe", json!({ "uri": uri })).await.status }
        };
        let asked: Vec<_> = uris.iter().map(|uri| BackgroundTask::start(subscribe(uri))).collect();
        for asked in asked {
            assert_eq!(asked.end().await, StatusCode::OK);
        }
        let saved = shared.sessions.lock().unwrap().values().next().unwrap().subscriptions.clone();
        assert_eq!(BTreeSet::from_iter(saved), BTreeSet::from_iter(uris.clone()));
        let asked: Vec<_> = uris.iter().map(|uri| BackgroundTask::start(subscribe(uri))).collect();
        assert_eq!(guest.delete().await.status, StatusCode::NO_CONTENT);
        for asked in asked {
            asked.end().await;
        }
        assert!(shared.sessions.lock().unwrap().is_empty(), "an ended session is stored");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_goes_on_at_another_endpoint() {
    let (scene, shared) = (CallControls::new(), Shared::default());
    let (here, service) = (sharing(&scene, &shared), scene.server().build().unwrap());
    let http = service.http().principal(identify).session_store(shared.clone());
    let there = serve(http.event_store(shared.clone()));
    for revision in session_revisions() {
        let guest = TestClient::open_as(&here, revision, "ada").await;
        assert_eq!(guest.ask("logging/setLevel", json!({"level": "error"})).await.status, StatusCode::OK);
        assert_eq!(
            guest.ask("resources/subscribe", json!({"uri": "memo://one"})).await.status,
            StatusCode::OK
        );
        let elsewhere = moved(&guest, &there);
        // Two concurrent requests restore it once.
        let (one, two) = tokio::join!(
            elsewhere.call("remember", json!({"message": "one"})),
            elsewhere.call("remember", json!({"message": "two"})),
        );
        let told = [text_of(&one.message().await), text_of(&two.message().await)];
        assert!(
            told.contains(&"one".to_owned()) || told.contains(&"two".to_owned()),
            "one session: {told:?}"
        );
        assert_eq!(
            text_of(&elsewhere.call("log", json!({})).await.message().await),
            "logged",
            "the level is known"
        );
        let mut stream = elsewhere.get(None).await.events();
        service.handle().resource_updated("memo://one");
        assert_eq!(stream.message().await["params"]["uri"], "memo://one");
        let mut thief = elsewhere.clone();
        thief.always = vec![("x-user", "eve".into())];
        let third = sharing(&scene, &shared);
        assert!(!is_alive(&moved(&thief, &third)).await);
        assert_eq!(moved(&thief, &third).delete().await.status, StatusCode::NOT_FOUND);
        // It can also be ended where it was never used.
        assert_eq!(moved(&guest, &third).delete().await.status, StatusCode::NO_CONTENT);
        assert!(!is_alive(&moved(&guest, &third)).await);
        assert!(shared.sessions.lock().unwrap().is_empty() && shared.events.lock().unwrap().is_empty());
        elsewhere.delete().await;
        guest.delete().await;
    }
    assert!(shared.sessions.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn opening_a_session_again_takes_the_place_of_one() {
    let (scene, shared) = (CallControls::new(), Shared::default());
    let (here, there) = (sharing(&scene, &shared), sharing(&scene, &shared));
    let guest = TestClient::open_as(&here, LATEST, "ada").await;
    let elsewhere = moved(&guest, &there);
    let all = (0..20).map(|_| {
        let guest = elsewhere.clone();
        BackgroundTask::start(async move { is_alive(&guest).await })
    });
    for alive in all.collect::<Vec<_>>() {
        assert!(alive.end().await);
    }
    // Two sessions fit, and this is one of them, however many have opened it.
    pass(SECOND).await;
    let second = TestClient::open_as(&there, LATEST, "ada").await;
    assert!(is_alive(&second).await);
    let loads = shared.loads.load(Ordering::SeqCst);
    assert!(is_alive(&elsewhere).await);
    assert_eq!(shared.loads.load(Ordering::SeqCst), loads, "it is still there");
}

#[tokio::test(start_paused = true)]
async fn events_of_two_endpoints_are_not_mistaken_for_each_other() {
    let (scene, shared) = (CallControls::new(), Shared::default());
    let (here, there) = (sharing(&scene, &shared), sharing(&scene, &shared));
    let guest = TestClient::open_as(&here, LATEST, "ada").await;
    let mut call = guest.watch("talk", json!({"count": 3})).await.events();
    assert_eq!(call.message().await["params"]["progress"], 1.0);
    let seen = call.last.clone().unwrap();
    assert_eq!(call.rest().await.len(), 3);
    let elsewhere = moved(&guest, &there);
    let mut other = elsewhere.watch("talk", json!({"count": 1})).await.events();
    other.message().await;
    assert_ne!(
        other.last.as_ref().unwrap().split('-').next(),
        seen.split('-').next(),
        "other streams, other numbers"
    );
    // Missed events are in the store, including the response.
    let rest = elsewhere.get(Some(&seen)).await.events().rest().await;
    assert_eq!(rest.len(), 3);
    assert_eq!((&rest[0]["params"]["progress"], text_of(&rest[2])), (&json!(2.0), "talked".to_owned()));
    // The standalone stream restarts, and reports the gap.
    assert_eq!(elsewhere.get(Some("0-7")).await.refusal().await, (400, -32600));
    let mut stream = elsewhere.get(None).await.events();
    let first = stream.event().await.unwrap().id.unwrap();
    let (number, event) = first.split_once('-').unwrap();
    assert_eq!(number, "0");
    assert!(event.parse::<u64>().unwrap() > 1 << 32);
    drop(stream);
    let answer = elsewhere.get(Some(&first)).await;
    assert_eq!(answer.status, StatusCode::OK);
    let headers = web::mirrored(&Value::Null);
    assert!(!borrowed(&headers).is_empty());
}

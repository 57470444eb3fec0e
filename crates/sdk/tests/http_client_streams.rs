//! Standalone stream of a session: when it counts as healthy, when it is abandoned, and what happens to the session.
//! The clock advances only on request.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;
#[path = "support/manual_clock.rs"]
mod manual_clock;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HttpScript, ReceivedRequest, Reply, TEST_TIMEOUT, client, plain_reply, server};
use linchpin::client::ListChanged;
use linchpin::transport::http::HttpTransport;
use linchpin::{Client, ClientBuilder, LogLevel, Revision};
use manual_clock::ManualClock;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

const SESSION: Revision = Revision::LATEST_SESSION;
/// Longer than any delay before a stream is resumed.
const RECONNECT_WAIT: Duration = Duration::from_secs(6);

/// Diagnostics of a client.
struct Diagnostics(mpsc::Receiver<String>);

impl Diagnostics {
    /// Waits for a diagnostic that contains `part`.
    async fn wait_for(&mut self, part: &str) {
        let mut all = Vec::new();
        let said = async {
            while let Some(line) = self.0.recv().await.filter(|line| !line.contains(part)) {
                all.push(line);
            }
        };
        let said = timeout(TEST_TIMEOUT, said).await;
        all.truncate(20);
        said.unwrap_or_else(|_| panic!("{part:?} was not reported: {all:?}"));
    }
}

fn with_diagnostics(builder: ClientBuilder<HttpTransport>) -> (ClientBuilder<HttpTransport>, Diagnostics) {
    let (sender, receiver) = mpsc::channel(1_000);
    (builder.on_diagnostic(move |line| drop(sender.try_send(line.to_owned()))), Diagnostics(receiver))
}

fn tools_changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
}

/// A server with numbered sessions; only the newest one is valid.
async fn numbering(
    special: impl Fn(&ReceivedRequest, usize) -> Option<Reply> + Send + Sync + 'static,
) -> HttpScript {
    let opened = AtomicUsize::new(0);
    HttpScript::start(move |seen| {
        if seen.is("initialize") {
            let id = format!("session-{}", opened.fetch_add(1, Ordering::SeqCst));
            return plain_reply(SESSION, seen).with_header("mcp-session-id", &id);
        }
        let number = seen.header("mcp-session-id").strip_prefix("session-");
        let special = number.and_then(|number| special(seen, number.parse().unwrap()));
        special.unwrap_or_else(|| plain_reply(SESSION, seen))
    })
    .await
}

fn lost(seen: &ReceivedRequest) -> Reply {
    Reply::json_with(404, &[], &seen.error(-32001, "Session not found"))
}

#[tokio::test]
async fn a_server_without_a_stream_keeps_its_session() {
    let script = server(SESSION, |seen| seen.is("GET").then(|| Reply::status(404))).await;
    let (builder, mut diagnostics) = with_diagnostics(client(&script));
    let client = builder.connect().await.unwrap();
    diagnostics.wait_for("the server has no standalone event stream (GET)").await;
    client.call("echo", ()).await.unwrap();
    client.close().await;
    assert_eq!((script.of("initialize").len(), script.of("GET").len()), (1, 1));
}

#[tokio::test]
async fn a_session_whose_stream_is_not_found_is_not_replaced_by_yet_another() {
    let clock = ManualClock::stop();
    // The second of two servers never knows the session.
    let gets = AtomicUsize::new(0);
    let script = numbering(move |seen, _| {
        let first = || gets.fetch_add(1, Ordering::SeqCst) == 0;
        seen.is("GET").then(|| if first() { Reply::events().close() } else { lost(seen) })
    })
    .await;
    let (builder, mut diagnostics) = with_diagnostics(client(&script));
    let client = builder.connect().await.unwrap();
    diagnostics.wait_for("was cut").await;
    clock.advance(RECONNECT_WAIT).await;
    diagnostics.wait_for("the server has no standalone event stream (GET)").await;
    client.call("echo", ()).await.unwrap();
    let gets: Vec<_> = script.of("GET").iter().map(|seen| seen.header("mcp-session-id").to_owned()).collect();
    assert_eq!(gets, ["session-0", "session-0", "session-1"]);
    assert_eq!(script.of("initialize").len(), 2);
}

#[tokio::test]
async fn sessions_that_end_with_their_streams_are_opened_ever_more_slowly_and_not_for_ever() {
    let clock = ManualClock::stop();
    let streams: Mutex<Vec<usize>> = Mutex::default();
    let script = numbering(move |seen, number| {
        if !seen.is("GET") {
            return None;
        }
        let mut streams = streams.lock().unwrap();
        let again = streams.contains(&number);
        streams.push(number);
        Some(if again { lost(seen) } else { Reply::events().close() })
    })
    .await;
    let (builder, mut diagnostics) = with_diagnostics(client(&script).max_reconnects(3));
    let client = builder.connect().await.unwrap();
    for pause in [100, 200, 400] {
        diagnostics.wait_for("was cut").await;
        clock.advance(Duration::from_millis(pause)).await;
    }
    diagnostics.wait_for("is abandoned").await;
    assert_eq!((script.of("initialize").len(), script.of("GET").len()), (4, 7));
    client.call("echo", ()).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_was_there_for_long_and_had_nothing_to_say_is_healthy() {
    let (clock, cut) = (ManualClock::stop(), Arc::new(Notify::new()));
    let until = cut.clone();
    let script =
        server(SESSION, move |seen| seen.is("GET").then(|| Reply::events().wait(&until).close())).await;
    let (builder, mut diagnostics) = with_diagnostics(client(&script).max_reconnects(1));
    let _client = builder.connect().await.unwrap();
    for _ in 0..4 {
        diagnostics.wait_for("the event stream is open").await;
        clock.advance(Duration::from_mins(1)).await;
        cut.notify_one();
        diagnostics.wait_for("reconnecting").await;
        clock.advance(RECONNECT_WAIT).await;
    }
    diagnostics.wait_for("the event stream is open").await;
}

#[tokio::test]
async fn a_stream_whose_messages_have_no_ids_is_healthy() {
    let clock = ManualClock::stop();
    let script =
        server(SESSION, |seen| seen.is("GET").then(|| Reply::events().event(&tools_changed()).close())).await;
    let (sender, mut changes) = mpsc::channel(8);
    let builder = client(&script).on_list_changed(move |list| sender.try_send(list).unwrap());
    let (builder, mut diagnostics) = with_diagnostics(builder.max_reconnects(1));
    let _client = builder.connect().await.unwrap();
    for _ in 0..4 {
        diagnostics.wait_for("reconnecting").await;
        clock.advance(RECONNECT_WAIT).await;
        assert_eq!(timeout(TEST_TIMEOUT, changes.recv()).await.unwrap(), Some(ListChanged::Tools));
    }
}

/// A server whose stream sends a new id each time, and no messages.
async fn priming(retry: &'static str) -> HttpScript {
    let number = AtomicUsize::new(0);
    server(SESSION, move |seen| {
        let number = number.fetch_add(1, Ordering::SeqCst);
        let primed = format!("id: {number}\nretry: {retry}\ndata:\n\n");
        seen.is("GET").then(|| Reply::events().chunk(primed.as_bytes()).close())
    })
    .await
}

#[tokio::test]
async fn a_stream_that_names_ids_and_brings_nothing_is_given_up() {
    let clock = ManualClock::stop();
    let script = priming("0").await;
    let (builder, mut diagnostics) = with_diagnostics(client(&script).max_reconnects(3));
    let _client = builder.connect().await.unwrap();
    for (number, pause) in [100, 200, 400].into_iter().enumerate() {
        diagnostics.wait_for("reconnecting").await;
        clock.advance(Duration::from_millis(pause - 5)).await;
        assert_eq!(script.of("GET").len(), number + 1);
        clock.advance(Duration::from_millis(5)).await;
    }
    diagnostics.wait_for("is abandoned").await;
    assert_eq!(script.of("GET").len(), 4);
}

#[tokio::test]
async fn a_stream_that_brings_no_messages_is_given_up() {
    let clock = ManualClock::stop();
    for events in ["event: error\ndata: no stream here\n\n", "data: no stream here\n\n", ": ping\n\n"] {
        let events = Reply::events().chunk(events.as_bytes()).close();
        let script = server(SESSION, move |seen| seen.is("GET").then(|| events.clone())).await;
        let (builder, mut diagnostics) = with_diagnostics(client(&script).max_reconnects(1));
        let _client = builder.connect().await.unwrap();
        diagnostics.wait_for("reconnecting").await;
        clock.advance(RECONNECT_WAIT).await;
        diagnostics.wait_for("is abandoned").await;
    }
}

#[tokio::test]
async fn a_server_that_wants_to_be_asked_now_and_then_is() {
    let clock = ManualClock::stop();
    let script = priming("5000").await;
    let (builder, mut diagnostics) = with_diagnostics(client(&script).max_reconnects(1));
    let _client = builder.connect().await.unwrap();
    for _ in 0..4 {
        diagnostics.wait_for("reconnecting").await;
        clock.advance(RECONNECT_WAIT).await;
    }
    script.wait_for("GET", 5).await;
}

/// Connects a client with state in its session, which the server will lose.
async fn with_level(script: &HttpScript) -> Client {
    let client = client(script).on_log(LogLevel::Warning, |_| ()).connect().await.unwrap();
    script.wait_for("GET", 1).await;
    client
}

#[tokio::test]
async fn a_session_that_was_opened_halfway_is_ended_and_another_one_is_whole() {
    let script = numbering(|seen, number| match (seen.method(), number) {
        ("tools/list", 0) => Some(lost(seen)),
        ("notifications/initialized", 1) => Some(Reply::new(503, &[], b"session-1 is not ready")),
        _ => None,
    })
    .await;
    let client = with_level(&script).await;
    let halfway = client.tools().all().await.unwrap_err();
    assert!(!halfway.to_string().contains("session-1"), "{halfway}");
    client.tools().all().await.unwrap();
    let ended = script.wait_for("DELETE", 1).await;
    assert_eq!(ended[0].header("mcp-session-id"), "session-1");
    let levels = script.wait_for("logging/setLevel", 2).await;
    assert_eq!(levels[1].header("mcp-session-id"), "session-2");
    assert_eq!(script.wait_for("GET", 2).await[1].header("mcp-session-id"), "session-2");
    assert_eq!(script.of("initialize").len(), 3);
}

#[tokio::test]
async fn a_notification_of_a_method_that_is_not_found_is_no_lost_session() {
    let script = server(SESSION, |seen| {
        let unknown = seen.error(-32601, "Method not found");
        seen.is("notifications/acme").then(|| Reply::json_with(404, &[], &unknown))
    })
    .await;
    let (builder, mut diagnostics) = with_diagnostics(client(&script));
    let client = builder.connect().await.unwrap();
    client.notify("notifications/acme", &json!({}));
    diagnostics.wait_for("was not delivered").await;
    client.call("echo", ()).await.unwrap();
    assert_eq!(script.of("initialize").len(), 1);
}

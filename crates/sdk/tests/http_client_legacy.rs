//! HTTP+SSE servers: detected automatically, used through their endpoint, and not trusted too much.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HttpScript, MessageStream, ReceivedRequest, Reply, TEST_TIMEOUT, plain_reply, said};
use linchpin::client::RevisionCache;
use linchpin::{CallError, Client, ClientError, Revision};
use serde_json::{Value, json};
use tokio::time::timeout;

const OLD: Revision = Revision::V2024_11_05;

/// A server with HTTP+SSE at `/sse`; `endpoint` is the data of its first event.
async fn old(
    first: &'static str,
    special: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync + 'static,
) -> (HttpScript, MessageStream) {
    let stream = MessageStream::default();
    let to_client = stream.clone();
    let script = HttpScript::start(move |seen| {
        if let Some(reply) = special(seen) {
            return reply;
        }
        match (&*seen.verb, &*seen.path) {
            ("GET", "/sse") => Reply::events().chunk(first.as_bytes()).then_stream(&to_client),
            ("POST", path) if path.starts_with("/messages") => {
                if seen.body.get("id").is_some() && seen.body.get("method").is_some() {
                    to_client.send(&body_of(&plain_reply(OLD, seen)));
                }
                Reply::new(202, &[], b"Accepted")
            }
            _ => Reply::new(404, &[("content-type", "text/html")], b"<h1>not here</h1>"),
        }
    })
    .await;
    (script, stream)
}

fn body_of(reply: &Reply) -> Value {
    reply.body_json().unwrap()
}

const ENDPOINT: &str = "event: endpoint\ndata: /messages?sessionId=5ecret\n\n";

fn url(script: &HttpScript) -> String {
    format!("{}/sse", script.origin())
}

#[tokio::test]
async fn it_is_found_when_both_eras_fail() {
    let (script, _) = old(ENDPOINT, |_| None).await;
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let told = lines.clone();
    let client = Client::http(url(&script))
        .revision_cache(RevisionCache::new())
        .header("x-key", "k")
        .on_diagnostic(move |line| told.lock().unwrap().push(line.to_owned()))
        .connect()
        .await
        .unwrap();
    assert_eq!(client.revision(), OLD);
    assert_eq!(client.tools().all().await.unwrap().len(), 1);
    assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo");
    client.close().await;
    let asked: Vec<_> = script
        .received()
        .iter()
        .map(|seen| format!("{} {} {}", seen.verb, seen.path, seen.method()))
        .collect();
    let endpoint = "POST /messages?sessionId=5ecret";
    let expected = [
        "POST /sse server/discover".to_owned(),
        "POST /sse initialize".to_owned(),
        "GET /sse GET".to_owned(),
        format!("{endpoint} initialize"),
        format!("{endpoint} notifications/initialized"),
        format!("{endpoint} tools/list"),
        format!("{endpoint} tools/call"),
    ];
    assert_eq!(asked, expected);
    assert!(script.received().iter().all(|seen| seen.header("x-key") == "k"));
    let lines = lines.lock().unwrap().join("\n");
    assert!(!lines.contains("5ecret") && !lines.contains("/messages"), "{lines}");
}

#[tokio::test]
async fn it_can_be_asked_for() {
    let (script, _) = old(ENDPOINT, |_| None).await;
    let client = Client::sse(url(&script)).revision_cache(RevisionCache::new()).connect().await.unwrap();
    client.call("echo", ()).await.unwrap();
    assert_eq!(script.methods(), ["GET", "initialize", "notifications/initialized", "tools/call"]);
    let (script, _) = old(ENDPOINT, |_| None).await;
    let refused = Client::sse(script.url()).revision_cache(RevisionCache::new()).connect().await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::Open { .. }) && refused.to_string().contains("404"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_endpoint_elsewhere_is_refused() {
    for first in [
        "event: endpoint\ndata: http://127.0.0.1:1/messages\n\n",
        "event: endpoint\ndata: https://example.com/messages\n\n",
        "event: endpoint\ndata: //example.com/messages\n\n",
        "event: endpoint\ndata: file:///etc/passwd\n\n",
        "event: endpoint\ndata: http://user:password@example.com/\n\n",
        "event: endpoint\ndata:\n\n",
        "event: message\ndata: {}\n\n",
        "data: /messages\n\n",
    ] {
        let (script, _) = old(first, |_| None).await;
        let refused =
            timeout(TEST_TIMEOUT, Client::sse(url(&script)).revision_cache(RevisionCache::new()).connect())
                .await
                .unwrap();
        assert!(matches!(refused, Err(ClientError::Open { .. })), "{first}: {refused:?}");
        // Detected or not, the first error is reported.
        let refused =
            timeout(TEST_TIMEOUT, Client::http(url(&script)).revision_cache(RevisionCache::new()).connect())
                .await
                .unwrap();
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, ClientError::Call(CallError::Transport { status: Some(404), .. })),
            "{first}: {refused:?}"
        );
        assert_eq!(script.received().iter().filter(|seen| seen.path != "/sse").count(), 0);
    }
}

#[tokio::test]
async fn absolute_and_relative_endpoints_of_the_same_origin_work() {
    let own = Arc::new(Mutex::new(String::new()));
    let stream = MessageStream::default();
    let (to_client, place) = (stream.clone(), own.clone());
    let script = HttpScript::start(move |seen| match &*seen.verb {
        "GET" => {
            let first = format!("event: endpoint\ndata: {}\n\n", place.lock().unwrap());
            Reply::events().chunk(first.as_bytes()).then_stream(&to_client)
        }
        _ if seen.path.starts_with("/messages") => {
            if seen.body.get("id").is_some() {
                to_client.send(&body_of(&plain_reply(OLD, seen)));
            }
            Reply::status(202)
        }
        _ => Reply::status(405),
    })
    .await;
    for endpoint in
        [format!("{}/messages", script.origin()), "messages".to_owned(), "/messages?x=1".to_owned()]
    {
        own.lock().unwrap().clone_from(&endpoint);
        let client = Client::http(url(&script)).revision_cache(RevisionCache::new()).connect().await.unwrap();
        assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo", "{endpoint}");
        client.close().await;
    }
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_connection() {
    let (script, stream) =
        old(ENDPOINT, |seen| (seen.body["params"]["name"] == "hangs").then(|| Reply::status(202))).await;
    let client = Client::http(url(&script)).revision_cache(RevisionCache::new()).connect().await.unwrap();
    let call = client.call("hangs", ()).into_future();
    let cut = async {
        script.wait_for("tools/call", 1).await;
        stream.cut();
    };
    let (lost, ()) = timeout(TEST_TIMEOUT, async { tokio::join!(call, cut) }).await.unwrap();
    assert!(matches!(lost, Err(ClientError::OutcomeUnknown { .. })), "{lost:?}");
    let closed = client.tools().all().await.unwrap_err();
    assert!(matches!(closed, ClientError::Call(CallError::Closed(_))), "{closed:?}");
    assert!(client.is_closed());
}

#[tokio::test]
async fn a_refused_message_fails_its_request_and_no_other() {
    let (script, _) =
        old(ENDPOINT, |seen| (seen.body["params"]["name"] == "no").then(|| Reply::status(500))).await;
    let client = Client::http(url(&script)).revision_cache(RevisionCache::new()).connect().await.unwrap();
    let refused = client.call("no", ()).await.unwrap_err();
    assert!(
        matches!(refused, ClientError::Call(CallError::Transport { status: Some(500), .. })),
        "{refused:?}"
    );
    client.call("echo", ()).await.unwrap();
}

#[tokio::test]
async fn the_id_of_the_session_is_never_shown() {
    const FIRST: &str = "event: endpoint\ndata: /messages?v=1&sessionId=5ecret%2D1234&key=abcdefgh\n\n";
    let (script, _) = old(FIRST, |seen| {
        let said = b"v=1: no session 5ecret-1234 (5ecret%2D1234, abcdefgh)";
        (seen.body["params"]["name"] == "no").then(|| Reply::new(404, &[], said))
    })
    .await;
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let told = lines.clone();
    let client = Client::http(url(&script))
        .revision_cache(RevisionCache::new())
        .on_diagnostic(move |line| told.lock().unwrap().push(line.to_owned()))
        .connect()
        .await
        .unwrap();
    let refused = client.call("no", ()).await.unwrap_err();
    assert!(refused.to_string().contains("v=1: no session [session]"), "{refused}");
    let shown = format!("{refused:?} {}", lines.lock().unwrap().join("\n"));
    assert!(!shown.contains("5ecret") && !shown.contains("abcdefgh"), "{shown}");
}

#[tokio::test]
async fn giving_up_is_said() {
    let (script, stream) =
        old(ENDPOINT, |seen| (seen.body["params"]["name"] == "hangs").then(|| Reply::status(202))).await;
    let client = Client::http(url(&script)).revision_cache(RevisionCache::new()).connect().await.unwrap();
    client.call("hangs", ()).timeout(Duration::from_millis(20)).await.unwrap_err();
    let cancelled = script.wait_for("notifications/cancelled", 1).await;
    assert_eq!(cancelled[0].path, "/messages?sessionId=5ecret");
    // Its late response matches no request, and invalid messages are skipped.
    stream.send(&json!({ "jsonrpc": "2.0", "id": cancelled[0].body["params"]["requestId"], "result": {} }));
    stream.send(&json!("noise"));
    client.call("echo", ()).await.unwrap();
}

//! Event streams.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service as _;

use crate::fixture::{RESPONSE_TIMEOUT, Site};

/// Subscriber of the event stream.
struct Watcher {
    socket: TcpStream,
    text: String,
}

/// Event: id, name and data.
type Event = (String, String, Value);

impl Watcher {
    async fn new(site: &Site, token: &str, last: Option<&str>) -> Self {
        let mut socket = TcpStream::connect(site.address).await.unwrap();
        let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
        let head =
            "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer";
        socket.write_all(format!("{head} {token}\r\n{last}\r\n").as_bytes()).await.unwrap();
        let mut watcher = Watcher { socket, text: String::new() };
        let head = watcher.until("retry: 1000\n\n").await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        watcher
    }

    /// Reads up to a delimiter; `None` if the stream ends before it.
    async fn until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.text.find(end) {
                let rest = self.text.split_off(at + end.len());
                return Some(std::mem::replace(&mut self.text, rest));
            }
            let mut bytes = [0; 4_096];
            let read = timeout(RESPONSE_TIMEOUT, self.socket.read(&mut bytes))
                .await
                .expect("no data within the timeout");
            match read {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.text.push_str(std::str::from_utf8(&bytes[..count]).unwrap()),
            }
        }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.until("\n\n").await?;
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if let (Some(name), Some(data)) = (field("event:"), field("data:")) {
                let id = field("id:").unwrap_or_default().to_owned();
                return Some((id, name.to_owned(), serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Returns the next event with this name.
    async fn next_of(&mut self, wanted: &str) -> Event {
        loop {
            let event = self.next().await.expect("the stream has ended");
            if event.1 == wanted {
                return event;
            }
        }
    }
}

/// Empty request body.
struct Empty;

impl Body for Empty {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(None)
    }
}

fn echo() -> Value {
    json!({"tool": "mcp_up__echo", "arguments": {"message": "canary-0ddba11"}})
}

#[tokio::test]
async fn what_happens_is_seen_and_nothing_is_lost_in_between() {
    let site = Site::with_server().await;
    let mut watcher = Watcher::new(&site, &site.token, None).await;
    let call = site.post("/calls", echo()).await.ok();
    let (first, _, running) = watcher.next_of("call").await;
    assert_eq!((&running["call"], &running["status"]), (&call["id"], &json!("running")));
    drop(watcher);
    site.post("/calls", echo()).await.ok();
    let mut again = Watcher::new(&site, &site.token, Some(&first)).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (_, _, body) = again.next_of("call").await;
        assert!(!body.to_string().contains("canary-0ddba11"), "{body}");
        seen.push((body["call"] == call["id"], body["status"].as_str().unwrap().to_owned()));
    }
    let expected = [(true, "success"), (false, "running"), (false, "success")];
    assert_eq!(seen, expected.map(|(own, status)| (own, status.to_owned())));
}

#[tokio::test]
async fn who_was_away_for_too_long_is_told_so() {
    let site = Site::with_server().await;
    let mut watcher = Watcher::new(&site, &site.token, Some("00000000-5")).await;
    assert_eq!(watcher.next().await.unwrap().1, "missed", "id of another run");
    site.post("/calls", echo()).await.ok();
    let (id, _, _) = watcher.next_of("call").await;
    let run = id.split('-').next().unwrap();
    let mut watcher = Watcher::new(&site, &site.token, Some(&format!("{run}-99999"))).await;
    assert_eq!(watcher.next().await.unwrap().1, "missed", "id of the future");
    let authorization = format!("Bearer {}", site.token);
    for wrong in ["", "x", "5", "a-b", "00000000--1"] {
        let headers = [("Authorization", &*authorization), ("Last-Event-ID", wrong)];
        site.send("GET", "/api/v1/events", &headers, None).await.assert_problem(400, "invalid_last_event_id");
    }
}

#[tokio::test]
async fn whoever_may_not_any_more_sees_nothing_more() {
    let site = Site::with_server().await;
    let issued = site.post("/tokens", json!({"name": "watcher"})).await.ok();
    let (token, id) = (issued["token"].as_str().unwrap(), issued["id"].as_str().unwrap());
    let mut watcher = Watcher::new(&site, token, None).await;
    let mut other = Watcher::new(&site, &site.token, None).await;
    site.delete(&format!("/tokens/{id}")).await.ok();
    assert_eq!(watcher.next().await, None, "the stream ends without an event");
    assert_eq!(other.next_of("token").await.2["token"], id);
    let (cookie, csrf) = site.sign_in().await;
    let mut socket = TcpStream::connect(site.address).await.unwrap();
    let head = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n",
        site.address
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut watcher = Watcher { socket, text: String::new() };
    watcher.until("retry: 1000\n\n").await.unwrap();
    let origin = site.origin();
    let headers = [("Cookie", &*cookie), ("Origin", &*origin), ("x-csrf-token", &*csrf)];
    assert_eq!(site.send("DELETE", "/api/v1/session", &headers, None).await.status, 204);
    assert_eq!(watcher.next().await, None);
}

#[tokio::test]
async fn a_quiet_stream_shows_that_it_lives() {
    let site = Site::new().await;
    let request = Request::get("/api/v1/events").header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {}", site.token)).body(Empty).unwrap();
    let mut body = site.web.service().call(request).await.unwrap().into_body();
    let mut piece = async || {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await?;
        Some(frame.unwrap().into_data().unwrap())
    };
    assert_eq!(piece().await.unwrap(), "retry: 1000\n\n");
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    for count in 1..=3 {
        assert_eq!(piece().await.unwrap(), ": \n\n");
        assert!(begun.elapsed() >= Duration::from_secs(15 * count - 1), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn streams_end_with_the_hub() {
    let site = Site::with_server().await;
    let mut watcher = Watcher::new(&site, &site.token, None).await;
    site.web.close();
    assert_eq!(watcher.next().await, None);
    site.shut_down().await;
}

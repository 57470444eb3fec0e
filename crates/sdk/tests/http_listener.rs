//! Other services on the connections of a listener.
#![cfg(feature = "http-server")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use linchpin::server::Body;
use linchpin::server::web::{BodyReader, ConnectionAddresses, OriginGuard};
use support::sockets::{TEST_TIMEOUT, TestServer};
use tokio::sync::Notify;
use tower_service::Service;

/// Service that echoes the request.
#[derive(Clone)]
struct Echo {
    bodies: Arc<BodyReader>,
    waits: SyncSender<()>,
    go_on: Arc<Notify>,
}

impl Echo {
    /// Creates the service, and a receiver that is notified when a request waits.
    fn new() -> (Self, Receiver<()>) {
        let (waits, told) = sync_channel(8);
        (Echo { bodies: Arc::new(BodyReader::new(1 << 20)), waits, go_on: Arc::default() }, told)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let ConnectionAddresses { peer, local } = *parts.extensions.get().unwrap();
        let who = match OriginGuard::default().check(&parts, local.map(|address| address.ip())) {
            Ok(()) => format!("{peer} {} ", local.unwrap()),
            Err(stranger) => stranger.message().to_owned(),
        };
        let body = match self.bodies.read(&parts, body, 10).await {
            Ok(whole) => String::from_utf8(whole.bytes.to_vec()).unwrap(),
            Err(unread) => format!("{unread:?}"),
        };
        if parts.uri.path() == "/wait" {
            self.waits.send(()).unwrap();
            self.go_on.notified().await;
        }
        Response::new(Body::from((who + &body).into_bytes()))
    }
}

impl Service<Request<Incoming>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let own = self.clone();
        Box::pin(async move { Ok(own.answer(request).await) })
    }
}

fn post(path: &str, host: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_service_is_asked_and_knows_who_asks() {
    let site = TestServer::serving(|listener| listener, Echo::new().0);
    let mut socket = site.connect();
    let peer = socket.stream.local_addr().unwrap();
    for (body, expected) in [("hello", "hello"), ("0123456789", "0123456789"), ("0123456789+", "TooLarge")] {
        socket.write(post("/", "localhost", body));
        assert_eq!(socket.response().unwrap().body, format!("{peer} {} {expected}", site.address));
    }
    socket.write(post("/", "evil.example", ""));
    let answer = socket.response().unwrap();
    assert!(answer.body.starts_with("this Host is not allowed"), "{}", answer.body);
    site.stop_and_wait();
}

#[test]
fn what_has_begun_is_finished_before_the_end() {
    let (echo, told) = Echo::new();
    let mut site =
        TestServer::serving(|listener| listener.shutdown_timeout(Duration::from_mins(1)), echo.clone());
    let mut socket = site.connect();
    socket.write(post("/wait", "localhost", "late"));
    told.recv_timeout(TEST_TIMEOUT).unwrap();
    site.stop();
    echo.go_on.notify_one();
    assert!(socket.response().unwrap().body.ends_with(" late"));
    assert_eq!(socket.end(), "");
    site.stop_and_wait();
}

#[test]
fn what_does_not_end_in_time_is_given_up() {
    let (echo, told) = Echo::new();
    let site = TestServer::serving(|listener| listener.shutdown_timeout(Duration::ZERO), echo);
    let mut socket = site.connect();
    socket.write(post("/wait", "localhost", "never"));
    told.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(site.stop_and_wait() < TEST_TIMEOUT);
    assert!(socket.response().is_none());
}

#[test]
fn there_are_no_more_connections_than_may_be() {
    for limit in [1, 2] {
        let (echo, told) = Echo::new();
        let site = TestServer::serving(
            |listener| match limit {
                1 => listener.max_connections(2),
                _ => listener.max_connections_per_address(2),
            },
            echo.clone(),
        );
        let mut known: Vec<_> = (0..2).map(|_| site.connect()).collect();
        for socket in &mut known {
            socket.write(post("/wait", "localhost", "x"));
            told.recv_timeout(TEST_TIMEOUT).unwrap();
        }
        let mut third = site.connect();
        let refused = third.response().unwrap();
        assert_eq!(refused.status, 503, "there is no room for a third");
        assert!(refused.head.contains("retry-after: 1\r\n"), "{}", refused.head);
        assert_eq!(third.end(), "");
        for socket in &mut known {
            echo.go_on.notify_one();
            assert_eq!(socket.response().unwrap().status, 200);
        }
        drop(known);
        site.until_tasks(0);
        let mut another = site.connect();
        another.write(post("/", "localhost", "x"));
        assert_eq!(another.response().unwrap().status, 200);
    }
}

#[test]
fn idle_connections_make_room_for_new_ones() {
    let (echo, told) = Echo::new();
    let site = TestServer::serving(|listener| listener.max_connections(4), echo.clone());
    // One connection is busy, one has been used, and two have never sent anything.
    let mut busy = site.connect();
    busy.write(post("/wait", "localhost", "busy"));
    told.recv_timeout(TEST_TIMEOUT).unwrap();
    let mut used = site.connect();
    used.write(post("/", "localhost", "x"));
    assert_eq!(used.response().unwrap().status, 200);
    let mut silent: Vec<_> = (0..2).map(|_| site.connect()).collect();
    site.until_tasks(4);
    for _ in 0..20 {
        let mut new = site.connect();
        new.write(post("/", "localhost", "new"));
        assert_eq!(new.response().unwrap().status, 200);
        site.until_tasks(4);
        silent.push(new);
    }
    assert_eq!((used.end(), silent[0].end(), silent[1].end()), (String::new(), String::new(), String::new()));
    echo.go_on.notify_one();
    assert!(busy.response().unwrap().body.ends_with(" busy"), "what is being served is not closed");
}

#[test]
fn requests_whose_bodies_do_not_arrive_make_room() {
    let site = TestServer::serving(|listener| listener.max_connections(2), Echo::new().0);
    let mut slow: Vec<_> = (0..2).map(|_| site.connect()).collect();
    for socket in &mut slow {
        socket
            .write("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
        assert_eq!(socket.head().unwrap().0, 100, "the body is being read");
    }
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let mut new = site.connect();
        // The server may have refused it already.
        if new.try_write(post("/", "localhost", "new"))
            && new.response().is_some_and(|response| response.status == 200)
        {
            break;
        }
        assert!(Instant::now() < deadline, "a slow body makes room");
    }
    assert_eq!(slow[0].end(), "", "it is closed before its timeout");
    slow[1].write("late");
    assert!(slow[1].response().unwrap().body.ends_with(" late"), "others stay open");
}

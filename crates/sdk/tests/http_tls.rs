//! Services with TLS, and services with an address filter.
#![cfg(all(feature = "http-server", feature = "tls"))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use linchpin::egress::{self, Egress, EgressError, EgressErrorKind, Target};
use linchpin::server::Body;
use linchpin::server::web::{Listener, Tls};
use support::sockets::TestServer;
use tower_service::Service;

const AUTHORITY: &[u8] = include_bytes!("egress/certificates/authority.pem");
const SERVER: &[u8] = include_bytes!("egress/certificates/server.pem");
const EXPIRED: &[u8] = include_bytes!("egress/certificates/expired.pem");
const KEY: &[u8] = include_bytes!("egress/certificates/server.key");
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_mins(5);
const PLAIN: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Service that responds to everyone.
#[derive(Clone)]
struct Hello;

impl Service<Request<Incoming>> for Hello {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        ready(Ok(Response::new(Body::from(b"hello".to_vec()))))
    }
}

/// Returns the response to a client that trusts the authority, over its own connection.
#[tokio::main(flavor = "current_thread")]
async fn answer(site: &TestServer) -> Result<String, EgressError> {
    let target = Target::configured(&format!("https://{}/", site.address)).unwrap();
    let egress = Egress::builder().root_certificate(AUTHORITY).build().unwrap();
    let answer = egress.send(Request::new(egress::Body::empty()), &target).await?;
    Ok(String::from_utf8(answer.into_body().read_to_end(100).await?.to_vec()).unwrap())
}

fn secure(settings: impl FnOnce(Listener) -> Listener) -> (TestServer, Tls) {
    let tls = Tls::new(SERVER, KEY).unwrap();
    (TestServer::serving(|listener| settings(listener.tls(&tls)), Hello), tls)
}

#[test]
fn whoever_speaks_tls_is_answered_and_nobody_else() {
    let (site, _) = secure(|listener| {
        assert!(listener.origin().starts_with("https://127.0.0.1:"));
        listener
    });
    assert_eq!(answer(&site).unwrap(), "hello");
    let mut plain = site.connect();
    plain.write(PLAIN);
    let said = plain.end();
    assert!(!said.contains("HTTP") && !said.contains("hello"), "{said}");
    site.stop_and_wait();
}

#[test]
fn whoever_stalls_in_the_middle_is_cut_and_holds_nobody_up() {
    let (site, _) = secure(|listener| listener.connection_timeouts(LONG, SHORT, LONG));
    // The start of a TLS client hello.
    let mut slow = site.connect();
    slow.write("\x16\x03\x01");
    assert_eq!(answer(&site).unwrap(), "hello");
    assert_eq!(slow.end(), "");

    let (site, _) = secure(|listener| listener.connection_timeouts(LONG, LONG, LONG).max_connections(1));
    let mut slow = site.connect();
    slow.write("\x16\x03\x01");
    site.until_tasks(1);
    let deadline = Instant::now() + LONG;
    while answer(&site).is_err() {
        assert!(Instant::now() < deadline, "a slow handshake makes room as any other connection does");
    }
    assert_eq!(slow.end(), "");
    let mut slow = site.connect();
    slow.write("\x16\x03\x01");
    site.until_tasks(1);
    assert!(site.stop_and_wait() < LONG, "shutdown does not wait for it");
    assert_eq!(slow.end(), "");
}

#[test]
fn a_certificate_is_replaced_and_one_that_is_wrong_is_not_taken() {
    let (site, tls) = secure(|listener| listener);
    for (certificate, key, expected) in [
        (&b"nothing"[..], KEY, "the text contains no certificate"),
        (SERVER, b"nothing", "the key is not a valid PEM private key"),
        (AUTHORITY, KEY, "the certificate and the key cannot be used together"),
    ] {
        let error = tls.replace(certificate, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(answer(&site).unwrap(), "hello");
    }
    tls.replace(EXPIRED, KEY).unwrap();
    assert_eq!(answer(&site).unwrap_err().kind(), EgressErrorKind::Tls);
    tls.replace(SERVER, KEY).unwrap();
    assert_eq!(answer(&site).unwrap(), "hello");
}

#[test]
fn those_with_another_address_are_closed_before_anything_is_read() {
    let site = TestServer::serving(|listener| listener.only_from(|address| !address.is_loopback()), Hello);
    let mut socket = site.connect();
    let _ = socket.try_write(PLAIN); // it may already be closed
    assert_eq!(socket.end(), "");
    let site = TestServer::serving(|listener| listener.only_from(|address| address.is_loopback()), Hello);
    let mut socket = site.connect();
    socket.write(PLAIN);
    assert_eq!(socket.response().unwrap().body, "hello");
}

//! HTTP proxy: forwarded requests, and the policy without a resolved address.

use linchpin::egress::{ConnectPhase, Egress, EgressErrorKind, Policy, Target};
use std::sync::{Arc, Mutex};

use crate::support::{ReceivedRequest, Reply, Server, get, ok};

/// A proxy that responds to forwarded requests.
fn handed(_: &ReceivedRequest) -> Reply {
    Reply::Keep(ok("through"))
}

/// Allows plain `http` to this one address, so that the test needs no TLS.
fn policy() -> Policy {
    Policy::default().allow_http("10.9.9.9".parse().unwrap())
}

#[tokio::test]
async fn plain_http_is_handed_to_it() {
    let proxy = Server::start(handed);
    let phases = Arc::new(Mutex::new(Vec::new()));
    let log = phases.clone();
    let url = format!("http://user:p%40ss@{}", proxy.address);
    let egress = Egress::builder().policy(policy()).proxy(&url).on_connect_step(move |hop| {
        log.lock().unwrap().push(hop.phase);
    });
    let egress = egress.build().unwrap();
    let target = Target::configured("http://10.9.9.9:8080/x?y=z").unwrap();
    for _ in 0..2 {
        let body = egress.send(get(), &target).await.unwrap().into_body();
        assert_eq!(body.read_to_end(100).await.unwrap(), "through");
    }
    let seen = proxy.seen();
    let lines: Vec<_> = seen.iter().map(ReceivedRequest::line).collect();
    assert_eq!(lines, ["GET http://10.9.9.9:8080/x?y=z HTTP/1.1"; 2]);
    for request in &seen {
        assert_eq!(request.header("proxy-authorization"), Some("Basic dXNlcjpwQHNz"));
        assert_eq!(request.header("host"), Some("10.9.9.9:8080"));
    }
    assert_eq!(*phases.lock().unwrap(), [ConnectPhase::Connect], "the connection is pooled");
}

#[tokio::test]
async fn this_machine_is_reached_without_it() {
    let proxy = Server::start(handed);
    let server = Server::start(|_| Reply::Keep(ok("direct")));
    let egress = Egress::builder().proxy(&proxy.url("")).build().unwrap();
    egress.send(get(), &Target::configured(&server.url("/")).unwrap()).await.unwrap();
    assert_eq!((proxy.connections(), server.connections()), (0, 1));
}

#[tokio::test]
async fn what_the_name_or_the_address_says_still_counts() {
    let proxy = Server::start(handed);
    let egress = Egress::builder().proxy(&proxy.url("")).build().unwrap();
    let base = Target::configured("https://public.example/").unwrap();
    for url in [
        "https://10.0.0.1/",
        "https://[fd00::1]/",
        "https://169.254.169.254/",
        "https://db.internal/",
        "https://db/",
    ] {
        let error = egress.send(get(), &base.discovered(url).unwrap()).await.expect_err(url);
        assert!(matches!(error.kind(), EgressErrorKind::Refused(_)), "{url}: {error}");
    }
    let error = egress.send(get(), &Target::configured("http://public.example/").unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("plain `http` is allowed only to this machine"), "{error}");
    assert_eq!(proxy.connections(), 0);
}

async fn check(proxy: &Server, url: &str, expected: &str) {
    let egress = Egress::builder().policy(policy()).proxy(&format!("http://u:secret@{}", proxy.address));
    let error = egress.build().unwrap().send(get(), &Target::configured(url).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Proxy);
    let text = error.to_string();
    assert!(text.contains("did not connect to `10.9.9.9`: ") && text.contains(expected), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_proxy_that_is_not_there() {
    let resolver = crate::support::Script::new([]);
    let egress = Egress::builder().proxy("http://u:secret@proxy.example:3128").resolver(resolver);
    let target = Target::configured("https://server.example/").unwrap();
    let error = egress.build().unwrap().send(get(), &target).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Proxy);
    let expected =
        "the proxy at proxy.example:3128 cannot be used: the name `proxy.example` could not be resolved";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[tokio::test]
async fn a_proxy_that_does_not_connect() {
    let table = [
        (
            "HTTP/1.1 407 Authenticate\r\n\r\n",
            "the proxy requires a user name and password: add them to its URL",
        ),
        (
            "HTTP/1.1 403 Forbidden\r\n\r\n",
            "it responded with status 403; ask the administrator of the proxy whether it allows the target host",
        ),
        ("SSH-2.0\r\n\r\n", "the response of the proxy is not HTTP; check its host and port"),
        ("HTTP/1.1 200 OK\r\n", "the connection broke"),
    ];
    for (answer, expected) in table {
        let proxy = Server::start(move |_| Reply::Close(answer.to_owned()));
        check(&proxy, "https://10.9.9.9/", expected).await;
    }
    let proxy = Server::start(|_| Reply::Close("x".repeat(10_000)));
    check(&proxy, "https://10.9.9.9/", "the response of the proxy is too long").await;
    let proxy = Server::start(|_| Reply::Close("HTTP/1.1 407 x\r\ncontent-length: 0\r\n\r\n".to_owned()));
    check(&proxy, "http://10.9.9.9/", "the proxy requires a user name and password").await;
}

#[test]
fn a_proxy_that_cannot_be_one() {
    let error = Egress::builder().proxy("socks5://user:secret@proxy:1").build().unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Setup);
    assert_eq!(error.to_string(), "the proxy cannot be used: the URL of the proxy must begin with http://");
}

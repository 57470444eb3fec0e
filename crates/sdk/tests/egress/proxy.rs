//! Through a proxy: `CONNECT`, and the policy for what can be told without an address.

use linchpin::egress::{Egress, EgressErrorKind, Phase, Policy, Target};
use std::sync::{Arc, Mutex};

use crate::support::{Reply, Seen, Server, get, ok};

/// A proxy that is the server behind it too.
fn tunnel(seen: &Seen) -> Reply {
    match seen.line().split(' ').next() {
        Some("CONNECT") => Reply::Keep("HTTP/1.1 200 Connected\r\nvia: test\r\n\r\n".to_owned()),
        _ => Reply::Keep(ok("through")),
    }
}

/// Plain `http` to this one address, so that no TLS is needed to see through.
fn policy() -> Policy {
    Policy::default().allow_http("10.9.9.9".parse().unwrap())
}

#[tokio::test]
async fn a_tunnel_is_asked_for_and_kept() {
    let proxy = Server::start(tunnel);
    let phases = Arc::new(Mutex::new(Vec::new()));
    let log = phases.clone();
    let url = format!("http://user:p%40ss@{}", proxy.address);
    let egress = Egress::builder().policy(policy()).proxy(&url).on_hop(move |hop| {
        log.lock().unwrap().push(hop.phase);
    });
    let egress = egress.build().unwrap();
    let target = Target::typed("http://10.9.9.9:8080/x").unwrap();
    for _ in 0..2 {
        let body = egress.send(get(), &target).await.unwrap().into_body();
        assert_eq!(body.read_to_end(100).await.unwrap(), "through");
    }
    let seen = proxy.seen();
    let lines: Vec<_> = seen.iter().map(Seen::line).collect();
    assert_eq!(lines, ["CONNECT 10.9.9.9:8080 HTTP/1.1", "GET /x HTTP/1.1", "GET /x HTTP/1.1"]);
    assert_eq!(seen[0].header("proxy-authorization"), Some("Basic dXNlcjpwQHNz"));
    assert_eq!(seen[1].header("proxy-authorization"), None, "it is for the proxy alone");
    assert_eq!(*phases.lock().unwrap(), [Phase::Connect, Phase::Proxy]);
}

#[tokio::test]
async fn this_machine_is_reached_without_it() {
    let proxy = Server::start(tunnel);
    let server = Server::start(|_| Reply::Keep(ok("direct")));
    let egress = Egress::builder().proxy(&proxy.url("")).build().unwrap();
    egress.send(get(), &Target::typed(&server.url("/")).unwrap()).await.unwrap();
    assert_eq!((proxy.connections(), server.connections()), (0, 1));
}

#[tokio::test]
async fn what_the_name_or_the_address_says_still_counts() {
    let proxy = Server::start(tunnel);
    let egress = Egress::builder().proxy(&proxy.url("")).build().unwrap();
    let base = Target::typed("https://public.example/").unwrap();
    for url in [
        "https://10.0.0.1/",
        "https://[fd00::1]/",
        "https://169.254.169.254/",
        "https://db.internal/",
        "https://db/",
    ] {
        let error = egress.send(get(), &base.learned(url).unwrap()).await.expect_err(url);
        assert!(matches!(error.kind(), EgressErrorKind::Refused(_)), "{url}: {error}");
    }
    let error = egress.send(get(), &Target::typed("http://public.example/").unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("plain `http` is for this machine alone"), "{error}");
    assert_eq!(proxy.connections(), 0);
}

#[tokio::test]
async fn a_proxy_that_does_not_connect() {
    let table = [
        ("HTTP/1.1 407 Authenticate\r\n\r\n", "it asks for a user name and password: put them into its URL"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "it answered 403; its owner decides what it connects to"),
        ("SSH-2.0\r\n\r\n", "its answer is not HTTP; check host and port"),
        ("HTTP/1.1 200 OK\r\n", "the connection broke"),
    ];
    for (answer, expected) in table {
        let proxy = Server::start(move |_| Reply::Close(answer.to_owned()));
        let egress = Egress::builder().policy(policy()).proxy(&format!("http://u:secret@{}", proxy.address));
        let egress = egress.build().unwrap();
        let error = egress.send(get(), &Target::typed("http://10.9.9.9/").unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), EgressErrorKind::Proxy);
        let text = error.to_string();
        assert!(text.contains("did not connect to `10.9.9.9`: ") && text.contains(expected), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
    let proxy = Server::start(|_| Reply::Close("x".repeat(10_000)));
    let egress = Egress::builder().policy(policy()).proxy(&proxy.url("")).build().unwrap();
    let error = egress.send(get(), &Target::typed("http://10.9.9.9/").unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("its answer is too long"), "{error}");
}

#[test]
fn a_proxy_that_cannot_be_one() {
    let error = Egress::builder().proxy("socks5://user:secret@proxy:1").build().unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Setup);
    assert_eq!(error.to_string(), "the proxy cannot be used: its URL must begin with http://");
}

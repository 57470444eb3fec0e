//! Pooled, closed and replaced connections.

#[path = "../support/paused.rs"]
mod paused;

use std::time::Duration;

use http::StatusCode;
use linchpin::egress::{Egress, EgressErrorKind, Target};

use paused::pass;

use crate::support::{Reply, Server, get, ok, post};

async fn text(egress: &Egress, target: &Target) -> String {
    let body = egress.send(get(), target).await.unwrap().into_body();
    String::from_utf8(body.read_to_end(1 << 20).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn one_connection_serves_request_after_request() {
    let server = Server::start(|seen| {
        Reply::Keep(if seen.body.is_empty() {
            ok("plain")
        } else {
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
                .to_owned()
        })
    });
    let egress = Egress::new();
    let target = Target::configured(&server.url("/mcp?key=1#part")).unwrap();
    for _ in 0..20 {
        assert_eq!(text(&egress, &target).await, "plain");
        let body = egress.send(post("body"), &target).await.unwrap().into_body();
        assert_eq!(body.read_to_end(1 << 20).await.unwrap(), "onetwo");
        assert_eq!(egress.idle_connections(), 1);
    }
    assert_eq!(server.connections(), 1);
    let seen = server.seen();
    assert_eq!((seen[1].line(), &*seen[1].body), ("POST /mcp?key=1 HTTP/1.1", "body"));
    assert_eq!(seen[0].line(), "GET /mcp?key=1 HTTP/1.1");
}

#[tokio::test]
async fn a_body_that_nobody_reads_does_not_cost_the_connection() {
    let server =
        Server::start(|_| Reply::Keep("HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok".to_owned()));
    let egress = Egress::new();
    let target = Target::configured(&server.url("/")).unwrap();
    for _ in 0..5 {
        let response = egress.send(get(), &target).await.unwrap();
        assert_eq!(response.status(), StatusCode::ACCEPTED);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn requests_at_the_same_time_have_connections_of_their_own() {
    let server = Server::start(|_| Reply::Keep(ok("x")));
    let egress = Egress::builder().idle_per_host(2).build().unwrap();
    let target = Target::configured(&server.url("/")).unwrap();
    let (a, b, c) = tokio::join!(text(&egress, &target), text(&egress, &target), text(&egress, &target));
    assert_eq!([a, b, c], ["x", "x", "x"]);
    assert_eq!((server.connections(), egress.idle_connections()), (3, 2));
    let clone = egress.clone();
    text(&clone, &target).await;
    assert_eq!(server.connections(), 3, "clones share connections");
    text(&Egress::new(), &target).await;
    assert_eq!(server.connections(), 4, "others do not");
}

#[tokio::test]
async fn typed_and_learned_do_not_share() {
    let server = Server::start(|_| Reply::Keep(ok("x")));
    let egress = Egress::new();
    let home = Server::start(|_| Reply::Keep(ok("x")));
    let typed = Target::configured(&home.url("/")).unwrap();
    text(&egress, &typed).await;
    text(&egress, &Target::configured(&server.url("/")).unwrap()).await;
    let learned = typed.discovered(&server.url("/")).unwrap();
    text(&egress, &learned).await;
    text(&egress, &learned).await;
    assert_eq!(server.connections(), 2);
    text(&egress, &typed.discovered("/elsewhere").unwrap()).await;
    assert_eq!(home.connections(), 1, "the same origin is the same place");
}

#[tokio::test]
async fn a_connection_that_was_closed_while_kept_is_replaced() {
    // The server closes without announcing it.
    let server = Server::start(|seen| Reply::Close(ok(&seen.body)));
    let egress = Egress::new();
    let target = Target::configured(&server.url("/")).unwrap();
    for round in 1..=4 {
        let body = egress.send(post("x"), &target).await.unwrap().into_body();
        assert_eq!(body.read_to_end(10).await.unwrap(), "x");
        server.closes().await;
        assert_eq!(server.connections(), round);
    }
    assert_eq!(server.seen().len(), 4, "each request arrived once");
}

#[tokio::test]
async fn a_request_that_may_have_arrived_is_not_repeated() {
    let server = Server::start(|seen| match seen.line() {
        "GET / HTTP/1.1" => Reply::Keep(ok("fine")),
        _ => Reply::Close(String::new()),
    });
    let egress = Egress::new();
    let target = Target::configured(&server.url("/")).unwrap();
    text(&egress, &target).await;
    let error = egress.send(post("once"), &target).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Http, "{error}");
    assert!(error.may_have_been_sent());
    assert_eq!((server.seen().len(), server.connections()), (2, 1));
}

#[tokio::test]
async fn connections_are_closed_when_nobody_has_used_them_for_long() {
    let server = Server::start(|_| Reply::Keep(ok("x")));
    let egress = Egress::new();
    let target = Target::configured(&server.url("/")).unwrap();
    text(&egress, &target).await;
    tokio::time::pause();
    pass(Duration::from_secs(50)).await;
    assert_eq!(egress.idle_connections(), 1);
    pass(Duration::from_secs(41)).await;
    assert_eq!(egress.idle_connections(), 0);
    server.closes().await;
    tokio::time::resume();
    // A new connection is opened.
    text(&egress, &target).await;
    assert_eq!((egress.idle_connections(), server.connections()), (1, 2));
    tokio::time::pause();
    pass(Duration::from_secs(91)).await;
    assert_eq!(egress.idle_connections(), 0);
}

#[tokio::test]
async fn nothing_is_left_when_the_owner_is_gone() {
    let server = Server::start(|seen| match seen.line() {
        "GET /endless HTTP/1.1" => Reply::Keep("HTTP/1.1 200 OK\r\n\r\nbegin".to_owned()),
        _ => Reply::Keep(ok("x")),
    });
    let egress = Egress::new();
    text(&egress, &Target::configured(&server.url("/")).unwrap()).await;
    drop(egress);
    server.closes().await;
    // A partly read body closes its connection on drop.
    let egress = Egress::new();
    let mut body =
        egress.send(get(), &Target::configured(&server.url("/endless")).unwrap()).await.unwrap().into_body();
    assert_eq!(body.chunk().await.unwrap().unwrap(), "begin");
    drop(body);
    server.closes().await;
    assert_eq!(egress.idle_connections(), 0);
}

#[tokio::test]
async fn a_server_that_wants_to_close_is_believed() {
    for head in ["HTTP/1.1 200 OK\r\nconnection: close\r\n", "HTTP/1.0 200 OK\r\n"] {
        let server = Server::start(move |_| Reply::Keep(format!("{head}content-length: 1\r\n\r\nx")));
        let egress = Egress::new();
        let target = Target::configured(&server.url("/")).unwrap();
        for _ in 0..2 {
            text(&egress, &target).await;
            assert_eq!(egress.idle_connections(), 0);
        }
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn a_response_has_a_largest_size() {
    let long = "x".repeat(100_000);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n",
        long.len()
    );
    let counted = ok(&long);
    let server = Server::start(move |seen| {
        Reply::Keep(if seen.line().starts_with("POST") { chunked.clone() } else { counted.clone() })
    });
    let egress = Egress::new();
    let target = Target::configured(&server.url("/?secret")).unwrap();
    for request in [get, || post("x")] {
        let whole =
            egress.send(request(), &target).await.unwrap().into_body().read_to_end(100_000).await.unwrap();
        assert_eq!(whole.len(), 100_000);
        let error =
            egress.send(request(), &target).await.unwrap().into_body().read_to_end(99_999).await.unwrap_err();
        assert_eq!(error.kind(), EgressErrorKind::TooLarge);
        assert_eq!(error.to_string(), "the response of `127.0.0.1` is larger than 99999 bytes");
    }
}

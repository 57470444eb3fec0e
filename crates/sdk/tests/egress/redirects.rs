//! Redirects: which are followed, and which headers are removed.

use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode};
use linchpin::egress::{Body, Egress, EgressErrorKind, Redirects, Target};

use crate::canary::Canary;
use crate::support::{ReceivedRequest, Reply, Server, get, ok};

/// A server whose paths select the response: `/301/where` redirects to `/where`, everything else succeeds.
fn answers(seen: &ReceivedRequest) -> Reply {
    let path = seen.line().split(' ').nth(1).unwrap_or_default();
    let status = path.get(1..4).and_then(|status| status.parse::<u16>().ok());
    Reply::Keep(match status {
        Some(status) => {
            format!("HTTP/1.1 {status} x\r\nlocation: {}\r\ncontent-length: 4\r\n\r\nmove", &path[4..])
        }
        None => ok(path),
    })
}

fn target(server: &Server, path: &str) -> Target {
    Target::configured(&server.url(path)).unwrap()
}

fn secret() -> Request<Body> {
    let mut key = HeaderValue::from_static("secret");
    key.set_sensitive(true);
    let request = Request::post("/")
        .header("x-key", key)
        .header("authorization", "Bearer secret")
        .header("cookie", "secret")
        .header("mcp-session-id", "secret")
        .header("mcp-name", "secret")
        .header("mcp-param-region", "secret")
        .header("accept", "text/plain");
    request.body(Body::from("body")).unwrap()
}

#[tokio::test]
async fn redirects_within_the_origin_carry_everything() {
    let server = Server::start(answers);
    let egress = Egress::new();
    for (path, end) in [("/307/a", "/a"), ("/308/307/308/a", "/a")] {
        let (response, last) =
            egress.follow(secret(), &target(&server, path), Redirects::same_origin(3)).await.unwrap();
        assert_eq!((response.status(), last.path()), (StatusCode::OK, end));
    }
    let seen = server.seen();
    assert!(
        seen.iter().all(|seen| seen.header("authorization") == Some("Bearer secret") && seen.body == "body")
    );
    assert!(seen.iter().all(|seen| seen.line().starts_with("POST ")));
    assert_eq!(server.connections(), 1, "the bodies of redirects do not cost the connection");
}

#[tokio::test]
async fn only_get_follows_every_kind() {
    let server = Server::start(answers);
    let egress = Egress::new();
    for status in [301, 302, 303, 307, 308] {
        let target = target(&server, &format!("/{status}/a"));
        let (response, _) = egress.follow(get(), &target, Redirects::same_origin(1)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let (response, _) = egress.follow(secret(), &target, Redirects::same_origin(1)).await.unwrap();
        let expected = if status < 307 { status } else { 200 };
        assert_eq!(response.status(), expected, "a POST is never turned into a GET");
    }
    let (response, _) =
        egress.follow(get(), &target(&server, "/304/a"), Redirects::same_origin(1)).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn secrets_stay_at_their_origin() {
    let other = Server::start(answers);
    let back = other.url("/a");
    let server = Server::start(move |seen| match seen.line() {
        "POST /away HTTP/1.1" => {
            Reply::Keep(format!("HTTP/1.1 307 x\r\nlocation: {back}\r\ncontent-length: 0\r\n\r\n"))
        }
        _ => answers(seen),
    });
    let egress = Egress::new();
    let start = target(&server, "/away");
    let error = egress.follow(secret(), &start, Redirects::same_origin(5)).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Redirect);
    assert!(error.to_string().contains("redirects to another origin are not followed"), "{error}");
    assert_eq!(other.connections(), 0);
    let (_, last) = egress.follow(secret(), &start, Redirects::any_origin(5)).await.unwrap();
    assert_eq!(last.url(), other.url("/a"));
    let seen = &other.seen()[0];
    assert!(!seen.head.contains("secret"), "{}", seen.head);
    assert_eq!((seen.header("accept"), &*seen.body), (Some("text/plain"), "body"));
    assert_eq!(secret().headers().get(AUTHORIZATION).unwrap(), "Bearer secret");
}

#[tokio::test]
async fn there_is_an_end_to_it() {
    let server = Server::start(|_| {
        Reply::Keep("HTTP/1.1 302 x\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n".to_owned())
    });
    let error =
        Egress::new().follow(get(), &target(&server, "/"), Redirects::any_origin(4)).await.unwrap_err();
    assert!(error.to_string().contains("too many redirects, at most 4 are followed"), "{error}");
    assert_eq!(server.seen().len(), 5);
    let error =
        Egress::new().follow(get(), &target(&server, "/"), Redirects::any_origin(0)).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Redirect);
}

#[tokio::test]
async fn a_redirect_leads_to_nowhere_private() {
    // The policy simulates a public server: it is allowed by address, and its redirects lead to private addresses.
    let canary = Canary::open(&["127.0.0.2", "127.0.0.1", "::1"]);
    let port = canary.port();
    let places =
        ["http://127.0.0.2", "https://127.0.0.2", "http://[::1]", "https://10.0.0.1", "//169.254.169.254"];
    for place in places {
        let location = format!("{place}:{port}/");
        let server = Server::start(move |_| {
            Reply::Keep(format!("HTTP/1.1 302 x\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"))
        });
        let policy = linchpin::egress::Policy::public_only().allow("127.0.0.1".parse().unwrap());
        let policy = policy.deny("127.0.0.2".parse().unwrap());
        let egress = Egress::builder().policy(policy).build().unwrap();
        let learned =
            Target::configured("https://public.example").unwrap().discovered(&server.url("/")).unwrap();
        let error = egress.follow(get(), &learned, Redirects::any_origin(5)).await.expect_err(place);
        assert!(matches!(error.kind(), EgressErrorKind::Refused(_)), "{place}: {error}");
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn a_location_that_is_none() {
    for location in ["https://", "http://user:pw@example.com/", "ftp://x", "\u{1}"] {
        let server = Server::start(move |_| {
            Reply::Keep(format!("HTTP/1.1 302 x\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"))
        });
        let outcome = Egress::new().follow(get(), &target(&server, "/"), Redirects::any_origin(5)).await;
        let error = outcome.expect_err(location);
        assert!(!error.to_string().contains("pw"), "{error}");
    }
}

//! Access checks: every `Host` with every `Origin`, at everything that the endpoint serves.
#![cfg(feature = "http-server")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use linchpin::Revision;
use linchpin::server::HttpService;
use serde_json::json;
use support::call_scenarios::CallControls;
use support::web::{self, Events, TestClient, borrowed, serve};
use support::{STATELESS, initialize};

/// Header value, and whether it is allowed. Two values are two headers.
type Case = (Vec<String>, bool);

fn cases(right: &[&str], wrong: &[&str]) -> Vec<Case> {
    let case = |is_right: bool| move |text: &&str| (vec![(*text).to_owned()], is_right);
    right.iter().map(case(true)).chain(wrong.iter().map(case(false))).collect()
}

fn hosts() -> Vec<Case> {
    let right = [
        "localhost",
        "localhost:8080",
        "LocalHost:1",
        "127.0.0.1",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:8080",
        "localhost.",
        "mcp.example:8443",
        "other.example",
        "OTHER.example:1",
    ];
    let wrong = [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost:80:80",
        "localhost:+80",
        "evil.example@localhost",
        "127.0.0.2",
        "0.0.0.0",
        "2130706433",
        "mcp.example:8444",
        "localhost, evil.example",
    ];
    let mut all = cases(&right, &wrong);
    all.push((vec![], false));
    all.push((vec!["localhost".into(), "evil.example".into()], false));
    all
}

fn origins(host: &str) -> Vec<Case> {
    let same = |pattern: &str| pattern.replace('@', host);
    let right =
        [same("http://@"), same("https://@"), "https://app.example".into(), "HTTPS://APP.example".into()];
    let wrong = [
        "null".to_owned(),
        "http://evil.example".into(),
        "http://app.example".into(),
        "https://app.example:444".into(),
        "https://app.example.evil.example".into(),
        "https://app.example/".into(),
        same("http://@.evil.example"),
        same("http://@/"),
        "file://".into(),
        "chrome-extension://abc".into(),
        String::new(),
        format!("http://user@{host}"),
    ];
    let texts = |all: &[String]| all.iter().map(|text| vec![text.clone()]).collect::<Vec<_>>();
    let mut all: Vec<Case> = texts(&right).into_iter().map(|text| (text, true)).collect();
    all.extend(texts(&wrong).into_iter().map(|text| (text, false)));
    all.push((vec![], true));
    all.push((vec!["https://app.example".into(), "https://app.example".into()], false));
    all
}

fn set(headers: &mut HeaderMap, name: &'static str, values: &[String]) {
    headers.remove(name);
    for value in values {
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
}

/// Returns one request for everything that is served, with the status when allowed.
async fn doors(web: &HttpService) -> (Vec<(&'static str, Request<String>, StatusCode)>, Events) {
    let modern = TestClient::new(web, STATELESS);
    let list = modern.message("tools/list", json!({}));
    let session = TestClient::open(web, Revision::LATEST_SESSION).await;
    let id = [("mcp-session-id", session.session.as_deref().unwrap())];
    let empty = |method: Method, path: &str| web::request(method, path).body(String::new()).unwrap();
    let opening = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize("2025-11-25", &json!({}))});
    let mut line = modern.handle(empty(Method::GET, "/sse")).await.events();
    let address = line.event().await.unwrap().data.unwrap();
    let legacy = web::request(Method::POST, &address).body(opening.to_string()).unwrap();
    let unknown = [("mcp-session-id", &*"0".repeat(64))];
    let doors = vec![
        ("POST", web::post(&list, &borrowed(&modern.headers(&list))), StatusCode::OK),
        ("initialize", web::post(&opening, &[]), StatusCode::OK),
        ("GET", web::with(empty(Method::GET, "/mcp"), &id), StatusCode::OK),
        ("DELETE", web::with(empty(Method::DELETE, "/mcp"), &unknown), StatusCode::NOT_FOUND),
        ("legacy GET", empty(Method::GET, "/sse"), StatusCode::OK),
        ("legacy POST", legacy, StatusCode::ACCEPTED),
        ("elsewhere", empty(Method::GET, "/"), StatusCode::NOT_FOUND),
    ];
    (doors, line)
}

#[tokio::test]
async fn every_host_with_every_origin_at_every_door() {
    let http = CallControls::new().server().http().legacy_sse();
    let http =
        http.allow_host("mcp.example:8443").allow_host("other.example").allow_origin("https://app.example");
    let web = serve(http);
    let (mut accepted, mut rejected) = (0, 0);
    let (doors, mut line) = doors(&web).await;
    for (door, request, welcome) in doors {
        for (host, knows_host) in hosts() {
            let name = host.first().cloned().unwrap_or_default();
            for (origin, knows_origin) in origins(&name) {
                let mut request = request.clone();
                set(request.headers_mut(), "host", &host);
                set(request.headers_mut(), "origin", &origin);
                let answer = web.handle(request).await;
                if door == "legacy POST" && answer.status() == StatusCode::ACCEPTED {
                    line.event().await.unwrap();
                }
                let expected = if knows_host && knows_origin { welcome } else { StatusCode::FORBIDDEN };
                assert_eq!(answer.status(), expected, "{door}: {host:?} from {origin:?}");
                let readable = answer.headers().get("access-control-allow-origin");
                let app = origin.len() == 1 && origin[0].eq_ignore_ascii_case("https://app.example");
                assert_eq!(readable.is_some(), knows_host && app, "{door}: {host:?} from {origin:?}");
                if expected == StatusCode::FORBIDDEN {
                    rejected += 1;
                } else {
                    accepted += 1;
                }
            }
        }
    }
    eprintln!("Host × Origin: rejected={rejected} accepted={accepted}");
    assert_eq!((rejected, accepted), (7 * (24 * 18 - 11 * 5), 7 * 11 * 5));
}

#[tokio::test]
async fn a_target_that_names_a_host_must_name_a_known_one() {
    let web = serve(CallControls::new().server().http());
    let modern = TestClient::new(&web, STATELESS);
    let list = modern.message("tools/list", json!({}));
    for (target, host, expected) in [
        ("http://localhost:8080/mcp", "localhost:8080", 200),
        ("http://localhost:8080/mcp", "", 200),
        ("http://evil.example/mcp", "localhost:8080", 403),
        ("http://localhost:8080/mcp", "evil.example", 403),
        ("http://evil.example/mcp", "", 403),
        ("http://user@localhost/mcp", "localhost", 403),
    ] {
        let mut request = web::with(web::post(&list, &borrowed(&modern.headers(&list))), &[("host", host)]);
        *request.uri_mut() = target.parse().unwrap();
        assert_eq!(web.handle(request).await.status().as_u16(), expected, "{target} {host}");
    }
}

#[tokio::test]
async fn what_a_browser_says_of_a_page_counts() {
    let web = serve(CallControls::new().server().http().allow_origin("https://app.example"));
    let modern = TestClient::new(&web, STATELESS);
    let list = modern.message("tools/list", json!({}));
    for (site, origin, expected) in [
        ("cross-site", "", 403),
        ("same-site", "", 403),
        ("same-origin", "", 200),
        ("none", "", 200),
        ("cross-site", "https://app.example", 200),
        ("same-origin", "https://evil.example", 403),
    ] {
        let headers = [("sec-fetch-site", site), ("origin", origin)];
        let request = web::with(web::post(&list, &borrowed(&modern.headers(&list))), &headers);
        assert_eq!(web.handle(request).await.status().as_u16(), expected, "{site} {origin}");
    }
}

#[tokio::test]
async fn any_host_is_let_in_only_on_request() {
    let web = serve(CallControls::new().server().http().allow_any_host());
    let modern = TestClient::new(&web, STATELESS);
    let list = modern.message("tools/list", json!({}));
    for (host, origin, expected) in [
        ("evil.example", "", 200),
        ("evil.example:8080", "http://evil.example:8080", 200),
        ("mcp.example", "http://evil.example", 403),
        ("a b", "", 403),
        ("user@mcp.example", "", 403),
        ("mcp.example", "null", 403),
    ] {
        let request = web::post(&list, &borrowed(&modern.headers(&list)));
        let request = web::with(request, &[("host", host), ("origin", origin)]);
        assert_eq!(web.handle(request).await.status().as_u16(), expected, "{host} {origin}");
    }
}

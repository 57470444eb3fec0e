//! Host and origin checks, and security headers.

use linchpin::server::web::OriginGuard;
use linchpin_hub_http::HttpOptions;

use crate::fixture::Site;

#[tokio::test]
async fn only_names_of_this_machine_are_served() {
    let site = Site::new().await;
    let port = site.address.port();
    for host in ["localhost", "127.0.0.1", "[::1]", "LocalHost"] {
        let answer = site.send("GET", "/healthz", &[("Host", &format!("{host}:{port}"))], None).await;
        assert_eq!((answer.status, &*answer.body), (200, "ok\n"), "{host}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "127.0.0.2", "0.0.0.0"] {
        for path in ["/", "/healthz", "/metrics", "/api/v1/servers", "/api/v1/openapi.json", "/nowhere"] {
            let answer = site.send("GET", path, &[("Host", host)], None).await;
            answer.assert_problem(403, "host_not_served");
        }
    }
    let answer = site.raw(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    assert!([400, 403].contains(&answer.status), "{answer:?}");
    let twice = [("Host", "localhost"), ("Host", "localhost")];
    assert!([400, 403].contains(&site.send("GET", "/healthz", &twice, None).await.status));
}

#[tokio::test]
async fn pages_of_others_are_turned_away() {
    let site = Site::new().await;
    let token = format!("Bearer {}", site.token);
    let own = site.origin();
    for origin in ["null", "http://evil.example", "http://localhost", "https://evil.example", "file://", ""] {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            let headers = [("Origin", origin), ("Authorization", &*token)];
            let answer = site.send(method, "/api/v1/servers", &headers, None).await;
            answer.assert_problem(403, "origin_not_allowed");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
    let authorized = ("Authorization", &*token);
    let answer = site.send("GET", "/api/v1/servers", &[("Origin", &own), authorized], None).await;
    assert_eq!(answer.status, 200);
    for (site_says, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
    {
        let headers = [("Sec-Fetch-Site", site_says), authorized];
        assert_eq!(site.send("GET", "/api/v1/servers", &headers, None).await.status, status, "{site_says}");
    }
    let headers = [("Sec-Fetch-Site", "cross-site"), ("Origin", &*own), authorized];
    site.send("POST", "/api/v1/servers", &headers, None).await.assert_problem(403, "origin_not_allowed");
}

#[tokio::test]
async fn whoever_follows_a_link_comes_to_the_door_and_changes_nothing() {
    let site = Site::new().await;
    let visit = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")];
    assert_eq!(site.send("GET", "/", &visit, None).await.status, 200);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        site.send(method, "/sign-in", &visit, None).await.assert_problem(403, "origin_not_allowed");
    }
}

#[tokio::test]
async fn what_was_allowed_is_served() {
    let mut guard = OriginGuard::default();
    guard.allow_host("hub.example").unwrap();
    guard.allow_origin("https://hub.example").unwrap();
    let site = Site::with(HttpOptions { guard, is_secure: true, ..HttpOptions::default() }).await;
    let headers = [("Host", "hub.example"), ("Origin", "https://hub.example")];
    assert_eq!(site.send("GET", "/healthz", &headers, None).await.status, 200);
    let once = site.hub.identity().create_login_link().await.unwrap().unwrap();
    let answer = site.send("GET", &format!("/sign-in?token={}", once.expose()), &headers, None).await;
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-linchpin=") && cookie.ends_with("; Secure"), "{cookie}");
    assert!(cookie.contains("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
}

#[tokio::test]
async fn every_answer_says_what_browsers_must_not_do() {
    let site = Site::new().await;
    let policy =
        "default-src 'self'; script-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
    for (method, path, status) in [
        ("GET", "/", 200),
        ("GET", "/healthz", 200),
        ("GET", "/api/v1/openapi.json", 200),
        ("GET", "/api/v1/servers", 401),
        ("GET", "/nowhere", 404),
        ("PUT", "/healthz", 405),
        ("GET", "/api/v1/servers/../../etc/passwd", 404),
    ] {
        let answer = site.send(method, path, &[], None).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("content-security-policy"), Some(policy));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let referrer = if path == "/" { "same-origin" } else { "no-referrer" };
        assert_eq!(answer.header("referrer-policy"), Some(referrer));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let answer = site.send("GET", "/", &[("Host", "evil.example")], None).await;
    assert_eq!(answer.header("content-security-policy"), Some(policy), "also for unauthenticated requests");
    site.send("PUT", "/healthz", &[], None).await.assert_problem(405, "method_not_allowed");
    site.send("GET", "/nowhere", &[], None).await.assert_problem(404, "unknown_path");
}

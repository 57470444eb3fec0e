//! Logins under load and under attack, and the audit entries of failed logins.

use std::time::Duration;

use linchpin_hub_http::HttpOptions;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fixture::{HttpResponse, RESPONSE_TIMEOUT, Site};

const PASSWORD: &str = "correct horse battery staple";
const SOURCE: &str = "192.0.2.1";
const OTHER_SOURCE: &str = "192.0.2.2";

/// Returns a login request as a proxy on this machine forwards it.
fn request(site: &Site, source: &str, name: &str, password: &str) -> String {
    let body = json!({"name": name, "password": password}).to_string();
    format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         X-Forwarded-For: 203.0.113.1, {source}\r\nContent-Length: {}\r\n\r\n{body}",
        site.address,
        body.len()
    )
}

async fn sign_in(site: &Site, source: &str, name: &str, password: &str) -> HttpResponse {
    site.raw(request(site, source, name, password).as_bytes()).await
}

async fn with_password() -> Site {
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let site = Site::with(HttpOptions { proxies, ..HttpOptions::default() }).await;
    let path = "/users/00000000-0000-0000-0000-000000000001/password";
    site.put(path, json!({"password": PASSWORD})).await.ok();
    site
}

/// Returns the audit entries of failed logins.
async fn refused(site: &Site) -> Vec<Value> {
    let items = site.get("/audit?limit=500").await.ok()["items"].as_array().unwrap().clone();
    items.into_iter().filter(|entry| entry["action"] == "session.rejected").collect()
}

#[tokio::test]
async fn a_flood_of_sign_ins_is_refused_and_others_get_in() {
    let site = with_password().await;
    let mut flood = JoinSet::new();
    for number in 0..100 {
        let (address, request) =
            (site.address, request(&site, SOURCE, &format!("user {number}"), "a wrong password"));
        flood.spawn(async move { crate::fixture::exchange(address, request.as_bytes()).await });
    }
    assert_eq!(sign_in(&site, OTHER_SOURCE, "local", PASSWORD).await.status, 201);
    let answers = flood.join_all().await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert!(refused.len() > 50, "{answers:?}");
    for answer in refused {
        answer.assert_problem(503, "sign_in_busy");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
}

#[tokio::test]
async fn wrong_passwords_lock_a_name_for_their_source_alone() {
    let site = with_password().await;
    for _ in 0..5 {
        sign_in(&site, SOURCE, "local", "a wrong password").await.assert_problem(401, "unauthorized");
    }
    sign_in(&site, SOURCE, "local", PASSWORD).await.assert_problem(429, "too_many_login_attempts");
    let signed_in = sign_in(&site, OTHER_SOURCE, "local", PASSWORD).await;
    assert_eq!(signed_in.status, 201);
    // An existing session of the user is not affected and can log in again.
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap();
    assert_eq!(site.send("GET", "/api/v1/session", &[("Cookie", cookie)], None).await.status, 200);
    let body = json!({"name": "local", "password": PASSWORD}).to_string();
    let headers = [("Cookie", cookie), ("Content-Type", "application/json")];
    assert_eq!(site.send("POST", "/api/v1/session", &headers, Some(&body)).await.status, 201);
}

#[tokio::test]
async fn refused_sign_ins_are_in_the_audit_and_do_not_flood_it() {
    let site = with_password().await;
    for _ in 0..4 {
        sign_in(&site, SOURCE, "local", "a wrong password").await.assert_problem(401, "unauthorized");
    }
    sign_in(&site, SOURCE, "a secret typed as a name", "x").await.assert_problem(401, "unauthorized");
    // The entries may be written after the response.
    let both = async {
        loop {
            let entries = refused(&site).await;
            if entries.len() >= 2 {
                return entries;
            }
        }
    };
    let entries = tokio::time::timeout(RESPONSE_TIMEOUT, both).await.unwrap();
    assert_eq!(entries.len(), 2, "{entries:?}");
    let (unknown, known): (Vec<_>, Vec<_>) =
        entries.iter().partition(|entry| entry["fields"]["user"].is_null());
    assert_eq!((unknown.len(), known.len()), (1, 1));
    let fields = &known[0]["fields"];
    assert_eq!(fields["user"], "00000000-0000-0000-0000-000000000001");
    let expected = (&json!("wrong_password"), &json!(SOURCE), &json!(1));
    assert_eq!((&fields["reason"], &fields["source"], &fields["count"]), expected);
    assert!(!json!(entries).to_string().contains("typed as a name"));
    // The remaining failures are summarized in one entry.
    let ended = tokio::time::timeout(Duration::from_secs(30), site.hub.shutdown()).await;
    assert!(ended.is_ok());
    let counts: Vec<_> = refused(&site).await.iter().map(|entry| entry["fields"]["count"].clone()).collect();
    assert_eq!(counts.iter().filter_map(Value::as_u64).sum::<u64>(), 5, "{counts:?}");
    assert_eq!(counts.len(), 3);
}

#[tokio::test]
async fn the_session_cookie_is_of_one_port_and_one_host() {
    let site = with_password().await;
    let signed_in = sign_in(&site, SOURCE, "local", PASSWORD).await;
    let cookie = signed_in.header("set-cookie").unwrap();
    let name = format!("linchpin-{}", site.address.port());
    assert!(cookie.starts_with(&format!("{name}=")), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let get = async |host: &str, cookie: &str| {
        site.send("GET", "/api/v1/session", &[("Host", host), ("Cookie", cookie)], None).await.status
    };
    let (host, other) = (site.address.to_string(), format!("localhost:{}", site.address.port()));
    assert_eq!(get(&host, cookie).await, 200);
    assert_eq!(get(&other, cookie).await, 401, "the session is bound to another host");
    let value = cookie.split_once('=').unwrap().1;
    // Browsers also send the cookies of hubs on other ports; they are ignored.
    assert_eq!(get(&host, &format!("linchpin-1={value}")).await, 401);
    assert_eq!(get(&host, &format!("linchpin=x; linchpin-1=y; {cookie}")).await, 200);
}

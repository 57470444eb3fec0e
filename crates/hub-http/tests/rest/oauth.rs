//! OAuth sign-in to a server, as a browser performs it.

use linchpin::testing::authority::Authority;
use serde_json::{Value, json};

use crate::fixture::Site;

/// Adds a server with OAuth and starts a sign-in to it.
async fn start_sign_in(site: &Site) -> (Authority, Value) {
    let authority = Authority::start(Authority::conforming()).await.unwrap();
    let form = json!({"name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 0,
        "authentication": {"type": "oauth"}});
    site.post("/servers", form).await.ok();
    let begun = site.post("/servers/guarded/sign-in", json!({})).await.ok();
    assert_eq!(begun["status"], "waiting", "{begun}");
    (authority, begun)
}

#[tokio::test]
async fn the_browser_that_left_comes_back_and_no_other() {
    let site = Site::new().await;
    let (authority, begun) = start_sign_in(&site).await;
    let start = format!("/oauth/start/{}", begun["id"].as_str().unwrap());
    assert!(begun["url"].as_str().unwrap().ends_with(&start), "{begun}");
    let stranger = site.send("GET", &start, &[], None).await;
    assert_eq!((stranger.status, stranger.header("location")), (401, None), "not logged in");
    let (session, _) = site.sign_in().await;
    let left = site.send("GET", &start, &[("Cookie", &session)], None).await;
    assert_eq!(left.status, 303, "{left:?}");
    let away = left.header("set-cookie").unwrap();
    assert!(away.starts_with("linchpin-away-") && away.contains("HttpOnly; SameSite=Lax"), "{away}");
    let away = away.split(';').next().unwrap().to_owned();
    let back = authority.approve(left.header("location").unwrap()).await.unwrap();
    let path = format!("/oauth/callback?{}", back.url.split_once('?').unwrap().1);

    let other = site.send("GET", &path, &[("Cookie", &session)], None).await;
    assert_eq!(other.status, 400, "another browser: {other:?}");
    let looked = site.send("HEAD", &path, &[("Cookie", &away)], None).await;
    assert_eq!(looked.status, 200, "HEAD consumes nothing");
    let home = site.send("GET", &path, &[("Cookie", &away)], None).await;
    assert!(home.status == 200 && home.body.contains("You are signed in"), "{home:?}");
    assert!(home.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert!(!home.body.contains("code="), "{home:?}");
    let id = begun["id"].as_str().unwrap();
    assert_eq!(site.get(&format!("/sign-ins/{id}")).await.ok()["status"], "done");
    let again = site.send("GET", &path, &[("Cookie", &away)], None).await;
    assert_eq!(again.status, 400);

    site.post("/servers/guarded/sync", json!({})).await.ok();
    let call = json!({"server": "guarded", "name": "greet", "arguments": {"name": "Ada"}});
    assert_eq!(site.post("/calls", call.clone()).await.ok()["status"], "success");
    let hops = site.get("/servers/guarded/trace").await.ok();
    assert!(hops["items"].as_array().unwrap().len() > 3, "{hops}");
    let standing = site.get("/servers/guarded/sign-in").await.ok();
    assert_eq!((&standing["state"], &standing["trace"]), (&json!("active"), &hops["items"]));
    assert_eq!(site.delete("/servers/guarded/sign-in").await.status, 204);
    assert_eq!(site.post("/calls", call).await.ok()["status"], "error");
    assert_eq!(authority.observations().revocations, 1, "the token was revoked");
}

#[tokio::test]
async fn who_leaves_twice_from_one_browser_comes_back_twice() {
    let site = Site::new().await;
    let (authority, first) = start_sign_in(&site).await;
    let second = site.post("/servers/guarded/sign-in", json!({})).await.ok();
    let (session, _) = site.sign_in().await;
    let (mut cookies, mut paths) = (session, Vec::new());
    for begun in [&first, &second] {
        let start = format!("/oauth/start/{}", begun["id"].as_str().unwrap());
        let left = site.send("GET", &start, &[("Cookie", &cookies)], None).await;
        cookies = format!("{cookies}; {}", left.header("set-cookie").unwrap().split(';').next().unwrap());
        let back = authority.approve(left.header("location").unwrap()).await.unwrap();
        paths.push(format!("/oauth/callback?{}", back.url.split_once('?').unwrap().1));
    }
    for foreign in ["/oauth/callback", "/oauth/callback?state=x&code=y"] {
        let lost = site.send("GET", foreign, &[("Cookie", &cookies)], None).await;
        assert_eq!(
            (lost.status, lost.header("set-cookie")),
            (400, None),
            "an unknown state clears no cookie"
        );
    }
    for path in &paths {
        let home = site.send("GET", path, &[("Cookie", &cookies)], None).await;
        assert_eq!(home.status, 200, "{home:?}");
        let cleared = home.header("set-cookie").unwrap().split('=').next().unwrap();
        assert!(cookies.contains(cleared), "its own: {cleared}");
    }
    // The number of cookies is limited; the oldest are removed.
    let third = site.post("/servers/guarded/sign-in", json!({})).await.ok();
    let many = (0..8).fold(String::new(), |many, count| format!("{many}; linchpin-away-{count}=x"));
    let start = format!("/oauth/start/{}", third["id"].as_str().unwrap());
    let session = cookies.split(';').next().unwrap();
    let left = site.send("GET", &start, &[("Cookie", &format!("{session}{many}"))], None).await;
    assert!(left.header("set-cookie").unwrap().starts_with("linchpin-away-0=; "), "{left:?}");
}

#[tokio::test]
async fn who_says_no_is_told_so() {
    let site = Site::new().await;
    let (_authority, begun) = start_sign_in(&site).await;
    let id = begun["id"].as_str().unwrap();
    let (session, _) = site.sign_in().await;
    let left = site.send("GET", &format!("/oauth/start/{id}"), &[("Cookie", &session)], None).await;
    let url = left.header("location").unwrap();
    let state = url.split(['?', '&']).find_map(|pair| pair.strip_prefix("state=")).unwrap();
    let away = left.header("set-cookie").unwrap().split(';').next().unwrap();
    let path =
        format!("/oauth/callback?error=access_denied&error_description=%3Cb%3Eno%3C%2Fb%3E&state={state}");
    let home = site.send("GET", &path, &[("Cookie", away)], None).await;
    assert!(home.status == 400 && home.body.contains("Sign-in failed"), "{home:?}");
    assert!(!home.body.contains("<b>"), "{home:?}");
    let over = site.get(&format!("/sign-ins/{id}")).await.ok();
    assert_eq!(over["status"], "failed", "{over}");
}

#[tokio::test]
async fn tools_that_cannot_be_looked_at_do_not_spoil_it() {
    let site = Site::new().await;
    let (authority, begun) = start_sign_in(&site).await;
    let id = begun["id"].as_str().unwrap();
    let (session, _) = site.sign_in().await;
    let left = site.send("GET", &format!("/oauth/start/{id}"), &[("Cookie", &session)], None).await;
    let away = left.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let back = authority.approve(left.header("location").unwrap()).await.unwrap();
    // The server rejects requests of a foreign origin, so the sync after the sign-in fails.
    site.patch("/servers/guarded", json!({"headers": {"Origin": "http://stranger.example"}})).await.ok();
    let path = format!("/oauth/callback?{}", back.url.split_once('?').unwrap().1);
    let home = site.send("GET", &path, &[("Cookie", &away)], None).await;
    assert!(home.status == 200 && home.body.contains("You are signed in"), "{home:?}");
    assert!(home.body.contains("Failed to sync the tools of the server: "), "{home:?}");
    let over = site.get(&format!("/sign-ins/{id}")).await.ok();
    assert_eq!(over["status"], "done");
    assert_eq!(site.get("/servers/guarded").await.ok()["error"], over["sync_error"]);
}

#[tokio::test]
async fn who_has_no_password_has_a_link_that_works_once() {
    let site = Site::new().await;
    let (authority, begun) = start_sign_in(&site).await;
    let link = begun["link"].as_str().unwrap();
    let path = &link[link.find("/sign-in?").unwrap()..];
    let door = site.send("GET", path, &[], None).await;
    let start = format!("/oauth/start/{}", begun["id"].as_str().unwrap());
    assert_eq!((door.status, door.header("location")), (303, Some(&*start)));
    let session = door.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(site.send("GET", path, &[], None).await.status, 401, "the link works once");
    let left = site.send("GET", &start, &[("Cookie", &session)], None).await;
    let away = left.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let back = authority.approve(left.header("location").unwrap()).await.unwrap();
    let path = format!("/oauth/callback?{}", back.url.split_once('?').unwrap().1);
    assert_eq!(site.send("GET", &path, &[("Cookie", &away)], None).await.status, 200);
    let looked_at = site.get(&format!("/sign-ins/{}", begun["id"].as_str().unwrap())).await.ok();
    assert_eq!(looked_at["link"], Value::Null);

    // The link redirects only to sign-ins.
    let again = site.post("/servers/guarded/sign-in", json!({})).await.ok();
    let link = again["link"].as_str().unwrap();
    let path = &link[link.find("/sign-in?").unwrap()..];
    let elsewhere =
        format!("{}/%2Fstranger.example", path.split("&sign_in=").next().unwrap().to_owned() + "&sign_in=");
    let door = site.send("GET", &elsewhere, &[], None).await;
    assert_eq!((door.status, door.header("location")), (303, Some("/")));

    // No other caller gets a link, and no caller at all once the user has a password.
    let token = site.post("/tokens", json!({"name": "mine"})).await.ok();
    let other = site
        .send_as(token["token"].as_str().unwrap(), "POST", "/servers/guarded/sign-in", Some(json!({})))
        .await;
    assert_eq!(other.ok()["link"], Value::Null);
    site.put(
        "/users/00000000-0000-0000-0000-000000000001/password",
        json!({"password": "correct horse battery"}),
    )
    .await
    .ok();
    let after = site.post("/servers/guarded/sign-in", json!({})).await.ok();
    assert_eq!((&after["status"], &after["link"]), (&json!("waiting"), &Value::Null));
}

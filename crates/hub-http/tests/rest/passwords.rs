//! Password changes: permissions, and the sessions and tokens they end.

use serde_json::{Value, json};

use crate::fixture::{HttpResponse, Site};

const LOCAL: &str = "00000000-0000-0000-0000-000000000001";
const OLD: &str = "the old password of ada";
const NEW: &str = "the new password of ada";

/// Browser session.
struct Browser {
    cookie: String,
    csrf: String,
}

impl Browser {
    async fn send(&self, site: &Site, method: &str, path: &str, body: &Value) -> HttpResponse {
        let (origin, body) = (site.origin(), body.to_string());
        let headers = [
            ("Cookie", &*self.cookie),
            ("Origin", &*origin),
            ("x-csrf-token", &*self.csrf),
            ("Content-Type", "application/json"),
        ];
        site.send(method, path, &headers, Some(&body)).await
    }

    async fn status(&self, site: &Site) -> u16 {
        site.send("GET", "/api/v1/session", &[("Cookie", &self.cookie)], None).await.status
    }
}

fn cookie(answer: &HttpResponse) -> String {
    answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

async fn sign_in(site: &Site, name: &str, password: &str) -> HttpResponse {
    let body = json!({"name": name, "password": password}).to_string();
    site.send("POST", "/api/v1/session", &[("Content-Type", "application/json")], Some(&body)).await
}

async fn browser(site: &Site, name: &str, password: &str) -> Browser {
    let answer = sign_in(site, name, password).await;
    let csrf = answer.ok()["csrf_token"].as_str().unwrap().to_owned();
    Browser { cookie: cookie(&answer), csrf }
}

/// Adds a user with a password as the operator. Returns the id.
async fn ada(site: &Site) -> String {
    let ada = site.post("/users", json!({"name": "ada"})).await.ok()["id"].as_str().unwrap().to_owned();
    site.put(&format!("/users/{ada}/password"), json!({"password": OLD})).await.ok();
    ada
}

#[tokio::test]
async fn a_user_cannot_set_the_password_of_another() {
    let site = Site::new().await;
    ada(&site).await;
    let carol = site.post("/users", json!({"name": "carol"})).await.ok()["id"].as_str().unwrap().to_owned();
    let browser = browser(&site, "ada", OLD).await;
    let issued = browser.send(&site, "POST", "/api/v1/tokens", &json!({"name": "script"})).await.ok();
    let token = issued["token"].as_str().unwrap();
    // Neither the local user nor Carol has a password: that makes no difference.
    for user in [LOCAL, &carol] {
        for body in [json!({"password": NEW}), json!({"password": NEW, "old_password": OLD})] {
            let path = format!("/users/{user}/password");
            let answer = browser.send(&site, "PUT", &format!("/api/v1{path}"), &body).await;
            answer.assert_problem(403, "forbidden");
            site.send_as(token, "PUT", &path, Some(body)).await.assert_problem(403, "forbidden");
        }
        assert_eq!(site.get(&format!("/users/{user}")).await.ok()["has_password"], false);
    }
}

#[tokio::test]
async fn a_password_change_needs_the_old_one_and_ends_sessions_and_tokens() {
    let site = Site::with_server().await;
    let path = format!("/users/{}/password", ada(&site).await);
    let (own, other) = (browser(&site, "ada", OLD).await, browser(&site, "ada", OLD).await);
    let issued = own.send(&site, "POST", "/api/v1/tokens", &json!({"name": "script"})).await.ok();
    let token = issued["token"].as_str().unwrap();
    let (_, of_agent) = site.agent("auto").await;
    let change = async |body: Value| own.send(&site, "PUT", &format!("/api/v1{path}"), &body).await;

    change(json!({"password": NEW})).await.assert_invalid_field("old_password");
    site.send_as(token, "PUT", &path, Some(json!({"password": NEW})))
        .await
        .assert_invalid_field("old_password");
    let wrong = change(json!({"password": NEW, "old_password": "a wrong password"})).await;
    assert_eq!(wrong.assert_problem(403, "wrong_password")["field"], "old_password");
    assert_eq!((own.status(&site).await, other.status(&site).await), (200, 200));

    let changed = change(json!({"password": NEW, "old_password": OLD})).await;
    assert_eq!(changed.ok()["has_password"], true);
    let renewed = Browser { cookie: cookie(&changed), csrf: String::new() };
    assert_ne!(renewed.cookie, own.cookie);
    let statuses = (renewed.status(&site).await, own.status(&site).await, other.status(&site).await);
    assert_eq!(statuses, (200, 401, 401), "the browser that made the change has a new session");
    site.send_as(token, "GET", "/servers", None).await.assert_problem(401, "unauthorized");
    assert_eq!(
        site.send_as(&of_agent, "GET", "/tools", None).await.status,
        200,
        "tokens of agents stay valid"
    );
    sign_in(&site, "ada", OLD).await.assert_problem(401, "unauthorized");
    assert_eq!(sign_in(&site, "ada", NEW).await.status, 201);
}

#[tokio::test]
async fn the_operator_needs_no_old_password_and_nobody_stays_signed_in() {
    let site = Site::new().await;
    let path = format!("/users/{}/password", ada(&site).await);
    let browser = browser(&site, "ada", OLD).await;
    let changed = site.put(&path, json!({"password": NEW})).await;
    assert_eq!((changed.status, changed.header("set-cookie")), (200, None));
    assert_eq!(browser.status(&site).await, 401);
    assert_eq!(sign_in(&site, "ada", NEW).await.status, 201);
}

#[tokio::test]
async fn a_first_password_is_set_in_the_browser_or_by_the_operator() {
    let site = Site::new().await;
    let (cookie, csrf) = site.sign_in().await;
    let browser = Browser { cookie, csrf };
    let issued = browser.send(&site, "POST", "/api/v1/tokens", &json!({"name": "script"})).await.ok();
    let path = format!("/users/{LOCAL}/password");
    // A password outlives a token, so a token alone must not set one.
    let by_token =
        site.send_as(issued["token"].as_str().unwrap(), "PUT", &path, Some(json!({"password": NEW})));
    by_token.await.assert_problem(403, "session_required");
    let set = browser.send(&site, "PUT", &format!("/api/v1{path}"), &json!({"password": NEW})).await;
    assert_eq!((set.ok()["has_password"].clone(), browser.status(&site).await), (json!(true), 401));
}

#[tokio::test]
async fn guesses_of_the_old_password_are_limited() {
    let site = Site::new().await;
    let path = format!("/api/v1/users/{}/password", ada(&site).await);
    let own = browser(&site, "ada", OLD).await;
    let guess = json!({"password": NEW, "old_password": "a wrong password"});
    for _ in 0..5 {
        own.send(&site, "PUT", &path, &guess).await.assert_problem(403, "wrong_password");
    }
    let locked = own.send(&site, "PUT", &path, &guess).await;
    locked.assert_problem(429, "too_many_login_attempts");
    assert!(locked.header("retry-after").is_some());
}

#[tokio::test]
async fn what_was_begun_before_a_password_change_is_not_done_after_it() {
    let site = Site::new().await;
    let path = format!("/users/{}/password", ada(&site).await);
    let own = browser(&site, "ada", OLD).await;
    let (origin, body) = (site.origin(), json!({"name": "late"}).to_string());
    let head = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nCookie: {}\r\nOrigin: {origin}\r\n\
         x-csrf-token: {}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        site.address,
        own.cookie,
        own.csrf,
        body.len()
    );
    // The hub sends `100 Continue` only after it has authenticated the caller.
    let socket = site.send_head(&head, "HTTP/1.1 100 Continue\r\n\r\n").await;
    site.put(&path, json!({"password": NEW})).await.ok();
    socket.finish(&body).await.assert_problem(401, "unauthenticated");
}

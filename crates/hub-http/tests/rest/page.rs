//! Status page.

use serde_json::json;

use crate::fixture::Site;

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

#[tokio::test]
async fn whoever_has_not_signed_in_is_told_how() {
    let site = Site::with_server().await;
    let page = site.send("GET", "/", &[], None).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.body.contains("the terminal") && page.body.contains("type=\"password\""), "{page:?}");
    assert!(!page.body.contains("Up"), "no data without a login");
    // With `no-referrer`, browsers would send the form with `Origin: null`, and no user could log in.
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    let style = site.send("GET", "/style.css", &[], None).await;
    assert_eq!((style.status, style.header("content-type")), (200, Some("text/css; charset=utf-8")));
    let (_, agent) = site.agent("auto").await;
    let page = site.send("GET", "/", &[("Authorization", &format!("Bearer {agent}"))], None).await;
    assert!(page.body.contains("type=\"password\""), "agents see no page");
}

#[tokio::test]
async fn the_link_signs_in_once() {
    let site = Site::with_server().await;
    let once = site.hub.identity().create_login_link().await.unwrap().unwrap();
    let path = format!("/sign-in?token={}", once.expose());
    let looked = site.send("HEAD", &path, &[], None).await;
    assert_eq!((looked.status, looked.header("set-cookie")), (303, None), "HEAD consumes nothing");
    let answer = site.send("GET", &path, &[], None).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    let cookie = answer.header("set-cookie").unwrap();
    assert!(
        cookie.starts_with(&site.cookie_name()) && cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap();
    let page = site.send("GET", "/", &[("Cookie", cookie)], None).await;
    assert!(page.body.contains("<td>Up</td>") && page.body.contains("2 tools"), "{page:?}");
    let again = site.send("GET", &path, &[], None).await;
    assert_eq!((again.status, again.header("set-cookie")), (401, None));
    assert!(again.body.contains("role=\"alert\"") && !again.body.contains(once.expose()), "{again:?}");
    let known = site.send("GET", &format!("{path}&sign_in=7"), &[("Cookie", cookie)], None).await;
    assert_eq!((known.status, known.header("location")), (303, Some("/oauth/start/7")), "already logged in");
}

#[tokio::test]
async fn a_password_signs_in_from_pages_of_ours_alone() {
    let site = Site::new().await;
    let password = "correct horse battery staple";
    site.put("/users/00000000-0000-0000-0000-000000000001/password", json!({"password": password}))
        .await
        .ok();
    let (own, form) = (site.origin(), format!("name=local&password={}", password.replace(' ', "+")));
    let send = async |origin: Option<&str>, form: &str| {
        let mut headers = vec![FORM];
        headers.extend(origin.map(|origin| ("Origin", origin)));
        site.send("POST", "/sign-in", &headers, Some(form)).await
    };
    send(None, &form).await.assert_problem(403, "origin_needed");
    send(Some("http://evil.example"), &form).await.assert_problem(403, "origin_not_allowed");
    let wrong = send(Some(&own), "name=local&password=wrong").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    assert!(wrong.body.contains("role=\"alert\""), "{wrong:?}");
    send(Some(&own), "password=a&password=b").await.assert_problem(400, "duplicate_key");
    let answer = send(Some(&own), &form).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer:?}");
    assert!(answer.header("set-cookie").unwrap().starts_with(&site.cookie_name()));
    for _ in 0..5 {
        assert_eq!(send(Some(&own), "name=local&password=wrong").await.status, 401);
    }
    let locked = send(Some(&own), &form).await;
    assert_eq!(locked.status, 429, "{locked:?}");
    assert!(locked.header("retry-after").is_some() && locked.body.contains("role=\"alert\""), "{locked:?}");
}

#[tokio::test]
async fn nothing_of_others_is_markup() {
    let site = Site::with_server().await;
    let hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    site.patch("/servers/up", json!({"name": hostile})).await.ok();
    site.post("/calls", json!({"tool": "mcp_up__echo", "arguments": {"<b>": 1}})).await.ok();
    let (cookie, _) = site.sign_in().await;
    let page = site.send("GET", "/", &[("Cookie", &cookie)], None).await;
    assert!(!page.body.contains("<script") && !page.body.contains("<img"), "{page:?}");
    assert!(page.body.contains("&lt;script&gt;alert(1)"), "{page:?}");
    let inline =
        ["style=", "onclick", "javascript:", "<style"].into_iter().any(|word| page.body.contains(word));
    assert!(!inline, "{page:?}");
}

#[tokio::test]
async fn calls_are_shown_with_the_names_of_their_callers() {
    let site = Site::with_server().await;
    let (_, agent) = site.agent("auto").await;
    let form = json!({"tool": "mcp_up__echo", "arguments": {"message": "hi"}});
    assert_eq!(
        site.send_as(&agent, "POST", "/calls", Some(form.clone())).await.ok()["subject_name"],
        "agent auto"
    );
    site.post("/calls", form).await.ok();
    site.post("/servers/up/disable", json!({})).await.ok();
    let (cookie, _) = site.sign_in().await;
    let page = site.send("GET", "/", &[("Cookie", &cookie)], None).await;
    for text in ["<td>agent auto</td>", "<td>local</td>", ">disabled</span>"] {
        assert!(page.body.contains(text), "{text} is missing in {page:?}");
    }
}

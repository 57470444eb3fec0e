//! CSRF protection: requests with a cookie that change data are accepted only from pages of the hub.

use serde_json::json;

use crate::fixture::Site;

#[tokio::test]
async fn a_cookie_alone_changes_nothing() {
    let site = Site::new().await;
    let (cookie, csrf) = site.sign_in().await;
    let (own, form) = (site.origin(), json!({"name": "agent"}).to_string());
    let send = async |more: &[(&str, &str)]| {
        let headers = [&[("Cookie", &*cookie), ("Content-Type", "application/json")], more].concat();
        site.send("POST", "/api/v1/agents", &headers, Some(&form)).await
    };
    send(&[]).await.assert_problem(403, "origin_needed");
    send(&[("Origin", &own)]).await.assert_problem(403, "csrf_token_needed");
    send(&[("x-csrf-token", &csrf)]).await.assert_problem(403, "origin_needed");
    for wrong in ["", "0", &csrf[1..], &csrf.to_uppercase(), &format!("{csrf} 1")] {
        send(&[("Origin", &own), ("x-csrf-token", wrong)]).await.assert_problem(403, "csrf_token_needed");
    }
    for foreign in ["http://evil.example", "null", "http://localhost:1"] {
        send(&[("Origin", foreign), ("x-csrf-token", &csrf)]).await.assert_problem(403, "origin_not_allowed");
    }
    let cross = [("Origin", &*own), ("x-csrf-token", &*csrf), ("Sec-Fetch-Site", "cross-site")];
    send(&cross).await.assert_problem(403, "origin_not_allowed");
    assert_eq!(site.get("/agents").await.ok()["items"], json!([]), "nothing has changed");
    assert_eq!(send(&[("Origin", &own), ("x-csrf-token", &csrf)]).await.status, 201);
}

#[tokio::test]
async fn each_session_has_its_own() {
    let site = Site::new().await;
    let (cookie, csrf) = site.sign_in().await;
    let (other, _) = site.sign_in().await;
    assert_ne!(cookie, other);
    let own = site.origin();
    let headers = [("Cookie", &*other), ("Origin", &*own), ("x-csrf-token", &*csrf)];
    site.send("DELETE", "/api/v1/session", &headers, None).await.assert_problem(403, "csrf_token_needed");
    let headers = [("Cookie", &*cookie), ("Origin", &*own), ("x-csrf-token", &*csrf)];
    let answer = site.send("DELETE", "/api/v1/session", &headers, None).await;
    assert_eq!(answer.status, 204);
    assert!(
        answer.header("set-cookie").unwrap().starts_with(&format!("{}=; ", site.cookie_name())),
        "{answer:?}"
    );
    let gone = site.send("GET", "/api/v1/session", &[("Cookie", &cookie)], None).await;
    gone.assert_problem(401, "unauthenticated");
    let stays = site.send("GET", "/api/v1/session", &[("Cookie", &other)], None).await;
    assert_eq!(stays.status, 200);
}

#[tokio::test]
async fn every_route_that_changes_something_wants_it() {
    let site = Site::with_server().await;
    let (cookie, _) = site.sign_in().await;
    let (own, mut count) = (site.origin(), 0);
    let document = linchpin_hub_http::openapi();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let changing = methods.as_object().unwrap().iter().filter(|(method, _)| *method != "get");
        for (method, operation) in changing {
            if operation["description"] == "Public." {
                continue;
            }
            let path = path.replace("{server}", "up").replace(['{', '}'], "");
            let headers = [("Cookie", &*cookie), ("Origin", &*own)];
            let answer = site.send(&method.to_uppercase(), &path, &headers, None).await;
            answer.assert_problem(403, "csrf_token_needed");
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

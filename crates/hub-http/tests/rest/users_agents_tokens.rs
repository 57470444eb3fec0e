//! Users, agents and their tokens.

use serde_json::json;

use crate::fixture::Site;

const PASSWORD: &str = "correct horse battery staple";

#[tokio::test]
async fn a_person_signs_in_with_a_password() {
    let site = Site::new().await;
    let me = site.get("/session").await.ok();
    assert_eq!((&me["user"]["name"], &me["csrf_token"]), (&json!("local"), &json!(null)));
    let id = me["user"]["id"].as_str().unwrap();
    let path = format!("/users/{id}/password");
    for wrong in [
        json!({}),
        json!({"password": "short"}),
        json!({"password": 1}),
        json!({"password": "x".repeat(2_000)}),
    ] {
        site.put(&path, wrong).await.assert_invalid_field("password");
    }
    assert_eq!(site.put(&path, json!({"password": PASSWORD})).await.ok()["has_password"], true);
    let sign_in = async |form: serde_json::Value| {
        let headers = [("Content-Type", "application/json")];
        site.send("POST", "/api/v1/session", &headers, Some(&form.to_string())).await
    };
    sign_in(json!({"password": "wrong wrong wrong"})).await.assert_problem(401, "unauthorized");
    sign_in(json!({"name": "nobody", "password": PASSWORD})).await.assert_problem(401, "unauthorized");
    sign_in(json!({"name": "local"})).await.assert_invalid_field("password");
    let answer = sign_in(json!({"name": "local", "password": PASSWORD})).await;
    let session = answer.ok();
    assert_eq!((answer.status, &session["user"]["name"]), (201, &json!("local")));
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let seen = site.send("GET", "/api/v1/session", &[("Cookie", cookie)], None).await.ok();
    assert_eq!(seen["csrf_token"], session["csrf_token"]);
    site.delete("/session").await.assert_problem(409, "no_session");
}

#[tokio::test]
async fn people_come_and_go() {
    let site = Site::new().await;
    for wrong in [json!({}), json!({"name": ""}), json!({"name": "x".repeat(101)}), json!({"name": 1})] {
        site.post("/users", wrong).await.assert_invalid_field("name");
    }
    let answer = site.post("/users", json!({"name": "Ada"})).await;
    let ada = answer.ok();
    let path = format!("/users/{}", ada["id"].as_str().unwrap());
    assert_eq!((answer.status, answer.header("location")), (201, Some(&*format!("/api/v1{path}"))));
    assert_eq!(site.get(&path).await.ok(), ada);
    site.post("/users", json!({"name": "Ada"})).await.assert_problem(409, "name_taken");
    assert_eq!(site.get("/users").await.ok()["items"].as_array().unwrap().len(), 2);
    assert_eq!(site.delete(&path).await.status, 204);
    site.get(&path).await.assert_problem(404, "not_found");
    site.delete("/users/00000000-0000-0000-0000-000000000001").await.assert_problem(409, "last_user");
}

#[tokio::test]
async fn tokens_of_ones_own() {
    let site = Site::new().await;
    for (form, field) in [
        (json!({}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"name": "x", "days": 0}), "days"),
        (json!({"name": "x", "days": 3_651}), "days"),
        (json!({"name": "x", "day": 1}), "day"),
    ] {
        site.post("/tokens", form).await.assert_invalid_field(field);
    }
    let answer = site.post("/tokens", json!({"name": "script", "days": 1})).await;
    let issued = answer.ok();
    let (token, id) = (issued["token"].as_str().unwrap(), issued["id"].as_str().unwrap());
    assert!(answer.status == 201 && token.starts_with("lp_"));
    assert_eq!(site.send_as(token, "GET", "/servers", None).await.status, 200);
    let list = site.get("/tokens").await.ok();
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["name"]), (1, &json!("script")));
    assert!(!list.to_string().contains(token));
    assert_eq!(site.delete(&format!("/tokens/{id}")).await.status, 204);
    site.send_as(token, "GET", "/servers", None).await.assert_problem(401, "unauthorized");
    site.delete(&format!("/tokens/{id}")).await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn an_agent_from_its_first_day_to_its_last() {
    let site = Site::with_server().await;
    for (form, field) in [
        (json!({}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"name": "x".repeat(101)}), "name"),
        (json!({"name": "a", "approval": "never"}), "approval"),
        (json!({"name": "a", "enabled": 1}), "enabled"),
        (json!({"name": "a", "model": "x".repeat(201)}), "model"),
        (json!({"name": "a", "instructions": "x".repeat(100_001)}), "instructions"),
        (json!({"name": "a", "servers": []}), "servers"),
        (json!({"name": "a", "servers": {"nobody": {}}}), "servers.nobody"),
        (json!({"name": "a", "servers": {"up": {"tools": "echo"}}}), "servers.up.tools"),
        (json!({"name": "a", "unknown": 1}), "unknown"),
    ] {
        site.post("/agents", form).await.assert_invalid_field(field);
    }
    let form = json!({"name": "Helper", "servers": {"up": {"tools": ["echo"]}}});
    let answer = site.post("/agents", form).await;
    let agent = answer.ok();
    let path = format!("/agents/{}", agent["id"].as_str().unwrap());
    assert_eq!((answer.status, answer.header("location")), (201, Some(&*format!("/api/v1{path}"))));
    assert_eq!((&agent["approval"], &agent["tool_count"]), (&json!("always-ask"), &json!(1)));
    let changed = site.patch(&path, json!({"approval": "auto"})).await.ok();
    assert_eq!(
        (&changed["approval"], &changed["name"]),
        (&json!("auto"), &json!("Helper")),
        "other fields are unchanged"
    );
    site.patch(&path, json!({"approval": "never"})).await.assert_invalid_field("approval");
    let token = site.post(&format!("{path}/tokens"), json!({"name": "t"})).await.ok()["token"].clone();
    let token = token.as_str().unwrap();
    let tools = site.send_as(token, "GET", "/tools", None).await.ok();
    assert_eq!((tools["items"].as_array().unwrap().len(), &tools["items"][0]["tool"]), (1, &json!("echo")));
    site.send_as(token, "GET", "/tools/mcp_up__wait", None).await.assert_problem(404, "not_found");
    let subject = site.send_as(token, "GET", "/session", None).await.ok();
    assert_eq!(subject["subject"], format!("agent:{}", agent["id"].as_str().unwrap()));
    assert_eq!(site.get("/agents?name=HELP&enabled=true").await.ok()["items"].as_array().unwrap().len(), 1);
    assert_eq!(site.get("/agents?enabled=false").await.ok()["items"], json!([]));
    assert_eq!(site.delete(&path).await.status, 204);
    site.send_as(token, "GET", "/tools", None).await.assert_problem(401, "unauthorized");
    site.get(&path).await.assert_problem(404, "not_found");
}

//! Access tests of every route: without a credential, with a wrong one, and with an agent token.

use std::collections::HashSet;

use linchpin_hub_core::Permission;
use serde_json::{Value, json};

use crate::fixture::Site;

/// Returns method, path and required permission of every API operation. A public one requires none.
fn operations() -> Vec<(String, String, Option<Permission>)> {
    let document = linchpin_hub_http::openapi();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path =
                path.replace("{server}", "up").replace("{tool}", "mcp_up__echo").replace("{prompt}", "greet");
            let path = path
                .replace("{variable}", "TOKEN")
                .replace("{format}", "openai")
                .replace("{client}", "cursor");
            let id = "00000000-0000-0000-0000-000000000001";
            let path = ["call", "approval", "rule", "server_request", "agent", "token", "user", "sign_in"]
                .iter()
                .fold(path, |path, name| path.replace(&format!("{{{name}}}"), id));
            assert!(!path.contains('{'), "{path}");
            let named =
                |name: &str| Permission::ALL.iter().copied().find(|known| known.name() == name).unwrap();
            let permission = operation["x-permission"].as_str().map(named);
            assert_eq!(operation["description"] == "Public.", permission.is_none(), "{method} {path}");
            all.push((method.to_uppercase(), path, permission));
        }
    }
    assert!(all.len() > 50, "{}", all.len());
    all
}

#[tokio::test]
async fn whoever_is_not_known_gets_nowhere() {
    let site = Site::with_server().await;
    let wrong = format!("Bearer {}0", site.token);
    for (method, path, permission) in operations() {
        let anonymous = site.send(&method, &path, &[], None).await;
        let stranger = site.send(&method, &path, &[("Authorization", &wrong)], None).await;
        if permission.is_none() {
            assert!(anonymous.status < 500 && anonymous.status != 401, "{method} {path}: {anonymous:?}");
            continue;
        }
        anonymous.assert_problem(401, "unauthenticated");
        assert_eq!(anonymous.header("www-authenticate"), Some("Bearer"));
        stranger.assert_problem(401, "unauthorized");
        let gone =
            site.send(&method, &path, &[("Cookie", &format!("{}=0000", site.cookie_name()))], None).await;
        gone.assert_problem(401, "unauthenticated");
    }
    site.send("GET", "/metrics", &[], None).await.assert_problem(401, "unauthenticated");
    let anybody: Vec<_> =
        operations().into_iter().filter(|(_, _, permission)| permission.is_none()).collect();
    let anybody: Vec<_> = anybody.iter().map(|(method, path, _)| (&**method, &**path)).collect();
    assert_eq!(anybody, [("GET", "/api/v1/openapi.json"), ("POST", "/api/v1/session")]);
    assert_eq!(site.ran(), 0);
}

#[tokio::test]
async fn an_agent_does_what_agents_may_and_nothing_else() {
    let site = Site::with_server().await;
    let (_, token) = site.agent("auto").await;
    let authorization = format!("Bearer {token}");
    let mut declared = HashSet::new();
    for (method, path, permission) in operations() {
        let answer = site.send(&method, &path, &[("Authorization", &authorization)], None).await;
        match permission.filter(|permission| !permission.is_of_agents()) {
            Some(permission) => {
                let problem = answer.assert_problem(403, "user_required");
                let detail = problem["detail"].as_str().unwrap();
                assert!(detail.contains(&format!("`{permission}`")), "{method} {path}: {detail}");
            }
            None => assert!(![401, 403].contains(&answer.status), "{method} {path}: {answer:?}"),
        }
        declared.extend(permission);
    }
    let unused: Vec<_> = Permission::ALL.iter().filter(|permission| !declared.contains(permission)).collect();
    assert!(unused.is_empty(), "no route requires {unused:?}");
    site.send("GET", "/metrics", &[("Authorization", &authorization)], None)
        .await
        .assert_problem(403, "user_required");
}

#[tokio::test]
async fn what_is_not_there_and_what_is_of_others_look_the_same() {
    let site = Site::with_server().await;
    let (_, one) = site.agent("auto").await;
    let (_, other) = site.agent("always-ask").await;
    let call = site
        .send_as(&one, "POST", "/tools/mcp_up__echo/call", Some(json!({"arguments": {"message": "a"}})))
        .await;
    let id = call.ok()["id"].as_str().unwrap().to_owned();
    assert_eq!(site.send_as(&one, "GET", &format!("/calls/{id}"), None).await.status, 200);
    let foreign = site.send_as(&other, "GET", &format!("/calls/{id}"), None).await;
    let unknown = id.replace(|char: char| char.is_ascii_digit(), "0");
    let missing = site.send_as(&other, "GET", &format!("/calls/{unknown}"), None).await;
    let without_id = |answer: &Value, id: &str| answer.to_string().replace(id, "");
    assert_eq!(
        without_id(&foreign.assert_problem(404, "not_found"), &id),
        without_id(&missing.assert_problem(404, "not_found"), &unknown)
    );
    let list = site.send_as(&other, "GET", "/calls", None).await.ok();
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn either_a_token_or_a_cookie() {
    let site = Site::new().await;
    let (cookie, _) = site.sign_in().await;
    let token = format!("Bearer {}", site.token);
    let both = [("Cookie", &*cookie), ("Authorization", &*token)];
    site.send("GET", "/api/v1/servers", &both, None).await.assert_problem(400, "ambiguous_credentials");
    for authorization in ["Basic YTpi", "Bearer", "lp_1"] {
        let answer = site.send("GET", "/api/v1/servers", &[("Authorization", authorization)], None).await;
        answer.assert_problem(400, "wrong_authorization");
    }
}

#[tokio::test]
async fn a_token_that_was_taken_back_counts_no_more() {
    let site = Site::with_server().await;
    let (id, token) = site.agent("auto").await;
    assert_eq!(site.send_as(&token, "GET", "/tools", None).await.status, 200);
    let tokens = site.get(&format!("/agents/{id}/tokens")).await.ok();
    let token_id = tokens["items"][0]["id"].as_str().unwrap();
    assert!(!tokens.to_string().contains(&token), "the token is shown once");
    assert_eq!(site.delete(&format!("/agents/{id}/tokens/{token_id}")).await.status, 204);
    site.send_as(&token, "GET", "/tools", None).await.assert_problem(401, "unauthorized");
}

#[tokio::test]
async fn what_an_agent_was_not_granted_looks_like_what_does_not_exist() {
    let site = Site::with_server().await;
    let form = json!({"name": "Other", "url": site.upstream, "retry_attempts": 0});
    let other = site.post("/servers", form).await.ok()["id"].as_str().unwrap().to_owned();
    site.post("/servers/other/sync", json!({})).await.ok();
    let nothing = "00000000-0000-7000-8000-000000000077";
    let (id, token) = site.agent("auto").await;
    site.patch(&format!("/agents/{id}"), json!({"servers": {"up": {"tools": ["echo"]}}})).await.ok();
    let seen = async |method: &str, path: String, body: Option<Value>, name: &str| {
        let answer = site.send_as(&token, method, &path, body).await;
        (answer.status, answer.body.replace(name, "NAME"))
    };
    for (hidden, missing) in [("mcp_up__wait", "mcp_up__none"), ("mcp_other__echo", "mcp_none__echo")] {
        let all = async |name: &str| {
            [
                seen("GET", format!("/tools/{name}"), None, name).await,
                seen("POST", format!("/tools/{name}/call"), Some(json!({})), name).await,
                seen("POST", "/calls".to_owned(), Some(json!({"tool": name})), name).await,
            ]
        };
        let hidden = all(hidden).await;
        assert_eq!(hidden, all(missing).await);
        assert!(hidden.iter().all(|(status, _)| *status == 404), "{hidden:?}");
    }
    for (hidden, missing) in [("other", "none"), (&*other, nothing)] {
        let all = async |name: &str| {
            [
                seen("GET", format!("/tools?server={name}"), None, name).await,
                seen("GET", format!("/export/openai?server={name}"), None, name).await,
                seen("GET", format!("/servers/{name}/resources"), None, name).await,
                seen("GET", format!("/servers/{name}/prompts"), None, name).await,
                seen(
                    "POST",
                    format!("/servers/{name}/resources/read"),
                    Some(json!({"uri": "memory://a"})),
                    name,
                )
                .await,
                seen("POST", format!("/servers/{name}/prompts/greet"), Some(json!({})), name).await,
                seen("POST", "/calls".to_owned(), Some(json!({"server": name, "name": "echo"})), name).await,
            ]
        };
        let hidden = all(hidden).await;
        assert_eq!(hidden, all(missing).await);
        assert!(hidden.iter().all(|(status, _)| *status == 404), "{hidden:?}");
    }
    assert_eq!(site.send_as(&token, "GET", "/calls", None).await.ok()["items"], json!([]));
}

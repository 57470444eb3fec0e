//! Servers, their credentials, resources and prompts.

use axum::Router;
use axum::response::Redirect;
use linchpin::server::web::Listener;
use linchpin::{NoArgs, Revision, Tool};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::fixture::Site;

fn slugs(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|server| server["slug"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_server_from_its_first_day_to_its_last() {
    let site = Site::new().await;
    let form = json!({"name": "My server", "url": site.upstream, "timeout_ms": 5_000, "retry_attempts": 0});
    let tried = site.post("/servers/test", form.clone()).await.ok();
    assert_eq!(tried["tools"], json!(["echo", "wait"]));
    assert_eq!(
        site.get("/servers").await.ok(),
        json!({"items": [], "next": null}),
        "the server was not stored"
    );
    let answer = site.post("/servers", form).await;
    let server = answer.ok();
    let place = format!("/api/v1/servers/{}", server["id"].as_str().unwrap());
    assert_eq!((answer.status, answer.header("location")), (201, Some(&*place)));
    assert_eq!((&server["slug"], &server["timeout_ms"]), (&json!("my-server"), &json!(5_000)));
    let id = server["id"].as_str().unwrap();
    assert_eq!(site.get(&format!("/servers/{id}")).await.ok()["slug"], "my-server");
    let synced = site.post("/servers/my-server/sync", json!({})).await.ok();
    assert_eq!(synced["tools"], 2);
    let connected = site.post("/servers/my-server/connect", json!({})).await.ok();
    assert_eq!((&connected["status"], &connected["tools"]), (&json!("connected"), &json!(2)));
    assert_eq!(site.post("/servers/my-server/test", json!({})).await.ok()["tools"], json!(["echo", "wait"]));
    let gone = site.post("/servers/my-server/disconnect", json!({})).await.ok();
    assert_eq!(gone["status"], "disconnected");
    let changed = site.patch("/servers/my-server", json!({"description": "for tests"})).await.ok();
    assert_eq!(changed["description"], "for tests");
    assert_eq!(
        (&changed["timeout_ms"], &changed["name"]),
        (&json!(5_000), &json!("My server")),
        "other fields are unchanged"
    );
    let disabled = site.post("/servers/my-server/disable", json!({})).await.ok();
    assert_eq!(disabled["enabled"], false);
    site.post("/servers/my-server/connect", json!({})).await.assert_problem(409, "server_disabled");
    assert_eq!(site.post("/servers/my-server/enable", json!({})).await.ok()["enabled"], true);
    site.post("/servers", json!({"name": "x", "slug": "my-server", "url": site.upstream}))
        .await
        .assert_problem(409, "name_taken");
    assert_eq!(site.delete("/servers/my-server").await.status, 204);
    site.get("/servers/my-server").await.assert_problem(404, "not_found");
    site.delete("/servers/my-server").await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_server_that_leads_elsewhere_is_not_followed() {
    let (site, mut running) = (Site::new().await, JoinSet::new());
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let (origin, elsewhere) = (listener.origin(), site.upstream.clone());
    let moved = Router::new().fallback(async move || Redirect::permanent(&elsewhere));
    running.spawn(async move { listener.run_until(std::future::pending(), moved).await.unwrap() });
    for transport in ["http", "sse"] {
        let form = json!({"name": "Moved", "url": format!("{origin}/mcp"), "transport": transport, "retry_attempts": 0});
        let problem = site.post("/servers/test", form).await.assert_problem(503, "server_unavailable");
        let place = site.upstream.trim_end_matches("/mcp");
        let text = format!(
            "`{origin}` redirects to `{place}`: redirects to another origin are not followed; use the URL of that origin"
        );
        assert!(problem["detail"].as_str().unwrap().contains(&text), "{problem}");
    }
}

#[tokio::test]
async fn whatever_is_out_of_range_is_named() {
    let site = Site::with_server().await;
    let long = |count: usize| json!("x".repeat(count));
    let headers: Value =
        (0..33).map(|number| (format!("x-{number}"), json!("v"))).collect::<Map<_, _>>().into();
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("  ")),
        ("name", long(101)),
        ("name", json!(1)),
        ("name", json!(null)),
        ("description", long(2_001)),
        ("url", json!("")),
        ("url", json!("nonsense")),
        ("url", json!("ftp://x.example")),
        ("url", json!("http://x.example/mcp")),
        ("url", long(2_049)),
        ("transport", json!("stdio")),
        ("transport", json!("carrier pigeon")),
        ("timeout_ms", json!(999)),
        ("timeout_ms", json!(300_001)),
        ("timeout_ms", json!("30000")),
        ("timeout_ms", json!(1_000.5)),
        ("open_timeout_ms", json!(999)),
        ("read_timeout_ms", json!(3_600_001)),
        ("max_reconnects", json!(1_001)),
        ("max_response_bytes", json!(65_535)),
        ("max_call_ms", json!(999)),
        ("max_call_ms", json!(29_999)),
        ("sync_interval_ms", json!(59_999)),
        ("retry_attempts", json!(6)),
        ("retry_attempts", json!(-1)),
        ("calls_per_minute", json!(0)),
        ("calls_per_minute", json!(100_001)),
        ("enabled", json!("yes")),
        ("keep_history", json!(1)),
        ("credentials", json!("mine")),
        ("headers", json!("x")),
        ("headers", headers),
        ("headers.authorization", json!({"authorization": "Bearer x"})),
        ("headers.x-a", json!({"x-a": "a\nb"})),
        ("authentication.type", json!({"type": "magic"})),
        ("authentication.header", json!({"type": "api-key", "header": "a b"})),
        ("authentication.username", json!({"type": "basic"})),
        ("unknown", json!(1)),
    ] {
        let name = field.split('.').next().unwrap();
        let mut form = json!({"name": "X", "url": "https://x.example/mcp"});
        form[name] = value.clone();
        site.post("/servers", form.clone()).await.assert_invalid_field(field);
        site.post("/servers/test", form).await.assert_invalid_field(field);
        site.patch("/servers/up", json!({name: value})).await.assert_invalid_field(field);
    }
    site.post("/servers", json!({"name": "X", "url": "https://x.example", "slug": "A b"}))
        .await
        .assert_invalid_field("slug");
    site.patch("/servers/up", json!({"slug": "other"})).await.assert_invalid_field("slug");
    site.post("/servers", json!({"url": "https://x.example"})).await.assert_invalid_field("name");
    site.post("/servers", json!({"name": "X"})).await.assert_invalid_field("url");
    let server = site.get("/servers/up").await.ok();
    assert_eq!((&server["name"], &server["version"]), (&json!("Up"), &json!(1)), "nothing has changed");
    assert_eq!(slugs(&site.get("/servers").await.ok()), ["up"]);
}

#[tokio::test]
async fn lists_are_filtered_and_come_page_by_page() {
    let site = Site::new().await;
    for (name, enabled) in
        [("Alpha", true), ("Beta", false), ("Gamma", true), ("Delta", false), ("Epsilon", true)]
    {
        let form =
            json!({"name": name, "url": "http://127.0.0.1:1/mcp", "enabled": enabled, "retry_attempts": 0});
        site.post("/servers", form).await.ok();
    }
    assert_eq!(slugs(&site.get("/servers").await.ok()), ["alpha", "beta", "gamma", "delta", "epsilon"]);
    assert_eq!(slugs(&site.get("/servers?enabled=false").await.ok()), ["beta", "delta"]);
    assert_eq!(slugs(&site.get("/servers?q=ELT").await.ok()), ["delta"]);
    assert_eq!(slugs(&site.get("/servers?status=connected").await.ok()), [""; 0]);
    let (mut seen, mut path) = (Vec::new(), "/servers?limit=2".to_owned());
    loop {
        let page = site.get(&path).await.ok();
        seen.extend(slugs(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/servers?limit=2&after={next}");
    }
    assert_eq!(seen, ["alpha", "beta", "gamma", "delta", "epsilon"]);
}

#[tokio::test]
async fn a_server_may_be_called_as_a_word_of_the_api_is() {
    let site = Site::new().await;
    let form = json!({"name": "Test", "url": site.upstream, "retry_attempts": 0});
    assert_eq!(site.post("/servers", form.clone()).await.ok()["slug"], "test");
    assert_eq!(site.get("/servers/test").await.ok()["name"], "Test");
    assert_eq!(site.patch("/servers/test", json!({"name": "Other"})).await.ok()["name"], "Other");
    assert_eq!(site.post("/servers/test", form).await.ok()["name"], "upstream", "a draft is still tested");
    assert_eq!(site.post("/servers/test/test", json!({})).await.ok()["name"], "upstream");
    assert_eq!(site.delete("/servers/test").await.status, 204);
    site.get("/servers/test").await.assert_problem(404, "not_found");
    site.send("PUT", "/api/v1/servers/test", &[], None).await.assert_problem(405, "method_not_allowed");
}

#[tokio::test]
async fn a_credential_goes_in_and_never_comes_out() {
    let site = Site::with_server().await;
    let secret = "canary-7f3a9";
    site.get("/servers/up/credential").await.assert_problem(404, "not_found");
    site.put("/servers/up/credential", json!({"secret": secret}))
        .await
        .assert_invalid_field("authentication");
    site.patch("/servers/up", json!({"authentication": {"type": "bearer"}})).await.ok();
    for wrong in [json!({}), json!({"secret": ""}), json!({"secret": "a\nb"}), json!({"secret": 1})] {
        site.put("/servers/up/credential", wrong).await.assert_invalid_field("secret");
    }
    site.put("/servers/up/credential", json!({"secret": "x".repeat(16_385)}))
        .await
        .assert_invalid_field("secret");
    let kept = site.put("/servers/up/credential", json!({"secret": secret})).await;
    let seen = site.get("/servers/up/credential").await;
    assert_eq!((&kept.ok()["kind"], &seen.ok()["version"]), (&json!("bearer"), &json!(1)));
    for path in ["/servers/up", "/servers/up/credential", "/audit", "/audit/export", "/calls"] {
        let answer = site.get(path).await;
        assert!(answer.status == 200 && !answer.body.contains(secret), "{path}: {answer:?}");
    }
    site.get("/servers/up/credential?agent=nobody").await.assert_problem(404, "not_found");
    assert_eq!(site.delete("/servers/up/credential").await.status, 204);
    site.get("/servers/up/credential").await.assert_problem(404, "not_found");
    site.delete("/servers/up/credential").await.assert_problem(404, "not_found");
    site.put("/servers/up/secrets/A_TOKEN", json!({"secret": secret})).await.assert_invalid_field("server");
    site.put("/servers/up/secrets/A_TOKEN", json!({})).await.assert_invalid_field("secret");
    site.get("/servers/up/secrets/A_TOKEN").await.assert_problem(405, "method_not_allowed");
}

#[tokio::test]
async fn resources_and_prompts() {
    let site = Site::with_server().await;
    let resources = site.get("/servers/up/resources").await.ok();
    assert_eq!((&resources["items"][0]["uri"], &resources["next"]), (&json!("memory://a"), &Value::Null));
    assert_eq!(site.get("/servers/up/resource-templates").await.ok()["items"], json!([]));
    let read = site.post("/servers/up/resources/read", json!({"uri": "memory://a"})).await.ok();
    assert_eq!(read["contents"][0]["text"], "the resource");
    for wrong in [json!({}), json!({"uri": ""}), json!({"uri": "x".repeat(8_193)}), json!({"uri": 1})] {
        site.post("/servers/up/resources/read", wrong).await.assert_invalid_field("uri");
    }
    site.post("/servers/up/resources/read", json!({"uri": "memory://b"}))
        .await
        .assert_problem(404, "not_found");
    assert_eq!(site.get("/servers/up/prompts").await.ok()["items"][0]["name"], "greet");
    let prompt =
        site.post("/servers/up/prompts/greet", json!({"arguments": {"message": "hello"}})).await.ok();
    assert_eq!(prompt["messages"][0]["content"]["text"], "Say hello");
    site.post("/servers/up/prompts/greet", json!({"arguments": "hello"}))
        .await
        .assert_invalid_field("arguments");
    site.post("/servers/up/prompts/greet", json!({"arguments": {"message": 1}}))
        .await
        .assert_invalid_field("arguments.message");
    site.get("/servers/nobody/resources").await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn limits_are_set_shown_and_removed() {
    let site = Site::with_server().await;
    let limits = json!({
        "open_timeout_ms": 5_000,
        "read_timeout_ms": 60_000,
        "max_reconnects": 0,
        "max_response_bytes": 65_536,
        "max_call_ms": 60_000,
        "sync_interval_ms": 120_000,
    });
    let shown = async |expected: &Value| {
        let server = site.get("/servers/up").await.ok();
        let same = expected.as_object().unwrap().iter().all(|(name, value)| server[name] == *value);
        assert!(same, "{server}");
    };
    site.patch("/servers/up", limits.clone()).await.ok();
    site.patch("/servers/up", json!({"name": "Other"})).await.ok();
    shown(&limits).await;
    let description = "x".repeat(65_536);
    site.handle.add(Tool::new("large").description(description).handler(|_: NoArgs| async { "a" })).unwrap();
    let problem = site.post("/servers/up/test", json!({})).await.assert_problem(503, "server_unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("65536"), "{problem}");
    let none: Map<_, _> =
        limits.as_object().unwrap().keys().map(|name| (name.clone(), Value::Null)).collect();
    site.patch("/servers/up", Value::Object(none.clone())).await.ok();
    shown(&Value::Object(none)).await;
    site.post("/servers/up/test", json!({})).await.ok();
}

#[tokio::test]
async fn a_revision_is_pinned_and_used() {
    let site = Site::with_server().await;
    let pinned = Revision::LATEST_SESSION.as_str();
    assert_eq!(site.post("/servers/up/test", json!({})).await.ok()["revision"], Revision::LATEST.as_str());
    let changed = site.patch("/servers/up", json!({"revision": pinned})).await.ok();
    assert_eq!(changed["revision"], pinned);
    assert_eq!(site.post("/servers/up/test", json!({})).await.ok()["revision"], pinned);
    site.post("/servers/up/connect", json!({})).await.ok();
    let unknown = site.patch("/servers/up", json!({"revision": "1999-01-01"})).await;
    unknown.assert_invalid_field("revision");
    let detail = unknown.json()["detail"].as_str().unwrap().to_owned();
    assert!(Revision::ALL.iter().all(|known| detail.contains(known.as_str())), "{detail}");
    assert_eq!(site.patch("/servers/up", json!({"revision": null})).await.ok()["revision"], Value::Null);
}

//! E1, E2: settings of a server, and operations on it.

use interop_tests::hub::{HubDirectory, start_guarded};
use interop_tests::peer::RunningServer;
use interop_tests::rest_client::Event;
use serde_json::{Value, json};

use crate::{strings_at, text};

/// Returns the default settings of a server.
fn default_settings() -> Value {
    json!({
        "description": null, "transport": "http", "headers": {}, "command": null, "env": [],
        "is_configured": false, "authentication": { "type": "none" }, "credentials": "shared",
        "timeout_ms": 30_000, "retry_attempts": 3, "calls_per_minute": null, "max_concurrent_calls": null, "enabled": true,
        "keep_history": true, "status": "disconnected", "error": null, "last_connected": null,
        "last_synced": null, "tools": 0,
    })
}

#[test]
fn e1_every_field_has_its_range_and_its_usual_value() {
    let home = HubDirectory::new();
    let hub = home.start();
    let least = hub
        .post("/servers", json!({ "name": "Far away", "url": "https://mcp.example/mcp", "enabled": false }));
    for (field, value) in default_settings().as_object().unwrap() {
        let expected = match field.as_str() {
            "enabled" => &json!(false),
            "status" => &json!("disabled"),
            _ => value,
        };
        assert_eq!(&least[field], expected, "{field}");
    }
    assert_eq!((&least["slug"], &least["created"]), (&"far-away".into(), &least["updated"]));
    assert!(text(&least["id"]).len() == 36 && text(&least["created"]).ends_with('Z'), "{least}");

    let long = |length: usize| "n".repeat(length);
    let headers = |count: usize| {
        let headers = (0..count).map(|number| (format!("x-{number}"), json!("v")));
        Value::Object(headers.collect())
    };
    let path = format!("/servers/{}", text(&least["id"]));
    for (field, value) in [
        ("name", json!("n")),
        ("name", json!(long(100))),
        ("description", json!(long(2_000))),
        ("url", json!("http://127.0.0.1:9/mcp")),
        ("transport", json!("sse")),
        ("transport", json!("http")),
        ("headers", headers(32)),
        ("authentication", json!({ "type": "bearer" })),
        ("authentication", json!({ "type": "api-key", "header": "x-own" })),
        ("authentication", json!({ "type": "basic", "username": "ada" })),
        ("credentials", json!("per-agent")),
        ("timeout_ms", json!(1_000)),
        ("timeout_ms", json!(300_000)),
        ("retry_attempts", json!(0)),
        ("retry_attempts", json!(5)),
        ("calls_per_minute", json!(1)),
        ("calls_per_minute", json!(100_000)),
        ("keep_history", json!(false)),
    ] {
        let changed = hub.patch(&path, json!({ field: value }));
        assert_eq!(changed[field], value, "{field}");
    }
    let key = hub.patch(&path, json!({ "authentication": { "type": "api-key" } }));
    assert_eq!(key["authentication"]["header"], "x-api-key");

    let before = hub.get(&path);
    for (field, value, named) in [
        ("name", json!(""), "name"),
        ("name", json!("  "), "name"),
        ("name", json!(long(101)), "name"),
        ("name", json!(7), "name"),
        ("slug", json!("Far Away"), "slug"),
        ("slug", json!(long(33)), "slug"),
        ("description", json!(long(2_001)), "description"),
        ("url", json!("ftp://mcp.example"), "url"),
        ("url", json!("http://mcp.example/mcp"), "url"),
        ("url", json!("here"), "url"),
        ("url", json!(format!("https://mcp.example/{}", long(2_048))), "url"),
        ("transport", json!("stdio"), "transport"),
        ("transport", json!("carrier pigeon"), "transport"),
        ("command", json!("sh"), "command"),
        ("args", json!(["-c"]), "args"),
        ("env", json!({ "A": "b" }), "env"),
        ("headers", headers(33), "headers"),
        ("headers", json!({ "authorization": "Bearer x" }), "headers.authorization"),
        ("headers", json!({ "a b": "c" }), "headers.a b"),
        ("headers", json!({ "x-a": "\n" }), "headers.x-a"),
        ("authentication", json!({ "type": "magic" }), "authentication.type"),
        ("authentication", json!({ "type": "basic" }), "authentication.username"),
        ("authentication", json!({ "type": "api-key", "header": "a b" }), "authentication.header"),
        ("authentication", json!({ "type": "bearer", "secret": "x" }), "authentication.secret"),
        ("credentials", json!("mine"), "credentials"),
        ("timeout_ms", json!(999), "timeout_ms"),
        ("timeout_ms", json!(300_001), "timeout_ms"),
        ("timeout_ms", json!("soon"), "timeout_ms"),
        ("timeout_ms", json!(1_000.5), "timeout_ms"),
        ("retry_attempts", json!(-1), "retry_attempts"),
        ("retry_attempts", json!(6), "retry_attempts"),
        ("calls_per_minute", json!(0), "calls_per_minute"),
        ("calls_per_minute", json!(100_001), "calls_per_minute"),
        ("enabled", json!("yes"), "enabled"),
        ("keep_history", json!(1), "keep_history"),
        ("timeout", json!(5_000), "timeout"),
    ] {
        let mut form = json!({ "name": "Other", "url": "https://mcp.example/mcp" });
        form[field] = value.clone();
        let problem = hub.expect_error(422, "POST", "/servers", form);
        assert_eq!((&problem["field"], &problem["status"]), (&named.into(), &422.into()), "{problem}");
        assert!(!text(&problem["detail"]).is_empty() && !text(&problem["code"]).is_empty(), "{problem}");
        let problem = hub.expect_error(422, "PATCH", &path, json!({ field: value }));
        assert_eq!(problem["field"], named, "{problem}");
    }
    for missing in ["name", "url"] {
        let mut form = json!({ "name": "Other", "url": "https://mcp.example/mcp" });
        form.as_object_mut().unwrap().remove(missing);
        assert_eq!(hub.expect_error(422, "POST", "/servers", form)["field"], missing);
    }
    assert_eq!((hub.get(&path), hub.list("/servers").len()), (before, 2));
    assert_eq!(hub.expect_error(404, "GET", "/servers/nothing", Value::Null)["code"], "not_found");
}

#[test]
fn e2_servers_come_and_go_and_those_who_watch_are_told() {
    let (home, served, python) =
        (HubDirectory::new(), RunningServer::everything("streamableHttp"), start_guarded());
    let hub = home.start();
    hub.post("/servers/demo/connect", Value::Null);
    let draft = json!({ "name": "Python", "url": python.url(), "authentication": { "type": "bearer" } });
    let mut with_secret = draft.clone();
    with_secret["secret"] = "secret-of-ada".into();
    let tried = hub.post("/servers/test", with_secret.clone());
    assert_eq!((&tried["name"], tried["tools"].as_array().unwrap().len()), (&"guarded-python".into(), 9));
    with_secret["secret"] = "wrong".into();
    let problem = hub.expect_error(503, "POST", "/servers/test", with_secret);
    assert!(text(&problem["detail"]).contains("rejected the credential"), "{problem}");
    assert_eq!(hub.list("/servers").len(), 1, "a tested server is not stored");

    let events = hub.subscribe(None);
    let added = hub.add("remote", served.url(), json!({ "retry_attempts": 0 }));
    let (id, path) = (text(&added["id"]).to_owned(), "/servers/remote");
    assert_eq!(hub.post("/servers/remote/connect", Value::Null)["status"], "connected");
    // The hub also connects automatically, to sync the tools.
    let is_own = |body: &Value| body["server"] == *id && text(&body["subject"]).starts_with("user:");
    let seen = events.until("connection", |body| is_own(body) && body["status"] == "connected");
    let bodies = |kind: &'static str| {
        seen.iter().filter(move |event| event.kind == kind).map(|event| event.body.clone())
    };
    let added = bodies("server").find(|body| body["server"] == *id).unwrap();
    assert_eq!(added["change"], "added");
    let own: Vec<_> = bodies("connection").filter(|body| is_own(body)).collect();
    assert_eq!(strings_at(&own, "/status"), ["connecting", "connected"]);
    let last = seen.last().unwrap().id.clone();
    drop(events);

    // Without a subscriber.
    let changed = hub.patch(path, json!({ "description": "Everything" }));
    assert_eq!((&changed["description"], &changed["version"]), (&"Everything".into(), &2.into()));
    assert_eq!(hub.post("/servers/remote/connect", Value::Null)["status"], "connected");
    assert_eq!(hub.post("/servers/remote/disconnect", Value::Null)["status"], "disconnected");
    assert_eq!(hub.post("/servers/remote/disable", Value::Null)["enabled"], false);
    let problem = hub.expect_error(409, "POST", "/servers/remote/connect", Value::Null);
    assert!(text(&problem["detail"]).contains("disabled"), "{problem}");
    assert_eq!(hub.call("mcp_remote__echo", json!({ "message": "hi" }))["status"], "denied");
    assert_eq!(hub.post("/servers/remote/enable", Value::Null)["enabled"], true);

    let events = hub.subscribe(Some(&last));
    // Described, disabled and enabled.
    let is_change = |body: &Value| body["server"] == *id && body["change"] == "changed";
    let seen: Vec<_> = (0..3).flat_map(|_| events.until("server", is_change)).collect();
    let is_end = |event: &Event| is_own(&event.body) && event.body["status"] == "disconnected";
    assert!(seen.iter().any(|event| event.kind == "connection" && is_end(event)), "{seen:?}");
    let number = |id: &str| id.rsplit_once('-').unwrap().1.parse::<u64>().unwrap();
    let numbers: Vec<_> =
        std::iter::once(&last).chain(seen.iter().map(|event| &event.id)).map(|id| number(id)).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next) && numbers[1] == numbers[0] + 1, "{numbers:?}");

    assert_eq!(strings_at(&hub.list("/servers?q=everything"), "/slug"), ["remote"]);
    assert!(strings_at(&hub.list("/servers?status=connected"), "/slug").contains(&"demo"));
    assert_eq!(strings_at(&hub.list("/servers?enabled=true&q=demo"), "/slug"), ["demo"]);
    assert!(hub.list("/servers?enabled=false").is_empty());
    let page = hub.get("/servers?limit=1");
    let rest = hub.list(&format!("/servers?limit=1&after={}", text(&page["next"])));
    assert_ne!(page["items"][0]["slug"], rest[0]["slug"]);
    assert_eq!(hub.post("/servers/remote/test", Value::Null)["name"], "mcp-servers/everything");
    // The hub synced it automatically.
    events.until("server", |body| body["server"] == *id && body["change"] == "synced");
    hub.post("/servers/remote/disconnect", Value::Null);
    drop(served);
    let problem = hub.expect_error(503, "POST", "/servers/remote/connect", Value::Null);
    assert!(text(&problem["detail"]).contains("cannot connect to `remote`"), "{problem}");
    let now = hub.get(path);
    assert_eq!(now["status"], "error");
    assert!(text(&now["error"]).contains("127.0.0.1"), "{now}");
    hub.delete(path);
    hub.expect_error(404, "GET", path, Value::Null);
    assert!(hub.list("/tools?limit=500").iter().all(|tool| tool["server"] != "remote"));
    events.until("server", |body| body["server"] == *id && body["change"] == "removed");
    let other_run = hub.subscribe(Some("another-7"));
    assert_eq!(other_run.next().kind, "missed");
}

//! F1, F3: every call is recorded, and failures have readable errors.

use interop_tests::hub::{HubDirectory, everything_config, start_guarded};
use serde_json::{Value, json};

use crate::{strings_at, text};

#[test]
fn f1_every_call_is_a_record() {
    let home = HubDirectory::new();
    home.write(&everything_config());
    let hub = home.start();
    let server = hub.post("/servers/everything/connect", Value::Null);
    let events = hub.subscribe(None);
    let call = hub.call("mcp_everything__get-sum", json!({ "a": 2, "b": 40 }));
    let id = text(&call["id"]);
    let seen = events.until("call", |body| body["status"] == "success");
    let seen: Vec<_> =
        seen.into_iter().filter(|event| event.kind == "call").map(|event| event.body).collect();
    assert_eq!(strings_at(&seen, "/status"), ["running", "success"]);
    assert!(seen.iter().all(|body| body["call"] == *id && body["tool"] == "get-sum"), "{seen:?}");

    let kept = hub.get(&format!("/calls/{id}"));
    assert_eq!(kept, call, "the response equals the record");
    let expected = [
        ("name", json!("mcp_everything__get-sum")),
        ("server_id", server["id"].clone()),
        ("server", json!("everything")),
        ("tool", json!("get-sum")),
        ("status", json!("success")),
        ("arguments", json!({ "a": 2, "b": 40 })),
        ("summary", json!("The sum of 2 and 40 is 42.")),
        ("error", Value::Null),
        ("warning", Value::Null),
        ("approval", Value::Null),
    ];
    for (field, value) in expected {
        assert_eq!(kept[field], value, "{field}");
    }
    assert_eq!(kept["result"]["content"][0]["text"], "The sum of 2 and 40 is 42.");
    assert!(text(&kept["subject"]).starts_with("user:") && text(&kept["digest"]).len() == 64, "{kept}");
    let times = ["created", "started", "completed"].map(|field| text(&kept[field]).trim_end_matches('Z'));
    assert!(times.is_sorted(), "{times:?}");

    for number in 0..4 {
        hub.call("mcp_everything__echo", json!({ "message": number.to_string() }));
    }
    hub.call("mcp_everything__echo", json!({ "message": 7 }));
    hub.post("/servers/demo/connect", Value::Null);
    hub.call("mcp_demo__add", json!({ "a": 1, "b": 1 }));
    let count = |query: &str| hub.list(&format!("/calls?{query}")).len();
    assert_eq!((count(""), count("server=everything"), count("server=demo")), (7, 6, 1));
    assert_eq!((count("tool=echo"), count("status=error"), count("tool=echo&status=success")), (5, 1, 4));
    let middle = text(&hub.list("/calls?tool=echo")[2]["created"]).to_owned();
    let (since, until) = (count(&format!("since={middle}")), count(&format!("until={middle}")));
    assert_eq!(since + until, 7);
    assert!(since >= 4 && until >= 1, "{since} {until}");
    assert_eq!(hub.expect_error(422, "GET", "/calls?status=lost", Value::Null)["field"], "status");
    assert_eq!(hub.expect_error(422, "GET", "/calls?since=yesterday", Value::Null)["field"], "since");

    let all = hub.list("/calls");
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let mut page = hub.get(&format!("/calls?limit=3{after}"));
        paged.append(page["items"].as_array_mut().unwrap());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(paged, all);
    let times = all.iter().map(|call| text(&call["created"]).trim_end_matches('Z'));
    assert!(times.is_sorted_by(|newer, older| newer >= older));
    assert!(
        all.iter().all(|call| call["arguments"].is_null() && call["result"].is_null()),
        "lists omit arguments and results"
    );
    let shown = home.json(&["calls", "list", "--tool", "echo", "--status", "success", "--limit", "2"]);
    assert_eq!(shown.as_array().unwrap().len(), 2);
    let shown = home.ok(&["calls", "show", id]);
    assert!(shown.contains("The sum of 2 and 40 is 42.") && shown.contains(r#"{"a":2,"b":40}"#), "{shown}");
}

#[test]
fn f3_what_goes_wrong_is_told() {
    let (home, server) = (HubDirectory::new(), start_guarded());
    let hub = home.start();
    hub.add_guarded(&server, json!({ "timeout_ms": 1_000, "retry_attempts": 0 }));
    let (_, as_agent) = hub.agent("Ada", "auto", &json!({ "guarded": {} }));
    let failed = |tool: &str, arguments: Value, status: &str| {
        let call = as_agent.call(&format!("mcp_guarded__{tool}"), arguments);
        assert_eq!(call["status"], status, "{call}");
        assert_eq!(hub.get(&format!("/calls/{}", text(&call["id"])))["error"], call["error"]);
        text(&call["error"]).to_owned()
    };
    let error = failed("forecast", json!({ "place": 7 }), "error");
    assert!(error.contains("place") && error.contains("string"), "{error}");
    let error = failed("forecast", json!({}), "error");
    assert!(error.contains("place"), "{error}");
    let error = failed("fail", json!({}), "error");
    assert!(error.contains("this tool always fails"), "{error}");
    let error = failed("wait", json!({}), "unknown");
    assert!(error.starts_with("no response within 1s: "), "{error}");
    let shown = home.fails(&["tool", "call", "mcp_guarded__forecast", "--args", r#"{"place": 7}"#]);
    assert!(shown.contains("error: ") && shown.contains("place"), "{shown}");

    let slow = as_agent.call_async("mcp_guarded__wait", json!({}));
    let cancelled = as_agent.post(&format!("/calls/{}/cancel", text(&slow["id"])), Value::Null);
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");

    failed("die", json!({}), "unknown");
    let error = failed("whoami", json!({}), "error");
    assert!(error.contains("nothing listens there"), "{error}");
    assert_eq!(
        hub.expect_error(404, "POST", "/tools/mcp_guarded__none/call", json!({}))["code"],
        "not_found"
    );
    let problem =
        hub.expect_error(422, "POST", "/tools/mcp_guarded__whoami/call", json!({ "arguments": [] }));
    assert_eq!(problem["field"], "arguments");
    let statuses = hub.list("/calls?server=guarded&status=unknown");
    assert_eq!(strings_at(&statuses, "/tool"), ["die", "wait"]);
    let running = hub.list("/calls?status=running");
    assert!(running.is_empty(), "{running:?}");
}

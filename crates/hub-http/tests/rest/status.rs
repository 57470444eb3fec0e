//! Status, metrics and the audit.

use linchpin_hub_core::audit::export::verify_export;
use linchpin_hub_http::HttpOptions;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::fixture::Site;

#[tokio::test]
async fn what_is_running_is_said() {
    let site = Site::with_server().await;
    assert_eq!(site.send("GET", "/healthz", &[], None).await.body, "ok\n");
    let ready = site.send("GET", "/readyz", &[("Authorization", "nonsense")], None).await;
    assert_eq!((ready.status, &*ready.body), (200, "ok\n"));
    let status = site.get("/status").await.ok();
    assert_eq!((&status["servers"], &status["tools"]), (&json!(1), &json!(2)));
    assert_eq!(status["pending_approvals"], 0);
    assert!(status["audit_entries"].as_u64().unwrap() > 0 && status["version"].is_string());
}

#[tokio::test]
async fn a_mistake_in_the_operators_file_is_shown_to_people_alone() {
    let (problem, file_problem) = watch::channel(None);
    let site = Site::with(HttpOptions { file_problem: Some(file_problem), ..HttpOptions::default() }).await;
    assert_eq!(site.get("/status").await.ok()["file_problem"], Value::Null);
    let text = "`linchpin.toml`, line 3, column 1: `<b>`: must be a string";
    problem.send_replace(Some(text.to_owned()));
    assert_eq!(site.get("/status").await.ok()["file_problem"], text);
    let ready = site.send("GET", "/readyz", &[], None).await;
    assert_eq!(ready.status, 200);
    assert!(
        ready.body.contains("parts of the configuration file are not applied")
            && !ready.body.contains("line 3")
    );
    let token = format!("Bearer {}", site.token);
    let page = site.send("GET", "/", &[("Authorization", &token)], None).await.body;
    assert!(page.contains("line 3, column 1: &#96;&lt;b&gt;&#96;: must be a string"), "{page}");
}

#[tokio::test]
async fn what_is_counted_is_written_for_prometheus() {
    let site = Site::with_server().await;
    let (_, agent) = site.agent("always-ask").await;
    let canary = "canary-51c0ffee";
    let form = json!({"tool": "mcp_up__echo", "arguments": {"message": canary}});
    site.post("/calls", form.clone()).await.ok();
    site.send_as(&agent, "POST", "/calls?wait=false", Some(form)).await.ok();
    site.get(&format!("/calls/{canary}")).await.assert_problem(404, "not_found");
    site.send("GET", &format!("/{canary}?{canary}"), &[], None).await.assert_problem(404, "unknown_path");
    let token = format!("Bearer {}", site.token);
    let answer = site.send("GET", "/metrics", &[("Authorization", &token)], None).await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "linchpin_calls_total{server=\"up\",status=\"success\"} 1",
        "linchpin_call_duration_seconds_count{server=\"up\",status=\"success\"} 1",
        "linchpin_call_duration_seconds_bucket{server=\"up\",status=\"success\",le=\"+Inf\"} 1",
        "linchpin_approvals_pending 1",
        "linchpin_servers 1",
        "linchpin_servers_connected 1",
        "linchpin_tools 2",
        "linchpin_http_requests_total{route=\"/api/v1/calls\",status=\"200\"} 1",
        "linchpin_http_requests_total{route=\"/api/v1/calls\",status=\"202\"} 1",
        "linchpin_http_requests_total{route=\"/api/v1/calls/{call}\",status=\"404\"} 1",
        "linchpin_http_requests_total{route=\"none\",status=\"404\"} 1",
    ] {
        assert!(answer.body.lines().any(|known| known == line), "{line} is not in\n{}", answer.body);
    }
    for name in ["process_start_time_seconds ", "process_resident_memory_bytes ", "linchpin_audit_head "] {
        assert!(answer.body.lines().any(|line| line.starts_with(name)), "{name}");
    }
    let leaks = [canary, &site.token, &agent].into_iter().any(|secret| answer.body.contains(secret));
    assert!(!leaks, "{}", answer.body);
}

#[tokio::test]
async fn the_audit_is_read_checked_and_taken_along() {
    let site = Site::with_server().await;
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = site.get(&format!("/audit?limit=2{after}")).await.ok();
        seen.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    let numbers: Vec<_> = seen.iter().map(|entry| entry["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=seen.len() as u64).collect::<Vec<_>>());
    assert!(seen.iter().any(|entry| entry["action"] == "server.added"));
    let verified = site.get("/audit/verify").await.ok();
    assert_eq!((&verified["intact"], &verified["entries"]), (&json!(true), &json!(seen.len())));
    let export = site.get("/audit/export").await;
    assert_eq!(export.header("content-type"), Some("application/jsonl"));
    let signed = verify_export(export.body.as_bytes(), verified["public_key"].as_str()).unwrap();
    assert_eq!((signed.first, signed.last), (1, seen.len() as u64));
    let mut lines: Vec<Value> = export.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.pop();
    for entry in &mut seen {
        // The export contains what is stored, and that has ids only.
        entry.as_object_mut().unwrap().retain(|name, _| name != "actor_name" && name != "names");
    }
    assert_eq!(lines, seen);
    let rest = site.get(&format!("/audit/export?after={}", seen.len() - 1)).await;
    assert_eq!(rest.body.lines().count(), 2, "the entry and the signed last line");
    verify_export(rest.body.as_bytes(), verified["public_key"].as_str()).unwrap();
    let none = site.get("/audit/export?after=1000000").await;
    assert_eq!((none.status, &*none.body), (200, ""));
}

#[tokio::test]
async fn keys_are_rotated() {
    let site = Site::with_server().await;
    site.post("/calls", json!({"tool": "mcp_up__echo", "arguments": {"message": "kept"}})).await.ok();
    let root = json!({"tenants": 1, "secrets": 0, "unreadable": 0});
    assert_eq!(site.post("/keys/rotate", json!({})).await.ok(), root);
    assert_eq!(site.post("/keys/rotate", json!({"data": true})).await.ok(), root);
    site.post("/keys/rotate", json!({"data": 1})).await.assert_invalid_field("data");
    let call = site.get("/calls").await.ok()["items"][0]["id"].clone();
    let call = site.get(&format!("/calls/{}", call.as_str().unwrap())).await.ok();
    assert_eq!(call["arguments"]["message"], "kept");
}

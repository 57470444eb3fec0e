//! Client-side caches of lists: results while they are fresh, and the parameter headers of tools.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{HttpScript, ReceivedRequest, Reply, TEST_TIMEOUT, client, connect, said, server};
use linchpin::client::ListChanged;
use linchpin::{CallError, ClientError, Revision};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

fn listed(seen: &ReceivedRequest, tools: &Value, ttl: i64) -> Reply {
    let result = json!({ "resultType": "complete", "tools": tools, "ttlMs": ttl, "cacheScope": "private" });
    Reply::json(&seen.answer(&result))
}

fn tool(name: &str, properties: &Value) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } })
}

/// A server that lists these tools, fresh for a minute.
async fn listing(revision: Revision, tools: Value) -> HttpScript {
    server(revision, move |seen| seen.is("tools/list").then(|| listed(seen, &tools, 60_000))).await
}

#[tokio::test]
async fn fresh_lists_are_not_asked_for_again() {
    let script = listing(Revision::LATEST, json!([tool("a", &json!({}))])).await;
    let client = connect(&script).await;
    for _ in 0..3 {
        assert_eq!(client.tools().all().await.unwrap().len(), 1);
    }
    assert_eq!(script.of("tools/list").len(), 1);
    assert_eq!(client.tools().fresh().all().await.unwrap().len(), 1);
    assert_eq!(script.of("tools/list").len(), 2);
    // The other client has its own cache.
    connect(&script).await.tools().all().await.unwrap();
    assert_eq!(script.of("tools/list").len(), 3);
    let always = http::client(&script).without_cache().connect().await.unwrap();
    always.tools().all().await.unwrap();
    always.tools().all().await.unwrap();
    assert_eq!(script.of("tools/list").len(), 5);
}

#[tokio::test]
async fn in_a_session_nothing_is_kept() {
    let script = listing(Revision::LATEST_SESSION, json!([])).await;
    let client = connect(&script).await;
    client.tools().all().await.unwrap();
    client.tools().all().await.unwrap();
    assert_eq!(script.of("tools/list").len(), 2);
}

#[tokio::test]
async fn what_was_read_is_kept_by_its_uri() {
    let script = server(Revision::LATEST, |seen| {
        let uri = seen.body["params"]["uri"].as_str()?;
        let result = json!({
            "resultType": "complete", "contents": [{ "uri": uri, "text": "x" }],
            "ttlMs": if uri == "memo://stale" { 0 } else { 60_000 }, "cacheScope": "public",
        });
        Some(Reply::json(&seen.answer(&result)))
    })
    .await;
    let client = connect(&script).await;
    for uri in ["memo://a", "memo://a", "memo://b", "memo://stale", "memo://stale"] {
        assert_eq!(client.read(uri).await.unwrap().contents.len(), 1);
    }
    let read: Vec<_> =
        script.of("resources/read").iter().map(|seen| seen.header("mcp-name").to_owned()).collect();
    assert_eq!(read, ["memo://a", "memo://b", "memo://stale", "memo://stale"]);
    client.read("memo://a").fresh().await.unwrap();
    assert_eq!(script.of("resources/read").len(), 5);
}

#[tokio::test]
async fn a_notice_of_a_change_ends_freshness() {
    let (say, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let until = say.clone();
    let script = server(Revision::LATEST, move |seen| {
        if seen.is("tools/list") {
            return Some(listed(seen, &json!([]), 60_000));
        }
        if seen.is("server/discover") {
            return Some(Reply::json(&seen.answer(&json!({
                "resultType": "complete", "supportedVersions": [Revision::LATEST.as_str()],
                "capabilities": { "tools": { "listChanged": true } }, "ttlMs": 0, "cacheScope": "private",
            }))));
        }
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": seen.body["id"] });
        let notice = |method: &str| json!({ "jsonrpc": "2.0", "method": method, "params": { "_meta": meta, "notifications": {} } });
        let stream = Reply::events().event(&notice("notifications/subscriptions/acknowledged")).wait(&until);
        seen.is("subscriptions/listen").then(|| stream.event(&notice("notifications/tools/list_changed")).until_closed(&end))
    })
    .await;
    let (told, mut changes) = mpsc::channel(8);
    let client =
        client(&script).on_list_changed(move |list| told.try_send(list).unwrap()).connect().await.unwrap();
    client.tools().all().await.unwrap();
    client.tools().all().await.unwrap();
    assert_eq!(script.of("tools/list").len(), 1);
    say.notify_one();
    assert_eq!(tokio::time::timeout(TEST_TIMEOUT, changes.recv()).await.unwrap(), Some(ListChanged::Tools));
    client.tools().all().await.unwrap();
    assert_eq!(script.of("tools/list").len(), 2);
}

#[tokio::test]
async fn a_cursor_that_is_refused_ends_the_freshness_of_its_list() {
    let script = server(Revision::LATEST, |seen| {
        if !seen.is("tools/list") {
            return None;
        }
        if seen.body["params"].get("cursor").is_some() {
            return Some(Reply::json(&seen.error(-32602, "what cursor?")));
        }
        let result = json!({ "resultType": "complete", "tools": [], "nextCursor": "2", "ttlMs": 60_000, "cacheScope": "public" });
        Some(Reply::json(&seen.answer(&result)))
    })
    .await;
    let client = connect(&script).await;
    assert!(client.tools().all().await.is_err());
    assert!(client.tools().all().await.is_err());
    assert_eq!(script.of("tools/list").len(), 4);
}

#[tokio::test]
async fn parameters_are_repeated_in_headers() {
    let properties = json!({
        "region": { "type": "string", "x-mcp-header": "Region" },
        "count": { "type": "integer", "x-mcp-header": "Count" },
        "dry": { "type": "boolean", "x-mcp-header": "Dry-Run" },
        "query": { "type": "string" },
    });
    for revision in [Revision::LATEST, Revision::LATEST_SESSION] {
        let script = listing(revision, json!([tool("sql", &properties), tool("echo", &json!({}))])).await;
        let client = connect(&script).await;
        client.tools().all().await.unwrap();
        let arguments = json!({ "region": "grün\r\nx-evil: 1", "count": 42, "dry": null, "query": "select" });
        client.call("sql", arguments).await.unwrap();
        client.call("echo", json!({ "region": "x" })).await.unwrap();
        let calls = script.of("tools/call");
        let mirrored = |seen: &ReceivedRequest| -> Vec<_> {
            seen.headers
                .iter()
                .filter(|(name, _)| name.starts_with("mcp-param-") || *name == "x-evil")
                .map(|(name, value)| format!("{name}: {value}"))
                .collect()
        };
        if revision == Revision::LATEST {
            assert_eq!(
                mirrored(&calls[0]),
                ["mcp-param-count: 42", "mcp-param-region: =?base64?Z3LDvG4NCngtZXZpbDogMQ==?="]
            );
        } else {
            assert_eq!(mirrored(&calls[0]), [""; 0]);
        }
        assert_eq!(mirrored(&calls[1]), [""; 0]);
    }
}

#[tokio::test]
async fn tools_whose_headers_are_not_defined_well_are_left_out() {
    let bad = [
        json!({ "a": { "type": "string", "x-mcp-header": "" } }),
        json!({ "a": { "type": "string", "x-mcp-header": "with space" } }),
        json!({ "a": { "type": "object", "x-mcp-header": "A" } }),
        json!({ "a": { "type": "string", "x-mcp-header": "A" }, "b": { "type": "string", "x-mcp-header": "a" } }),
    ];
    let mut tools: Vec<_> =
        bad.iter().enumerate().map(|(number, bad)| tool(&format!("bad-{number}"), bad)).collect();
    tools.insert(2, tool("good", &json!({ "a": { "type": "string", "x-mcp-header": "A" } })));
    for revision in [Revision::LATEST, Revision::LATEST_SESSION] {
        let script = listing(revision, json!(tools)).await;
        let lines = Arc::new(Mutex::new(Vec::<String>::new()));
        let told = lines.clone();
        let client = client(&script)
            .on_diagnostic(move |line| told.lock().unwrap().push(line.to_owned()))
            .connect()
            .await
            .unwrap();
        let listing = client.tools().listing().await.unwrap();
        let names: Vec<_> = listing.items.into_iter().map(|tool| tool.name).collect();
        if revision == Revision::LATEST {
            assert_eq!(names, ["good"]);
            let left_out: Vec<_> = listing.skipped.iter().map(|left| &*left.name).collect();
            assert_eq!(left_out, ["bad-0", "bad-1", "bad-2", "bad-3"]);
            let reason = &listing.skipped[0].reason;
            assert!(reason.contains("`x-mcp-header` at /properties/a"), "{reason}");
            for number in 0..bad.len() {
                let name = format!("skipped the tool `bad-{number}`");
                assert!(lines.lock().unwrap().iter().any(|line| line.contains(&name)), "{number}");
            }
        } else {
            assert_eq!(names.len(), tools.len());
        }
    }
}

#[tokio::test]
async fn a_call_whose_headers_do_not_match_is_sent_again_once_after_listing() {
    let lists = Arc::new(AtomicUsize::new(0));
    let listed_before = lists.clone();
    let script = server(Revision::LATEST, move |seen| {
        let region = json!({ "region": { "type": "string", "x-mcp-header": "Region" } });
        match seen.method() {
            "tools/list" => {
                // The tool has changed.
                let properties = if lists.fetch_add(1, Ordering::SeqCst) == 0 { json!({}) } else { region };
                Some(listed(seen, &json!([tool("sql", &properties)]), 60_000))
            }
            "tools/call" if seen.header("mcp-param-region").is_empty() => {
                Some(Reply::json_with(400, &[], &seen.error(-32020, "Header mismatch")))
            }
            _ => None,
        }
    })
    .await;
    let client = connect(&script).await;
    client.tools().all().await.unwrap();
    assert_eq!(said(&client.call("sql", json!({ "region": "eu" })).await.unwrap()), "sql");
    assert_eq!(script.methods(), ["server/discover", "tools/list", "tools/call", "tools/list", "tools/call"]);
    let refused = client.call("sql", json!({})).await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::Call(CallError::Rejected(error)) if error.code == -32020),
        "{refused:?}"
    );
    assert_eq!(script.of("tools/call").len(), 4);
    assert_eq!(listed_before.load(Ordering::SeqCst), 3);
}

//! Servers of other implementations: behaviour that the specification allows, or that a client should tolerate.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/log_capture.rs"]
mod log_capture;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::client::RevisionCache;
use linchpin::model::{CompletionReference, ElicitResult, TaskStatus};
use linchpin::testing::{Reaction, Script};
use linchpin::{CallError, Client, ClientBuilder, ClientError, Revision};
use log_capture::LogCapture;
use serde_json::{Value, json};
use tokio::time::Instant;

const ERAS: [Revision; 2] = [Revision::LATEST_SESSION, Revision::LATEST];
const SECOND: Duration = Duration::from_secs(1);

fn client(script: &Script) -> ClientBuilder {
    Client::over(script.clone()).revision_cache(RevisionCache::new())
}

/// A script of one revision with these capabilities.
fn with(revision: Revision, capabilities: Value) -> Script {
    let info = json!({ "name": "foreign", "version": "1" });
    match revision {
        Revision::LATEST => Script::new().on("server/discover", move |_| {
            json!({
                "resultType": "complete", "supportedVersions": [revision.as_str()], "capabilities": capabilities,
                "serverInfo": info, "ttlMs": 0, "cacheScope": "private",
            })
        }),
        _ => Script::new().on("initialize", move |_| {
            json!({ "protocolVersion": revision.as_str(), "capabilities": capabilities, "serverInfo": info })
        }),
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_announces_no_changes_is_not_listened_to() {
    let never = json!({ "listChanged": false });
    let script = with(Revision::LATEST, json!({ "tools": never, "prompts": never, "resources": never }));
    client(&script).on_list_changed(|_| ()).connect().await.unwrap();
    assert_eq!(script.received_messages("subscriptions/listen"), Vec::<Value>::new());

    let some = json!({ "tools": { "listChanged": true }, "prompts": never, "resources": never });
    let script = with(Revision::LATEST, some);
    client(&script).on_list_changed(|_| ()).connect().await.unwrap();
    let sent = script.received_messages("subscriptions/listen");
    assert_eq!(sent[0]["params"]["notifications"], json!({ "toolsListChanged": true }));
}

#[tokio::test(start_paused = true)]
async fn log_events_name_the_server() {
    let (ears, _guard) = LogCapture::on_this_thread();
    let script = with(Revision::LATEST, json!({ "tools": { "listChanged": true } }));
    client(&script).on_list_changed(|_| ()).label("files").connect().await.unwrap();
    let said = ears.take();
    assert!(
        said.contains("failed to subscribe to list changes") && said.contains("server=\"files\""),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_completion_can_have_a_context() {
    for revision in Revision::ALL {
        let completion = json!({ "completion": { "values": [] }, "resultType": "complete" });
        let script = with(revision, json!({ "completions": {} }))
            .on("completion/complete", move |_| completion.clone());
        let client = client(&script).connect().await.unwrap();
        let reference = CompletionReference::Prompt { name: "review".into(), title: None };
        client
            .complete(reference, "framework", "f")
            .context([("language", "c")])
            .context([("language", "python")])
            .await
            .unwrap();
        let context = json!({ "arguments": { "language": "python" } });
        let expected = (revision >= Revision::V2025_06_18).then_some(&context);
        let sent = script.received_messages("completion/complete");
        assert_eq!(sent[0]["params"].get("context"), expected, "{revision}");
        assert_eq!(sent[0]["params"]["argument"], json!({ "name": "framework", "value": "f" }));
    }
}

fn task(revision: Revision, status: &str, more: &Value) -> Value {
    let [ttl, interval] = match revision {
        Revision::LATEST => ["ttlMs", "pollIntervalMs"],
        _ => ["ttl", "pollInterval"],
    };
    let at = "2026-01-01T00:00:00Z";
    let mut task = json!({ "taskId": "t1", "status": status, "createdAt": at, "lastUpdatedAt": at, ttl: null, interval: 100 });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

fn done() -> Value {
    json!({ "content": [{ "type": "text", "text": "done" }] })
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_server_refuses_its_result_too_early_is_polled() {
    const REVISION: Revision = Revision::LATEST_SESSION;
    let polls = Arc::new(AtomicUsize::new(0));
    let (polled, seen) = (polls.clone(), polls.clone());
    let script =
        with(REVISION, json!({ "tasks": { "requests": { "tools": { "call": {} } }, "cancel": {} } }))
            .on("tools/call", |_| json!({ "task": task(REVISION, "working", &json!({})) }))
            .on("tasks/get", move |_| {
                let is_done = polled.fetch_add(1, Ordering::SeqCst) >= 3;
                task(REVISION, if is_done { "completed" } else { "input_required" }, &json!({}))
            })
            .on("tasks/result", move |_| match seen.load(Ordering::SeqCst) {
                0..=3 => Reaction::new().error(-32603, "the task is not completed"),
                _ => Reaction::new().result(done()),
            });
    let client = client(&script).connect().await.unwrap();
    let result = client.call("slow", ()).as_task(SECOND).await.unwrap();
    assert_eq!((result.to_text().as_str(), polls.load(Ordering::SeqCst)), ("done", 4));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_repeats_an_input_request_times_out() {
    const REVISION: Revision = Revision::LATEST;
    let form = json!({ "type": "object", "properties": {} });
    let question = json!({ "method": "elicitation/create",
        "params": { "mode": "form", "message": "Sure?", "requestedSchema": form } });
    let script = with(REVISION, json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }))
        .on("tools/call", |_| task(REVISION, "working", &json!({ "resultType": "task" })))
        .on("tasks/get", move |_| {
            task(
                REVISION,
                "input_required",
                &json!({ "resultType": "complete", "inputRequests": { "q": question } }),
            )
        })
        .on("tasks/update", |_| json!({ "resultType": "complete" }))
        .on("tasks/cancel", |_| json!({ "resultType": "complete" }));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let client = client(&script).on_elicit(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok(ElicitResult::accept(json!({}))) }
    });
    let client = client.connect().await.unwrap();
    let begun = Instant::now();
    let error = client.call("slow", ()).timeout(SECOND).await.unwrap_err();
    assert!(matches!(error, ClientError::Call(CallError::TimedOut(SECOND))), "{error:?}");
    assert!(begun.elapsed() < 2 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one elicitation per request");
    script.wait_for(|message| message["method"] == "tasks/cancel").await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_its_server_forgets_may_have_run() {
    const REVISION: Revision = Revision::LATEST;
    let script = with(REVISION, json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }))
        .on("tools/call", |_| task(REVISION, "working", &json!({ "resultType": "task" })))
        .on("tasks/get", |_| Reaction::new().error(-32602, "unknown task"));
    let client = client(&script).connect().await.unwrap();
    let error = client.call("slow", ()).await.unwrap_err();
    let ClientError::Task { id, message, .. } = &error else { panic!("{error:?}") };
    assert!(id == "t1" && message.as_ref().unwrap().contains("unknown task"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_completed_task_whose_result_is_refused_has_run() {
    const REVISION: Revision = Revision::LATEST_SESSION;
    for status in ["completed", "failed"] {
        let script = with(REVISION, json!({ "tasks": { "requests": { "tools": { "call": {} } } } }))
            .on("tools/call", |_| json!({ "task": task(REVISION, "working", &json!({})) }))
            .on("tasks/get", move |_| task(REVISION, status, &json!({})))
            .on("tasks/result", |_| Reaction::new().error(-32603, "out of memory"));
        let client = client(&script).connect().await.unwrap();
        let error = client.call("slow", ()).as_task(SECOND).await.unwrap_err();
        assert!(error.to_string().contains("out of memory"), "{error}");
        match error {
            ClientError::Task { status: TaskStatus::Completed, .. } if status == "completed" => {}
            ClientError::Call(CallError::Rejected(_)) if status == "failed" => {}
            other => panic!("{status}: {other:?}"),
        }
    }
}

/// Lists with good and malformed entries, by method.
fn lists() -> BTreeMap<&'static str, Value> {
    let schema = json!({ "type": "object" });
    let tools = json!([
        { "name": "good", "inputSchema": schema },
        { "name": "bad", "inputSchema": schema, "description": 5 },
        { "inputSchema": schema },
        "text",
        { "name": "exact", "inputSchema": { "type": "object", "maximum": 1 } },
    ]);
    let resources = json!([{ "uri": "a:good", "name": "good" }, { "uri": "a:bad" }]);
    let templates =
        json!([{ "uriTemplate": "a:{good}", "name": "good" }, { "uriTemplate": "a:{bad}", "name": [] }]);
    let prompts = json!([{ "name": "good" }, { "name": "bad", "arguments": [{}] }]);
    BTreeMap::from([
        ("tools", tools),
        ("resources", resources),
        ("resourceTemplates", templates),
        ("prompts", prompts),
    ])
}

#[tokio::test(start_paused = true)]
async fn malformed_entries_of_lists_are_left_out_with_the_reason() {
    for revision in ERAS {
        let mut script = with(revision, json!({ "tools": {}, "resources": {}, "prompts": {} }));
        for (member, entries) in lists() {
            let method = match member {
                "resourceTemplates" => "resources/templates/list".to_owned(),
                member => format!("{member}/list"),
            };
            script = script.on(&method, move |request| {
                let mut page = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
                page[member] = entries.clone();
                if request["params"].get("cursor").is_none() {
                    page["nextCursor"] = json!("2");
                }
                page
            });
        }
        let client = client(&script).connect().await.unwrap();
        let tools = client.tools().listing().await.unwrap();
        let names: Vec<_> = tools.items.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["good", "exact", "good", "exact"], "{revision}: two pages");
        let left_out: Vec<_> = tools.skipped.iter().map(|left| (&*left.name, &*left.reason)).collect();
        assert_eq!(left_out.len(), 6);
        assert_eq!(left_out[0].0, "bad");
        assert!(left_out[0].1.starts_with("malformed at \"/description\": "), "{left_out:?}");
        assert_eq!(left_out[1], ("entry 2", "malformed: missing field `name`"));
        assert_eq!(left_out[2].0, "entry 3");
        assert_eq!(left_out[4].0, "entry 7", "the position in the list, not in the page");
        let resources = client.resources().listing().await.unwrap();
        assert_eq!((resources.items.len(), &*resources.skipped[0].name), (2, "a:bad"));
        let templates = client.resource_templates().listing().await.unwrap();
        assert_eq!((templates.items.len(), &*templates.skipped[0].name), (2, "a:{bad}"));
        let mut prompts = client.prompts();
        assert_eq!(prompts.next_page().await.unwrap().unwrap().len(), 1);
        assert_eq!((prompts.skipped().len(), &*prompts.skipped()[0].name), (1, "bad"));
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_entries_without_end_are_not_reported_one_by_one() {
    let (ears, _guard) = LogCapture::on_this_thread();
    let entries = |count: usize| vec![json!(1); count];
    let script = with(Revision::LATEST_SESSION, json!({ "tools": {}, "prompts": {} }));
    let script = script
        .on("tools/list", move |request| match request["params"].get("cursor") {
            None => json!({ "tools": entries(800), "nextCursor": "2" }),
            Some(_) => json!({ "tools": entries(800) }),
        })
        .on("prompts/list", move |_| json!({ "prompts": entries(100_001) }));
    let client = client(&script).label("sloppy").connect().await.unwrap();
    let tools = client.tools().listing().await.unwrap();
    assert_eq!((tools.items.len(), tools.skipped.len()), (0, 1_000));
    assert_eq!(tools.skipped[999].name, "entry 999");
    let said = ears.take();
    assert!(
        said.matches("skipped unusable list entries").count() == 1 && said.contains("count=1600"),
        "{said}"
    );
    assert!(!said.contains("entry 1"), "{said}");
    let error = client.prompts().listing().await.unwrap_err();
    assert!(matches!(error, ClientError::ListTooLong { method: "prompts/list", pages: 1 }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_no_list_is_still_an_error() {
    for page in [json!({ "tools": {} }), json!({}), json!({ "tools": [1], "nextCursor": 5 })] {
        let (script, expected) = (with(Revision::LATEST_SESSION, json!({ "tools": {} })), page.clone());
        let script = script.on("tools/list", move |_| page.clone());
        let client = client(&script).connect().await.unwrap();
        let error = client.tools().all().await.unwrap_err();
        assert!(matches!(error, ClientError::Malformed { .. }), "{expected}: {error:?}");
    }
}

//! Linchpin's client with handlers for all server requests, and the tour: a report of its results.

use std::sync::{Arc, Mutex};

use linchpin::client::{Client, Command, RevisionCache};
use linchpin::model::{
    CallToolResult, CompletionReference, CreateMessageResult, ElicitResult, Implementation, Root,
};
use linchpin::transport::Transport;
use linchpin::{CallError, ClientBuilder, ClientError, LogLevel};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, channel};

use crate::TEST_TIMEOUT;

/// Builds a client for a stdio server.
pub fn client(command: &[String]) -> ClientBuilder {
    with_handlers(Client::command(Command::new(&command[0]).args(&command[1..])))
}

/// Adds handlers for all server requests to a client.
pub fn with_handlers<T: Transport>(client: ClientBuilder<T>) -> ClientBuilder<T> {
    client
        .info(Implementation::new("interop-linchpin", "1.0.0"))
        .revision_cache(RevisionCache::new())
        .open_timeout(TEST_TIMEOUT)
        .timeout(TEST_TIMEOUT)
        .probe_timeout(TEST_TIMEOUT)
        .roots([Root { uri: "file:///tmp/a".into(), name: Some("a".into()), meta: None }])
        .on_elicit(|_| async { Ok(ElicitResult::accept(json!({ "name": "Ada" }))) })
        .on_sample(|_| async { Ok(CreateMessageResult::text("interop", "sampled")) })
}

/// Returns the text of a tool's result.
pub fn text(result: Result<CallToolResult, ClientError>) -> Value {
    match result {
        Ok(result) => result.content.iter().filter_map(|block| block.as_text()).collect::<String>().into(),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// Returns the text of a resource.
pub async fn read(client: &Client, uri: &str) -> String {
    let result = client.read(uri).await.unwrap();
    result.contents.into_iter().filter_map(|contents| contents.text).collect()
}

/// Returns the text of a prompt.
pub async fn prompt(client: &Client, name: &str, arguments: &[(&str, &str)]) -> String {
    let result = client.prompt(name, arguments.iter().copied()).await.unwrap();
    result.messages.into_iter().filter_map(|message| Some(message.content.as_text()?.to_owned())).collect()
}

/// Uses all features of a tour server and returns the report, as the other clients in this directory do.
pub async fn tour(client: &Client) -> Value {
    let mut tools: Vec<_> = client.tools().all().await.unwrap().into_iter().map(|tool| tool.name).collect();
    tools.sort();
    let progress = Arc::new(Mutex::new(Vec::new()));
    let told = progress.clone();
    let slow = client.call("slow", ()).progress(move |step| {
        let mut shown = json!({ "progress": number(step.done()) });
        step.total().inspect(|total| shown["total"] = number(*total));
        step.message().inspect(|message| shown["message"] = (*message).into());
        told.lock().unwrap().push(shown);
    });
    let slow = text(slow.await);
    let fail = client.call("fail", ()).await.unwrap();
    let add = client.call("add", json!({ "a": 2, "b": 0.5 })).await.unwrap();
    let sum = add.structured_content.as_ref().map(|sum| serde_json::from_str(sum.json.get()).unwrap());
    json!({
        "revision": client.revision().as_str(),
        "tools": tools,
        "add": sum.unwrap_or_else(|| text(Ok(add))),
        "echo": text(client.call("echo", json!({ "text": "grüße" })).await),
        "slow": slow,
        "progress": *progress.lock().unwrap(),
        "ask": text(client.call("ask", ()).await),
        "sample": text(client.call("sample", ()).await),
        "folders": text(client.call("folders", ()).await),
        "fail": { "isError": fail.is_error, "text": text(Ok(fail)) },
        "status": read(client, "memo://status").await,
        "memo": read(client, "memo://7").await,
        "prompt": prompt(client, "review", &[("language", "rust")]).await,
    })
}

/// Converts a float to an integer: servers send 1, which is decoded as 1.0.
#[expect(clippy::cast_possible_truncation, reason = "small integers")]
fn number(value: f64) -> Value {
    if value.fract() == 0.0 { (value as i64).into() } else { value.into() }
}

/// Notifications received by a client.
pub struct NotificationLog {
    logged: Receiver<Value>,
    updated: Receiver<String>,
    changed: Receiver<String>,
}

/// Adds notification handlers to a client.
pub fn with_notification_log<T: Transport>(client: ClientBuilder<T>) -> (ClientBuilder<T>, NotificationLog) {
    let (log, logged) = channel(64);
    let (update, updated) = channel(64);
    let (change, changed) = channel(64);
    let client = client
        .on_log(LogLevel::Info, move |message| {
            log.try_send(json!({ "level": message.level.as_str(), "data": message.data })).unwrap();
        })
        .on_resource_updated(move |uri| update.try_send(uri).unwrap())
        .on_list_changed(move |list| change.try_send(format!("{list:?}").to_lowercase()).unwrap());
    (client, NotificationLog { logged, updated, changed })
}

/// Waits for the next notification.
pub async fn next_notification<T>(told: &mut Receiver<T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, told.recv()).await.expect("no notification in time").unwrap()
}

/// Tests notifications, completion and cancellation, and returns the report.
pub async fn tour_notifications(client: &Client, heard: &mut NotificationLog) -> Value {
    let subscription = client.subscribe("memo://status").await.unwrap();
    assert_eq!(text(client.call("log", ()).await), "logged");
    let log = next_notification(&mut heard.logged).await;
    assert_eq!(text(client.call("touch", ()).await), "touched");
    let updated = next_notification(&mut heard.updated).await;
    assert_eq!(text(client.call("announce", ()).await), "announced");
    let changed = next_notification(&mut heard.changed).await;
    drop(subscription);
    let reference = CompletionReference::Prompt { name: "review".into(), title: None };
    let completed = client.complete(reference, "language", "ru").await.unwrap().completion.values;

    let waiting = Arc::new(Notify::new());
    let begun = waiting.clone();
    let call = client.call("wait", ()).progress(move |_| begun.notify_one());
    tokio::select! {
        answer = call => panic!("a waiting call got a response: {answer:?}"),
        () = waiting.notified() => {}
    }
    let cancel = text(client.call("cancelled", ()).await);
    json!({ "log": log, "updated": updated, "changed": changed, "complete": completed, "cancel": cancel })
}

/// Requests unknown items, which must fail: with an error or, at some servers, with an error result.
pub async fn check_unknown_items(client: &Client) {
    let tool = client.call("nonsense", ()).await;
    let refused = match &tool {
        Ok(result) => result.is_error == Some(true) && format!("{result:?}").contains("nonsense"),
        Err(error) => matches!(error, ClientError::Call(CallError::Rejected(_))),
    };
    assert!(refused, "{tool:?}");
    let resource = client.read("memo://no/such").await;
    assert!(matches!(resource, Err(ClientError::Call(CallError::Rejected(_)))), "{resource:?}");
}

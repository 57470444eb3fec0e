//! The same server behaves the same for clients of every revision, over every transport: one tour of all features.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::client::ListChanged;
use linchpin::model::{CompletionReference, CreateMessageResult, ElicitResult, Root};
use linchpin::testing::{Case, Direction, Transcript, matrix};
use linchpin::{
    Client, ClientError, Context, LogLevel, NoArgs, Prompt, ResourceTemplate, Result, Revision, Server,
    Service, Tool, args,
};
use serde_json::json;
use tokio::sync::Notify;

#[args]
struct Add {
    a: i64,
    b: i64,
}

#[args]
struct NameArgs {
    name: String,
}

/// A server with every kind of feature.
fn service() -> Service {
    Server::new("tour", "1")
        .tool("add", "Adds", |Add { a, b }| async move { a + b })
        .tool("slow", "Reports progress", |_: NoArgs, cx: Context| async move {
            for step in 1..=3 {
                cx.progress((f64::from(step), 3.0));
                cx.log(LogLevel::Warning, format!("step {step}"));
                tokio::task::yield_now().await;
            }
            "done"
        })
        .add(Tool::new("greet").description("Elicits a name").read_only().handler(
            |_: NoArgs, cx: Context| async move {
                let person: NameArgs = cx.elicit("Who are you?").await?;
                Result::<_>::Ok(format!("Hello, {}!", person.name))
            },
        ))
        .add(Tool::new("think").description("Requests sampling").read_only().handler(
            |_: NoArgs, cx: Context| async move { Result::<_>::Ok(cx.sample("6 * 7?").await?.to_text()) },
        ))
        .add(Tool::new("folders").description("Lists the roots").read_only().handler(
            |_: NoArgs, cx: Context| async move { Result::<_>::Ok(cx.roots().await?[0].uri.clone()) },
        ))
        .tool("wait", "Waits for cancellation", |_: NoArgs, cx: Context| async move {
            cx.progress(0.5);
            cx.cancelled().await;
            "given up"
        })
        .resource("memory://status", "status", || async { "ok" })
        .add(
            ResourceTemplate::new("notes://{name}", "note")
                .complete("name", |typed: String| async move { vec![format!("{typed}!")] })
                .handler(|NameArgs { name }| async move { name }),
        )
        .add(Prompt::new("hello").handler(|NameArgs { name }| async move { format!("Say hello to {name}") }))
        .build()
        .unwrap()
}

/// Notifications that a client received.
#[derive(Default)]
struct NotificationLog {
    entries: Mutex<Vec<String>>,
    more: Notify,
}

impl NotificationLog {
    fn add(&self, word: impl Into<String>) {
        self.entries.lock().unwrap().push(word.into());
        self.more.notify_waiters();
    }

    async fn wait_for(&self, word: &str) {
        loop {
            let more = self.more.notified();
            if self.entries.lock().unwrap().iter().any(|known| known == word) {
                return;
            }
            more.await;
        }
    }
}

async fn connect(
    case: &Case,
    transcript: &Transcript,
    notifications: &Arc<NotificationLog>,
) -> Result<Client, ClientError> {
    let (logs, lists, updates) = (notifications.clone(), notifications.clone(), notifications.clone());
    case.client_over(transcript.clone())
        .on_elicit(|_| async { Ok(ElicitResult::accept(json!({ "name": "Ada" }))) })
        .on_sample(|_| async { Ok(CreateMessageResult::text("a model", "42")) })
        .roots([Root { uri: "file:///tmp/a".into(), name: None, meta: None }])
        .on_log(LogLevel::Info, move |log| logs.add(log.data.as_str().unwrap_or_default()))
        .on_list_changed(move |list| lists.add(if list == ListChanged::Tools { "tools" } else { "others" }))
        .on_resource_updated(move |uri| updates.add(uri))
        .connect()
        .await
}

#[test]
fn a_tour_of_everything() {
    let service = service();
    matrix(&service, |case| {
        let service = service.clone();
        async move {
            let (notifications, transcript) =
                (Arc::new(NotificationLog::default()), Transcript::new(case.to_server()));
            let client = connect(&case, &transcript, &notifications).await?;
            assert_eq!(client.revision(), case.revision());
            tools(&client, &notifications).await?;
            others(&client).await?;
            changes(&service, &client, &notifications, &case).await?;
            cancelled(&client).await;
            client.close().await;
            check(&transcript);
            Ok::<_, ClientError>(())
        }
    });
}

async fn tools(client: &Client, notifications: &Arc<NotificationLog>) -> Result<(), ClientError> {
    assert!(client.tools().all().await?.len() >= 6);
    assert_eq!(client.call("add", json!({ "a": 40, "b": 2 })).await?.to_text(), "42");
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let call = client.call("slow", ()).progress(move |progress| seen.lock().unwrap().push(progress.done()));
    assert_eq!(call.await?.to_text(), "done");
    assert_eq!(*steps.lock().unwrap(), [1.0, 2.0, 3.0], "progress arrives before the response, in order");
    for step in 1..=3 {
        notifications.wait_for(&format!("step {step}")).await;
    }
    let asked = client.call("greet", ()).await?;
    // Forms were added in the third revision.
    if client.revision() >= Revision::ALL[2] {
        assert_eq!(asked.to_text(), "Hello, Ada!");
    } else {
        assert_eq!(asked.is_error, Some(true), "{asked:?}");
    }
    assert_eq!(client.call("think", ()).await?.to_text(), "42");
    assert_eq!(client.call("folders", ()).await?.to_text(), "file:///tmp/a");
    Ok(())
}

async fn others(client: &Client) -> Result<(), ClientError> {
    assert_eq!(client.resources().all().await?.len(), 1);
    assert_eq!(client.read("notes://today").await?.contents[0].text.as_deref(), Some("today"));
    let filled = client.prompt("hello", [("name", "Ada")]).await?;
    assert_eq!(filled.messages[0].content.as_text(), Some("Say hello to Ada"));
    let note = CompletionReference::Resource { uri: "notes://{name}".into() };
    assert_eq!(client.complete(note, "name", "a").await?.completion.values, ["a!"]);
    client.ping().await?;
    let unknown = client.request::<serde_json::Value>("no/such", ()).await.unwrap_err();
    assert!(unknown.to_string().contains("Method not found"), "{unknown}");
    // The connection is still open.
    client.ping().await
}

async fn changes(
    service: &Service,
    client: &Client,
    notifications: &Arc<NotificationLog>,
    case: &Case,
) -> Result<(), ClientError> {
    let _watching = client.subscribe("memory://status").await?;
    service.handle().resource_updated("memory://status");
    notifications.wait_for("memory://status").await;
    let name = format!("new {case}").replace(|char: char| !char.is_ascii_alphanumeric(), "_");
    let added = Tool::new(&*name).handler(|_: NoArgs| async { "new" });
    service.handle().add(added).expect("the name is free");
    notifications.wait_for("tools").await;
    assert_eq!(client.call(&*name, ()).await?.to_text(), "new");
    service.handle().remove_tool(&name);
    Ok(())
}

/// A cancelled call ends at the server, and the connection stays open.
async fn cancelled(client: &Client) {
    let begun = Arc::new(Notify::new());
    let seen = begun.clone();
    let call = client.call("wait", ()).progress(move |_| seen.notify_one()).timeout(Duration::from_mins(1));
    tokio::select! {
        ended = call.into_future() => panic!("it finished without cancellation: {ended:?}"),
        () = begun.notified() => {}
    }
    client.ping().await.unwrap();
}

/// Every message fits the schema of its revision.
fn check(transcript: &Transcript) {
    let mut conversation = spec_check::Conversation::new();
    for (direction, line) in transcript.lines() {
        match direction {
            Direction::Sent => conversation.record_sent(line),
            Direction::Received => conversation.check_received(&line).unwrap(),
        }
    }
}

//! Linchpin's client against the reference server `@modelcontextprotocol/server-everything`: lists, all kinds of
//! content, server requests, tasks, subscriptions and log messages.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use interop_tests::client::{client, next_notification, prompt, read, text, with_handlers};
use interop_tests::peer::{RunningServer, peer};
use interop_tests::recording_proxy::Proxy;
use interop_tests::schema_check::{OwnSide, schema_violations, schema_violations_over_http};
use interop_tests::stdio_recording::{StdioRecording, recorded};
use linchpin::client::{Client, ListChanged};
use linchpin::model::{CompletionReference, ElicitResult, Root};
use linchpin::transport::http::HttpTransport;
use linchpin::{ClientBuilder, Content, LogLevel};
use serde_json::{Value, json};
use tokio::sync::mpsc::channel;

/// Transport to the server.
#[derive(Clone, Copy, Debug)]
enum ServerTransport {
    Stdio,
    Streamable,
    Sse,
}

/// Runs `steps` against a new server, and validates every message that the client sent.
async fn with_everything(
    way: ServerTransport,
    describe: impl FnOnce(ClientBuilder) -> ClientBuilder,
    steps: impl AsyncFnOnce(&Client),
) {
    let faults = match way {
        ServerTransport::Stdio => {
            let log = StdioRecording::new(env!("CARGO_TARGET_TMPDIR"));
            let mut command = peer("everything");
            command.push("stdio".into());
            let client = describe(client(&recorded(&log, &command))).connect().await.unwrap();
            steps(&client).await;
            client.close().await;
            let said = log.take();
            said.iter().flat_map(|(client, server)| schema_violations(client, server)).collect()
        }
        ServerTransport::Streamable | ServerTransport::Sse => {
            let (name, path) = if matches!(way, ServerTransport::Sse) {
                ("sse", "/sse")
            } else {
                ("streamableHttp", "/mcp")
            };
            let server = RunningServer::everything(name);
            let proxy = Proxy::start(server.address());
            let client = describe(with_handlers(Client::over(HttpTransport::new(proxy.url(path)))));
            let client = client.connect().await.unwrap();
            proxy.wait_for_stream();
            steps(&client).await;
            client.close().await;
            schema_violations_over_http(&proxy.entries(), OwnSide::Client)
        }
    };
    assert_eq!(faults, Vec::<String>::new(), "{way:?}");
}

/// Runs each test with each transport.
macro_rules! everywhere {
    ($( $name:ident; )*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn stdio() {
                super::$name(super::ServerTransport::Stdio).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn streamable_http() {
                super::$name(super::ServerTransport::Streamable).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sse() {
                super::$name(super::ServerTransport::Sse).await;
            }
        }
    )*};
}

everywhere! {
    lists;
    results_of_all_kinds;
    progress_and_questions;
    changes_and_log_messages;
    a_tool_that_is_a_task;
}

async fn lists(way: ServerTransport) {
    with_everything(
        way,
        |client| client,
        async |client| {
            assert_eq!(client.server().unwrap().name, "mcp-servers/everything");
            assert!(client.instructions().is_some_and(|instructions| !instructions.is_empty()));
            let tools = client.tools().all().await.unwrap();
            for name in ["echo", "get-sum", "trigger-elicitation-request", "trigger-sampling-request"] {
                assert!(tools.iter().any(|tool| tool.name == name), "{name} is missing");
            }
            let resources = client.resources().all().await.unwrap();
            let document = resources.iter().find(|resource| resource.uri.ends_with("features.md")).unwrap();
            assert!(read(client, &document.uri).await.contains("Everything Server"));
            let templates = client.resource_templates().all().await.unwrap();
            let template = "demo://resource/dynamic/text/{resourceId}";
            assert!(templates.iter().any(|one| one.uri_template == template), "{templates:?}");
            let mut prompts: Vec<_> =
                client.prompts().all().await.unwrap().into_iter().map(|prompt| prompt.name).collect();
            prompts.sort();
            assert_eq!(prompts, ["args-prompt", "completable-prompt", "resource-prompt", "simple-prompt"]);
            client.ping().await.unwrap();
        },
    )
    .await;
}

async fn results_of_all_kinds(way: ServerTransport) {
    with_everything(
        way,
        |client| client,
        async |client| {
            client.tools().all().await.unwrap(); // from now on structured results are validated
            let call = |name: &'static str, arguments: Value| client.call(name, arguments);
            assert_eq!(text(call("echo", json!({ "message": "grüße" })).await), "Echo: grüße");
            assert_eq!(
                text(call("get-sum", json!({ "a": 2, "b": 0.5 })).await),
                "The sum of 2 and 0.5 is 2.5."
            );
            let weather = call("get-structured-content", json!({ "location": "Chicago" })).await.unwrap();
            let weather: Value =
                serde_json::from_str(weather.structured_content.unwrap().json.get()).unwrap();
            assert_eq!(weather["conditions"], "Light rain / drizzle");
            let image = call("get-tiny-image", json!({})).await.unwrap();
            assert!(image.content.iter().any(|block| matches!(block, Content::Image(_))), "{image:?}");
            let links = call("get-resource-links", json!({ "count": 3 })).await.unwrap();
            assert_eq!(links.content.iter().filter(|one| matches!(one, Content::ResourceLink(_))).count(), 3);
            let wanted = json!({ "resourceType": "Text", "resourceId": 1 });
            let embedded = call("get-resource-reference", wanted).await.unwrap();
            assert!(
                embedded.content.iter().any(|block| matches!(block, Content::Resource(_))),
                "{embedded:?}"
            );
            let message = json!({ "messageType": "error", "includeImage": false });
            assert_eq!(text(call("get-annotated-message", message).await), "Error: Operation failed");
            let wrong = call("get-sum", json!({ "a": "two" })).await.unwrap();
            assert_eq!(wrong.is_error, Some(true));
            let unknown = call("no-such-tool", json!({})).await;
            assert!(
                unknown
                    .map_or_else(|error| error.to_string(), |result| format!("{result:?}"))
                    .contains("no-such")
            );

            assert!(read(client, "demo://resource/dynamic/text/7").await.starts_with("Resource 7: "));
            let blob = client.read("demo://resource/dynamic/blob/7").await.unwrap();
            assert!(blob.contents[0].blob.is_some());
            assert!(client.read("demo://no/such").await.is_err());
            assert_eq!(prompt(client, "args-prompt", &[("city", "Ulm")]).await, "What's weather in Ulm?");
            assert!(!prompt(client, "simple-prompt", &[]).await.is_empty());
            let reference = CompletionReference::Prompt { name: "completable-prompt".into(), title: None };
            let completed = client.complete(reference, "department", "S").await.unwrap().completion;
            assert_eq!(completed.values, ["Sales", "Support"]);
            let uri = "demo://resource/dynamic/text/{resourceId}".into();
            let completed = client.complete(CompletionReference::Resource { uri }, "resourceId", "4").await;
            assert_eq!(completed.unwrap().completion.values, ["4"]);
        },
    )
    .await;
}

async fn progress_and_questions(way: ServerTransport) {
    let describe = |client: ClientBuilder| {
        client.on_elicit_url(|ask| async move {
            assert_eq!(ask.url.as_deref(), Some("https://example.com/"));
            Ok(ElicitResult::accept(Value::Null))
        })
    };
    with_everything(way, describe, async |client| {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let told = steps.clone();
        let slow = client.call("trigger-long-running-operation", json!({ "duration": 0.1, "steps": 4 }));
        let slow = slow.progress(move |step| told.lock().unwrap().push((step.done(), step.total())));
        assert!(text(slow.await).as_str().unwrap().starts_with("Long running operation completed."));
        let expected = [1.0, 2.0, 3.0, 4.0].map(|step| (step, Some(4.0)));
        assert_eq!(*steps.lock().unwrap(), expected);

        let answer = text(client.call("trigger-elicitation-request", ()).await);
        assert!(answer.as_str().unwrap().contains("- Name: Ada"), "{answer}");
        let answer = text(client.call("trigger-sampling-request", json!({ "prompt": "Speak" })).await);
        assert!(answer.as_str().unwrap().contains(r#""text": "sampled""#), "{answer}");
        let answer = text(client.call("get-roots-list", ()).await);
        assert!(answer.as_str().unwrap().contains("URI: file:///tmp/a"), "{answer}");
        let url = json!({ "url": "https://example.com/", "message": "Go there" });
        let answer = text(client.call("trigger-url-elicitation", url).await);
        assert!(answer.as_str().unwrap().contains("User completed the URL elicitation"), "{answer}");
    })
    .await;
}

async fn changes_and_log_messages(way: ServerTransport) {
    let (log, mut logged) = channel(64);
    let (update, mut updated) = channel(64);
    let (change, mut changed) = channel(64);
    let describe = |client: ClientBuilder| {
        client
            .on_log(LogLevel::Info, move |message| log.try_send(message).unwrap())
            .on_resource_updated(move |uri| update.try_send(uri).unwrap())
            .on_list_changed(move |list| change.try_send(list).unwrap())
    };
    with_everything(way, describe, async |client| {
        // Tools that depend on client capabilities are added a little later. Over Streamable HTTP the server sends
        // that notification before the standalone stream is open.
        if !matches!(way, ServerTransport::Streamable) {
            assert_eq!(next_notification(&mut changed).await, ListChanged::Tools);
        }
        let uri = "demo://resource/dynamic/text/1";
        let subscription = client.subscribe(uri).await.unwrap();
        let message = next_notification(&mut logged).await;
        assert!(message.data.as_str().unwrap().contains(uri), "{message:?}");
        client.call("toggle-subscriber-updates", ()).await.unwrap();
        assert_eq!(next_notification(&mut updated).await, uri);
        client.call("toggle-subscriber-updates", ()).await.unwrap();
        drop(subscription);
        let message = next_notification(&mut logged).await;
        assert!(message.data.as_str().unwrap().starts_with("Received Unsubscribe"), "{message:?}");
        client.set_log_level(LogLevel::Emergency).await.unwrap();

        client.set_roots([Root { uri: "file:///tmp/b".into(), name: None, meta: None }]);
        let message = text(client.call("get-roots-list", ()).await);
        assert!(message.as_str().unwrap().contains("file:///tmp/"), "{message}");
    })
    .await;
}

async fn a_tool_that_is_a_task(way: ServerTransport) {
    let describe = |client: ClientBuilder| {
        client.on_elicit(|_| async { Ok(ElicitResult::accept(json!({ "interpretation": "snake" }))) })
    };
    with_everything(way, describe, async |client| {
        let question = json!({ "topic": "python", "ambiguous": true });
        let call = client.call("simulate-research-query", question).as_task(Duration::from_mins(1));
        let report = text(call.await);
        assert!(report.as_str().unwrap().contains("# Research Report: python (snake)"), "{report}");
    })
    .await;
}

//! Linchpin's tour server, for the clients on the official SDKs: the same items as `server.mjs`, with the same names
//! and results. It serves on stdio, or with the argument `http` at a URL that it prints, until it is killed.

#![expect(clippy::print_stdout, reason = "the parent process reads the URL")]

use std::time::Duration;

use linchpin::model::{ElicitAction, ElicitMode, ElicitParams};
use linchpin::{
    Context, Error, Json, LogLevel, NoArgs, Prompt, Resource, ResourceTemplate, Result, Server, StateKey,
    StateKeys, Tool, args,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

#[args]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[args]
struct Echo {
    text: String,
}

#[args]
struct Memo {
    id: String,
}

#[args]
struct Review {
    language: String,
}

/// Number of cancelled calls of `wait` that `cancelled` has not reported yet.
struct Cancelled(Semaphore);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result {
    if std::env::args().nth(1).as_deref() != Some("http") {
        return server().run().await;
    }
    let endpoint = server().http().legacy_sse().bind("127.0.0.1:0").await?;
    println!("{}", endpoint.url());
    endpoint.run().await
}

fn server() -> Server {
    let mut server = Server::new("interop-linchpin", "1.0.0");
    let handle = server.handle();
    let changes = handle.clone();
    server
        // The same key in every process, so that one can resume the calls of another.
        .keys(StateKeys::new(StateKey::new(&[7; 32])))
        .state(Cancelled(Semaphore::new(0)))
        .tool("add", "Adds two numbers", |Add { a, b }| async move { Json(Sum { sum: a + b }) })
        .tool("echo", "Says the text again", |Echo { text }| async move { text })
        .tool("slow", "Reports progress three times", slow)
        .add(Tool::new("ask").description("Asks the person for a name and greets").read_only().handler(ask))
        .tool("sample", "Lets the client's model speak", sample)
        .tool("folders", "Lists the client's roots, one per line", folders)
        .tool("fail", "Always fails", |_: NoArgs| async {
            Err::<String, _>(Error::tool("this tool always fails"))
        })
        .tool("log", "Writes a log message", |_: NoArgs, cx: Context| async move {
            cx.log(LogLevel::Info, "a line");
            "logged"
        })
        .tool("touch", "Tells that the status has changed", move |_: NoArgs| {
            handle.resource_updated("memo://status");
            std::future::ready("touched")
        })
        .tool("announce", "Tells that the list of tools has changed", move |_: NoArgs| {
            let new = Tool::new("announced").handler(|_: NoArgs| async { "announced" });
            if changes.add(new).is_err() {
                changes.tools_changed(); // the tool was added by an earlier call
            }
            std::future::ready("announced")
        })
        .tool("wait", "Waits until it is cancelled", wait)
        .tool("cancelled", "Waits until a call of `wait` was cancelled", cancelled)
        .add(Resource::new("memo://status", "status").mime_type("text/plain").handler(|| async { "ok" }))
        .add(
            ResourceTemplate::new("memo://{id}", "memo")
                .mime_type("text/plain")
                .handler(|Memo { id }| async move { format!("memo {id}") }),
        )
        .add(
            Prompt::new("review")
                .description("Asks for a code review")
                .complete("language", |typed: String| async move {
                    ["rust", "ruby", "go"]
                        .into_iter()
                        .filter(|name| name.starts_with(&typed))
                        .collect::<Vec<_>>()
                })
                .handler(|Review { language }| async move { format!("Review this {language} code.") }),
        )
}

async fn wait(_: NoArgs, cx: Context) -> &'static str {
    cx.progress((1.0, 1.0, "waiting"));
    cx.cancelled().await;
    if let Some(cancelled) = cx.get::<Cancelled>() {
        cancelled.0.add_permits(1);
    }
    "nobody reads this"
}

async fn cancelled(_: NoArgs, cx: Context) -> Result<&'static str> {
    let cancelled = cx.get::<Cancelled>().ok_or_else(|| Error::tool("nothing is counted"))?;
    cancelled.0.acquire().await.map_err(|_| Error::tool("nothing is counted any more"))?.forget();
    Ok("a call was cancelled")
}

async fn slow(_: NoArgs, cx: Context) -> &'static str {
    for step in [1, 2, 3] {
        cx.progress((f64::from(step), 3.0, format!("step {step}")));
        // Both TypeScript clients lose a progress notification that they read together with the response.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    "done"
}

async fn ask(_: NoArgs, cx: Context) -> Result<String> {
    let form =
        json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    let answer = cx
        .elicit_with(ElicitParams {
            mode: Some(ElicitMode::Form),
            message: "What is your name?".into(),
            requested_schema: serde_json::from_value(form)?,
            url: None,
            elicitation_id: None,
            task: None,
            meta: None,
        })
        .await?;
    let name = answer.content.as_ref().and_then(|content| content.get("name")).and_then(Value::as_str);
    Ok(match answer.action {
        ElicitAction::Accept => format!("hello {}", name.unwrap_or_default()),
        other => format!("the user said {}", other.as_str()),
    })
}

async fn sample(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.sample("Say something").await?.to_text())
}

async fn folders(_: NoArgs, cx: Context) -> Result<String> {
    let roots = cx.roots().await?;
    Ok(roots.into_iter().map(|root| root.uri).collect::<Vec<_>>().join("\n"))
}

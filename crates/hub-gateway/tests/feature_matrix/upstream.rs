//! Upstream server with every kind of feature, for the tests of the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin::model::{CreateMessageParams, TaskSupport, Tool as ToolDefinition, ToolChoice, ToolChoiceMode};
use linchpin::server::CompletionRequest;
use linchpin::{
    Context, Json, LogLevel, NoArgs, Prompt, ResourceTemplate, Result, Server, ServerHandle, Service, Tool,
    args,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

/// URI of a resource that every upstream server has.
pub(crate) const STATUS_URI: &str = "memory://status";
/// URI template that every upstream server has.
pub(crate) const NOTES_TEMPLATE: &str = "notes://{name}";

#[args]
struct Add {
    a: i64,
    b: i64,
}

#[args]
struct NameArgs {
    name: String,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
}

/// Creates the upstream server.
pub(crate) fn upstream() -> Result<Service> {
    let cancelled = Arc::<AtomicUsize>::default();
    let counted = cancelled.clone();
    let mut server = Server::new("upstream", "1");
    let handle = server.handle();
    let (growing, touching) = (handle.clone(), handle);
    server
        .instructions("An upstream server for tests.")
        .tool("add", "Adds", |Add { a, b }| async move { Json(Sum { sum: a + b }) })
        .tool("steps", "Reports progress and logs", |_: NoArgs, cx: Context| async move {
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
        .add(Tool::new("visit").description("Sends the user to a page").read_only().handler(
            |_: NoArgs, cx: Context| async move {
                cx.elicit_url("Please pay", "https://pay.example/1").await?.complete();
                Result::<_>::Ok("visited")
            },
        ))
        .add(Tool::new("think").description("Requests sampling").read_only().handler(
            |_: NoArgs, cx: Context| async move { Result::<_>::Ok(cx.sample("6 * 7?").await?.to_text()) },
        ))
        .add(Tool::new("use_tool").description("Requests sampling with tools").read_only().handler(
            |_: NoArgs, cx: Context| async move {
                let lookup: ToolDefinition =
                    serde_json::from_value(json!({ "name": "lookup", "inputSchema": { "type": "object" } }))?;
                let request = CreateMessageParams {
                    tools: Some(vec![lookup]),
                    tool_choice: Some(ToolChoice { mode: Some(ToolChoiceMode::Auto) }),
                    ..CreateMessageParams::from("Look it up.")
                };
                Result::<_>::Ok(cx.sample(request).await?.to_text())
            },
        ))
        .add(Tool::new("folders").description("Lists the roots").read_only().handler(
            |_: NoArgs, cx: Context| async move { Result::<_>::Ok(cx.roots().await?[0].uri.clone()) },
        ))
        .tool("wait", "Waits for cancellation", move |_: NoArgs, cx: Context| {
            let cancelled = cancelled.clone();
            async move {
                cx.progress(0.5);
                cx.cancelled().await;
                cancelled.fetch_add(1, Ordering::SeqCst);
                "cancelled"
            }
        })
        .tool("cancelled", "Counts the cancelled calls of `wait`", move |_: NoArgs| {
            let count = counted.load(Ordering::SeqCst);
            async move { count.to_string() }
        })
        .add(
            Tool::new("report")
                .description("Runs only as a task")
                .task(TaskSupport::Required)
                .handler(|_: NoArgs| async move { "reported" }),
        )
        .tool("grow", "Adds or removes a tool", move |_: NoArgs| {
            let changed = grow(&growing);
            async move { changed }
        })
        .tool("touch", "Updates the resource", move |_: NoArgs| {
            touching.resource_updated(STATUS_URI);
            async move { "touched" }
        })
        .resource(STATUS_URI, "status", || async { "ok" })
        .add(
            ResourceTemplate::new(NOTES_TEMPLATE, "note")
                .complete("name", |typed: String| async move { vec![format!("{typed}!")] })
                .handler(|NameArgs { name }| async move { name }),
        )
        .add(
            Prompt::new("hello")
                .argument("name", "Who", true)
                .argument("greeting", "How", false)
                .complete("greeting", |request: CompletionRequest| async move {
                    let name = request.arguments.get("name").cloned().unwrap_or_default();
                    vec![format!("{}{name}", request.value)]
                })
                .handler(|arguments: std::collections::BTreeMap<String, String>| async move {
                    format!("Say hello to {}", arguments["name"])
                }),
        )
        .build()
}

fn grow(handle: &ServerHandle) -> Result<&'static str> {
    if handle.remove_tool("grown") {
        return Ok("removed");
    }
    handle.add(Tool::new("grown").handler(|_: NoArgs| async { "grown" }))?;
    Ok("added")
}

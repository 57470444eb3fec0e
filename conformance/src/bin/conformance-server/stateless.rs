//! Tools for the stateless era: capabilities and log levels in each request, and list changes on subscription streams.

use linchpin::{Context, LogLevel, NoArgs, Prompt, Result, Server, ServerHandle, Tool, args};

#[args]
struct Answer {
    answer: String,
}

async fn needs_sampling(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.sample("Are you there?").await?.to_text())
}

async fn streams(_: NoArgs, cx: Context) -> Result<String> {
    cx.progress((1.0, 2.0));
    Ok(cx.elicit::<Answer>("Continue?").await?.answer)
}

async fn logs(_: NoArgs, cx: Context) -> &'static str {
    cx.log(LogLevel::Info, "Sent only if the request has a log level");
    "Logged, if requested."
}

/// Adds a tool, or removes it if present.
fn change_tools(handle: &ServerHandle) -> Result<&'static str> {
    const NAME: &str = "test_comes_and_goes";
    if !handle.remove_tool(NAME) {
        handle.add(
            Tool::new(NAME).description("Added and removed at run time").handler(|| async { "Here I am" }),
        )?;
    }
    Ok("The list of tools has changed.")
}

fn change_prompts(handle: &ServerHandle) -> Result<&'static str> {
    const NAME: &str = "test_comes_and_goes";
    if !handle.remove_prompt(NAME) {
        handle.add(
            Prompt::new(NAME).description("Added and removed at run time").handler(|| async { "Here I am" }),
        )?;
    }
    Ok("The list of prompts has changed.")
}

pub(crate) fn add(mut server: Server) -> Server {
    let (tools, prompts) = (server.handle(), server.handle());
    server
        .tool("test_missing_capability", "Needs a client with a model", needs_sampling)
        .tool("test_streaming_elicitation", "Reports progress and elicits input", streams)
        .tool("test_logging_tool", "Logs a message", logs)
        .tool("test_trigger_tool_change", "Changes the list of tools", move || {
            let changed = change_tools(&tools);
            async { changed }
        })
        .tool("test_trigger_prompt_change", "Changes the list of prompts", move || {
            let changed = change_prompts(&prompts);
            async { changed }
        })
}

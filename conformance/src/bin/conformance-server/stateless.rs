//! Tools for what is special without sessions: capabilities and log levels in each request, and changes that are heard
//! on streams of their own.

use linchpin::{Context, Handle, LogLevel, NoArgs, Prompt, Result, Server, Tool, args};

#[args]
struct Answer {
    answer: String,
}

async fn needs_sampling(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.sample("Are you there?").await?.to_text())
}

async fn streams(_: NoArgs, cx: Context) -> Result<String> {
    cx.progress((1.0, 2.0));
    Ok(cx.elicit::<Answer>("Shall it go on?").await?.answer)
}

async fn logs(_: NoArgs, cx: Context) -> &'static str {
    cx.log(LogLevel::Info, "This is only for those who want to read it");
    "It was logged, for those who asked."
}

/// Adds a tool, or removes it again.
fn change_tools(handle: &Handle) -> Result<&'static str> {
    const NAME: &str = "test_comes_and_goes";
    if !handle.remove_tool(NAME) {
        handle.add(Tool::new(NAME).description("Comes and goes").handler(|| async { "Here I am" }))?;
    }
    Ok("The list of tools has changed.")
}

fn change_prompts(handle: &Handle) -> Result<&'static str> {
    const NAME: &str = "test_comes_and_goes";
    if !handle.remove_prompt(NAME) {
        handle.add(Prompt::new(NAME).description("Comes and goes").handler(|| async { "Here I am" }))?;
    }
    Ok("The list of prompts has changed.")
}

pub(crate) fn add(mut server: Server) -> Server {
    let (tools, prompts) = (server.handle(), server.handle());
    server
        .tool("test_missing_capability", "Needs a client with a model", needs_sampling)
        .tool("test_streaming_elicitation", "Tells how far it has come, and asks", streams)
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

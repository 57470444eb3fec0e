//! `linchpin call`: calls one tool and handles elicitation at the terminal.

pub(crate) mod arguments;
mod output;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use linchpin::encode::to_value;
use linchpin::model::{CallToolResult, TaskSupport, Tool};
use linchpin::{CallError, Client, ClientBuilder, ClientError, LogLevel};
use serde_json::{Map, Value, json};

pub(crate) use arguments::parse_answer;

use crate::cli::print;
use crate::error::{CliError, CliErrorKind};
use crate::interaction::TerminalInteraction;
use crate::target::Target;
use crate::terminal::{OutputStyle, Screen, one_line, truncate};

/// Minimum similarity (0–1) of a suggested tool name.
const MIN_SIMILARITY: f64 = 0.6;
const MAX_SUGGESTIONS: usize = 3;
/// Total time limit of a call that reports progress, in multiples of the timeout.
const PROGRESS_TIMEOUT_FACTOR: u32 = 10;
/// Requested retention of the result of a call that runs as a task.
const TASK_TTL: Duration = Duration::from_hours(1);

pub(crate) struct CallOptions {
    pub(crate) tool: String,
    pub(crate) args: String,
    pub(crate) answers: Vec<(String, String)>,
    pub(crate) json: bool,
}

pub(crate) async fn run(server: Target, options: CallOptions) -> Result<ExitCode, CliError> {
    let CallOptions { tool, args, answers: given_answers, json } = options;
    let arguments = arguments::read(&args).await?;
    let (screen, verbose) = (server.screen.clone(), server.verbose);
    let timeout = server.timeout;
    let interaction = TerminalInteraction::new(screen.clone(), given_answers);
    let (replies, log) = (interaction.clone(), interaction.clone());
    let configure = move |client: ClientBuilder| {
        let client = client.on_server_request(TerminalInteraction::capabilities(), move |request| {
            replies.clone().reply(request)
        });
        if verbose { client.on_log(LogLevel::Debug, move |message| log.show_log(&message)) } else { client }
    };
    let work = async |client: &Client| {
        interaction.set_server_name(client.server().map(|server| &*server.name));
        let tool = find_tool(client, &tool).await?;
        let result = call(client, &tool, arguments, &interaction, timeout).await?;
        interaction.show_unused_answers();
        Ok((result, client.revision()))
    };
    let (result, revision) = server.with_client(configure, work).await?;
    if json {
        print(&format!("{}\n", to_json(&tool, &result, &to_value(&result.content, revision))))?;
    } else {
        print_tool_result(&result, &screen)?;
    }
    Ok(ExitCode::from(u8::from(result.is_error == Some(true))))
}

async fn call(
    client: &Client,
    tool: &Tool,
    arguments: Map<String, Value>,
    interaction: &Arc<TerminalInteraction>,
    timeout: Duration,
) -> Result<CallToolResult, CliError> {
    let shown = interaction.clone();
    let mut call = client
        .call(&tool.name, arguments)
        .timeout(timeout)
        .extend_on_progress(timeout * PROGRESS_TIMEOUT_FACTOR)
        .progress(move |progress| shown.show_progress(&progress));
    if tool.execution.as_ref().and_then(|execution| execution.task_support) == Some(TaskSupport::Required) {
        call = call.as_task(TASK_TTL);
    }
    call.await.map_err(|error| match error {
        ClientError::Call(CallError::TimedOut(after)) => {
            let after = after.as_secs_f64();
            let text = format!("`{}` returned no result within {after:.1} s: increase --timeout", tool.name);
            CliError::new(CliErrorKind::Timeout, text)
        }
        error => error.into(),
    })
}

/// Finds a tool of the server by name. The error suggests similar names, since most unknown names are misspelt.
async fn find_tool(client: &Client, name: &str) -> Result<Tool, CliError> {
    if client.capabilities().tools.is_none() {
        return Err(CliError::new(
            CliErrorKind::UnknownTool,
            format!("unknown tool `{name}`: the server has no tools"),
        ));
    }
    let tools = client
        .tools()
        .all()
        .await
        .map_err(|error| CliError::from(error).context("failed to list the tools"))?;
    if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
        return Ok(tool.clone());
    }
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    let similar = similar_names(name, &names);
    let advice = if similar.is_empty() {
        "list the tools of the server with `linchpin inspect`".to_owned()
    } else {
        format!(
            "did you mean {}?",
            similar.iter().map(|name| truncate(&one_line(name), 128)).collect::<Vec<_>>().join(" or ")
        )
    };
    Err(CliError::new(CliErrorKind::UnknownTool, format!("unknown tool `{name}`: {advice}")))
}

/// Returns the tool names that are similar to `name`, best match first.
fn similar_names<'a>(name: &str, names: &[&'a str]) -> Vec<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['_', '.', '/'], "-");
    let plain_name = plain(name);
    let similarity = |other: &str| {
        let other = plain(other);
        let contains = plain_name.len() > 2 && (other.contains(&plain_name) || plain_name.contains(&other));
        strsim::normalized_damerau_levenshtein(&plain_name, &other).max(if contains {
            MIN_SIMILARITY
        } else {
            0.0
        })
    };
    let mut found: Vec<(f64, &str)> = names.iter().map(|other| (similarity(other), *other)).collect();
    found.retain(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    found.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

fn to_json(tool: &str, result: &CallToolResult, content: &Value) -> Value {
    json!({
        "tool": tool,
        "content": content,
        "structuredContent": output::structured_content(result),
        "isError": result.is_error == Some(true),
    })
}

fn print_tool_result(result: &CallToolResult, screen: &Screen) -> Result<(), CliError> {
    let is_error = result.is_error == Some(true);
    let text = output::format_result(result, if is_error { screen.style } else { OutputStyle::stdout() });
    match text.is_empty() {
        true if is_error => screen.line("linchpin: the tool failed without an error message"),
        true => screen.dim_line("note: the tool returned an empty result"),
        false if is_error => screen.line(&text),
        false => print(&format!("{text}\n"))?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_found() {
        let names = ["get-sum", "get-env", "echo", "a", "Get_Summary"];
        assert_eq!(similar_names("get_sum", &names), ["get-sum", "Get_Summary"]);
        assert_eq!(similar_names("ehco", &names), ["echo"]);
        assert_eq!(similar_names("echoo", &names), ["echo"]);
        assert_eq!(similar_names("sum", &names)[0], "get-sum");
        assert!(similar_names("zzz", &names).is_empty());
    }
}

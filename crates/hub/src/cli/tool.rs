//! `linchpin tool`: lists, describes, calls and trusts the tools of all servers through the hub.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Column, column, name_column};
use super::{CommandContext, agent, print, tool_call};
use crate::api_client::{ApiClient, json_object, percent_encode, query_string};
use crate::call::{arguments, parse_answer};
use crate::error::{CliError, CliErrorKind};
use crate::terminal::{OutputStyle, Screen, sanitize};

const LIST_COLUMNS: [Column; 4] = [
    name_column("name", "/name"),
    column("state", "/state"),
    column("callable", "/is_callable"),
    column("description", "/definition/description"),
];
const DETAIL_COLUMNS: [Column; 13] = [
    name_column("name", "/name"),
    column("server", "/server"),
    column("upstream name", "/tool"),
    column("title", "/definition/title"),
    column("state", "/state"),
    column("callable", "/is_callable"),
    column("stale", "/is_stale"),
    column("removed", "/is_removed"),
    column("hidden characters", "/hidden_characters"),
    column("pin", "/pin"),
    column("first seen", "/first_seen"),
    column("last changed", "/last_seen"),
    column("description", "/definition/description"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List tools
    List {
        /// Filter by server (slug or id)
        #[arg(long)]
        server: Option<String>,
        /// Filter by trust state: new, trusted, changed
        #[arg(long)]
        state: Option<String>,
        /// List only tools that this agent may use (name or id)
        #[arg(long)]
        agent: Option<String>,
        /// Filter by text in name or description
        #[arg(short, value_name = "TEXT")]
        q: Option<String>,
    },
    /// Show a tool with its schemas and the changes since it was trusted
    Describe(ToolArg),
    /// Call a tool through the hub; the call is recorded
    ///
    /// Example: linchpin tool call `mcp_demo__add` --args '{"a": 2, "b": 40}'
    Call {
        #[command(flatten)]
        tool: ToolArg,
        /// Arguments as a JSON object; @FILE reads them from a file, - from standard input
        #[arg(long, value_name = "JSON", default_value = "{}")]
        args: String,
        /// Do not wait until the call has finished
        #[arg(long)]
        no_wait: bool,
        /// Try the tool with the credential of this agent (name or id); only for servers with credentials per agent
        #[arg(long, value_name = "AGENT")]
        as_agent: Option<String>,
        /// Value for a field of an elicitation form; repeatable
        #[arg(long = "answer", value_name = "FIELD=VALUE", value_parser = parse_answer, conflicts_with = "no_wait")]
        answers: Vec<(String, String)>,
    },
    /// Trust the current definition of a tool
    ///
    /// A changed tool is only shown at first: review it, then run the command again with the --pin that it prints.
    Trust {
        #[command(flatten)]
        tool: ToolArg,
        /// Pin of the definition that you reviewed; fails if the tool has changed since
        #[arg(long)]
        pin: Option<String>,
    },
}

#[derive(Args)]
pub(crate) struct ToolArg {
    /// Qualified name of the tool, for example `mcp_demo__add`; with --server, its upstream name
    tool: String,
    /// Slug or id of the server
    #[arg(long)]
    server: Option<String>,
}

impl ToolArg {
    /// Returns the path of the tool in the REST API, followed by `rest`.
    async fn path(&self, api: &ApiClient, rest: &str) -> Result<String, CliError> {
        let Some(server) = &self.server else {
            return Ok(format!("/tools/{}{rest}", percent_encode(&self.tool)));
        };
        let tools = api
            .list(&format!("/tools{}", query_string([("server", Some(server.clone()))])), usize::MAX)
            .await?;
        let found =
            tools.iter().find(|tool| tool["tool"] == *self.tool).and_then(|tool| tool["name"].as_str());
        match found {
            Some(name) => Ok(format!("/tools/{}{rest}", percent_encode(name))),
            None => Err(self.missing_tool_error(api, server).await?),
        }
    }

    /// Explains why a server does not have the tool. The hub returns 409 if the tools of the server are not known yet.
    async fn missing_tool_error(&self, api: &ApiClient, server: &str) -> Result<CliError, CliError> {
        let server_view = api.get(&format!("/servers/{}", percent_encode(server))).await?;
        let slug = server_view["slug"].as_str().unwrap_or(server);
        let name = format!("mcp_{slug}__{}", self.tool);
        match api.get(&format!("/tools/{}", percent_encode(&name))).await {
            Err(failure) if failure.status() == Some(409) => Ok(failure),
            _ => Ok(CliError::new(
                CliErrorKind::UnknownTool,
                format!("the server `{server}` has no tool `{}`", self.tool),
            )),
        }
    }
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<ExitCode, CliError> {
    let (api, output) = (context.api()?, context.output);
    match command {
        Command::List { server, state, agent, q } => {
            let agent = agent::find_optional(&api, agent.as_deref()).await?;
            let path = format!(
                "/tools{}",
                query_string([("server", server), ("state", state), ("agent", agent), ("q", q)])
            );
            output.print_list(&api.list(&path, usize::MAX).await?, &LIST_COLUMNS, "no tools")?;
        }
        Command::Describe(tool_arg) => {
            let tool = api.get(&tool_arg.path(&api, "").await?).await?;
            output.print_details(&tool, &DETAIL_COLUMNS)?;
            if !output.json {
                print(&format_schemas(&tool))?;
            }
        }
        Command::Call { tool: tool_arg, args, no_wait, as_agent, answers } => {
            let arguments = arguments::read(&args).await?;
            let path = tool_arg.path(&api, "/call").await?;
            let body = json_object([
                ("arguments", Some(json!(arguments))),
                ("as_agent", as_agent.map(|agent| json!(agent))),
            ]);
            // Without a terminal or answers the hub declines elicitations at once.
            let has_replies = std::io::stdin().is_terminal() && !output.json || !answers.is_empty();
            let call = if has_replies && !no_wait {
                tool_call::call_and_follow(&api, &path, body, answers).await?
            } else {
                let query = query_string([("wait", no_wait.then(|| "false".to_owned()))]);
                api.post(&format!("{path}{query}"), &body).await?
            };
            if let Some(warning) = call["warning"].as_str() {
                Screen::new().dim_line(&format!("note: {}", sanitize(warning)));
            }
            return print_outcome(context, &call);
        }
        Command::Trust { tool: tool_arg, pin } => {
            let pin = match pin {
                Some(pin) => json!(pin),
                None => reviewed_pin(context, api.get(&tool_arg.path(&api, "").await?).await?)?,
            };
            let tool = api.post(&tool_arg.path(&api, "/trust").await?, &json!({ "pin": pin })).await?;
            let name = tool["name"].as_str().unwrap_or(&tool_arg.tool);
            output.print_result(&tool, &format!("`{name}` is trusted"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the pin of the current tool definition, unless the tool has changed. A changed tool is printed and fails:
/// the user must review it first.
fn reviewed_pin(context: &CommandContext, mut tool: Value) -> Result<Value, CliError> {
    if tool["state"] != "changed" {
        return Ok(tool["pin"].take());
    }
    if !context.output.json {
        print(&format_schemas(&tool))?;
    }
    let (name, pin) = (&tool["name"], &tool["pin"]);
    let [name, pin] = [name, pin].map(|text| text.as_str().unwrap_or_default());
    Err(CliError::usage(format!(
        "`{name}` has changed: review its definition, then run `linchpin tool trust {name} --pin {pin}`"
    )))
}

/// Formats the schemas of a tool and the changes since it was trusted.
fn format_schemas(tool: &Value) -> String {
    let mut text = String::new();
    for (heading, pointer) in
        [("arguments", "/definition/inputSchema"), ("result", "/definition/outputSchema")]
    {
        if let Some(schema) = tool.pointer(pointer) {
            let _ = write!(text, "\n{heading}\n{}\n", sanitize(&format!("{schema:#}")));
        }
    }
    for change in tool["changes"].as_array().into_iter().flatten() {
        let part = |name: &str| sanitize(change[name].as_str().unwrap_or("nothing"));
        let _ = write!(text, "\nchanged at {}\n- {}\n+ {}\n", part("at"), part("before"), part("after"));
    }
    text
}

/// Prints the outcome of a call: its result, or the error.
pub(super) fn print_outcome(context: &CommandContext, call: &Value) -> Result<ExitCode, CliError> {
    let text = |name: &str| call[name].as_str();
    let status = text("status").unwrap_or_default();
    let has_failed = !matches!(status, "success" | "pending" | "running");
    if context.output.json {
        context.output.print_value(call)?;
    } else if let Some(summary) = text("summary").filter(|_| !has_failed) {
        let summary = if OutputStyle::stdout().is_terminal { sanitize(summary) } else { summary.to_owned() };
        print(&format!("{summary}\n"))?;
    }
    if !has_failed {
        let id = text("id").unwrap_or_default();
        if status != "success" && !context.output.json {
            print(&format!("the call is {status}: run `linchpin calls show {id}`\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if context.output.json {
        return Ok(ExitCode::FAILURE);
    }
    // `error` is only the first line of the result of a failed tool: print the complete text, once.
    let summary = text("summary").filter(|summary| !summary.is_empty());
    let reason = summary.or(text("error")).or(text("warning")).unwrap_or("the tool failed without a message");
    Err(CliError::new(CliErrorKind::Other, format!("{status}: {}", sanitize(reason))))
}

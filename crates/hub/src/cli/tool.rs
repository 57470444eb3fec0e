//! `linchpin tool`: lists, describes, calls and trusts the tools of all servers through the hub.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Field, field, name};
use super::{Asked, agent, print};
use crate::api_client::{Api, encoded, query};
use crate::call::arguments;
use crate::error::{Failure, Kind};
use crate::terminal::{Look, clean};

const LIST: [Field; 4] = [
    name("name", "/name"),
    field("state", "/state"),
    field("callable", "/is_callable"),
    field("description", "/definition/description"),
];
const ONE: [Field; 13] = [
    name("name", "/name"),
    field("server", "/server"),
    field("upstream name", "/tool"),
    field("title", "/definition/title"),
    field("state", "/state"),
    field("callable", "/is_callable"),
    field("stale", "/is_stale"),
    field("removed", "/is_gone"),
    field("hidden characters", "/hidden_characters"),
    field("pin", "/pin"),
    field("first seen", "/first_seen"),
    field("last changed", "/last_seen"),
    field("description", "/definition/description"),
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
    Describe(Which),
    /// Call a tool through the hub; the call is recorded
    ///
    /// Example: linchpin tool call `mcp_demo__add` --args '{"a": 2, "b": 40}'
    Call {
        #[command(flatten)]
        which: Which,
        /// Arguments as a JSON object; @FILE reads them from a file, - from standard input
        #[arg(long, value_name = "JSON", default_value = "{}")]
        args: String,
        /// Do not wait until the call has finished
        #[arg(long)]
        no_wait: bool,
    },
    /// Trust the current definition of a tool
    ///
    /// A changed tool is only shown at first: review it, then run the command again with the --pin that it prints.
    Trust {
        #[command(flatten)]
        which: Which,
        /// Pin of the definition that you reviewed; fails if the tool has changed since
        #[arg(long)]
        pin: Option<String>,
    },
}

#[derive(Args)]
pub(crate) struct Which {
    /// Qualified name of the tool, for example `mcp_demo__add`; with --server, its upstream name
    tool: String,
    /// Slug or id of the server
    #[arg(long)]
    server: Option<String>,
}

impl Which {
    /// Returns the API path of the tool, followed by `rest`.
    async fn path(&self, api: &Api, rest: &str) -> Result<String, Failure> {
        let Some(server) = &self.server else { return Ok(format!("/tools/{}{rest}", encoded(&self.tool))) };
        let tools =
            api.list(&format!("/tools{}", query([("server", Some(server.clone()))])), usize::MAX).await?;
        let found =
            tools.iter().find(|tool| tool["tool"] == *self.tool).and_then(|tool| tool["name"].as_str());
        match found {
            Some(name) => Ok(format!("/tools/{}{rest}", encoded(name))),
            None => Err(self.missing(api, server).await?),
        }
    }

    /// Explains why a server does not have the tool. The hub returns 409 if the tools of the server are not known yet.
    async fn missing(&self, api: &Api, server: &str) -> Result<Failure, Failure> {
        let known = api.get(&format!("/servers/{}", encoded(server))).await?;
        let slug = known["slug"].as_str().unwrap_or(server);
        let name = format!("mcp_{slug}__{}", self.tool);
        match api.get(&format!("/tools/{}", encoded(&name))).await {
            Err(failure) if failure.status() == Some(409) => Ok(failure),
            _ => Ok(Failure::new(Kind::UnknownTool, format!("`{server}` has no tool `{}`", self.tool))),
        }
    }
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<ExitCode, Failure> {
    let (api, output) = (asked.api()?, asked.output);
    match command {
        Command::List { server, state, agent, q } => {
            let agent = agent::find_if(&api, agent.as_deref()).await?;
            let path = format!(
                "/tools{}",
                query([("server", server), ("state", state), ("agent", agent), ("q", q)])
            );
            output.list(&api.list(&path, usize::MAX).await?, &LIST, "no tools")?;
        }
        Command::Describe(which) => {
            let tool = api.get(&which.path(&api, "").await?).await?;
            output.one(&tool, &ONE)?;
            if !output.json {
                print(&schemas(&tool))?;
            }
        }
        Command::Call { which, args, no_wait } => {
            let arguments = arguments::read(&args).await?;
            let path = which.path(&api, "/call").await?;
            let path = format!("{path}{}", query([("wait", no_wait.then(|| "false".to_owned()))]));
            return called(asked, &api.post(&path, &json!({ "arguments": arguments })).await?);
        }
        Command::Trust { which, pin } => {
            let pin = match pin {
                Some(pin) => json!(pin),
                None => seen(asked, api.get(&which.path(&api, "").await?).await?)?,
            };
            let tool = api.post(&which.path(&api, "/trust").await?, &json!({ "pin": pin })).await?;
            let name = tool["name"].as_str().unwrap_or(&which.tool);
            output.done(&tool, &format!("`{name}` is trusted"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the pin of a tool. A changed tool is printed and fails: the user must review it first.
fn seen(asked: &Asked, mut tool: Value) -> Result<Value, Failure> {
    if tool["state"] != "changed" {
        return Ok(tool["pin"].take());
    }
    if !asked.output.json {
        print(&schemas(&tool))?;
    }
    let (name, pin) = (&tool["name"], &tool["pin"]);
    let [name, pin] = [name, pin].map(|text| text.as_str().unwrap_or_default());
    Err(Failure::usage(format!(
        "`{name}` has changed: review its definition, then run `linchpin tool trust {name} --pin {pin}`"
    )))
}

/// Formats the schemas of a tool and the changes since it was trusted.
fn schemas(tool: &Value) -> String {
    let mut text = String::new();
    for (heading, pointer) in
        [("arguments", "/definition/inputSchema"), ("result", "/definition/outputSchema")]
    {
        if let Some(schema) = tool.pointer(pointer) {
            let _ = write!(text, "\n{heading}\n{}\n", clean(&format!("{schema:#}")));
        }
    }
    for change in tool["changes"].as_array().into_iter().flatten() {
        let part = |name: &str| clean(change[name].as_str().unwrap_or("nothing"));
        let _ = write!(text, "\nchanged at {}\n- {}\n+ {}\n", part("at"), part("before"), part("after"));
    }
    text
}

/// Prints the outcome of a call: its result, or the error.
pub(super) fn called(asked: &Asked, call: &Value) -> Result<ExitCode, Failure> {
    let text = |name: &str| call[name].as_str();
    let status = text("status").unwrap_or_default();
    let has_failed = !matches!(status, "success" | "pending" | "running");
    if asked.output.json {
        asked.output.value(call)?;
    } else if let Some(summary) = text("summary").filter(|_| !has_failed) {
        let summary = if Look::stdout().is_terminal { clean(summary) } else { summary.to_owned() };
        print(&format!("{summary}\n"))?;
    }
    if !has_failed {
        let id = text("id").unwrap_or_default();
        if status != "success" && !asked.output.json {
            print(&format!("the call is {status}: run `linchpin calls show {id}`\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if asked.output.json {
        return Ok(ExitCode::FAILURE);
    }
    // `error` is only the first line of the result of a failed tool: print the complete text, once.
    let summary = text("summary").filter(|summary| !summary.is_empty());
    let why = summary.or(text("error")).or(text("warning")).unwrap_or("the tool failed without a message");
    Err(Failure::new(Kind::Other, format!("{status}: {}", clean(why))))
}

//! `linchpin tool`: the tools of all servers, as the hub knows them, and calls of them by way of the hub.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Field, field, name};
use super::{Asked, agent, print};
use crate::api::{Api, encoded, query};
use crate::call::arguments;
use crate::failure::{Failure, Kind};
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
    field("its name there", "/tool"),
    field("title", "/definition/title"),
    field("state", "/state"),
    field("callable", "/is_callable"),
    field("stale", "/is_stale"),
    field("gone", "/is_gone"),
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
        /// Those of this server, by its slug or id
        #[arg(long)]
        server: Option<String>,
        /// Those in this state: new, trusted, changed
        #[arg(long)]
        state: Option<String>,
        /// Those that this agent may use, by its name or id
        #[arg(long)]
        agent: Option<String>,
        /// Those with this in their name or description
        #[arg(short, value_name = "TEXT")]
        q: Option<String>,
    },
    /// Show everything that is known of a tool, with its schema and what changed since it was trusted
    Describe(Which),
    /// Call a tool by way of the hub: it is recorded
    ///
    /// Example: linchpin tool call `mcp_demo__add` --args '{"a": 2, "b": 40}'
    Call {
        #[command(flatten)]
        which: Which,
        /// The arguments: a JSON object, @FILE to read it from a file, - to read it from standard input
        #[arg(long, value_name = "JSON", default_value = "{}")]
        args: String,
        /// Do not wait until the call is over
        #[arg(long)]
        no_wait: bool,
    },
    /// Trust a tool as it is now; one that has changed is shown first, and trusted with the pin of what was shown
    Trust {
        #[command(flatten)]
        which: Which,
        /// The pin of the tool as you have looked at it: if it is another one by now, nothing is trusted
        #[arg(long)]
        pin: Option<String>,
    },
}

#[derive(Args)]
pub(crate) struct Which {
    /// The name of the tool, such as `mcp_demo__add`; with --server, as that server calls it
    tool: String,
    /// The server, by its slug or id
    #[arg(long)]
    server: Option<String>,
}

impl Which {
    /// Where it is.
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

    /// Why a server does not have the tool: the hub knows whether its tools are known at all.
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
            output.list(&api.list(&path, usize::MAX).await?, &LIST, "there are no tools")?;
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
            output.done(&tool, &format!("`{name}` is trusted as it is now"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The pin of a tool of which nobody has said anything yet. One that has changed is shown: somebody must look first.
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
        "`{name}` has changed: look at what it says now, and if that is well, run `linchpin tool trust {name} --pin {pin}`"
    )))
}

/// The schemas of a tool, and what changed since somebody looked.
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

/// What came of a call: its result, or why there is none.
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
            print(&format!("the call is {status}: see `linchpin calls show {id}`\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if asked.output.json {
        return Ok(ExitCode::FAILURE);
    }
    // `error` is the first line of the result of a tool that failed: print the whole text, once.
    let summary = text("summary").filter(|summary| !summary.is_empty());
    let why = summary.or(text("error")).or(text("warning")).unwrap_or("the tool failed without a message");
    Err(Failure::new(Kind::Other, format!("{status}: {}", clean(why))))
}

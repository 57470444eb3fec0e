//! `linchpin agent`: manages agents, their tool selection, approval mode and limits.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Asked;
use super::output::{Field, field, name};
use crate::api_client::{Api, encoded, object};
use crate::blocking_input;
use crate::error::{Failure, Kind};

const LIST: [Field; 6] = [
    name("name", "/name"),
    field("id", "/id"),
    field("approval", "/approval"),
    field("enabled", "/enabled"),
    field("servers", "/server_count"),
    field("tools", "/tool_count"),
];
const ONE: [Field; 12] = [
    name("name", "/name"),
    field("id", "/id"),
    field("model", "/model"),
    field("approval", "/approval"),
    field("enabled", "/enabled"),
    field("calls per minute", "/calls_per_minute"),
    field("concurrent calls", "/calls_at_once"),
    field("servers", "/servers"),
    field("tools", "/tool_count"),
    field("created", "/created"),
    field("updated", "/updated"),
    field("instructions", "/instructions"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Add an agent
    ///
    /// Example: linchpin agent add Helper --server demo --server files:read,list --approval trusted-only
    Add {
        /// Display name
        name: String,
        #[command(flatten)]
        said: Said,
    },
    /// List agents
    List,
    /// Show an agent
    Show(Which),
    /// Update an agent; fields without an option stay unchanged
    Update {
        #[command(flatten)]
        which: Which,
        /// New display name
        #[arg(long)]
        name: Option<String>,
        /// Enable the agent
        #[arg(long, conflicts_with = "disabled")]
        enabled: bool,
        #[command(flatten)]
        said: Said,
    },
    /// Remove an agent with its tokens and credentials
    Remove(Which),
}

#[derive(Args)]
pub(crate) struct Which {
    /// Name or id of the agent
    agent: String,
}

#[derive(Args)]
pub(crate) struct Said {
    /// System instructions; @FILE reads them from a file
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// Model that the agent uses
    #[arg(long)]
    model: Option<String>,
    /// Approval mode: auto, always-ask or trusted-only. Default: always-ask
    #[arg(long, value_name = "MODE")]
    approval: Option<String>,
    /// Server that the agent may use, by slug; with :TOOL,… only these tools, else all tools, resources and prompts;
    /// repeatable. Replaces the current selection
    #[arg(long = "server", value_name = "SERVER[:TOOL,…]")]
    servers: Vec<String>,
    /// Tools that need no approval in mode trusted-only; the server must be given with --server; repeatable
    #[arg(long = "trust", value_name = "SERVER:TOOL,…", requires = "servers")]
    trusted: Vec<String>,
    /// Rate limit in calls per minute; 0 removes the limit
    #[arg(long, value_name = "COUNT")]
    calls_per_minute: Option<u32>,
    /// Concurrency limit: maximum number of running calls; 0 removes the limit
    #[arg(long, value_name = "COUNT")]
    calls_at_once: Option<u32>,
    /// Disable the agent
    #[arg(long)]
    disabled: bool,
}

impl Said {
    async fn fields(&self) -> Result<Vec<(&'static str, Option<Value>)>, Failure> {
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        let limit = |count: Option<u32>| count.map(|count| json!((count > 0).then_some(count)));
        let instructions = match self.instructions.as_deref().map(|text| (text, text.strip_prefix('@'))) {
            Some((_, Some(path))) => {
                let read = blocking_input::file(path).await;
                Some(json!(read.map_err(|error| Failure::usage(format!("cannot read {path}: {error}")))?))
            }
            Some((text, None)) => Some(json!(text)),
            None => None,
        };
        Ok(vec![
            ("instructions", instructions),
            ("model", text(&self.model)),
            ("approval", text(&self.approval)),
            ("servers", (!self.servers.is_empty()).then(|| self.servers()).transpose()?),
            ("calls_per_minute", limit(self.calls_per_minute)),
            ("calls_at_once", limit(self.calls_at_once)),
            ("enabled", self.disabled.then(|| json!(false))),
        ])
    }

    /// Builds the field `servers` from the options `--server` and `--trust`.
    fn servers(&self) -> Result<Value, Failure> {
        let mut servers = Map::new();
        for typed in &self.servers {
            // A missing `tools` field selects all tools.
            let Some((server, tools)) = typed.split_once(':') else {
                servers.insert(typed.clone(), json!({}));
                continue;
            };
            let tools = names(tools);
            if tools.is_empty() {
                let text = format!(
                    "--server {typed}: add tool names after the `:`, or remove the `:` to select all tools"
                );
                return Err(Failure::usage(text));
            }
            servers.insert(server.to_owned(), json!({ "tools": tools }));
        }
        for typed in &self.trusted {
            let (server, tools) = typed.split_once(':').unwrap_or((typed, ""));
            let Some(selection) = servers.get_mut(server) else {
                return Err(Failure::usage(format!("--trust {typed}: add --server {server}")));
            };
            selection["trusted"] = json!(names(tools));
        }
        Ok(Value::Object(servers))
    }
}

fn names(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<(), Failure> {
    let (api, output) = (asked.api()?, asked.output);
    match command {
        Command::Add { name, said } => {
            let mut fields = said.fields().await?;
            fields.push(("name", Some(json!(name))));
            let agent = api.post("/agents", &object(fields)).await?;
            let next = "create a token with `linchpin token add NAME --agent";
            output.done(&agent, &format!("agent `{name}` added: {next} '{name}'`"))?;
        }
        Command::List => {
            let none = "no agents: add one with `linchpin agent add`";
            output.list(&api.list("/agents", usize::MAX).await?, &LIST, none)?;
        }
        Command::Show(which) => {
            let mut agent = api.get(&which.path(&api).await?).await?;
            if !output.json {
                agent["servers"] = selected(&api, &agent["servers"]).await?;
            }
            output.one(&agent, &ONE)?;
        }
        Command::Update { which, name, enabled, said } => {
            let mut fields = said.fields().await?;
            fields.push(("name", name.map(|name| json!(name))));
            fields.extend(enabled.then(|| ("enabled", Some(json!(true)))));
            if fields.iter().all(|(_, value)| value.is_none()) {
                let text = "nothing to update: add --name, --instructions, --model, --approval, --server, --trust, \
                            --calls-per-minute, --calls-at-once, --enabled or --disabled";
                return Err(Failure::usage(text));
            }
            let agent = api.patch(&which.path(&api).await?, &object(fields)).await?;
            output.done(&agent, &format!("agent `{}` updated", which.agent))?;
        }
        Command::Remove(which) => {
            api.delete(&which.path(&api).await?).await?;
            output.done(&json!({ "removed": which.agent }), &format!("agent `{}` removed", which.agent))?;
        }
    }
    Ok(())
}

/// Formats the servers of an agent as `SLUG:TOOL,…`, with the trusted tools in parentheses.
async fn selected(api: &Api, servers: &Value) -> Result<Value, Failure> {
    let known = api.list("/servers", usize::MAX).await?;
    let line = |(id, selection): (&String, &Value)| {
        let slug =
            known.iter().find(|server| server["id"] == **id).and_then(|server| server["slug"].as_str());
        let list = |name: &str| {
            let names = selection[name].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.collect::<Vec<_>>().join(",")
        };
        let tools = match &selection["tools"] {
            Value::Array(tools) if tools.is_empty() => "none".to_owned(),
            Value::Array(_) => list("tools"),
            _ => "all".to_owned(),
        };
        let trusted = list("trusted");
        let trusted = if trusted.is_empty() { trusted } else { format!(" (trusts {trusted})") };
        format!("{}:{tools}{trusted}", slug.unwrap_or(id))
    };
    Ok(json!(servers.as_object().into_iter().flatten().map(line).collect::<Vec<_>>()))
}

impl Which {
    async fn path(&self, api: &Api) -> Result<String, Failure> {
        Ok(format!("/agents/{}", encoded(&find(api, &self.agent).await?)))
    }
}

/// Finds an agent by name or id and returns its id.
pub(super) async fn find(api: &Api, typed: &str) -> Result<String, Failure> {
    named(&api.list("/agents", usize::MAX).await?, "agent", typed)
}

/// Like [`find`], for an optional argument.
pub(crate) async fn find_if(api: &Api, typed: Option<&str>) -> Result<Option<String>, Failure> {
    match typed {
        None => Ok(None),
        Some(typed) => find(api, typed).await.map(Some),
    }
}

/// Finds an item by name or id and returns its id. A name must be unique.
pub(super) fn named(all: &[Value], what: &str, typed: &str) -> Result<String, Failure> {
    let mut found = all.iter().filter(|item| item["id"] == typed || item["name"] == typed);
    let fail = |text: &str| Failure::new(Kind::Other, format!("{text} {what} `{typed}`"));
    match (found.next().and_then(|item| item["id"].as_str()), found.next()) {
        (Some(id), None) => Ok(id.to_owned()),
        (Some(_), Some(_)) => Err(fail("use the id: there is more than one")),
        (None, _) => Err(fail("no such")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_with_their_tools() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let mut said = Said {
            instructions: None,
            model: None,
            approval: None,
            servers: texts(&["demo", "files:read, list"]),
            trusted: texts(&["files:read"]),
            calls_per_minute: None,
            calls_at_once: None,
            disabled: false,
        };
        let expected = json!({"demo": {}, "files": {"tools": ["read", "list"], "trusted": ["read"]}});
        assert_eq!(said.servers().unwrap(), expected);
        said.servers = texts(&["demo:", "files"]);
        assert!(said.servers().unwrap_err().to_string().contains("add tool names after the `:`"));
        (said.servers, said.trusted) = (texts(&["files"]), texts(&["other:x"]));
        assert_eq!(said.servers().unwrap_err().to_string(), "--trust other:x: add --server other");
    }

    #[test]
    fn a_name_must_be_one_alone() {
        let all = [
            json!({"id": "1", "name": "a"}),
            json!({"id": "2", "name": "b"}),
            json!({"id": "3", "name": "b"}),
        ];
        assert_eq!(named(&all, "agent", "a").unwrap(), "1");
        assert_eq!(named(&all, "agent", "3").unwrap(), "3");
        let error = named(&all, "agent", "b").unwrap_err().to_string();
        assert_eq!(error, "use the id: there is more than one agent `b`");
        assert_eq!(named(&all, "agent", "c").unwrap_err().to_string(), "no such agent `c`");
    }
}

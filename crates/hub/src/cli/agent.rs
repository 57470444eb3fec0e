//! `linchpin agent`: programs that act for people, within what they allow.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Asked;
use super::output::{Field, field, name};
use crate::apart;
use crate::api::{Api, encoded, object};
use crate::failure::{Failure, Kind};

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
    field("calls a minute", "/calls_per_minute"),
    field("calls at once", "/calls_at_once"),
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
        /// What people call it
        name: String,
        #[command(flatten)]
        said: Said,
    },
    /// List agents
    List,
    /// Show everything that is known of an agent
    Show(Which),
    /// Change what is given of an agent
    Update {
        #[command(flatten)]
        which: Which,
        /// Call it something else
        #[arg(long)]
        name: Option<String>,
        /// Let it act again
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
    /// The name of the agent, or its id
    agent: String,
}

#[derive(Args)]
pub(crate) struct Said {
    /// What it is told before anything else; @FILE reads it from a file
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// The model that it uses
    #[arg(long)]
    model: Option<String>,
    /// When a person is asked: auto, always-ask or trusted-only
    #[arg(long, value_name = "MODE")]
    approval: Option<String>,
    /// A server that it may use, by its slug, and the tools of it, all when none is named; may be given again.
    /// All that are given replace those that were
    #[arg(long = "server", value_name = "SERVER[:TOOL,…]")]
    servers: Vec<String>,
    /// Tools of such a server for which nobody is asked with trusted-only; may be given again
    #[arg(long = "trust", value_name = "SERVER:TOOL,…", requires = "servers")]
    trusted: Vec<String>,
    /// How many calls a minute it may make; 0 for as many as it wants
    #[arg(long, value_name = "COUNT")]
    calls_per_minute: Option<u32>,
    /// How many of its calls may be under way at once; 0 for as many as it wants
    #[arg(long, value_name = "COUNT")]
    calls_at_once: Option<u32>,
    /// Let it do nothing for now
    #[arg(long)]
    disabled: bool,
}

impl Said {
    async fn fields(&self) -> Result<Vec<(&'static str, Option<Value>)>, Failure> {
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        let limit = |count: Option<u32>| count.map(|count| json!((count > 0).then_some(count)));
        let instructions = match self.instructions.as_deref().map(|text| (text, text.strip_prefix('@'))) {
            Some((_, Some(path))) => {
                let read = apart::file(path).await;
                Some(json!(read.map_err(|error| Failure::usage(format!("{path} cannot be read: {error}")))?))
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

    /// The servers, each with its tools.
    fn servers(&self) -> Result<Value, Failure> {
        let mut servers = Map::new();
        for typed in &self.servers {
            // Without a word about tools the agent has all of them.
            let Some((server, tools)) = typed.split_once(':') else {
                servers.insert(typed.clone(), json!({}));
                continue;
            };
            let tools = names(tools);
            if tools.is_empty() {
                let text =
                    format!("--server {typed}: name tools behind the `:`, or leave it out for all of them");
                return Err(Failure::usage(text));
            }
            servers.insert(server.to_owned(), json!({ "tools": tools }));
        }
        for typed in &self.trusted {
            let (server, tools) = typed.split_once(':').unwrap_or((typed, ""));
            let Some(selection) = servers.get_mut(server) else {
                return Err(Failure::usage(format!("--trust {typed}: there is no --server {server}")));
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
            let next = "give it a token with `linchpin token add NAME --agent";
            output.done(&agent, &format!("`{name}` is added: {next} '{name}'`"))?;
        }
        Command::List => {
            let none = "there are no agents: add one with `linchpin agent add`";
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
                let text = "say what to change: --name, --instructions, --model, --approval, --server, --trust, \
                            --calls-per-minute, --calls-at-once, --enabled or --disabled";
                return Err(Failure::usage(text));
            }
            let agent = api.patch(&which.path(&api).await?, &object(fields)).await?;
            output.done(&agent, &format!("`{}` is changed", which.agent))?;
        }
        Command::Remove(which) => {
            api.delete(&which.path(&api).await?).await?;
            output.done(&json!({ "removed": which.agent }), &format!("`{}` is removed", which.agent))?;
        }
    }
    Ok(())
}

/// The servers of an agent by their slugs, each with its tools.
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

/// The id of an agent, by its name or id.
pub(super) async fn find(api: &Api, typed: &str) -> Result<String, Failure> {
    named(&api.list("/agents", usize::MAX).await?, "agent", typed)
}

/// The same, if one was typed.
pub(crate) async fn find_if(api: &Api, typed: Option<&str>) -> Result<Option<String>, Failure> {
    match typed {
        None => Ok(None),
        Some(typed) => find(api, typed).await.map(Some),
    }
}

/// The id of what was typed by its name or id.
pub(super) fn named(all: &[Value], what: &str, typed: &str) -> Result<String, Failure> {
    let mut found = all.iter().filter(|item| item["id"] == typed || item["name"] == typed);
    let fail = |text: &str| Failure::new(Kind::Other, format!("{text} {what} `{typed}`"));
    match (found.next().and_then(|item| item["id"].as_str()), found.next()) {
        (Some(id), None) => Ok(id.to_owned()),
        (Some(_), Some(_)) => Err(fail("give the id: there is more than one")),
        (None, _) => Err(fail("there is no")),
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
        assert!(said.servers().unwrap_err().to_string().contains("name tools behind the `:`"));
        (said.servers, said.trusted) = (texts(&["files"]), texts(&["other:x"]));
        assert_eq!(said.servers().unwrap_err().to_string(), "--trust other:x: there is no --server other");
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
        assert_eq!(error, "give the id: there is more than one agent `b`");
        assert_eq!(named(&all, "agent", "c").unwrap_err().to_string(), "there is no agent `c`");
    }
}

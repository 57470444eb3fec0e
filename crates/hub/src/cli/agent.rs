//! `linchpin agent`: manages agents, their tool selection, approval mode and limits.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::CommandContext;
use super::output::{Column, column, name_column};
use crate::api_client::{ApiClient, json_object, percent_encode};
use crate::blocking_input;
use crate::error::{CliError, CliErrorKind};

const LIST_COLUMNS: [Column; 6] = [
    name_column("name", "/name"),
    column("id", "/id"),
    column("approval", "/approval"),
    column("enabled", "/enabled"),
    column("servers", "/server_count"),
    column("tools", "/tool_count"),
];
const DETAIL_COLUMNS: [Column; 13] = [
    name_column("name", "/name"),
    column("id", "/id"),
    column("model", "/model"),
    column("approval", "/approval"),
    column("enabled", "/enabled"),
    column("max calls per minute", "/calls_per_minute"),
    column("max concurrent calls", "/max_concurrent_calls"),
    column("client approvals", "/client_approvals"),
    column("servers", "/servers"),
    column("tools", "/tool_count"),
    column("created", "/created"),
    column("updated", "/updated"),
    column("instructions", "/instructions"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Add an agent
    ///
    /// Example: linchpin agent add Helper --server demo --server files:read,list --approval trusted-only
    Add {
        /// Display name of the agent
        name: String,
        #[command(flatten)]
        fields: AgentFields,
    },
    /// List agents
    List,
    /// Show the settings of an agent
    Show(AgentArg),
    /// Update an agent; fields without an option stay unchanged
    Update {
        #[command(flatten)]
        agent: AgentArg,
        /// New display name of the agent
        #[arg(long)]
        name: Option<String>,
        /// Enable the agent, so that its tokens are accepted
        #[arg(long, conflicts_with = "disabled")]
        enabled: bool,
        #[command(flatten)]
        fields: AgentFields,
    },
    /// Remove an agent with its tokens and credentials
    Remove(AgentArg),
}

#[derive(Args)]
pub(crate) struct AgentArg {
    /// Name or id of the agent
    agent: String,
}

#[derive(Args)]
pub(crate) struct AgentFields {
    /// System instructions of the agent; @FILE reads them from a file
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// Name of the model, stored for information; the hub calls no model
    #[arg(long)]
    model: Option<String>,
    /// Which calls require approval: auto (none), always-ask (all) or trusted-only (all except calls
    /// of tools of --trust that a user has trusted). Default: always-ask
    #[arg(long, value_name = "MODE")]
    approval: Option<String>,
    /// Server that the agent may use, by slug; with :TOOL,… only these tools, without resources and prompts, else all
    /// of them; repeatable. Replaces the current selection
    #[arg(long = "server", value_name = "SERVER[:TOOL,…]")]
    servers: Vec<String>,
    /// Tools that need no approval in mode trusted-only, once a user has trusted them; the server must be given with
    /// --server; repeatable
    #[arg(long = "trust", value_name = "SERVER:TOOL,…", requires = "servers")]
    trusted: Vec<String>,
    /// Resource of a server that the agent may read; the URI may end with `*` or contain `{name}`, and is empty for
    /// none; the server must be given with --server; repeatable
    #[arg(long = "resource", value_name = "SERVER=URI", requires = "servers", value_parser = super::parse_pair)]
    resources: Vec<(String, String)>,
    /// Prompt of a server that the agent may use; `*` for all, empty for none; the server must be given with --server;
    /// repeatable
    #[arg(long = "prompt", value_name = "SERVER=NAME", requires = "servers", value_parser = super::parse_pair)]
    prompts: Vec<(String, String)>,
    /// Rate limit of the agent in calls per minute; 0 removes the limit
    #[arg(long, value_name = "COUNT")]
    calls_per_minute: Option<u32>,
    /// Concurrency limit of the agent: maximum number of running calls; 0 removes the limit
    #[arg(long, value_name = "COUNT")]
    max_concurrent_calls: Option<u32>,
    /// Whether the client of the agent may ask its own user to approve a call; otherwise calls are approved only in the
    /// hub. Default: true
    #[arg(long, value_name = "true|false")]
    client_approvals: Option<bool>,
    /// Disable the agent, so that its tokens are rejected
    #[arg(long)]
    disabled: bool,
}

impl AgentFields {
    async fn members(&self) -> Result<Vec<(&'static str, Option<Value>)>, CliError> {
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        let limit = |count: Option<u32>| count.map(|count| json!((count > 0).then_some(count)));
        let instructions = match self.instructions.as_deref().map(|text| (text, text.strip_prefix('@'))) {
            Some((_, Some(path))) => {
                let read = blocking_input::read_file(path).await;
                Some(json!(read.map_err(|error| CliError::usage(format!("cannot read {path}: {error}")))?))
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
            ("max_concurrent_calls", limit(self.max_concurrent_calls)),
            ("client_approvals", self.client_approvals.map(Value::from)),
            ("enabled", self.disabled.then(|| json!(false))),
        ])
    }

    /// Builds the field `servers` from the options `--server`, `--trust`, `--resource` and `--prompt`.
    fn servers(&self) -> Result<Value, CliError> {
        let mut servers = Map::new();
        for argument in &self.servers {
            // A missing `tools` field selects all tools.
            let Some((server, tools)) = argument.split_once(':') else {
                servers.insert(argument.clone(), json!({}));
                continue;
            };
            let tools = split_names(tools);
            if tools.is_empty() {
                let text = format!(
                    "--server {argument}: add tool names after the `:`, or remove the `:` to select all tools"
                );
                return Err(CliError::usage(text));
            }
            servers.insert(server.to_owned(), json!({ "tools": tools }));
        }
        for argument in &self.trusted {
            let (server, tools) = argument.split_once(':').unwrap_or((argument, ""));
            let Some(selection) = servers.get_mut(server) else {
                return Err(CliError::usage(format!("--trust {argument}: add --server {server}")));
            };
            selection["trusted"] = json!(split_names(tools));
        }
        for (option, field, items) in
            [("resource", "resources", &self.resources), ("prompt", "prompts", &self.prompts)]
        {
            for (server, item) in items {
                let Some(selection) = servers.get_mut(server) else {
                    return Err(CliError::usage(format!(
                        "--{option} {server}={item}: add --server {server}"
                    )));
                };
                let mut list = selection[field].as_array().cloned().unwrap_or_default();
                list.extend((!item.is_empty()).then(|| json!(item)));
                selection[field] = json!(list);
            }
        }
        Ok(Value::Object(servers))
    }
}

fn split_names(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let (api, output) = (context.api()?, context.output);
    match command {
        Command::Add { name, fields: agent_fields } => {
            let mut fields = agent_fields.members().await?;
            fields.push(("name", Some(json!(name))));
            let agent = api.post("/agents", &json_object(fields)).await?;
            let next = "create a token with `linchpin token add NAME --agent";
            output.print_result(&agent, &format!("agent `{name}` added: {next} '{name}'`"))?;
        }
        Command::List => {
            let none = "no agents: add one with `linchpin agent add`";
            output.print_list(&api.list("/agents", usize::MAX).await?, &LIST_COLUMNS, none)?;
        }
        Command::Show(agent_arg) => {
            let mut agent = api.get(&agent_arg.path(&api).await?).await?;
            if !output.json {
                agent["servers"] = format_selection(&api, &agent["servers"]).await?;
            }
            output.print_details(&agent, &DETAIL_COLUMNS)?;
        }
        Command::Update { agent: agent_arg, name, enabled, fields: agent_fields } => {
            let mut fields = agent_fields.members().await?;
            fields.push(("name", name.map(|name| json!(name))));
            fields.extend(enabled.then(|| ("enabled", Some(json!(true)))));
            if fields.iter().all(|(_, value)| value.is_none()) {
                let text = "nothing to update: add --name, --instructions, --model, --approval, --server, --trust, \
                            --resource, --prompt, --calls-per-minute, --max-concurrent-calls, --enabled or --disabled";
                return Err(CliError::usage(text));
            }
            let agent = api.patch(&agent_arg.path(&api).await?, &json_object(fields)).await?;
            output.print_result(&agent, &format!("agent `{}` updated", agent_arg.agent))?;
        }
        Command::Remove(agent_arg) => {
            api.delete(&agent_arg.path(&api).await?).await?;
            output.print_result(
                &json!({ "removed": agent_arg.agent }),
                &format!("agent `{}` removed", agent_arg.agent),
            )?;
        }
    }
    Ok(())
}

/// Formats the servers of an agent as `SLUG:TOOL,…`, with trusted tools, resources and prompts in parentheses.
async fn format_selection(api: &ApiClient, servers: &Value) -> Result<Value, CliError> {
    let all_servers = api.list("/servers", usize::MAX).await?;
    let line = |(id, selection): (&String, &Value)| {
        let slug =
            all_servers.iter().find(|server| server["id"] == **id).and_then(|server| server["slug"].as_str());
        let list = |name: &str| {
            let names = selection[name].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.collect::<Vec<_>>().join(",")
        };
        let tools = match &selection["tools"] {
            Value::Array(tools) if tools.is_empty() => "none".to_owned(),
            Value::Array(_) => list("tools"),
            _ => "all".to_owned(),
        };
        let mut details = Vec::new();
        if !list("trusted").is_empty() {
            details.push(format!("trusts {}", list("trusted")));
        }
        for field in ["resources", "prompts"].into_iter().filter(|field| selection[*field].is_array()) {
            let names = list(field);
            details.push(format!("{field} {}", if names.is_empty() { "none" } else { &names }));
        }
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join("; ")) };
        format!("{}:{tools}{details}", slug.unwrap_or(id))
    };
    Ok(json!(servers.as_object().into_iter().flatten().map(line).collect::<Vec<_>>()))
}

impl AgentArg {
    async fn path(&self, api: &ApiClient) -> Result<String, CliError> {
        Ok(format!("/agents/{}", percent_encode(&find(api, &self.agent).await?)))
    }
}

/// Finds an agent by name or id and returns its id.
pub(super) async fn find(api: &ApiClient, argument: &str) -> Result<String, CliError> {
    find_id(&api.list("/agents", usize::MAX).await?, "agent", argument)
}

/// Finds an agent by an optional name or id, and returns its id.
pub(crate) async fn find_optional(
    api: &ApiClient,
    argument: Option<&str>,
) -> Result<Option<String>, CliError> {
    match argument {
        None => Ok(None),
        Some(argument) => find(api, argument).await.map(Some),
    }
}

/// Finds an item by name or id and returns its id. A name must be unique.
pub(super) fn find_id(all: &[Value], noun: &str, argument: &str) -> Result<String, CliError> {
    let mut found = all.iter().filter(|item| item["id"] == argument || item["name"] == argument);
    let fail = |text: String| CliError::new(CliErrorKind::Other, text);
    match (found.next().and_then(|item| item["id"].as_str()), found.next()) {
        (Some(id), None) => Ok(id.to_owned()),
        (Some(_), Some(_)) => {
            Err(fail(format!("more than one {noun} has the name `{argument}`: use the id")))
        }
        (None, _) => Err(fail(format!("no such {noun} `{argument}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_with_their_tools() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let mut agent_fields = AgentFields {
            instructions: None,
            model: None,
            approval: None,
            servers: texts(&["demo", "files:read, list"]),
            trusted: texts(&["files:read"]),
            resources: Vec::new(),
            prompts: Vec::new(),
            calls_per_minute: None,
            max_concurrent_calls: None,
            client_approvals: None,
            disabled: false,
        };
        let expected = json!({"demo": {}, "files": {"tools": ["read", "list"], "trusted": ["read"]}});
        assert_eq!(agent_fields.servers().unwrap(), expected);
        agent_fields.servers = texts(&["demo:", "files"]);
        assert!(agent_fields.servers().unwrap_err().to_string().contains("add tool names after the `:`"));
        (agent_fields.servers, agent_fields.trusted) = (texts(&["files"]), texts(&["other:x"]));
        assert_eq!(agent_fields.servers().unwrap_err().to_string(), "--trust other:x: add --server other");
        let pair = |server: &str, item: &str| (server.to_owned(), item.to_owned());
        agent_fields.trusted.clear();
        agent_fields.resources = vec![pair("files", "file:///a"), pair("files", "file:///b/*")];
        agent_fields.prompts = vec![pair("files", "")];
        let expected = json!({"files": {"resources": ["file:///a", "file:///b/*"], "prompts": []}});
        assert_eq!(agent_fields.servers().unwrap(), expected);
        agent_fields.prompts = vec![pair("other", "a")];
        assert_eq!(agent_fields.servers().unwrap_err().to_string(), "--prompt other=a: add --server other");
    }

    #[test]
    fn a_name_must_be_one_alone() {
        let all = [
            json!({"id": "1", "name": "a"}),
            json!({"id": "2", "name": "b"}),
            json!({"id": "3", "name": "b"}),
        ];
        assert_eq!(find_id(&all, "agent", "a").unwrap(), "1");
        assert_eq!(find_id(&all, "agent", "3").unwrap(), "3");
        let error = find_id(&all, "agent", "b").unwrap_err().to_string();
        assert_eq!(error, "more than one agent has the name `b`: use the id");
        assert_eq!(find_id(&all, "agent", "c").unwrap_err().to_string(), "no such agent `c`");
    }
}

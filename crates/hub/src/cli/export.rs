//! `linchpin export`: tools in the format of a model provider, or servers in the configuration format of a client.

use std::io::{self, Write as _};

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{Asked, agent};
use crate::api_client::{encoded, query};
use crate::error::Failure;
use crate::terminal::clean;

#[derive(Args)]
pub(crate) struct Export {
    /// Format: of a model provider (tools, for the field `tools` of a request) or of a client (servers, for its
    /// configuration file)
    format: Format,
    /// Export only tools that this agent may use (name or id); tool formats only
    #[arg(long)]
    agent: Option<String>,
    /// Export only this server or its tools (slug or id); repeatable for client formats
    #[arg(long)]
    server: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    #[value(name = "openai")]
    OpenAi,
    Anthropic,
    Gemini,
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
}

pub(super) async fn run(asked: &Asked, export: Export) -> Result<(), Failure> {
    let api = asked.api()?;
    let Export { format, agent, server } = export;
    let name = format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    if matches!(format, Format::OpenAi | Format::Anthropic | Format::Gemini) {
        let agent = agent::find_if(&api, agent.as_deref()).await?;
        if server.len() > 1 {
            return Err(Failure::usage(
                "tool formats accept at most one --server: give it once, or omit it to export all tools",
            ));
        }
        let path =
            format!("/export/{name}{}", query([("agent", agent), ("server", server.into_iter().next())]));
        return Ok(asked.output.value(&api.get(&path).await?)?);
    }
    if agent.is_some() {
        return Err(Failure::usage("--agent requires a tool format: client formats contain whole servers"));
    }
    let servers = Some(server.join(",")).filter(|servers| !servers.is_empty());
    let path = format!("/export/clients/{}{}", encoded(&name), query([("servers", servers)]));
    let snippet = api.get(&path).await?;
    for note in snippet["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(io::stderr(), "linchpin: {}", clean(note)); // stderr may be closed
    }
    Ok(asked.output.value(&snippet["file"])?)
}

//! `linchpin export`: tools as providers of models want them described, and servers as the files of other clients name them.

use std::io::{self, Write as _};

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{Asked, agent};
use crate::api::{encoded, query};
use crate::failure::Failure;
use crate::terminal::clean;

#[derive(Args)]
pub(crate) struct Export {
    /// Whose format: of a provider of models, tools for `tools` of a request; of a client, servers for its file
    format: Format,
    /// Those that this agent may use, by its name or id; for tools
    #[arg(long)]
    agent: Option<String>,
    /// Those of this server, or this server, by its slug or id; for a client it may be given several times
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
            return Err(Failure::usage("tools are exported of one server, or of all: give --server once"));
        }
        let path =
            format!("/export/{name}{}", query([("agent", agent), ("server", server.into_iter().next())]));
        return Ok(asked.output.value(&api.get(&path).await?)?);
    }
    if agent.is_some() {
        return Err(Failure::usage("--agent is for tools: a client has servers, each with all of its tools"));
    }
    let servers = Some(server.join(",")).filter(|servers| !servers.is_empty());
    let path = format!("/export/clients/{}{}", encoded(&name), query([("servers", servers)]));
    let snippet = api.get(&path).await?;
    for note in snippet["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(io::stderr(), "linchpin: {}", clean(note)); // nobody may be there to read it
    }
    Ok(asked.output.value(&snippet["file"])?)
}

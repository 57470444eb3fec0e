//! `linchpin export`: tools in the format of a model provider, or servers in the configuration format of a client.

use std::io::{self, Write as _};

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{CommandContext, agent};
use crate::api_client::{percent_encode, query_string};
use crate::error::CliError;
use crate::terminal::sanitize;

#[derive(Args)]
pub(crate) struct Export {
    /// Format: of a model provider (tools, for the field `tools` of a request) or of a client (servers, for its
    /// configuration file)
    format: ExportFormat,
    /// Export only tools that this agent may use (name or id); tool formats only
    #[arg(long)]
    agent: Option<String>,
    /// Export only this server or its tools (slug or id); repeatable for client formats
    #[arg(long)]
    server: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ExportFormat {
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

pub(super) async fn run(context: &CommandContext, export: Export) -> Result<(), CliError> {
    let api = context.api()?;
    let Export { format, agent, server } = export;
    let name = format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    if matches!(format, ExportFormat::OpenAi | ExportFormat::Anthropic | ExportFormat::Gemini) {
        let agent = agent::find_optional(&api, agent.as_deref()).await?;
        if server.len() > 1 {
            return Err(CliError::usage(format!(
                "the format `{name}` exports tools of at most one server: give --server once, or omit it to export all tools",
            )));
        }
        let path = format!(
            "/export/{name}{}",
            query_string([("agent", agent), ("server", server.into_iter().next())])
        );
        return Ok(context.output.print_value(&api.get(&path).await?)?);
    }
    if agent.is_some() {
        return Err(CliError::usage("--agent requires a tool format: client formats contain whole servers"));
    }
    let servers = Some(server.join(",")).filter(|servers| !servers.is_empty());
    let path = format!("/export/clients/{}{}", percent_encode(&name), query_string([("servers", servers)]));
    let snippet = api.get(&path).await?;
    for note in snippet["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(io::stderr(), "linchpin: {}", sanitize(note)); // stderr may be closed
    }
    Ok(context.output.print_value(&snippet["file"])?)
}

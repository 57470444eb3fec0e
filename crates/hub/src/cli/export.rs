//! `linchpin export`: tools as providers of models want them described.

use clap::{Args, ValueEnum};

use super::{Asked, agent};
use crate::api::query;
use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct Export {
    /// Whose format: what is printed stands in `tools` of a request to them
    format: Format,
    /// Those that this agent may use, by its name or id
    #[arg(long)]
    agent: Option<String>,
    /// Those of this server, by its slug or id
    #[arg(long)]
    server: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    #[value(name = "openai")]
    OpenAi,
    Anthropic,
    Gemini,
}

pub(super) async fn run(asked: &Asked, export: Export) -> Result<(), Failure> {
    let api = asked.api()?;
    let agent = agent::find_if(&api, export.agent.as_deref()).await?;
    let format = match export.format {
        Format::OpenAi => "openai",
        Format::Anthropic => "anthropic",
        Format::Gemini => "gemini",
    };
    let path = format!("/export/{format}{}", query([("agent", agent), ("server", export.server)]));
    Ok(asked.output.value(&api.get(&path).await?)?)
}

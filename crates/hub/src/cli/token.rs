//! `linchpin token`: manages the API tokens of the caller and of agents.

use clap::Subcommand;
use serde_json::json;

use super::output::{Column, column, column_or, name_column};
use super::{CommandContext, agent};
use crate::api_client::{ApiClient, json_object, percent_encode};
use crate::error::{CliError, CliErrorKind};
use crate::terminal::sanitize;

const LIST_COLUMNS: [Column; 5] = [
    name_column("id", "/id"),
    column_or("owner", "/owner_name", "/owner"),
    column("created", "/created"),
    column("expires", "/expires"),
    column("name", "/name"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create an API token for an agent or for yourself; it is shown only once
    Add {
        /// Name of the token, for example its purpose
        name: String,
        /// Agent that owns the token (name or id). Default: you
        #[arg(long)]
        agent: Option<String>,
        /// Lifetime of the token in days. Default: 90
        #[arg(long)]
        days: Option<u32>,
    },
    /// List your tokens and the tokens of all agents
    List {
        /// Filter by agent (name or id)
        #[arg(long)]
        agent: Option<String>,
    },
    /// Revoke an API token of yourself or of an agent
    Revoke {
        /// Id of the token
        token: String,
        /// Agent that owns the token (name or id). Default: you
        #[arg(long)]
        agent: Option<String>,
    },
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let (api, output) = (context.api()?, context.output);
    match command {
        Command::Add { name, agent, days } => {
            let agent = agent::find_optional(&api, agent.as_deref()).await?;
            let body = json_object([("name", Some(json!(name))), ("days", days.map(|days| json!(days)))]);
            let issued = api.post(&tokens_path(agent), &body).await?;
            // Nothing else on standard output, so that a script can capture the token.
            output.print_result(&issued, issued["token"].as_str().unwrap_or_default())?;
        }
        Command::List { agent } => {
            let agent = agent::find_optional(&api, agent.as_deref()).await?;
            let path = agent.map_or_else(|| "/tokens?owner=all".to_owned(), |agent| tokens_path(Some(agent)));
            output.print_list(&api.list(&path, usize::MAX).await?, &LIST_COLUMNS, "no tokens")?;
        }
        Command::Revoke { token, agent } => {
            revoke(&api, &token, agent.as_deref()).await?;
            output.print_result(&json!({ "revoked": token }), "token revoked")?;
        }
    }
    Ok(())
}

/// Revokes an API token of the caller or of an agent at the hub. The error for a token of another owner names the
/// owner.
async fn revoke(api: &ApiClient, token: &str, agent: Option<&str>) -> Result<(), CliError> {
    let owner = agent::find_optional(api, agent).await?;
    let revoked = api.delete(&format!("{}/{}", tokens_path(owner), percent_encode(token))).await;
    let Err(failure) = revoked else { return Ok(()) };
    if failure.status() == Some(404) {
        let all = api.list("/tokens?owner=all", usize::MAX).await?;
        let found = all.iter().find(|token_view| token_view["id"] == token);
        if let Some(name) =
            found.and_then(|token_view| token_view["owner_name"].as_str().or(token_view["owner"].as_str()))
        {
            let text = format!("the token belongs to `{}`: check --agent", sanitize(name));
            return Err(CliError::new(CliErrorKind::Other, text));
        }
    }
    Err(failure)
}

/// Returns the REST API path of the tokens of an agent, or of the caller.
fn tokens_path(agent: Option<String>) -> String {
    agent.map_or_else(|| "/tokens".to_owned(), |agent| format!("/agents/{}/tokens", percent_encode(&agent)))
}

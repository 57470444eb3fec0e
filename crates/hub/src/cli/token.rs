//! `linchpin token`: manages API tokens of users and agents.

use clap::Subcommand;
use serde_json::json;

use super::output::{Field, either, field, name};
use super::{Asked, agent};
use crate::api_client::{Api, encoded, object};
use crate::error::{Failure, Kind};
use crate::terminal::clean;

const LIST: [Field; 5] = [
    name("id", "/id"),
    either("owner", "/owner_name", "/owner"),
    field("created", "/created"),
    field("expires", "/expires"),
    field("name", "/name"),
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
        /// Lifetime in days. Default: 90
        #[arg(long)]
        days: Option<u32>,
    },
    /// List your tokens and the tokens of all agents
    List {
        /// Filter by agent (name or id)
        #[arg(long)]
        agent: Option<String>,
    },
    /// Revoke a token
    Revoke {
        /// Id of the token
        token: String,
        /// Agent that owns the token (name or id). Default: you
        #[arg(long)]
        agent: Option<String>,
    },
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<(), Failure> {
    let (api, output) = (asked.api()?, asked.output);
    match command {
        Command::Add { name, agent, days } => {
            let agent = agent::find_if(&api, agent.as_deref()).await?;
            let body = object([("name", Some(json!(name))), ("days", days.map(|days| json!(days)))]);
            let issued = api.post(&tokens(agent), &body).await?;
            // Nothing else on standard output, so that a script can capture the token.
            output.done(&issued, issued["token"].as_str().unwrap_or_default())?;
        }
        Command::List { agent } => {
            let agent = agent::find_if(&api, agent.as_deref()).await?;
            let path = agent.map_or_else(|| "/tokens?owner=all".to_owned(), |agent| tokens(Some(agent)));
            output.list(&api.list(&path, usize::MAX).await?, &LIST, "no tokens")?;
        }
        Command::Revoke { token, agent } => {
            revoke(&api, &token, agent.as_deref()).await?;
            output.done(&json!({ "revoked": token }), "token revoked")?;
        }
    }
    Ok(())
}

/// Revokes a token. The error for a token of another owner names the owner.
async fn revoke(api: &Api, token: &str, agent: Option<&str>) -> Result<(), Failure> {
    let owner = agent::find_if(api, agent).await?;
    let revoked = api.delete(&format!("{}/{}", tokens(owner), encoded(token))).await;
    let Err(failure) = revoked else { return Ok(()) };
    if failure.status() == Some(404) {
        let all = api.list("/tokens?owner=all", usize::MAX).await?;
        let found = all.iter().find(|known| known["id"] == token);
        if let Some(name) = found.and_then(|known| known["owner_name"].as_str().or(known["owner"].as_str())) {
            let text = format!("the token belongs to `{}`: check --agent", clean(name));
            return Err(Failure::new(Kind::Other, text));
        }
    }
    Err(failure)
}

/// Returns the path of the tokens of an agent, or of the caller.
fn tokens(agent: Option<String>) -> String {
    agent.map_or_else(|| "/tokens".to_owned(), |agent| format!("/agents/{}/tokens", encoded(&agent)))
}

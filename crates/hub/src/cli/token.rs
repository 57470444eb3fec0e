//! `linchpin token`: by which agents, and programs of people, ask the hub.

use clap::Subcommand;
use serde_json::json;

use super::output::{Field, field, name};
use super::{Asked, agent};
use crate::api::{encoded, object};
use crate::failure::Failure;

const LIST: [Field; 5] = [
    name("id", "/id"),
    field("owner", "/owner"),
    field("created", "/created"),
    field("expires", "/expires"),
    field("name", "/name"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make a token for an agent, or for a program of yours; it is shown once
    Add {
        /// What it is for
        name: String,
        /// The agent whose it is, by its name or id; yours without it
        #[arg(long)]
        agent: Option<String>,
        /// How many days it counts; 90 when left out
        #[arg(long)]
        days: Option<u32>,
    },
    /// List tokens
    List {
        /// Those of this agent, by its name or id; yours without it
        #[arg(long)]
        agent: Option<String>,
    },
    /// Take a token back
    Revoke {
        /// The id of the token
        token: String,
        /// The agent whose it is, by its name or id; yours without it
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
            // Alone on its line, for whoever puts it into a variable.
            output.done(&issued, issued["token"].as_str().unwrap_or_default())?;
        }
        Command::List { agent } => {
            let agent = agent::find_if(&api, agent.as_deref()).await?;
            output.list(&api.list(&tokens(agent), usize::MAX).await?, &LIST, "there are no tokens")?;
        }
        Command::Revoke { token, agent } => {
            let agent = agent::find_if(&api, agent.as_deref()).await?;
            api.delete(&format!("{}/{}", tokens(agent), encoded(&token))).await?;
            output.done(&json!({ "revoked": token }), "the token counts for nothing any more")?;
        }
    }
    Ok(())
}

/// Where the tokens of an agent are, or one's own.
fn tokens(agent: Option<String>) -> String {
    agent.map_or_else(|| "/tokens".to_owned(), |agent| format!("/agents/{}/tokens", encoded(&agent)))
}

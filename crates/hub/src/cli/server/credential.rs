//! `linchpin server credential`: stores, deletes and describes the credential of a remote server. The secret is never
//! shown.

use clap::{Args, Subcommand};
use serde_json::json;

use super::Which;
use crate::api_client::query;
use crate::cli::output::field;
use crate::cli::{Asked, agent};
use crate::error::Failure;
use crate::secret_input;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Store a token, API key or password; prompts for it, or reads it from standard input
    Set(Whose),
    /// Delete the credential
    Drop(Whose),
    /// Show the kind and origin of the credential, not the secret
    Show(Whose),
}

#[derive(Args)]
pub(crate) struct Whose {
    #[command(flatten)]
    pub(super) which: Which,
    /// Agent that owns the credential (name or id). Default: shared by all
    #[arg(long)]
    pub(super) agent: Option<String>,
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<(), Failure> {
    let api = asked.api()?;
    let (Command::Set(whose) | Command::Drop(whose) | Command::Show(whose)) = &command;
    let agent = agent::find_if(&api, whose.agent.as_deref()).await?;
    let path = format!("{}{}", whose.which.path("/credential"), query([("agent", agent)]));
    let server = &whose.which.server;
    match command {
        Command::Set(_) => {
            let secret = secret_input::read(&format!("Credential for `{server}`")).await?;
            let answer = api.put(&path, &json!({ "secret": secret.expose() })).await?;
            asked.output.done(&answer, &format!("credential for `{server}` stored"))?;
        }
        Command::Drop(_) => {
            api.delete(&path).await?;
            asked
                .output
                .done(&json!({ "dropped": server }), &format!("credential for `{server}` deleted"))?;
        }
        Command::Show(_) => {
            let fields = [field("kind", "/kind"), field("origin", "/bound_to"), field("agent", "/agent")];
            asked.output.one(&api.get(&path).await?, &fields)?;
        }
    }
    Ok(())
}

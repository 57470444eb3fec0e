//! The secret that a server at a URL wants: entered, and never shown again.

use clap::{Args, Subcommand};
use serde_json::json;

use super::Which;
use crate::api::query;
use crate::cli::output::field;
use crate::cli::{Asked, agent};
use crate::failure::Failure;
use crate::secret;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Keep a token, a key or a password: it is asked for, or read from standard input, and never shown again
    Set(Whose),
    /// Forget it
    Drop(Whose),
    /// Show what is known of it
    Show(Whose),
}

#[derive(Args)]
pub(crate) struct Whose {
    #[command(flatten)]
    pub(super) which: Which,
    /// The agent whose it is, by its name or id; everybody's without it
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
            let secret = secret::read(&format!("The secret for `{server}`")).await?;
            let answer = api.put(&path, &json!({ "secret": secret.expose() })).await?;
            asked.output.done(&answer, &format!("the credential for `{server}` is kept, sealed"))?;
        }
        Command::Drop(_) => {
            api.delete(&path).await?;
            asked.output.done(
                &json!({ "dropped": server }),
                &format!("the credential for `{server}` is forgotten"),
            )?;
        }
        Command::Show(_) => {
            let fields = [field("kind", "/kind"), field("only for", "/bound_to"), field("agent", "/agent")];
            asked.output.one(&api.get(&path).await?, &fields)?;
        }
    }
    Ok(())
}

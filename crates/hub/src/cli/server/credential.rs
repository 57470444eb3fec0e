//! `linchpin server credential`: stores, deletes and describes the credential of a remote server. The secret is never
//! shown.

use clap::{Args, Subcommand};
use serde_json::json;

use super::ServerArg;
use crate::api_client::query_string;
use crate::cli::output::{column, column_or};
use crate::cli::{CommandContext, agent};
use crate::error::CliError;
use crate::secret_input;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Store the credential of a server: a token, API key or password; prompts for it, or reads it from standard input
    Set(CredentialTarget),
    /// Delete the stored credential of a server
    Drop(CredentialTarget),
    /// Show the kind and origin of the stored credential, not the secret
    Show(CredentialTarget),
}

#[derive(Args)]
pub(crate) struct CredentialTarget {
    #[command(flatten)]
    pub(super) server: ServerArg,
    /// Agent that owns the credential (name or id). Default: shared by all
    #[arg(long)]
    pub(super) agent: Option<String>,
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let api = context.api()?;
    let (Command::Set(target) | Command::Drop(target) | Command::Show(target)) = &command;
    let agent = agent::find_optional(&api, target.agent.as_deref()).await?;
    let path = format!("{}{}", target.server.path("/credential"), query_string([("agent", agent)]));
    let server = &target.server.server;
    match command {
        Command::Set(_) => {
            let secret = secret_input::read_secret(&format!("Credential for `{server}`")).await?;
            let response = api.put(&path, &json!({ "secret": secret.expose() })).await?;
            context.output.print_result(&response, &format!("credential for `{server}` stored"))?;
        }
        Command::Drop(_) => {
            api.delete(&path).await?;
            context
                .output
                .print_result(&json!({ "dropped": server }), &format!("credential for `{server}` deleted"))?;
        }
        Command::Show(_) => {
            let agent = column_or("agent", "/agent_name", "/agent");
            let fields = [column("kind", "/kind"), column("origin", "/bound_to"), agent];
            context.output.print_details(&api.get(&path).await?, &fields)?;
        }
    }
    Ok(())
}

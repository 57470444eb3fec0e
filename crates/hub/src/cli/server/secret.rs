//! `linchpin server secret`: stores and deletes the environment secrets of a stdio server. Values are never shown.

use clap::Subcommand;
use serde_json::json;

use super::ServerArg;
use crate::api_client::percent_encode;
use crate::cli::CommandContext;
use crate::error::CliError;
use crate::secret_input;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Store the value of an environment secret; prompts for it, or reads it from standard input
    Set {
        #[command(flatten)]
        server: ServerArg,
        /// Name of the environment variable, listed under `secrets` in the configuration file
        variable: String,
    },
    /// Delete the value of an environment secret; the server process is stopped and cannot start without it
    Drop {
        #[command(flatten)]
        server: ServerArg,
        /// Name of the environment variable
        variable: String,
    },
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let api = context.api()?;
    let (Command::Set { server: server_arg, variable } | Command::Drop { server: server_arg, variable }) =
        &command;
    let path = server_arg.path(&format!("/secrets/{}", percent_encode(variable)));
    if matches!(command, Command::Drop { .. }) {
        api.delete(&path).await?;
        let message = format!("`{variable}` of `{}` deleted", server_arg.server);
        return Ok(context.output.print_result(&json!({ "dropped": variable }), &message)?);
    }
    let secret = secret_input::read_secret(&format!("`{variable}` for `{}`", server_arg.server)).await?;
    let response = api.put(&path, &json!({ "secret": secret.expose() })).await?;
    Ok(context.output.print_result(&response, &format!("`{variable}` of `{}` stored", server_arg.server))?)
}

//! `linchpin server secret`: stores and deletes the environment secrets of a stdio server. Values are never shown.

use clap::Subcommand;
use serde_json::json;

use super::Which;
use crate::api_client::encoded;
use crate::cli::Asked;
use crate::error::Failure;
use crate::secret_input;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Store the value of an environment secret; prompts for it, or reads it from standard input
    Set {
        #[command(flatten)]
        which: Which,
        /// Name of the variable, listed under `secrets` in the configuration file
        variable: String,
    },
    /// Delete the value; the server process is stopped and cannot start without it
    Drop {
        #[command(flatten)]
        which: Which,
        /// Name of the variable
        variable: String,
    },
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<(), Failure> {
    let api = asked.api()?;
    let (Command::Set { which, variable } | Command::Drop { which, variable }) = &command;
    let path = which.path(&format!("/secrets/{}", encoded(variable)));
    if matches!(command, Command::Drop { .. }) {
        api.delete(&path).await?;
        let said = format!("`{variable}` of `{}` deleted", which.server);
        return Ok(asked.output.done(&json!({ "dropped": variable }), &said)?);
    }
    let secret = secret_input::read(&format!("`{variable}` for `{}`", which.server)).await?;
    let answer = api.put(&path, &json!({ "secret": secret.expose() })).await?;
    Ok(asked.output.done(&answer, &format!("`{variable}` of `{}` stored", which.server))?)
}

//! The secrets of a program: variables whose values are entered, and never shown again.

use clap::Subcommand;
use serde_json::json;

use super::Which;
use crate::api::encoded;
use crate::cli::Asked;
use crate::failure::Failure;
use crate::secret;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Keep the value of a variable: it is asked for, or read from standard input, and never shown again
    Set {
        #[command(flatten)]
        which: Which,
        /// The variable, one of `secrets` in the operator's file
        variable: String,
    },
    /// Forget it: the program is ended, and not started without it
    Drop {
        #[command(flatten)]
        which: Which,
        /// The variable
        variable: String,
    },
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<(), Failure> {
    let api = asked.api()?;
    let (Command::Set { which, variable } | Command::Drop { which, variable }) = &command;
    let path = which.path(&format!("/secrets/{}", encoded(variable)));
    if matches!(command, Command::Drop { .. }) {
        api.delete(&path).await?;
        let said = format!("`{variable}` for `{}` is forgotten", which.server);
        return Ok(asked.output.done(&json!({ "dropped": variable }), &said)?);
    }
    let secret = secret::read(&format!("`{variable}` for `{}`", which.server)).await?;
    let answer = api.put(&path, &json!({ "secret": secret.expose() })).await?;
    Ok(asked.output.done(&answer, &format!("`{variable}` for `{}` is kept, sealed", which.server))?)
}

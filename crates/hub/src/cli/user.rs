//! `linchpin user`: manages users and their passwords.

use std::io::{self, IsTerminal as _};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Column, column, name_column};
use super::{CommandContext, agent};
use crate::api_client::{ApiClient, json_object, percent_encode};
use crate::error::CliError;
use crate::secret_input;

const LIST_COLUMNS: [Column; 4] = [
    name_column("name", "/name"),
    column("id", "/id"),
    column("password", "/has_password"),
    column("created", "/created"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List users
    List,
    /// Add a user; set a password before the user can log in
    Add {
        /// Login name
        name: String,
    },
    /// Set the password of a user and end all sessions and tokens of the user
    ///
    /// Prompts for the password, or reads it from standard input. On the machine of the hub, the operator can set any
    /// password. With --hub, users can set only their own and must enter the current password, too; on standard input,
    /// the first line is the current password and the second line the new one.
    Password(UserArg),
    /// Remove a user with all sessions and tokens
    Remove(UserArg),
}

#[derive(Args)]
pub(crate) struct UserArg {
    /// Name or id of the user
    user: String,
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let (api, output) = (context.api()?, context.output);
    match command {
        Command::List => {
            output.print_list(&api.list("/users", usize::MAX).await?, &LIST_COLUMNS, "no users")?;
        }
        Command::Add { name } => {
            let user = api.post("/users", &json!({ "name": name })).await?;
            let next = format!("set a password with `linchpin user password '{name}'`");
            output.print_result(&user, &format!("user `{name}` added: {next}"))?;
        }
        Command::Password(user_arg) => {
            let user = set_password(&api, &user_arg).await?;
            let text = format!(
                "password of `{}` changed; all sessions and tokens of the user were ended",
                user_arg.user
            );
            output.print_result(&user, &text)?;
        }
        Command::Remove(user_arg) => {
            api.delete(&user_arg.path(&api, "").await?).await?;
            output.print_result(
                &json!({ "removed": user_arg.user }),
                &format!("user `{}` removed", user_arg.user),
            )?;
        }
    }
    Ok(())
}

/// Prompts for a new password of a user and sets it at the hub. Asks for the current one only if the hub requires it.
async fn set_password(api: &ApiClient, user_arg: &UserArg) -> Result<Value, CliError> {
    let path = user_arg.path(api, "/password").await?;
    let given = secret_input::read_secret(&format!("New password of `{}`", user_arg.user)).await?;
    let lines = given.expose().split_once('\n').map(|(old, new)| (old.trim_end_matches('\r'), new));
    let (old, new) = lines.map_or((None, given.expose()), |(old, new)| (Some(old), new));
    let send = async |old: Option<&str>| {
        let body = json_object([("password", Some(json!(new))), ("old_password", old.map(|old| json!(old)))]);
        api.put(&path, &body).await
    };
    match send(old).await {
        Err(failure) if old.is_none() && failure.has_field("old_password") => {
            if !io::stdin().is_terminal() {
                let text = "write the current password and the new one to standard input, one per line";
                return Err(failure.context(text));
            }
            let old = secret_input::read_secret(&format!("Current password of `{}`", user_arg.user)).await?;
            send(Some(old.expose())).await
        }
        set => set,
    }
}

impl UserArg {
    async fn path(&self, api: &ApiClient, rest: &str) -> Result<String, CliError> {
        let id = agent::find_id(&api.list("/users", usize::MAX).await?, "user", &self.user)?;
        Ok(format!("/users/{}{rest}", percent_encode(&id)))
    }
}

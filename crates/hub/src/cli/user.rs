//! `linchpin user`: manages users and their passwords.

use std::io::{self, IsTerminal as _};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Field, field, name};
use super::{Asked, agent};
use crate::api_client::{Api, encoded, object};
use crate::error::Failure;
use crate::secret_input;

const LIST: [Field; 4] = [
    name("name", "/name"),
    field("id", "/id"),
    field("password", "/has_password"),
    field("created", "/created"),
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
    Password(Which),
    /// Remove a user with all sessions and tokens
    Remove(Which),
}

#[derive(Args)]
pub(crate) struct Which {
    /// Name or id of the user
    user: String,
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<(), Failure> {
    let (api, output) = (asked.api()?, asked.output);
    match command {
        Command::List => output.list(&api.list("/users", usize::MAX).await?, &LIST, "no users")?,
        Command::Add { name } => {
            let user = api.post("/users", &json!({ "name": name })).await?;
            let next = format!("set a password with `linchpin user password '{name}'`");
            output.done(&user, &format!("user `{name}` added: {next}"))?;
        }
        Command::Password(which) => {
            let user = set_password(&api, &which).await?;
            let text = format!(
                "password of `{}` changed; all sessions and tokens of the user were ended",
                which.user
            );
            output.done(&user, &text)?;
        }
        Command::Remove(which) => {
            api.delete(&which.path(&api, "").await?).await?;
            output.done(&json!({ "removed": which.user }), &format!("user `{}` removed", which.user))?;
        }
    }
    Ok(())
}

/// Sets a password. Asks for the current one only if the hub requires it.
async fn set_password(api: &Api, which: &Which) -> Result<Value, Failure> {
    let path = which.path(api, "/password").await?;
    let given = secret_input::read(&format!("New password of `{}`", which.user)).await?;
    let lines = given.expose().split_once('\n').map(|(old, new)| (old.trim_end_matches('\r'), new));
    let (old, new) = lines.map_or((None, given.expose()), |(old, new)| (Some(old), new));
    let put = async |old: Option<&str>| {
        let body = object([("password", Some(json!(new))), ("old_password", old.map(|old| json!(old)))]);
        api.put(&path, &body).await
    };
    match put(old).await {
        Err(failure) if old.is_none() && failure.has_field("old_password") => {
            if !io::stdin().is_terminal() {
                let text = "write the current password and the new one to standard input, one per line";
                return Err(failure.during(text));
            }
            let old = secret_input::read(&format!("Current password of `{}`", which.user)).await?;
            put(Some(old.expose())).await
        }
        set => set,
    }
}

impl Which {
    async fn path(&self, api: &Api, rest: &str) -> Result<String, Failure> {
        let id = agent::named(&api.list("/users", usize::MAX).await?, "user", &self.user)?;
        Ok(format!("/users/{}{rest}", encoded(&id)))
    }
}

//! `linchpin user`: people.

use std::io::{self, IsTerminal as _};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Field, field, name};
use super::{Asked, agent};
use crate::api::{Api, encoded, object};
use crate::failure::Failure;
use crate::secret;

const LIST: [Field; 4] = [
    name("name", "/name"),
    field("id", "/id"),
    field("password", "/has_password"),
    field("created", "/created"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List people
    List,
    /// Add somebody, who cannot sign in before they have a password
    Add {
        /// The name that they sign in with
        name: String,
    },
    /// Set the password of a user; all sessions and tokens of the user end. It is asked for, or read from standard input
    ///
    /// On the machine of the hub the operator sets any password. With --hub a user sets their own, and the current one is
    /// asked for, too; on standard input it is the first line, and the new one the second.
    Password(Which),
    /// Remove somebody with their sessions and tokens
    Remove(Which),
}

#[derive(Args)]
pub(crate) struct Which {
    /// The name of the person, or the id
    user: String,
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<(), Failure> {
    let (api, output) = (asked.api()?, asked.output);
    match command {
        Command::List => output.list(&api.list("/users", usize::MAX).await?, &LIST, "there is nobody")?,
        Command::Add { name } => {
            let user = api.post("/users", &json!({ "name": name })).await?;
            let next = format!("give them a password with `linchpin user password '{name}'`");
            output.done(&user, &format!("`{name}` is added: {next}"))?;
        }
        Command::Password(which) => {
            let user = set_password(&api, &which).await?;
            let text = format!(
                "the password of `{}` is set; all sessions and tokens of the user have ended",
                which.user
            );
            output.done(&user, &text)?;
        }
        Command::Remove(which) => {
            api.delete(&which.path(&api, "").await?).await?;
            output.done(&json!({ "removed": which.user }), &format!("`{}` is removed", which.user))?;
        }
    }
    Ok(())
}

/// Sets a password. The hub says whether it needs the current one.
async fn set_password(api: &Api, which: &Which) -> Result<Value, Failure> {
    let path = which.path(api, "/password").await?;
    let given = secret::read(&format!("New password of `{}`", which.user)).await?;
    let lines = given.expose().split_once('\n').map(|(old, new)| (old.trim_end_matches('\r'), new));
    let (old, new) = lines.map_or((None, given.expose()), |(old, new)| (Some(old), new));
    let put = async |old: Option<&str>| {
        let body = object([("password", Some(json!(new))), ("old_password", old.map(|old| json!(old)))]);
        api.put(&path, &body).await
    };
    match put(old).await {
        Err(failure) if old.is_none() && failure.has_field("old_password") => {
            if !io::stdin().is_terminal() {
                let text = "write two lines to standard input, the current password and the new one";
                return Err(failure.during(text));
            }
            let old = secret::read(&format!("Current password of `{}`", which.user)).await?;
            put(Some(old.expose())).await
        }
        set => set,
    }
}

impl Which {
    async fn path(&self, api: &Api, rest: &str) -> Result<String, Failure> {
        let id = agent::named(&api.list("/users", usize::MAX).await?, "person", &self.user)?;
        Ok(format!("/users/{}{rest}", encoded(&id)))
    }
}

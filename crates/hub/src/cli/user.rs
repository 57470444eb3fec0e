//! `linchpin user`: people.

use clap::{Args, Subcommand};
use serde_json::json;

use super::output::{Field, field, name};
use super::{Asked, agent};
use crate::api::{Api, encoded};
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
    /// Give somebody another password: it is asked for, or read from standard input
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
            let path = which.path(&api, "/password").await?;
            let password = secret::read(&format!("The new password of `{}`", which.user)).await?;
            let user = api.put(&path, &json!({ "password": password.expose() })).await?;
            output.done(
                &user,
                &format!(
                    "`{}` has another password; whoever was signed in with it is not any more",
                    which.user
                ),
            )?;
        }
        Command::Remove(which) => {
            api.delete(&which.path(&api, "").await?).await?;
            output.done(&json!({ "removed": which.user }), &format!("`{}` is removed", which.user))?;
        }
    }
    Ok(())
}

impl Which {
    async fn path(&self, api: &Api, rest: &str) -> Result<String, Failure> {
        let id = agent::named(&api.list("/users", usize::MAX).await?, "person", &self.user)?;
        Ok(format!("/users/{}{rest}", encoded(&id)))
    }
}

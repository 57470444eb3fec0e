//! `linchpin key`: rotation of the keys that encrypt secrets and the call history.

use clap::Subcommand;
use serde_json::json;

use super::Asked;
use crate::failure::Failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Rotate the root key in the key file; the hub keeps running
    ///
    /// The new root key wraps all tenant keys. Copy the key file afterwards: to your backup, and to other hubs on the same
    /// database.
    Rotate {
        /// Also make a new tenant key, and encrypt all secrets with it again. The call history stays readable
        #[arg(long)]
        data: bool,
    },
}

pub(super) async fn run(asked: &Asked, command: &Command) -> Result<(), Failure> {
    let Command::Rotate { data } = command;
    let answer = asked.api()?.post("/keys/rotate", &json!({ "data": data })).await?;
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    let mut text = format!("root key rotated, {}", counted(count("tenants"), "tenant key", "re-wrapped"));
    if *data {
        text.push_str(&format!(
            "; {} with a new tenant key",
            counted(count("secrets"), "secret", "re-encrypted")
        ));
        if count("unreadable") > 0 {
            text.push_str(&format!(
                ", {} left as it is",
                counted(count("unreadable"), "unreadable secret", "was")
            ));
        }
    }
    text.push_str(". Copy the key file to your backup again");
    Ok(asked.output.done(&answer, &text)?)
}

/// Such as `2 secrets re-encrypted`.
fn counted(count: u64, noun: &str, done: &str) -> String {
    format!("{count} {noun}{} {done}", if count == 1 { "" } else { "s" })
}

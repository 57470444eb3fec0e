//! `linchpin key`: rotation of the keys that encrypt secrets and the call history.

use clap::Subcommand;
use serde_json::json;

use super::Asked;
use crate::error::Failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Rotate the root key without downtime
    ///
    /// The new root key in the key file wraps all tenant keys. Afterwards, copy the key file to your backup and to the
    /// other hubs of the cluster.
    Rotate {
        /// Also create a new tenant key and re-encrypt all secrets with it. The call history stays readable
        #[arg(long)]
        data: bool,
    },
}

pub(super) async fn run(asked: &Asked, command: &Command) -> Result<(), Failure> {
    let Command::Rotate { data } = command;
    let answer = asked.api()?.post("/keys/rotate", &json!({ "data": data })).await?;
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    let mut done =
        vec![format!("root key rotated, {}", counted(count("tenants"), "tenant key", "re-wrapped"))];
    if *data {
        let secrets = counted(count("secrets"), "secret", "re-encrypted");
        done.push(format!("{secrets} with a new tenant key"));
    }
    if count("unreadable") > 0 {
        done.push(counted(count("unreadable"), "secret", "unreadable and left unchanged"));
    }
    let text = format!("{}. Copy the key file to your backup again", done.join("; "));
    Ok(asked.output.done(&answer, &text)?)
}

/// Formats a count, for example `2 secrets re-encrypted`.
fn counted(count: u64, noun: &str, done: &str) -> String {
    format!("{count} {noun}{} {done}", if count == 1 { "" } else { "s" })
}

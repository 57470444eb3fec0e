//! `linchpin key`: rotation of the keys that encrypt secrets and the call history.

use clap::Subcommand;
use serde_json::json;

use super::CommandContext;
use crate::error::CliError;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Replace the root encryption key by a new one, without downtime
    ///
    /// The new root key in the key file wraps all tenant keys. Afterwards, copy the key file to your backup and to the
    /// other hubs of the cluster.
    Rotate {
        /// Also create a new tenant key and re-encrypt all secrets with it. The call history stays readable
        #[arg(long)]
        data: bool,
    },
}

pub(super) async fn run(context: &CommandContext, command: &Command) -> Result<(), CliError> {
    let Command::Rotate { data } = command;
    let response = context.api()?.post("/keys/rotate", &json!({ "data": data })).await?;
    let count = |name: &str| response[name].as_u64().unwrap_or_default();
    let mut parts =
        vec![format!("root key rotated, {}", format_count(count("tenants"), "tenant key", "re-wrapped"))];
    if *data {
        let secrets = format_count(count("secrets"), "secret", "re-encrypted");
        parts.push(format!("{secrets} with a new tenant key"));
    }
    if count("unreadable") > 0 {
        parts.push(format_count(
            count("unreadable"),
            "secret",
            "could not be decrypted and stayed unchanged",
        ));
    }
    let text = format!("{}. Copy the key file to your backup again", parts.join("; "));
    Ok(context.output.print_result(&response, &text)?)
}

/// Formats a count, for example `2 secrets re-encrypted`.
fn format_count(count: u64, noun: &str, parts: &str) -> String {
    format!("{count} {noun}{} {parts}", if count == 1 { "" } else { "s" })
}

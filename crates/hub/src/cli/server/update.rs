//! `linchpin server update`: changes the given fields, in the store of the hub or in the configuration file.

use clap::Args;
use serde_json::{Map, Value, json};

use super::fields::{ServerFieldArgs, present_members};
use super::file::{ServerSource, wait_until_applied};
use super::{ServerArg, warn_unreachable};
use crate::cli::CommandContext;
use crate::config;
use crate::error::{CliError, CliErrorKind};

#[derive(Args)]
pub(crate) struct Update {
    #[command(flatten)]
    server: ServerArg,
    /// New display name of the server
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    fields: ServerFieldArgs,
    /// Remove the rate limit and the concurrency limit
    #[arg(long, conflicts_with_all = ["calls_per_minute", "max_concurrent_calls"])]
    no_limit: bool,
    /// Remove the pinned revision; use the newest that both sides support
    #[arg(long, conflicts_with = "revision")]
    no_revision: bool,
    /// Remove all headers of the server
    #[arg(long, help_heading = "Remote server", conflicts_with = "headers")]
    no_headers: bool,
}

impl Update {
    /// Returns the server fields to change; `null` removes a field.
    fn changes(&self) -> Map<String, Value> {
        let mut changes = present_members([
            ("name", self.name.as_ref().map(|name| json!(name))),
            ("calls_per_minute", self.no_limit.then_some(Value::Null)),
            ("max_concurrent_calls", self.no_limit.then_some(Value::Null)),
            ("revision", self.no_revision.then_some(Value::Null)),
            ("headers", self.no_headers.then_some(Value::Null)),
        ]);
        changes.extend(self.fields.to_json());
        if let Some(description) = changes.get_mut("description").filter(|text| **text == "") {
            *description = Value::Null;
        }
        changes
    }
}

pub(super) async fn run(context: &CommandContext, update: &Update) -> Result<(), CliError> {
    let (server_arg, changes) = (&update.server, update.changes());
    if changes.is_empty() {
        return Err(CliError::usage("nothing to update: add an option, for example --timeout 60s"));
    }
    let slug = &server_arg.server;
    let response = match server_arg.source(context).await? {
        ServerSource::Hub => context.api()?.patch(&server_arg.path(""), &Value::Object(changes)).await?,
        ServerSource::File => update_configured(context, server_arg, &changes).await?,
        ServerSource::Demo => {
            let text = format!(
                "`{slug}` is built in and cannot be changed: disable it with `linchpin server disable {slug}`"
            );
            return Err(CliError::new(CliErrorKind::Other, text));
        }
    };
    let needs_no_secret =
        response["authentication"]["type"].as_str().is_none_or(|kind| matches!(kind, "none" | "oauth"));
    let may_lose_credential =
        !needs_no_secret && (update.fields.url.is_some() || update.fields.auth.is_some());
    let agent_option = if response["credentials"] == "per-agent" { " --agent NAME" } else { "" };
    let hint = if may_lose_credential {
        format!(
            "; a new origin or authentication type deletes the credential: set it again with `linchpin server credential set {slug}{agent_option}`"
        )
    } else {
        String::new()
    };
    context.output.print_result(&response, &format!("server `{slug}` updated{hint}"))?;
    if update.fields.url.is_some() {
        warn_unreachable(&response);
    }
    Ok(())
}

/// Writes the changes of a server to the configuration file. Returns the server as applied by the hub, if one runs.
async fn update_configured(
    context: &CommandContext,
    server_arg: &ServerArg,
    changes: &Map<String, Value>,
) -> Result<Value, CliError> {
    let (paths, slug) = (context.paths()?, &server_arg.server);
    let api = paths.running().is_some().then(|| context.api()).transpose()?;
    let Some(api) = api else {
        config::update(&paths.config, slug, changes)?;
        return Ok(json!({ "slug": slug, "file": paths.config.display().to_string() }));
    };
    let before = api.get(&server_arg.path("")).await?;
    let has_changed = config::update(&paths.config, slug, changes)?;
    wait_until_applied(context, &api, slug, |server| !has_changed || server["version"] != before["version"])
        .await
}

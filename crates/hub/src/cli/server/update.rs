//! `linchpin server update`: changes the given fields, in the store of the hub or in the configuration file.

use clap::Args;
use serde_json::{Map, Value, json};

use super::fields::{Fields, members};
use super::file::{Home, taken_over};
use super::{Which, warn};
use crate::cli::Asked;
use crate::config;
use crate::error::{Failure, Kind};

#[derive(Args)]
pub(crate) struct Update {
    #[command(flatten)]
    which: Which,
    /// Display name
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    fields: Fields,
    /// Remove the rate limit and the concurrency limit
    #[arg(long, conflicts_with_all = ["calls_per_minute", "calls_at_once"])]
    no_limit: bool,
    /// Remove the pinned revision; use the newest that both sides support
    #[arg(long, conflicts_with = "revision")]
    no_revision: bool,
    /// Remove all headers
    #[arg(long, help_heading = "Remote server", conflicts_with = "headers")]
    no_headers: bool,
}

impl Update {
    /// Returns the changed fields; `null` removes a field.
    fn changes(&self) -> Map<String, Value> {
        let mut changes = members([
            ("name", self.name.as_ref().map(|name| json!(name))),
            ("calls_per_minute", self.no_limit.then_some(Value::Null)),
            ("calls_at_once", self.no_limit.then_some(Value::Null)),
            ("revision", self.no_revision.then_some(Value::Null)),
            ("headers", self.no_headers.then_some(Value::Null)),
        ]);
        changes.extend(self.fields.said());
        if let Some(description) = changes.get_mut("description").filter(|text| **text == "") {
            *description = Value::Null;
        }
        changes
    }
}

pub(super) async fn run(asked: &Asked, update: &Update) -> Result<(), Failure> {
    let (which, changes) = (&update.which, update.changes());
    if changes.is_empty() {
        return Err(Failure::usage("nothing to update: add an option, for example --timeout 60s"));
    }
    let slug = &which.server;
    let answer = match which.home(asked).await? {
        Home::Hub => asked.api()?.patch(&which.path(""), &Value::Object(changes)).await?,
        Home::File => in_file(asked, which, &changes).await?,
        Home::Demo => {
            let text = format!(
                "`{slug}` is built in and cannot be changed: disable it with `linchpin server disable {slug}`"
            );
            return Err(Failure::new(Kind::Other, text));
        }
    };
    let is_open =
        answer["authentication"]["type"].as_str().is_none_or(|kind| matches!(kind, "none" | "oauth"));
    let may_lack = !is_open && (update.fields.url.is_some() || update.fields.auth.is_some());
    let whose = if answer["credentials"] == "per-agent" { " --agent NAME" } else { "" };
    let next = if may_lack {
        format!(
            "; a new origin or authentication type deletes the credential: set it again with `linchpin server credential set {slug}{whose}`"
        )
    } else {
        String::new()
    };
    asked.output.done(&answer, &format!("server `{slug}` updated{next}"))?;
    if update.fields.url.is_some() {
        warn(&answer);
    }
    Ok(())
}

/// Writes the changes to the configuration file. Returns the server as applied by the hub, if one runs.
async fn in_file(asked: &Asked, which: &Which, changes: &Map<String, Value>) -> Result<Value, Failure> {
    let (place, slug) = (asked.place()?, &which.server);
    let api = place.running().is_some().then(|| asked.api()).transpose()?;
    let Some(api) = api else {
        config::update(&place.config, slug, changes)?;
        return Ok(json!({ "slug": slug, "file": place.config.display().to_string() }));
    };
    let before = api.get(&which.path("")).await?;
    let has_changed = config::update(&place.config, slug, changes)?;
    taken_over(asked, &api, slug, |server| !has_changed || server["version"] != before["version"]).await
}

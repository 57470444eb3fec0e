//! Import of servers from the configuration files of other clients.
//!
//! [`formats`] finds the servers in the files ([`jsonc`]), [`server`] reads each one ([`variables`]), [`plan`] compares
//! them with the existing servers, [`render`] renders the plan, and [`apply`] applies it.

mod apply;
mod formats;
mod jsonc;
mod plan;
mod variables;

mod render;
mod server;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use self::formats::{Confirmation, Confirmations, Position, Source};
use self::plan::{ExistingServers, PlanAction, PlanEntry};
use crate::api_client::ApiClient;
use crate::blocking_input;
use crate::cli::{CommandContext, print};
use crate::config::{ConfigError, WatchedConfig};
use crate::error::CliError;
use crate::terminal::{OutputStyle, one_line};

pub(crate) use formats::ClientFormat;

/// Options of `linchpin import`: files, format, and whether to only show the plan or to skip confirmations.
pub(crate) struct ImportOptions {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) format: Option<ClientFormat>,
    /// Whether to show the plan without applying it.
    pub(crate) dry_run: bool,
    /// Whether to skip all confirmations except those of environment variables.
    pub(crate) yes: bool,
}

/// Server found in a client's file, or the reason why it cannot be imported.
#[derive(Debug)]
struct FoundServer {
    name: String,
    /// File that contains the server, and its path in this file.
    location: String,
    position: Position,
    /// Environment variables that the server refers to and that are set.
    references: Vec<String>,
    imported: Result<server::ImportedServer, String>,
}

/// Imports the servers of client configuration files: the command `linchpin import`. The exit code is 1 if a server
/// could not be imported completely.
pub(crate) async fn run(context: &CommandContext, options: ImportOptions) -> Result<ExitCode, CliError> {
    let sources = formats::sources(&options.files, options.format)?;
    let api = api_if_running(context)?;
    let existing = existing_servers(context, api.as_ref()).await?;
    let can_prompt = io::stdin().is_terminal() && io::stderr().is_terminal() && !context.output.json;
    let mut rows = confirmed_plan(&sources, &existing, can_prompt && !options.dry_run).await?;
    let is_idle = options.dry_run || !rows.iter().any(PlanEntry::has_changes);
    if !is_idle && !options.yes && !can_prompt {
        let text = "no terminal for the confirmation: add --yes, or --dry-run to show the plan";
        return Err(CliError::usage(text));
    }
    if !context.output.json {
        print(&render::render_text(&rows, options.dry_run, OutputStyle::stdout()))?;
    }
    if !is_idle {
        if !options.yes && !confirm_import(&mut rows).await? {
            return Err(CliError::new(
                crate::error::CliErrorKind::Other,
                "import cancelled, nothing was changed",
            ));
        }
        apply_plan(context, api.as_ref(), &mut rows).await?;
    }
    if context.output.json {
        context.output.print_value(&render::render_json(&rows, options.dry_run))?;
    }
    let is_complete = rows.iter().all(|row| row.reason.is_none());
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plans the import, with the environment variables that the user has confirmed. Unchanged servers need no
/// confirmation.
async fn confirmed_plan(
    sources: &[Source],
    existing: &ExistingServers<'_>,
    can_prompt: bool,
) -> Result<Vec<PlanEntry>, CliError> {
    // Read each file only once: a confirmation must not apply to content that is written later.
    let mut contents = Vec::new();
    for source in sources {
        contents.push((source, formats::read(source).await));
    }
    let mut confirmed = Confirmations::new();
    loop {
        let rows = build_plan(&contents, &confirmed, existing).await?;
        // The default of a reference that is not confirmed can change the URL or command: confirm the new target, too.
        let needs_confirmation = |row: &&PlanEntry| {
            let before = confirmed.get(&row.position);
            let is_confirmed = before.is_some_and(|before| before.target == render::exact_target(row));
            row.has_changes() && !row.references.is_empty() && !is_confirmed
        };
        let Some(row) = rows.iter().find(needs_confirmation) else { return Ok(rows) };
        let (names, target) = (confirm_variables(row, can_prompt).await?, render::exact_target(row));
        confirmed.insert(row.position, Confirmation { names, target });
    }
}

async fn build_plan(
    contents: &[(&Source, Result<Value, ConfigError>)],
    confirmed: &Confirmations,
    existing: &ExistingServers<'_>,
) -> Result<Vec<PlanEntry>, CliError> {
    let (mut found, mut rows) = (Vec::new(), Vec::new());
    for (index, (source, content)) in contents.iter().enumerate() {
        let content = content.clone();
        match content.and_then(|content| formats::read_servers(source, index, content, confirmed)) {
            Ok(servers) => found.extend(servers),
            Err(problem) => {
                let path = source.path.display().to_string();
                let name = source.path.file_name().map(|name| name.to_string_lossy().into_owned());
                rows.push(PlanEntry::skipped(name.unwrap_or_default(), path, problem.to_string()));
            }
        }
    }
    rows.extend(plan::plan(found, existing).await?);
    Ok(rows)
}

/// Asks the user to confirm each environment variable of a server, because the file may come from others. Without a
/// terminal, none is confirmed.
async fn confirm_variables(row: &PlanEntry, can_prompt: bool) -> Result<BTreeSet<String>, CliError> {
    let mut names = BTreeSet::new();
    for name in row.references.iter().filter(|_| can_prompt) {
        let (server, to) = (one_line(&row.name), render::target_line(row).unwrap_or_default());
        let name = one_line(name);
        let prompt = format!(
            "Allow `{server}` to read your environment variable `{name}`? Its value is passed to:\n  {to}\n"
        );
        if confirm_prompt(&prompt).await? {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Returns a REST client if a local hub runs or `--hub` names one.
fn api_if_running(context: &CommandContext) -> Result<Option<ApiClient>, CliError> {
    let is_stored = context.hub.is_some() || context.paths()?.running().is_some();
    is_stored.then(|| context.api()).transpose()
}

async fn existing_servers<'a>(
    context: &CommandContext,
    api: Option<&'a ApiClient>,
) -> Result<ExistingServers<'a>, CliError> {
    let file = match context.hub {
        Some(_) => None,
        None => Some(WatchedConfig::open(context.paths()?.config)?.config().servers.clone()),
    };
    let hub = match api {
        Some(api) => Some(api.list("/servers", usize::MAX).await?),
        None => None,
    };
    Ok(ExistingServers { file, hub, api })
}

/// Asks the user to confirm the import, and for each server whether the hub may start it or connect to it.
async fn confirm_import(rows: &mut [PlanEntry]) -> Result<bool, CliError> {
    let count = rows.iter().filter(|row| row.has_changes()).count();
    if !confirm_prompt(&format!("Import {count} server(s)?")).await? {
        return Ok(false);
    }
    for row in rows.iter_mut().filter(|row| row.has_changes() && row.needs_approval()) {
        let is_disabled = row.imported.as_ref().is_some_and(|imported| imported.is_disabled);
        let (Some(slug), false) = (&row.slug, is_disabled) else { continue };
        let prompt = match (render::command_line(row), render::remote_line(row)) {
            (Some(command), _) => format!("Allow the hub to start `{}`?\n  {command}\n", slug.as_str()),
            (None, Some(address)) => {
                format!("Allow the hub to connect to `{}`?\n  {address}\n", slug.as_str())
            }
            (None, None) => continue,
        };
        row.is_confirmed = confirm_prompt(&prompt).await?;
    }
    Ok(true)
}

async fn confirm_prompt(prompt: &str) -> Result<bool, CliError> {
    let _ = write!(io::stderr(), "{prompt} [y/N] "); // fails only if the terminal is gone
    Ok(matches!(blocking_input::read_line().await?.trim(), "y" | "Y" | "yes"))
}

/// Applies the plan and prints the result of each server. An error of one server does not affect the others.
async fn apply_plan(
    context: &CommandContext,
    api: Option<&ApiClient>,
    rows: &mut [PlanEntry],
) -> Result<(), CliError> {
    for row in rows.iter_mut().filter(|row| row.has_changes()) {
        let name = row.slug.as_ref().map_or_else(String::new, |slug| slug.as_str().to_owned());
        let mut is_stored = false;
        let done = apply::apply_server(context, api, row, &mut is_stored).await;
        let mut message = if row.action == PlanAction::Add {
            format!("server `{name}` added")
        } else {
            format!("server `{name}` updated")
        };
        if let Err(failure) = done {
            row.reason = Some(failure.to_string());
            if is_stored {
                let _ = write!(message, ", but not completely: {failure}; import it again");
            } else {
                row.action = PlanAction::Skip;
                message = format!("server `{name}` not imported: {failure}");
            }
        }
        if row.needs_approval() && !row.is_confirmed {
            let _ = write!(message, "; it is disabled: enable it with `linchpin server enable {name}`");
        }
        if row.has_changes() {
            message.extend(render::missing_secret_hints(row).iter().map(|text| format!("; {text}")));
        }
        if !context.output.json {
            print(&format!("{message}\n"))?;
        }
    }
    Ok(())
}

//! Import of servers from the configuration files of other clients.
//!
//! [`formats`] finds the servers in the files ([`jsonc`]), [`server`] reads each one ([`refer`]), [`plan`] compares
//! them with the existing servers, [`show`] renders the plan, and [`act`] applies it.

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

use self::formats::{Confirmation, Confirmed, Position, Source};
use self::plan::{Known, Row, Step};
use crate::api_client::Api;
use crate::blocking_input;
use crate::cli::{Asked, print};
use crate::config::{Problem, Watched};
use crate::error::Failure;
use crate::terminal::{Look, one_line};

pub(crate) use formats::Format;

/// Options of an import.
pub(crate) struct Options {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) format: Option<Format>,
    /// Shows the plan without applying it.
    pub(crate) dry_run: bool,
    /// Skips all confirmations except those of environment variables.
    pub(crate) yes: bool,
}

/// Server found in a file, or the reason why it cannot be imported.
#[derive(Debug)]
struct Found {
    name: String,
    /// File and path of the server in it.
    place: String,
    position: Position,
    /// Environment variables that it refers to and that are set.
    references: Vec<String>,
    wanted: Result<server::Wanted, String>,
}

/// Imports the servers of the files. The exit code is 1 if a server could not be imported completely.
pub(crate) async fn run(asked: &Asked, options: Options) -> Result<ExitCode, Failure> {
    let sources = formats::sources(&options.files, options.format)?;
    let api = api(asked)?;
    let known = known(asked, api.as_ref()).await?;
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal() && !asked.output.json;
    let mut rows = confirmed_rows(&sources, &known, can_ask && !options.dry_run).await?;
    let is_idle = options.dry_run || !rows.iter().any(Row::is_open);
    if !is_idle && !options.yes && !can_ask {
        let text = "no terminal for the confirmation: add --yes, or --dry-run to show the plan";
        return Err(Failure::usage(text));
    }
    if !asked.output.json {
        print(&render::text(&rows, options.dry_run, Look::stdout()))?;
    }
    if !is_idle {
        if !options.yes && !ask(&mut rows).await? {
            return Err(Failure::new(crate::error::Kind::Other, "import cancelled, nothing was changed"));
        }
        work(asked, api.as_ref(), &mut rows).await?;
    }
    if asked.output.json {
        asked.output.value(&render::json(&rows, options.dry_run))?;
    }
    let is_whole = rows.iter().all(|row| row.reason.is_none());
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plans the import, with the environment variables that the user has confirmed. Unchanged servers need no
/// confirmation.
async fn confirmed_rows(sources: &[Source], known: &Known<'_>, can_ask: bool) -> Result<Vec<Row>, Failure> {
    // Read each file only once: a confirmation must not apply to content that is written later.
    let mut contents = Vec::new();
    for source in sources {
        contents.push((source, formats::read(source).await));
    }
    let mut confirmed = Confirmed::new();
    loop {
        let rows = rows(&contents, &confirmed, known).await?;
        // The default of a reference that is not confirmed can change the URL or command: confirm the new target, too.
        let needs = |row: &&Row| {
            let before = confirmed.get(&row.position);
            let is_confirmed = before.is_some_and(|before| before.target == render::target(row));
            row.is_open() && !row.references.is_empty() && !is_confirmed
        };
        let Some(row) = rows.iter().find(needs) else { return Ok(rows) };
        let (names, target) = (confirm(row, can_ask).await?, render::target(row));
        confirmed.insert(row.position, Confirmation { names, target });
    }
}

async fn rows(
    contents: &[(&Source, Result<Value, Problem>)],
    confirmed: &Confirmed,
    known: &Known<'_>,
) -> Result<Vec<Row>, Failure> {
    let (mut found, mut rows) = (Vec::new(), Vec::new());
    for (index, (source, content)) in contents.iter().enumerate() {
        let content = content.clone();
        match content.and_then(|content| formats::found(source, index, content, confirmed)) {
            Ok(servers) => found.extend(servers),
            Err(problem) => {
                let path = source.path.display().to_string();
                let name = source.path.file_name().map(|name| name.to_string_lossy().into_owned());
                rows.push(Row::left_out(name.unwrap_or_default(), path, problem.to_string()));
            }
        }
    }
    rows.extend(plan::plan(found, known).await?);
    Ok(rows)
}

/// Asks the user to confirm each environment variable of a server, because the file may come from others. Without a
/// terminal, none is confirmed.
async fn confirm(row: &Row, can_ask: bool) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    for name in row.references.iter().filter(|_| can_ask) {
        let (server, to) = (one_line(&row.name), render::destination(row).unwrap_or_default());
        let name = one_line(name);
        let question = format!(
            "Allow `{server}` to read your environment variable `{name}`? Its value is passed to:\n  {to}\n"
        );
        if is_yes(&question).await? {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Returns a REST client if a hub runs or was named.
fn api(asked: &Asked) -> Result<Option<Api>, Failure> {
    let is_there = asked.hub.is_some() || asked.place()?.running().is_some();
    is_there.then(|| asked.api()).transpose()
}

async fn known<'a>(asked: &Asked, api: Option<&'a Api>) -> Result<Known<'a>, Failure> {
    let file = match asked.hub {
        Some(_) => None,
        None => Some(Watched::open(asked.place()?.config)?.config().servers.clone()),
    };
    let hub = match api {
        Some(api) => Some(api.list("/servers", usize::MAX).await?),
        None => None,
    };
    Ok(Known { file, hub, api })
}

/// Asks the user to confirm the import, and for each server whether the hub may start it or connect to it.
async fn ask(rows: &mut [Row]) -> Result<bool, Failure> {
    let count = rows.iter().filter(|row| row.is_open()).count();
    if !is_yes(&format!("Import {count} server(s)?")).await? {
        return Ok(false);
    }
    for row in rows.iter_mut().filter(|row| row.is_open() && row.needs_enabling()) {
        let is_disabled = row.wanted.as_ref().is_some_and(|wanted| wanted.is_disabled);
        let (Some(slug), false) = (&row.slug, is_disabled) else { continue };
        let question = match (render::command(row), render::remote(row)) {
            (Some(command), _) => format!("Allow the hub to start `{}`?\n  {command}\n", slug.as_str()),
            (None, Some(place)) => format!("Allow the hub to connect to `{}`?\n  {place}\n", slug.as_str()),
            (None, None) => continue,
        };
        row.is_confirmed = is_yes(&question).await?;
    }
    Ok(true)
}

async fn is_yes(question: &str) -> Result<bool, Failure> {
    let _ = write!(io::stderr(), "{question} [y/N] "); // fails only if the terminal is gone
    Ok(matches!(blocking_input::line().await?.trim(), "y" | "Y" | "yes"))
}

/// Applies the plan and prints the result of each server. An error of one server does not affect the others.
async fn work(asked: &Asked, api: Option<&Api>, rows: &mut [Row]) -> Result<(), Failure> {
    for row in rows.iter_mut().filter(|row| row.is_open()) {
        let name = row.slug.as_ref().map_or_else(String::new, |slug| slug.as_str().to_owned());
        let mut is_there = false;
        let done = apply::act(asked, api, row, &mut is_there).await;
        let mut said = if row.step == Step::Added {
            format!("server `{name}` added")
        } else {
            format!("server `{name}` updated")
        };
        if let Err(failure) = done {
            row.reason = Some(failure.to_string());
            if is_there {
                let _ = write!(said, ", but not completely: {failure}; import it again");
            } else {
                row.step = Step::LeftOut;
                said = format!("server `{name}` not imported: {failure}");
            }
        }
        if row.needs_enabling() && !row.is_confirmed {
            let _ = write!(said, "; it is disabled: enable it with `linchpin server enable {name}`");
        }
        if row.is_open() {
            said.extend(render::missing(row).iter().map(|text| format!("; {text}")));
        }
        if !asked.output.json {
            print(&format!("{said}\n"))?;
        }
    }
    Ok(())
}

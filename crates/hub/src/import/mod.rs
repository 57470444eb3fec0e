//! `linchpin import`: the servers of files that people already have.
//!
//! [`formats`] finds them in the files ([`jsonc`]), [`server`] reads each ([`refer`]), [`plan`] says what becomes of
//! them, [`show`] shows it, and [`act`] does it.

mod act;
mod formats;
mod jsonc;
mod plan;
mod refer;

mod server;
mod show;

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::apart;
use crate::api::Api;
use crate::cli::{Asked, print};
use crate::config::Watched;
use crate::failure::Failure;
use crate::terminal::Look;
use plan::{Known, Row, Step};

pub(crate) use formats::Format;

/// What is to be imported, and how.
pub(crate) struct Options {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) format: Option<Format>,
    /// Only show it.
    pub(crate) dry_run: bool,
    /// Ask nobody.
    pub(crate) yes: bool,
}

/// A server that stands in a file, or why it cannot be taken over.
#[derive(Debug)]
struct Found {
    name: String,
    /// The file, and where in it.
    place: String,
    wanted: Result<server::Wanted, String>,
}

/// Imports what the files have. It fails if a server is left out.
pub(crate) async fn run(asked: &Asked, options: Options) -> Result<ExitCode, Failure> {
    let (mut found, mut rows) = (Vec::new(), Vec::new());
    for source in formats::sources(&options.files, options.format)? {
        match formats::read(&source).await {
            Ok(servers) => found.extend(servers),
            Err(problem) => {
                let path = source.path.display().to_string();
                let name = source.path.file_name().map(|name| name.to_string_lossy().into_owned());
                rows.push(Row::left_out(name.unwrap_or_default(), path, problem.to_string()));
            }
        }
    }
    let api = api(asked)?;
    let known = known(asked, api.as_ref()).await?;
    rows.extend(plan::plan(found, &known).await?);
    let is_idle = options.dry_run || !rows.iter().any(Row::is_open);
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal() && !asked.output.json;
    if !is_idle && !options.yes && !can_ask {
        let text = "nobody is there to be asked: give --yes, or --dry-run to see what it would do";
        return Err(Failure::usage(text));
    }
    if !asked.output.json {
        print(&show::text(&rows, options.dry_run, Look::stdout()))?;
    }
    if !is_idle {
        if !options.yes && !ask(&mut rows).await? {
            return Err(Failure::new(crate::failure::Kind::Other, "nothing is imported"));
        }
        work(asked, api.as_ref(), &mut rows).await?;
    }
    if asked.output.json {
        asked.output.value(&show::json(&rows, options.dry_run))?;
    }
    let is_whole = rows.iter().all(|row| row.reason.is_none());
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The hub, if one runs or was named.
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

/// Asks whether to go on, and of each program whether it may be started.
async fn ask(rows: &mut [Row]) -> Result<bool, Failure> {
    let count = rows.iter().filter(|row| row.is_open()).count();
    if !is_yes(&format!("Import {count} of them?")).await? {
        return Ok(false);
    }
    for row in rows.iter_mut().filter(|row| row.is_new_program()) {
        let is_disabled = row.wanted.as_ref().is_some_and(|wanted| wanted.is_disabled);
        let (Some(command), Some(slug), false) = (show::command(row), &row.slug, is_disabled) else {
            continue;
        };
        row.is_confirmed = is_yes(&format!("May the hub start `{}`?\n  {command}\n", slug.as_str())).await?;
    }
    Ok(true)
}

async fn is_yes(question: &str) -> Result<bool, Failure> {
    let _ = write!(io::stderr(), "{question} [y/N] "); // nobody is left to be asked
    Ok(matches!(apart::line().await?.trim(), "y" | "Y" | "yes"))
}

/// Does what was planned, and says what came of each. What cannot be done for one is done for all others.
async fn work(asked: &Asked, api: Option<&Api>, rows: &mut [Row]) -> Result<(), Failure> {
    for row in rows.iter_mut().filter(|row| row.is_open()) {
        let name = row.slug.as_ref().map_or_else(String::new, |slug| slug.as_str().to_owned());
        let mut is_there = false;
        let done = act::act(asked, api, row, &mut is_there).await;
        let mut said = if row.step == Step::Added {
            format!("`{name}` is added")
        } else {
            format!("`{name}` is changed")
        };
        if let Err(failure) = done {
            row.reason = Some(failure.to_string());
            if is_there {
                let _ = write!(said, ", but not all of it could be done: {failure}; import it again");
            } else {
                row.step = Step::LeftOut;
                said = format!("`{name}` is left out: {failure}");
            }
        }
        if row.is_new_program() && !row.is_confirmed {
            let _ = write!(said, "; it is not started before you say so: `linchpin server enable {name}`");
        }
        if row.is_open() {
            said.extend(show::missing(row).iter().map(|text| format!("; {text}")));
        }
        if !asked.output.json {
            print(&format!("{said}\n"))?;
        }
    }
    Ok(())
}

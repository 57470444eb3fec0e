//! The command line.

use std::io::{self, Write};

use anyhow::anyhow;
use clap::{ArgAction, Parser, Subcommand};

use crate::{demo, report};

/// The Model Context Protocol hub.
///
/// Without a command it starts the built-in demo server in memory, connects to it and shows what it found.
#[derive(Parser)]
#[command(name = "linchpin", version, about)]
pub(crate) struct Cli {
    /// Say more on standard error; twice for details, three times for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the built-in demo server on standard input and output
    Demo,
}

pub(crate) async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        None => show_report(cli.json).await,
        Some(Command::Demo) => demo::server().run().await.map_err(from_linchpin),
    }
}

async fn show_report(json: bool) -> anyhow::Result<()> {
    let report = report::collect(demo::server()).await?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", report.to_json())?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(out.flush()?)
}

/// `linchpin::Error` takes in any error and so cannot be one itself.
pub(crate) fn from_linchpin(error: linchpin::Error) -> anyhow::Error {
    anyhow!(Box::<dyn std::error::Error + Send + Sync>::from(error))
}

//! The command line.

use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::{ArgAction, Args, Parser, Subcommand};

use crate::failure::Failure;
use crate::process::Process;
use crate::terminal::Screen;
use crate::{call, demo, inspect, report};

/// The Model Context Protocol hub.
///
/// Without a command it starts the built-in demo server in memory, connects to it and shows what it found.
#[derive(Parser)]
#[command(name = "linchpin", version, about)]
pub(crate) struct Cli {
    /// Say more on standard error; twice for details, three times for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the built-in demo server on standard input and output
    Demo,
    /// Start a server and show what it offers
    ///
    /// Example: linchpin inspect npx -y @modelcontextprotocol/server-everything
    Inspect(Target),
    /// Start a server and call one of its tools
    ///
    /// Example: linchpin call add --args '{"a": 2, "b": 40}' -- linchpin demo
    Call {
        /// The name of the tool
        tool: String,

        /// The tool's arguments: a JSON object, @FILE to read it from a file, - to read it from standard
        /// input
        #[arg(long, value_name = "JSON", default_value = "{}")]
        args: String,

        /// Answer a field of a form that the server shows; may be given again
        #[arg(long = "answer", value_name = "FIELD=VALUE", value_parser = call::parse_answer)]
        answers: Vec<(String, String)>,

        #[command(flatten)]
        target: Target,
    },
}

#[derive(Args)]
struct Target {
    /// Seconds that the server may take to answer; signs of progress give it more, up to ten times as long
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    timeout: NonZeroU32,

    /// The command that starts the server, as you would type it; everything after its name is the server's
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Cli {
    /// What is logged unless something else is said. Of a server that is tried out the mistakes are shown in
    /// other words.
    pub(crate) fn log_level(&self) -> &'static str {
        match (self.verbose, &self.command) {
            (0, Some(Command::Inspect(_) | Command::Call { .. })) => "error",
            (0, _) => "warn",
            (1, _) => "info",
            (2, _) => "debug",
            _ => "trace",
        }
    }
}

impl Target {
    fn process(self, verbose: bool) -> Process {
        let timeout = Duration::from_secs(self.timeout.get().into());
        Process { command: self.command, timeout, verbose, screen: Arc::new(Screen::new()) }
    }
}

pub(crate) async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let (json, verbose) = (cli.json, cli.verbose > 0);
    match cli.command {
        None => show_report(json).await?,
        Some(Command::Demo) => demo::server().run().await.map_err(from_linchpin)?,
        Some(Command::Inspect(target)) => inspect::run(target.process(verbose), json).await?,
        Some(Command::Call { tool, args, answers, target }) => {
            let options = call::Options { tool, args, answers, json };
            return call::run(target.process(verbose), options).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_report(json: bool) -> anyhow::Result<()> {
    let report = report::collect(demo::server()).await?;
    print(&if json { format!("{}\n", report.to_json()) } else { report.to_string() })?;
    Ok(())
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// `linchpin::Error` takes in any error and so cannot be one itself.
pub(crate) fn from_linchpin(error: linchpin::Error) -> anyhow::Error {
    anyhow!(Box::<dyn std::error::Error + Send + Sync>::from(error))
}

//! The command line.

use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::{ArgAction, Args, Parser, Subcommand};

use serde_json::json;

use crate::failure::Failure;
use crate::target::{Place, Target};
use crate::terminal::Screen;
use crate::{call, demo, doctor, inspect, report, sign_in};

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
    /// Serve the built-in demo server on standard input and output, or over HTTP
    Demo {
        /// Serve clients of every revision at the path /mcp of this address, such as 127.0.0.1:8080
        #[arg(long, value_name = "ADDRESS")]
        http: Option<String>,
    },
    /// Start or reach a server and show what it offers
    ///
    /// Example: linchpin inspect npx -y @modelcontextprotocol/server-everything
    Inspect(Server),
    /// Start or reach a server and call one of its tools
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
        server: Server,
    },
    /// Show step by step how the connection to a server comes about, and what to do where it fails
    ///
    /// Example: linchpin doctor npx -y @modelcontextprotocol/server-everything
    Doctor(Server),
    /// Forget the sign-in to a server, and give its token back
    SignOut {
        /// The id of the client, if the sign-in was made with one
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,

        /// The URL of the server
        url: String,
    },
}

#[derive(Args)]
struct Server {
    /// Seconds that the server may take to answer; signs of progress give it more, up to ten times as long
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    timeout: NonZeroU32,

    /// A header for every request to a URL, such as 'Authorization: Bearer …'; may be given again
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,

    #[command(flatten)]
    sign_in: SignIn,

    /// The URL of the server, or the command that starts it, as you would type it; everything after the command's
    /// name is the server's
    #[arg(trailing_var_arg = true, required = true, value_name = "URL|COMMAND")]
    place: Vec<OsString>,
}

/// How to sign in to a URL.
#[derive(Args)]
pub(crate) struct SignIn {
    /// Sign in when the server wants that, also where no terminal shows the URL to open
    #[arg(long = "sign-in")]
    pub(crate) ask: bool,

    /// The id of a client that was registered for this by hand
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,

    /// The file that holds the secret of that client
    #[arg(long, value_name = "FILE", requires = "client_id")]
    pub(crate) client_secret_file: Option<PathBuf>,

    /// Ask for this scope; may be given again
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,

    /// The port that the browser comes back to, http://127.0.0.1:PORT/callback, for clients that were registered with it
    #[arg(long, value_name = "PORT", default_value = "0")]
    pub(crate) redirect_port: u16,
}

impl Cli {
    /// What is logged unless something else is said. Of a server that is tried out the mistakes are shown in
    /// other words.
    pub(crate) fn log_level(&self) -> &'static str {
        match (self.verbose, &self.command) {
            (0, Some(Command::Inspect(_) | Command::Call { .. } | Command::Doctor(_))) => "error",
            (0, _) => "warn",
            (1, _) => "info",
            (2, _) => "debug",
            _ => "trace",
        }
    }
}

impl Server {
    fn target(self, verbose: bool) -> Result<Target, Failure> {
        let timeout = Duration::from_secs(self.timeout.get().into());
        let place = Place::parse(self.place, self.headers)?;
        let screen = Arc::new(Screen::new());
        Ok(Target { place, timeout, verbose, screen, sign_in: self.sign_in, trace: None })
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written as NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let (json, verbose) = (cli.json, cli.verbose > 0);
    match cli.command {
        None => show_report(json).await?,
        Some(Command::Demo { http: None }) => demo::server().run().await.map_err(from_linchpin)?,
        Some(Command::Demo { http: Some(address) }) => serve_demo(&address, json).await?,
        Some(Command::Inspect(server)) => inspect::run(server.target(verbose)?, json).await?,
        Some(Command::Call { tool, args, answers, server }) => {
            let options = call::Options { tool, args, answers, json };
            return call::run(server.target(verbose)?, options).await;
        }
        Some(Command::Doctor(server)) => return doctor::run(server.target(verbose)?, json).await,
        Some(Command::SignOut { url, client_id }) => sign_in::sign_out(&url, client_id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves the demo server over HTTP until the program is asked to end.
async fn serve_demo(address: &str, json: bool) -> Result<(), Failure> {
    let bound = demo::server().http().legacy_sse().bind(address).await;
    let endpoint = bound.map_err(|error| Failure::from(from_linchpin(error)).during(address))?;
    let url = endpoint.url();
    print(&if json { format!("{}\n", json!({ "url": url })) } else { format!("{url}\n") })?;
    Ok(endpoint.run().await.map_err(from_linchpin)?)
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

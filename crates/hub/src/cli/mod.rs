//! The command line: what can be typed. One file for each noun of the hub.

pub(crate) mod agent;
mod approvals;
mod audit;
mod backup;
mod calls;
mod duration;
mod export;
mod import;
mod key;
mod offers;
mod output;
mod server;
mod token;
mod tool;
mod tried;
mod user;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use linchpin::Revision;
use serde_json::json;

use crate::api::Api;
use crate::config::{Place, Typed, variable};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::{call, demo, doctor, inspect, serve, sign_in};
use output::Output;
use tried::{Examined, Tried};

pub(crate) use server::taken_over;
pub(crate) use tried::SignIn;

/// The Model Context Protocol hub.
///
/// Without a command it serves: it prints one URL, where you see the servers, their tools and every call.
#[derive(Parser)]
#[command(name = "linchpin", version, about)]
pub(crate) struct Cli {
    /// Say more on standard error; twice for details, three times for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    /// Print one JSON value instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    place: Typed,

    /// The URL of a hub elsewhere; its token is taken from the variable `LINCHPIN_TOKEN`
    #[arg(long, global = true, value_name = "URL", help_heading = "Where the hub is")]
    hub: Option<String>,

    #[command(flatten)]
    serve: serve::Options,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve: the same as without a command
    Serve(serve::Options),
    /// Servers that the hub connects to
    Server {
        #[command(subcommand)]
        command: server::Command,
    },
    /// Tools of all servers
    Tool {
        #[command(subcommand)]
        command: tool::Command,
    },
    /// Resources of servers
    Resource {
        #[command(subcommand)]
        command: offers::Resource,
    },
    /// Prompts of servers
    Prompt {
        #[command(subcommand)]
        command: offers::Prompt,
    },
    /// Programs that act for people, within what they allow
    Agent {
        #[command(subcommand)]
        command: agent::Command,
    },
    /// Calls that wait for a yes or no
    Approvals {
        #[command(subcommand)]
        command: Option<approvals::Command>,
    },
    /// Calls that were made
    Calls {
        #[command(subcommand)]
        command: Option<calls::Command>,
    },
    /// The record of everything that was done and decided
    Audit {
        #[command(subcommand)]
        command: audit::Command,
    },
    /// Tokens by which agents and programs ask the hub
    Token {
        #[command(subcommand)]
        command: token::Command,
    },
    /// People
    User {
        #[command(subcommand)]
        command: user::Command,
    },
    /// Print a new link that signs in to the page of the running hub
    ///
    /// Only on the machine of the hub. The link works once, within 15 minutes.
    LoginLink,
    /// The key that everything is sealed with
    Key {
        #[command(subcommand)]
        command: key::Command,
    },
    /// Write everything that the hub keeps into one file
    ///
    /// A hub may run meanwhile. Secrets stay sealed in it. Example: linchpin backup hub.backup
    Backup(backup::Backup),
    /// Take over everything from a backup, into a data directory or a database that is empty
    ///
    /// The file is checked before anything is written, and the audit after. The exit code is 1 if the audit is not whole.
    /// Example: linchpin --data-dir /srv/hub restore hub.backup
    Restore(backup::Restore),
    /// Import the servers of Claude Desktop, Claude Code, Cursor or VS Code
    ///
    /// Example: linchpin import ~/.cursor/mcp.json --dry-run
    Import(import::Import),
    /// Print the tools that can be called, in the format of a provider of models
    ///
    /// Example: linchpin export anthropic --agent Helper
    Export(export::Export),
    /// Print what a shell needs to complete these commands
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Serve the built-in demo server on standard input and output, or over HTTP
    Demo {
        /// Serve clients of every revision at the path /mcp of this address, such as 127.0.0.1:8080
        #[arg(long, value_name = "ADDRESS")]
        http: Option<String>,
    },
    /// Start or reach a server and show what it offers
    ///
    /// Example: linchpin inspect npx -y @modelcontextprotocol/server-everything
    Inspect(Tried),
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
        server: Tried,
    },
    /// Show step by step how the connection to a server comes about, and what to do where it fails
    ///
    /// Example: linchpin doctor npx -y @modelcontextprotocol/server-everything
    Doctor(Examined),
    /// Forget the sign-in to a server, and give its token back
    SignOut {
        /// The id of the client, if the sign-in was made with one
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,

        /// The URL of the server
        url: String,
    },
}

/// What every command about the hub needs.
pub(crate) struct Asked {
    place: Typed,
    pub(crate) hub: Option<String>,
    pub(crate) output: Output,
}

impl Asked {
    /// The hub that runs.
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        Api::find(&self.place, self.hub.as_deref())
    }

    /// Where everything is.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        Place::find(&self.place, &variable)
    }
}

impl Cli {
    /// What is logged unless something else is said. Of a server that is tried out the mistakes are shown in
    /// other words.
    pub(crate) fn log_level(&self) -> &'static str {
        match (self.verbose, &self.command) {
            (0, Some(Command::Inspect(_) | Command::Call { .. } | Command::Doctor(_))) => "error",
            // The hub lets go of connections all the time, and the client warns of each.
            (0, None | Some(Command::Serve(_))) => "info,linchpin::client::subscription=error",
            (0, _) => "warn",
            (1, None | Some(Command::Serve(_))) | (2, _) => "debug",
            (1, _) => "info",
            _ => "trace",
        }
    }
}

impl Cli {
    /// Whether it is the hub itself.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.command, None | Some(Command::Serve(_)))
    }

    /// How the log is written.
    pub(crate) fn log(&self) -> Option<serve::Log> {
        match &self.command {
            Some(Command::Serve(options)) => options.log.or(self.serve.log),
            _ => self.serve.log,
        }
    }
}

/// `name=value`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is written as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_revision(text: &str) -> Result<Revision, String> {
    text.parse::<Revision>().map_err(|error| error.to_string())
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written as NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let (json, verbose, is_serving) = (cli.json, cli.verbose > 0, cli.is_serving());
    let asked = Asked { place: cli.place, hub: cli.hub, output: Output { json } };
    if !is_serving && cli.serve != serve::Options::default() {
        return Err(Failure::usage(
            "--listen, --ready-file, --log and --audit-durability are for serving: give no other command",
        ));
    }
    match cli.command {
        None => serve::run(&asked.place, cli.serve, json).await?,
        Some(Command::Serve(options)) => serve::run(&asked.place, options.or(cli.serve), json).await?,
        Some(Command::Server { command }) => ended(server::run(&asked, command)).await?,
        Some(Command::Tool { command }) => return ended(tool::run(&asked, command)).await,
        Some(Command::Resource { command }) => ended(offers::resource(&asked, command)).await?,
        Some(Command::Prompt { command }) => ended(offers::prompt(&asked, command)).await?,
        Some(Command::Agent { command }) => ended(agent::run(&asked, command)).await?,
        Some(Command::Approvals { command }) => ended(approvals::run(&asked, command)).await?,
        Some(Command::Calls { command }) => ended(calls::run(&asked, command)).await?,
        Some(Command::Audit { command }) => return ended(audit::run(&asked, command)).await,
        Some(Command::Token { command }) => ended(token::run(&asked, command)).await?,
        Some(Command::User { command }) => ended(user::run(&asked, command)).await?,
        Some(Command::LoginLink) => ended(login_link(&asked)).await?,
        Some(Command::Key { command }) => ended(key::run(&asked, &command)).await?,
        Some(Command::Backup(what)) => ended(backup::backup(&asked, what)).await?,
        Some(Command::Restore(what)) => return ended(backup::restore(&asked, what)).await,
        Some(Command::Import(files)) => return ended(import::run(&asked, files)).await,
        Some(Command::Export(what)) => ended(export::run(&asked, what)).await?,
        Some(Command::Completions { shell }) => complete(shell)?,
        Some(Command::Demo { http: None }) => demo::server().run().await.map_err(from_linchpin)?,
        Some(Command::Demo { http: Some(address) }) => serve_demo(&address, json).await?,
        Some(Command::Inspect(server)) => inspect::run(server.target(verbose)?, json).await?,
        Some(Command::Call { tool, args, answers, server }) => {
            let options = call::Options { tool, args, answers, json };
            return call::run(server.target(verbose)?, options).await;
        }
        Some(Command::Doctor(Examined { server: Some(server), agent, .. })) => {
            return ended(doctor::examine(&asked, &server, agent.as_deref())).await;
        }
        Some(Command::Doctor(examined)) => return doctor::run(examined.tried.target(verbose)?, json).await,
        Some(Command::SignOut { url, client_id }) => sign_in::sign_out(&url, client_id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a one-time sign-in link.
async fn login_link(asked: &Asked) -> Result<(), Failure> {
    let link = asked.api()?.ask("/session/links").await?;
    Ok(asked.output.done(&link, &crate::terminal::clean(link["url"].as_str().unwrap_or_default()))?)
}

/// The work's result, unless a signal comes first.
async fn ended<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    Signals::new()?.or(Box::pin(work)).await?
}

/// What a shell needs, on standard output.
fn complete(shell: clap_complete::Shell) -> io::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "linchpin", &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Serves the demo server over HTTP until the program is asked to end.
async fn serve_demo(address: &str, json: bool) -> Result<(), Failure> {
    let bound = demo::server().http().legacy_sse().bind(address).await;
    let endpoint = bound.map_err(from_linchpin)?;
    let url = endpoint.url();
    print(&if json { format!("{}\n", json!({ "url": url })) } else { format!("{url}\n") })?;
    Ok(endpoint.run().await.map_err(from_linchpin)?)
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

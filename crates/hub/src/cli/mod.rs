//! Command line of `linchpin`: arguments and dispatch. Each noun of the hub has a file of its own.

pub(crate) mod agent;
mod approval_rule;
mod approvals;
mod audit;
mod audit_export;
mod backup;
mod calls;
mod duration;
mod export;
mod gateway;
mod import;
mod key;
mod output;
mod prompt;
mod resource;
mod server;
mod target_args;
mod token;
mod tool;
mod tool_call;
mod user;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use linchpin::Revision;
use serde_json::json;

use self::output::Output;
use self::target_args::{DoctorArgs, TargetArgs};
use crate::api_client::ApiClient;
use crate::config::{HubPaths, LocationArgs, env_variable};
use crate::error::CliError;
use crate::signals::Signals;
use crate::{call, demo, doctor, inspect, serve, sign_in};

pub(crate) use server::wait_until_applied;
pub(crate) use target_args::SignInArgs;

/// Model Context Protocol hub
///
/// Without a command, `linchpin` runs the hub and prints the URL of its web page, which shows servers, tools and calls.
#[derive(Parser)]
#[command(name = "linchpin", version, about)]
pub(crate) struct Cli {
    /// Increase log verbosity; repeatable (-v, -vv, -vvv)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    /// Print one JSON value instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    location: LocationArgs,

    /// URL of a remote hub; the API token is read from `$LINCHPIN_TOKEN`
    #[arg(long, global = true, value_name = "URL", help_heading = "Hub location")]
    hub: Option<String>,

    #[command(flatten)]
    serve: serve::ServeOptions,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the hub (default without a command)
    Serve(serve::ServeOptions),
    /// Manage servers
    Server {
        #[command(subcommand)]
        command: server::Command,
    },
    /// List, describe, call and trust tools
    Tool {
        #[command(subcommand)]
        command: tool::Command,
    },
    /// List and read resources of servers
    Resource {
        #[command(subcommand)]
        command: resource::Command,
    },
    /// List and render prompts of servers
    Prompt {
        #[command(subcommand)]
        command: prompt::Command,
    },
    /// Manage agents
    Agent {
        #[command(subcommand)]
        command: agent::Command,
    },
    /// List, approve and deny calls that require approval
    Approvals {
        #[command(subcommand)]
        command: Option<approvals::Command>,
    },
    /// Manage approval rules: approvals that cover later calls of an agent
    ApprovalRule {
        #[command(subcommand)]
        command: approval_rule::Command,
    },
    /// List, show and cancel calls
    Calls {
        #[command(subcommand)]
        command: Option<calls::Command>,
    },
    /// Verify and export the audit log
    Audit {
        #[command(subcommand)]
        command: audit::Command,
    },
    /// Manage your API tokens and those of agents
    Token {
        #[command(subcommand)]
        command: token::Command,
    },
    /// Manage users
    User {
        #[command(subcommand)]
        command: user::Command,
    },
    /// Create a one-time login link for the web page of the running hub
    ///
    /// Works only on the machine of the hub. The link expires after 15 minutes.
    LoginLink,
    /// Manage the root encryption key
    Key {
        #[command(subcommand)]
        command: key::Command,
    },
    /// Back up the database of the hub to one file
    ///
    /// The hub may be running. Secrets stay encrypted. The key file, the configuration file and the audit segments are
    /// not in it: copy them separately. Example: linchpin backup hub.backup
    Backup(backup::Backup),
    /// Restore a backup into an empty data directory or database
    ///
    /// Verifies the file before anything is written, and the audit log afterwards. Exits with 1 if the audit log is not
    /// intact. Example: linchpin --data-dir /srv/hub restore hub.backup
    Restore(backup::Restore),
    /// Import servers from Claude Desktop, Claude Code, Cursor or VS Code
    ///
    /// Example: linchpin import ~/.cursor/mcp.json --dry-run
    Import(import::Import),
    /// Print callable tools in the format of a model provider, or servers in the format of a client
    ///
    /// Example: linchpin export anthropic --agent Helper
    Export(export::Export),
    /// Print a shell completion script
    Completions {
        /// Shell to generate the script for
        shell: clap_complete::Shell,
    },
    /// Run the built-in demo server on standard input and output, or over HTTP
    Demo {
        /// Serve HTTP clients of every protocol revision at path /mcp of this address, for example 127.0.0.1:8080
        #[arg(long, value_name = "ADDRESS")]
        http: Option<String>,
    },
    /// Serve the hub as one MCP server on standard input and output
    ///
    /// Uses the running hub, or runs the hub in this process. For clients that start their MCP servers.
    ///
    /// Example: linchpin gateway --agent Helper
    Gateway(gateway::GatewayArgs),
    /// Connect to a server and show its tools, resources and prompts
    ///
    /// Example: linchpin inspect npx -y @modelcontextprotocol/server-everything
    Inspect(TargetArgs),
    /// Connect to a server and call one of its tools
    ///
    /// Example: linchpin call add --args '{"a": 2, "b": 40}' -- linchpin demo
    Call {
        /// Name of the tool, as the server lists it
        tool: String,

        /// Arguments as a JSON object; @FILE reads them from a file, - from standard input
        #[arg(long, value_name = "JSON", default_value = "{}")]
        args: String,

        /// Value for a field of an elicitation form; repeatable
        #[arg(long = "answer", value_name = "FIELD=VALUE", value_parser = call::parse_answer)]
        answers: Vec<(String, String)>,

        #[command(flatten)]
        server: TargetArgs,
    },
    /// Diagnose the connection to a server step by step
    ///
    /// Example: linchpin doctor npx -y @modelcontextprotocol/server-everything
    Doctor(DoctorArgs),
    /// Sign out of a server: delete its stored tokens and revoke them
    SignOut {
        /// OAuth client id, if the sign-in used one
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,

        /// URL of the server to sign out of
        url: String,
    },
}

/// Global options of the commands that work with a hub, running or not.
pub(crate) struct CommandContext {
    location: LocationArgs,
    pub(crate) hub: Option<String>,
    pub(crate) output: Output,
}

impl CommandContext {
    /// Returns a REST client of the running hub, local or given by `--hub`.
    pub(crate) fn api(&self) -> Result<ApiClient, CliError> {
        ApiClient::find(&self.location, self.hub.as_deref())
    }

    /// Returns where the files of the local hub are.
    pub(crate) fn location(&self) -> &LocationArgs {
        &self.location
    }

    /// Returns the paths of the local hub.
    pub(crate) fn paths(&self) -> Result<HubPaths, CliError> {
        HubPaths::resolve(&self.location, &env_variable)
    }
}

impl Cli {
    /// Returns the log filter for the command and the number of `-v` options. `inspect`, `call` and `doctor` print the
    /// errors of a server themselves, so they log errors only.
    pub(crate) fn log_level(&self) -> &'static str {
        match (self.verbose, &self.command) {
            (0, Some(Command::Inspect(_) | Command::Call { .. } | Command::Doctor(_))) => "error",
            // The hub closes connections routinely, and the client logs a warning for each.
            (0, None | Some(Command::Serve(_))) => "info,linchpin::client::subscription=error",
            (0, _) => "warn",
            (1, None | Some(Command::Serve(_))) | (2, _) => "debug",
            (1, _) => "info",
            _ => "trace",
        }
    }
}

impl Cli {
    /// Returns whether the command runs the hub.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.command, None | Some(Command::Serve(_)))
    }

    /// Returns the log format, from the `serve` command or from the global options.
    pub(crate) fn log(&self) -> Option<serve::LogFormat> {
        match &self.command {
            Some(Command::Serve(options)) => options.log.or(self.serve.log),
            _ => self.serve.log,
        }
    }
}

/// Parses an option value of the form `NAME=VALUE`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_revision(text: &str) -> Result<Revision, String> {
    text.parse::<Revision>().map_err(|error| error.to_string())
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) async fn run(cli: Cli) -> Result<ExitCode, CliError> {
    let (json, verbose, is_serving) = (cli.json, cli.verbose > 0, cli.is_serving());
    let context = CommandContext { location: cli.location, hub: cli.hub, output: Output { json } };
    if !is_serving && cli.serve != serve::ServeOptions::default() {
        return Err(CliError::usage(
            "--listen, --ready-file, --log and --audit-durability apply only to `serve`: remove them, or use `serve` instead of this command",
        ));
    }
    match cli.command {
        None => serve::run(&context.location, cli.serve, json).await?,
        Some(Command::Serve(options)) => {
            serve::run(&context.location, options.or_from(cli.serve), json).await?;
        }
        Some(Command::Server { command }) => or_interrupted(server::run(&context, command)).await?,
        Some(Command::Tool { command }) => return or_interrupted(tool::run(&context, command)).await,
        Some(Command::Resource { command }) => {
            or_interrupted(resource::run(&context, command)).await?;
        }
        Some(Command::Prompt { command }) => or_interrupted(prompt::run(&context, command)).await?,
        Some(Command::Agent { command }) => or_interrupted(agent::run(&context, command)).await?,
        Some(Command::Approvals { command }) => or_interrupted(approvals::run(&context, command)).await?,
        Some(Command::ApprovalRule { command }) => {
            or_interrupted(approval_rule::run(&context, command)).await?;
        }
        Some(Command::Calls { command }) => or_interrupted(calls::run(&context, command)).await?,
        Some(Command::Audit { command }) => return or_interrupted(audit::run(&context, command)).await,
        Some(Command::Token { command }) => or_interrupted(token::run(&context, command)).await?,
        Some(Command::User { command }) => or_interrupted(user::run(&context, command)).await?,
        Some(Command::LoginLink) => or_interrupted(login_link(&context)).await?,
        Some(Command::Key { command }) => or_interrupted(key::run(&context, &command)).await?,
        Some(Command::Backup(command_args)) => or_interrupted(backup::backup(&context, command_args)).await?,
        Some(Command::Restore(command_args)) => {
            return or_interrupted(backup::restore(&context, command_args)).await;
        }
        Some(Command::Import(files)) => return or_interrupted(import::run(&context, files)).await,
        Some(Command::Export(command_args)) => or_interrupted(export::run(&context, command_args)).await?,
        Some(Command::Completions { shell }) => print_completions(shell)?,
        Some(Command::Demo { http: None }) => demo::server().run().await.map_err(to_anyhow)?,
        Some(Command::Demo { http: Some(address) }) => serve_demo(&address, json).await?,
        Some(Command::Gateway(command_args)) => gateway::run(&context, command_args).await?,
        Some(Command::Inspect(server)) => inspect::run(server.target(verbose)?, json).await?,
        Some(Command::Call { tool, args, answers, server }) => {
            let options = call::CallOptions { tool, args, answers, json };
            return call::run(server.target(verbose)?, options).await;
        }
        Some(Command::Doctor(DoctorArgs { server: Some(server), agent, .. })) => {
            return or_interrupted(doctor::examine(&context, &server, agent.as_deref())).await;
        }
        Some(Command::Doctor(args)) => return doctor::run(args.target.target(verbose)?, json).await,
        Some(Command::SignOut { url, client_id }) => sign_in::sign_out(&url, client_id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates and prints a one-time login link for the web interface.
async fn login_link(context: &CommandContext) -> Result<(), CliError> {
    let link = context.api()?.post_empty("/session/links").await?;
    Ok(context
        .output
        .print_result(&link, &crate::terminal::sanitize(link["url"].as_str().unwrap_or_default()))?)
}

/// Returns the result of `work`, or an error if a signal arrives first.
async fn or_interrupted<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    Signals::new()?.or_interrupt(Box::pin(work)).await?
}

/// Writes the shell completion script to standard output.
fn print_completions(shell: clap_complete::Shell) -> io::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "linchpin", &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Runs the demo server over HTTP until a signal arrives.
async fn serve_demo(address: &str, json: bool) -> Result<(), CliError> {
    let bound = demo::server().http().legacy_sse().bind(address).await;
    let endpoint = bound.map_err(to_anyhow)?;
    let url = endpoint.url();
    print(&if json { format!("{}\n", json!({ "url": url })) } else { format!("{url}\n") })?;
    Ok(endpoint.run().await.map_err(to_anyhow)?)
}

/// Writes a text to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Converts a `linchpin::Error`, which cannot implement `std::error::Error` because every error converts into it.
pub(crate) fn to_anyhow(error: linchpin::Error) -> anyhow::Error {
    anyhow!(Box::<dyn std::error::Error + Send + Sync>::from(error))
}

//! `linchpin server`: manages the servers of the hub. Stdio servers are written to the configuration file, only on the
//! machine of the hub; remote servers are managed through the API.

mod add;
mod credential;
mod fields;
mod file;
mod secret;
mod sign_in;
mod update;

use std::io::{self, Write as _};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Field, field, name};
use super::{Asked, agent, duration, print};
use crate::api_client::{encoded, query};
use crate::error::Failure;
use crate::terminal::{clean, quoted};

const LIST: [Field; 6] = [
    name("slug", "/slug"),
    field("name", "/name"),
    field("transport", "/transport"),
    field("status", "/status"),
    field("tools", "/tools"),
    field("error", "/error"),
];
const ONE: [Field; 27] = [
    name("slug", "/slug"),
    field("id", "/id"),
    field("name", "/name"),
    field("description", "/description"),
    field("transport", "/transport"),
    field("url", "/url"),
    field("headers", "/headers"),
    field("command", "/command"),
    field("variables", "/env"),
    field("secrets", "/secrets"),
    field("missing secrets", "/missing_secrets"),
    field("configured", "/is_from_file"),
    field("authentication", "/authentication/type"),
    field("credentials", "/credentials"),
    field("timeout", "/timeout"),
    field("retries", "/retry_attempts"),
    field("revision", "/revision"),
    field("calls per minute", "/calls_per_minute"),
    field("concurrent calls", "/calls_at_once"),
    field("enabled", "/enabled"),
    field("stores history", "/keep_history"),
    field("status", "/status"),
    field("error", "/error"),
    field("tools", "/tools"),
    field("last connected", "/last_connected"),
    field("last synced", "/last_synced"),
    field("created", "/created"),
];
const LEFT_OUT: [Field; 2] = [name("skipped tool", "/name"), field("reason", "/reason")];
const TRIED: [Field; 6] = [
    name("server", "/name"),
    field("version", "/version"),
    field("revision", "/revision"),
    field("instructions", "/instructions"),
    field("tools", "/tools"),
    field("duration (ms)", "/took_ms"),
];

pub(crate) use file::taken_over;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Add a stdio server on this machine, or a remote server
    ///
    /// Example: linchpin server add Everything -- npx -y @modelcontextprotocol/server-everything
    Add(Box<add::Add>),
    /// Update a server, except the command of a stdio server; fields without an option stay unchanged
    ///
    /// Example: linchpin server update tracker --timeout 60s
    Update(Box<update::Update>),
    /// List servers
    List {
        /// Filter by status: disconnected, connecting, connected, error, disabled
        #[arg(long)]
        status: Option<String>,
        /// Filter by text in name, slug or description
        #[arg(short, value_name = "TEXT")]
        q: Option<String>,
    },
    /// Show a server
    Show(Which),
    /// Test a server with a separate connection and show its name, revision and tools
    Test(Which),
    /// Sync the tools of a server now
    Sync {
        #[command(flatten)]
        which: Which,
        /// Use the credentials of this agent (name or id)
        #[arg(long)]
        agent: Option<String>,
    },
    /// Trust all new tools of a server; trust changed tools with `tool trust`
    Trust(Which),
    /// Enable a server
    Enable(Which),
    /// Disable a server
    Disable(Which),
    /// Remove a server with its tools and credentials
    Remove(Which),
    /// Connect to a server and sync its tools
    Connect(Which),
    /// Close all connections to a server; the next call opens a new one
    Disconnect(Which),
    /// Manage the credential of a remote server
    Credential {
        #[command(subcommand)]
        command: credential::Command,
    },
    /// Manage the environment secrets of a stdio server
    Secret {
        #[command(subcommand)]
        command: secret::Command,
    },
    /// Sign in to a server with OAuth
    SignIn {
        #[command(flatten)]
        whose: credential::Whose,
        /// Print the sign-in URL and do not wait
        #[arg(long)]
        no_wait: bool,
    },
    /// Sign out of a server: delete the grant and revoke its tokens
    SignOut(credential::Whose),
    /// Show the HTTP trace of recent sign-ins and token refreshes
    Trace(credential::Whose),
}

#[derive(Args)]
pub(crate) struct Which {
    /// Slug or id of the server
    server: String,
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<(), Failure> {
    let output = asked.output;
    match command {
        Command::Add(add) => add::run(asked, &add).await?,
        Command::Update(update) => update::run(asked, &update).await?,
        Command::List { status, q } => {
            let path = format!("/servers{}", query([("status", status), ("q", q)]));
            let none = "no servers: add one with `linchpin server add`";
            output.list(&asked.api()?.list(&path, usize::MAX).await?, &LIST, none)?;
        }
        Command::Show(which) => show(asked, asked.api()?.get(&which.path("")).await?)?,
        Command::Test(which) => {
            let tried = asked.api()?.ask(&which.path("/test")).await?;
            output.one(&tried, &TRIED)?;
            show_left_out(asked, &tried)?;
        }
        Command::Sync { which, agent } => sync(asked, &which, agent).await?,
        Command::Trust(which) => {
            let answer = asked.api()?.ask(&which.path("/trust")).await?;
            let count = &answer["trusted"];
            output.done(&answer, &format!("trusted {count} new tool(s) of `{}`", which.server))?;
        }
        Command::Enable(which) => file::switch(asked, &which, true).await?,
        Command::Disable(which) => file::switch(asked, &which, false).await?,
        Command::Remove(which) => file::remove(asked, &which).await?,
        Command::Connect(which) => show(asked, asked.api()?.ask(&which.path("/connect")).await?)?,
        Command::Disconnect(which) => {
            let answer = asked.api()?.ask(&which.path("/disconnect")).await?;
            output.done(&answer, &format!("server `{}` disconnected", which.server))?;
        }
        Command::Credential { command } => credential::run(asked, command).await?,
        Command::Secret { command } => secret::run(asked, command).await?,
        Command::SignIn { whose, no_wait } => sign_in::sign_in(asked, &whose, no_wait).await?,
        Command::SignOut(whose) => sign_in::sign_out(asked, &whose).await?,
        Command::Trace(whose) => sign_in::trace(asked, &whose).await?,
    }
    Ok(())
}

/// Prints a warning if a stored server cannot be reached.
fn warn(server: &Value) {
    if let Some(error) = server["error"].as_str() {
        let _ = writeln!(io::stderr(), "linchpin: warning: {}", clean(error)); // the server is stored anyway
    }
}

fn show(asked: &Asked, mut server: Value) -> Result<(), Failure> {
    if let Some(words) = server["command"].as_array().filter(|_| !asked.output.json) {
        let words: Vec<_> = words.iter().map(|word| quoted(word.as_str().unwrap_or_default())).collect();
        server["command"] = json!(words.join(" "));
    }
    if let Some(timeout) = server["timeout_ms"].as_u64().filter(|_| !asked.output.json) {
        server["timeout"] = json!(duration::show(timeout));
    }
    asked.output.one(&server, &ONE)?;
    show_left_out(asked, &server)
}

/// Prints the tools that the hub skips, each with the reason.
fn show_left_out(asked: &Asked, answer: &Value) -> Result<(), Failure> {
    match answer["left_out"].as_array() {
        Some(tools) if !tools.is_empty() && !asked.output.json => {
            print("\n")?;
            Ok(asked.output.list(tools, &LEFT_OUT, "")?)
        }
        _ => Ok(()),
    }
}

async fn sync(asked: &Asked, which: &Which, agent: Option<String>) -> Result<(), Failure> {
    let api = asked.api()?;
    let agent = agent::find_if(&api, agent.as_deref()).await?;
    let answer = api.ask(&format!("{}{}", which.path("/sync"), query([("agent", agent)]))).await?;
    let fields = [
        field("tools", "/tools"),
        field("new", "/added"),
        field("changed", "/changed"),
        field("removed", "/gone"),
        field("restored", "/back"),
    ];
    asked.output.one(&answer, &fields)?;
    show_left_out(asked, &answer)
}

impl Which {
    fn path(&self, rest: &str) -> String {
        format!("/servers/{}{rest}", encoded(&self.server))
    }
}

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

use super::output::{Column, column, name_column};
use super::{CommandContext, agent, duration, print};
use crate::api_client::{percent_encode, query_string};
use crate::error::CliError;
use crate::terminal::{sanitize, shell_quote};

const LIST_COLUMNS: [Column; 8] = [
    name_column("slug", "/slug"),
    column("name", "/name"),
    column("transport", "/transport"),
    column("status", "/status"),
    column("tools", "/tools"),
    column("resources", "/resources"),
    column("prompts", "/prompts"),
    column("error", "/error"),
];
const DETAIL_COLUMNS: [Column; 42] = [
    name_column("slug", "/slug"),
    column("id", "/id"),
    column("name", "/name"),
    column("description", "/description"),
    column("transport", "/transport"),
    column("url", "/url"),
    column("headers", "/headers"),
    column("command", "/command"),
    column("variables", "/env"),
    column("secrets", "/secrets"),
    column("missing secrets", "/missing_secrets"),
    column("configured", "/is_configured"),
    column("authentication", "/authentication/type"),
    column("credentials", "/credentials"),
    column("timeout", "/timeout"),
    column("max call", "/max_call"),
    column("open timeout", "/open_timeout"),
    column("read timeout", "/read_timeout"),
    column("max reconnects", "/max_reconnects"),
    column("max response (bytes)", "/max_response_bytes"),
    column("sync interval", "/sync_interval"),
    column("retries", "/retry_attempts"),
    column("revision", "/revision"),
    column("max calls per minute", "/calls_per_minute"),
    column("max concurrent calls", "/max_concurrent_calls"),
    column("enabled", "/enabled"),
    column("stores history", "/keep_history"),
    column("status", "/status"),
    column("error", "/error"),
    column("reported name", "/info/name"),
    column("reported title", "/info/title"),
    column("reported version", "/info/version"),
    column("negotiated revision", "/info/revision"),
    column("capabilities", "/info/capabilities"),
    column("instructions", "/info/instructions"),
    column("tools", "/tools"),
    column("resources", "/resources"),
    column("resource templates", "/resource_templates"),
    column("prompts", "/prompts"),
    column("last connected", "/last_connected"),
    column("last synced", "/last_synced"),
    column("created", "/created"),
];
const SKIPPED_TOOL_COLUMNS: [Column; 2] = [name_column("skipped tool", "/name"), column("reason", "/reason")];
const PROBE_COLUMNS: [Column; 11] = [
    name_column("server", "/name"),
    column("title", "/title"),
    column("version", "/version"),
    column("revision", "/revision"),
    column("capabilities", "/capabilities"),
    column("instructions", "/instructions"),
    column("tools", "/tools"),
    column("resources", "/resources"),
    column("resource templates", "/resource_templates"),
    column("prompts", "/prompts"),
    column("duration (ms)", "/duration_ms"),
];

pub(crate) use file::wait_until_applied;

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
    /// Show the configuration and status of a server
    Show(ServerArg),
    /// Test a server over a new connection, and show what it reports of itself and the names of what it offers
    Test(ServerArg),
    /// Sync the tools of a server: read its tool list again
    Sync {
        #[command(flatten)]
        server: ServerArg,
        /// Sync with the credentials of this agent (name or id)
        #[arg(long)]
        agent: Option<String>,
    },
    /// Trust all new tools of a server; trust changed tools with `tool trust`
    Trust(ServerArg),
    /// Enable a server, so that its tools can be called
    Enable(ServerArg),
    /// Disable a server, so that its tools cannot be called
    Disable(ServerArg),
    /// Remove a server with its tools and credentials
    Remove(ServerArg),
    /// Connect to a server and sync its tools
    Connect(ServerArg),
    /// Close all connections to a server; the next call opens a new one
    Disconnect(ServerArg),
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
        target: credential::CredentialTarget,
        /// Print the sign-in URL and do not wait until the sign-in is completed
        #[arg(long)]
        no_wait: bool,
    },
    /// Sign out of a server: delete the OAuth grant and revoke its tokens
    SignOut(credential::CredentialTarget),
    /// Show the HTTP requests of recent OAuth sign-ins and token refreshes
    Trace(credential::CredentialTarget),
}

#[derive(Args)]
pub(crate) struct ServerArg {
    /// Slug or id of the server
    server: String,
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let output = context.output;
    match command {
        Command::Add(add) => add::run(context, &add).await?,
        Command::Update(update) => update::run(context, &update).await?,
        Command::List { status, q } => {
            let path = format!("/servers{}", query_string([("status", status), ("q", q)]));
            let none = "no servers: add one with `linchpin server add`";
            output.print_list(&context.api()?.list(&path, usize::MAX).await?, &LIST_COLUMNS, none)?;
        }
        Command::Show(server_arg) => print_server(context, context.api()?.get(&server_arg.path("")).await?)?,
        Command::Test(server_arg) => {
            let mut probe = context.api()?.post_empty(&server_arg.path("/test")).await?;
            if !output.json {
                count_names(&mut probe);
            }
            output.print_details(&probe, &PROBE_COLUMNS)?;
            print_skipped_tools(context, &probe)?;
        }
        Command::Sync { server: server_arg, agent } => sync_tools(context, &server_arg, agent).await?,
        Command::Trust(server_arg) => {
            let response = context.api()?.post_empty(&server_arg.path("/trust")).await?;
            let count = &response["trusted"];
            output.print_result(
                &response,
                &format!("trusted {count} new tool(s) of `{}`", server_arg.server),
            )?;
        }
        Command::Enable(server_arg) => file::set_enabled(context, &server_arg, true).await?,
        Command::Disable(server_arg) => file::set_enabled(context, &server_arg, false).await?,
        Command::Remove(server_arg) => file::remove(context, &server_arg).await?,
        Command::Connect(server_arg) => {
            print_server(context, context.api()?.post_empty(&server_arg.path("/connect")).await?)?;
        }
        Command::Disconnect(server_arg) => {
            let response = context.api()?.post_empty(&server_arg.path("/disconnect")).await?;
            output.print_result(&response, &format!("server `{}` disconnected", server_arg.server))?;
        }
        Command::Credential { command } => credential::run(context, command).await?,
        Command::Secret { command } => secret::run(context, command).await?,
        Command::SignIn { target, no_wait } => sign_in::sign_in(context, &target, no_wait).await?,
        Command::SignOut(target) => sign_in::sign_out(context, &target).await?,
        Command::Trace(target) => sign_in::trace(context, &target).await?,
    }
    Ok(())
}

/// Prints a warning if a stored server cannot be reached.
fn warn_unreachable(server: &Value) {
    if let Some(error) = server["error"].as_str() {
        let _ = writeln!(io::stderr(), "linchpin: warning: {}", sanitize(error)); // the server is stored anyway
    }
}

fn print_server(context: &CommandContext, mut server: Value) -> Result<(), CliError> {
    if let Some(words) = server["command"].as_array().filter(|_| !context.output.json) {
        let words: Vec<_> = words.iter().map(|word| shell_quote(word.as_str().unwrap_or_default())).collect();
        server["command"] = json!(words.join(" "));
    }
    for name in ["timeout", "max_call", "open_timeout", "read_timeout", "sync_interval"] {
        let millis = server[format!("{name}_ms")].as_u64().filter(|_| !context.output.json);
        if let Some(millis) = millis {
            server[name] = json!(duration::format_millis(millis));
        }
    }
    if !context.output.json {
        // After `server connect`, the names of what the server offers replace the counts.
        count_names(&mut server["offers"]);
        if let (Value::Object(offers), Some(server)) = (server["offers"].take(), server.as_object_mut()) {
            server.extend(offers);
        }
    }
    context.output.print_details(&server, &DETAIL_COLUMNS)?;
    print_skipped_tools(context, &server)
}

/// Replaces the lists of names of a response by texts with their counts, such as `2: add, echo`.
fn count_names(response: &mut Value) {
    for list in ["tools", "resources", "resource_templates", "prompts"] {
        let Some(names) = response.get(list).and_then(Value::as_array) else { continue };
        let all: Vec<_> = names.iter().filter_map(Value::as_str).collect();
        let text = if all.is_empty() { "0".to_owned() } else { format!("{}: {}", all.len(), all.join(", ")) };
        response[list] = json!(text);
    }
}

/// Prints the tools that the hub skips, each with the reason.
fn print_skipped_tools(context: &CommandContext, response: &Value) -> Result<(), CliError> {
    match response["skipped"].as_array() {
        Some(tools) if !tools.is_empty() && !context.output.json => {
            print("\n")?;
            Ok(context.output.print_list(tools, &SKIPPED_TOOL_COLUMNS, "")?)
        }
        _ => Ok(()),
    }
}

async fn sync_tools(
    context: &CommandContext,
    server_arg: &ServerArg,
    agent: Option<String>,
) -> Result<(), CliError> {
    let api = context.api()?;
    let agent = agent::find_optional(&api, agent.as_deref()).await?;
    let response =
        api.post_empty(&format!("{}{}", server_arg.path("/sync"), query_string([("agent", agent)]))).await?;
    let fields = [
        column("tools", "/tools"),
        column("new", "/added"),
        column("changed", "/changed"),
        column("removed", "/removed"),
        column("restored", "/restored"),
    ];
    context.output.print_details(&response, &fields)?;
    print_skipped_tools(context, &response)
}

impl ServerArg {
    fn path(&self, rest: &str) -> String {
        format!("/servers/{}{rest}", percent_encode(&self.server))
    }
}

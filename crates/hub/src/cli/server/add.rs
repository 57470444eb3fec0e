//! `linchpin server add`: writes a stdio server to the configuration file, and adds a remote server through the API.

use clap::Args;
use linchpin_hub_core::Error;
use linchpin_hub_core::server::ConfiguredServer;
use linchpin_hub_core::tool::names::Slug;
use serde_json::{Map, Value, json};

use super::fields::{ServerFieldArgs, pairs_to_object, present_members};
use super::file::wait_until_applied;
use super::warn_unreachable;
use crate::cli::{CommandContext, parse_pair};
use crate::config;
use crate::config::HubPaths;
use crate::error::{CliError, CliErrorKind};
use crate::serve::configured_servers::DEMO;

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Add {
    /// Display name of the server
    name: String,
    /// Slug of the server (a–z, 0–9, -), which cannot be changed later. Default: derived from the name
    #[arg(long, value_parser = parse_slug)]
    slug: Option<Slug>,
    #[command(flatten)]
    fields: ServerFieldArgs,
    /// Do not keep the arguments and results of calls of this server after they finish
    #[arg(long)]
    no_history: bool,
    /// Add the server disabled
    #[arg(long)]
    disabled: bool,

    /// Use separate credentials for each agent
    #[arg(long, help_heading = "Remote server", requires = "url")]
    per_agent: bool,

    /// Environment variable of the server process, with its value; repeatable
    #[arg(long = "env", help_heading = "Stdio server", value_name = "NAME=VALUE", value_parser = parse_pair, conflicts_with = "url")]
    env: Vec<(String, String)>,
    /// Environment variable that the server process inherits from the hub; repeatable
    #[arg(long = "inherit", help_heading = "Stdio server", value_name = "NAME", conflicts_with = "url")]
    inherit: Vec<String>,
    /// Environment variable whose value is stored in the vault with `server secret set`; repeatable
    #[arg(long = "secret", help_heading = "Stdio server", value_name = "NAME", conflicts_with = "url")]
    secrets: Vec<String>,
    /// Working directory of the server process
    #[arg(long, help_heading = "Stdio server", conflicts_with = "url")]
    directory: Option<String>,
    /// Replace the built-in demo server (slug `demo`)
    #[arg(long, help_heading = "Stdio server", conflicts_with = "url")]
    replace_demo: bool,
    /// Command that starts the server, after `--`
    #[arg(last = true, help_heading = "Stdio server", conflicts_with_all = ["url", "transport", "headers", "auth", "per_agent"])]
    command: Vec<String>,
}

impl Add {
    /// Returns all server fields given to `linchpin server add` as JSON. The configuration file and the API use the
    /// same names.
    fn to_json(&self) -> Map<String, Value> {
        let list = |list: &[String]| (!list.is_empty()).then(|| json!(list));
        let (command, args) = self.command.split_first().unzip();
        let mut body = present_members([("name", Some(json!(self.name)))]);
        body.extend(self.fields.to_json());
        body.extend(present_members([
            ("credentials", self.per_agent.then(|| json!("per-agent"))),
            ("command", command.map(|command| json!(command))),
            ("args", args.and_then(list)),
            ("env", pairs_to_object(&self.env)),
            ("inherit", list(&self.inherit)),
            ("secrets", list(&self.secrets)),
            ("directory", self.directory.as_ref().map(|path| json!(path))),
            ("keep_history", self.no_history.then(|| json!(false))),
            ("enabled", self.disabled.then(|| json!(false))),
        ]));
        body
    }
}

fn parse_slug(text: &str) -> Result<Slug, String> {
    Slug::new(text).map_err(|error| error.message().to_owned())
}

/// Converts a field error into a usage error that names the option.
fn option_error(error: &Error) -> CliError {
    let field = error.field().and_then(|field| field.split('.').next()).unwrap_or_default();
    let option = match field {
        "name" => "the name",
        "description" => "--description",
        "timeout_ms" => "--timeout",
        "max_call_ms" => "--max-call",
        "open_timeout_ms" => "--open-timeout",
        "read_timeout_ms" => "--read-timeout",
        "sync_interval_ms" => "--sync-interval",
        "max_response_bytes" => "--max-response",
        "max_reconnects" => "--max-reconnects",
        "retry_attempts" => "--retries",
        "calls_per_minute" => "--calls-per-minute",
        "max_concurrent_calls" => "--max-concurrent-calls",
        "revision" => "--revision",
        "env" => "--env",
        "inherit" => "--inherit",
        "secrets" => "--secret",
        "directory" => "--directory",
        _ => "the command after `--`",
    };
    CliError::usage(format!("{option}: {}", error.message()))
}

pub(super) async fn run(context: &CommandContext, add: &Add) -> Result<(), CliError> {
    if add.fields.url.is_none() {
        return add_stdio(context, add).await;
    }
    let mut fields = add.to_json();
    fields.extend(add.slug.as_ref().map(|slug| ("slug".to_owned(), json!(slug))));
    let server = context.api()?.post("/servers", &Value::Object(fields)).await?;
    let slug = server["slug"].as_str().unwrap_or_default();
    let agent_option = if add.per_agent { " --agent NAME" } else { "" };
    let hint = match add.fields.auth.as_deref() {
        None | Some("none") => {
            format!("the hub syncs its tools now; to see the result, run `linchpin server sync {slug}`")
        }
        Some("oauth") => format!("sign in with `linchpin server sign-in {slug}{agent_option}`"),
        Some(_) => format!("store the credential with `linchpin server credential set {slug}{agent_option}`"),
    };
    context.output.print_result(&server, &format!("server `{slug}` added: {hint}"))?;
    warn_unreachable(&server);
    Ok(())
}

async fn add_stdio(context: &CommandContext, add: &Add) -> Result<(), CliError> {
    if context.hub.is_some() {
        let text = "--hub is not supported for stdio servers: add the server on the machine of the hub";
        return Err(CliError::usage(text));
    }
    if add.command.is_empty() {
        return Err(CliError::usage(
            "missing command or URL: add the command after `--`, or the URL with --url",
        ));
    }
    let slug = match &add.slug {
        Some(slug) => slug.clone(),
        None => Slug::from_name(&add.name)
            .ok_or_else(|| CliError::usage("no slug can be derived from this name: add --slug"))?,
    };
    ConfiguredServer::read(slug.as_str(), Value::Object(add.to_json()))
        .map_err(|error| option_error(&error))?;
    let paths = context.paths()?;
    check_demo(&paths, &slug, add.replace_demo)?;
    let api = paths.running().is_some().then(|| context.api()).transpose()?;
    if let Some(api) = &api
        && let Ok(server) = api.get(&format!("/servers/{}", slug.as_str())).await
        && server["is_configured"] == false
    {
        let text =
            format!("server `{0}` already exists: remove it first, or choose another --slug", slug.as_str());
        return Err(CliError::new(CliErrorKind::Other, text));
    }
    config::add(&paths.config, slug.as_str(), &add.to_json())?;
    let file = paths.config.display();
    let Some(api) = api else {
        let response = json!({ "slug": slug, "file": file.to_string() });
        return Ok(context.output.print_result(
            &response,
            &format!("server `{}` added to `{file}`: start the hub to use it", slug.as_str()),
        )?);
    };
    let server =
        wait_until_applied(context, &api, slug.as_str(), |server| server["is_undeclared"] == false).await?;
    Ok(context.output.print_result(
        &server,
        &format!("server `{}` added to `{file}` and applied by the hub", slug.as_str()),
    )?)
}

/// Checks that the built-in demo server is replaced only with `--replace-demo`.
fn check_demo(paths: &HubPaths, slug: &Slug, replace: bool) -> Result<(), CliError> {
    let is_demo = slug.as_str() == DEMO;
    if replace && !is_demo {
        return Err(CliError::usage(format!("--replace-demo requires the slug `{DEMO}`: add --slug {DEMO}")));
    }
    // A `demo` server in the file means that the built-in one is already replaced.
    let in_file = || Ok::<_, CliError>(config::WatchedConfig::open(paths.config.clone())?.config());
    if !is_demo || replace || in_file()?.servers.iter().any(|server| server.slug == *slug) {
        return Ok(());
    }
    let text = format!(
        "`{DEMO}` is the built-in demo server: choose another --slug, or add --replace-demo to replace it"
    );
    Err(CliError::usage(text))
}

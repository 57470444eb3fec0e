//! `linchpin server add`: writes a stdio server to the configuration file, and adds a remote server through the API.

use clap::Args;
use linchpin_hub_core::Error;
use linchpin_hub_core::server::Operated;
use linchpin_hub_core::tool::names::Slug;
use serde_json::{Map, Value, json};

use super::fields::{Fields, members, pairs};
use super::file::taken_over;
use super::warn;
use crate::cli::{Asked, parse_pair};
use crate::config;
use crate::config::Place;
use crate::error::{Failure, Kind};
use crate::serve::configured_servers::DEMO;

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Add {
    /// Display name
    name: String,
    /// Slug (a–z, 0–9, -); cannot be changed. Default: derived from the name
    #[arg(long, value_parser = parse_slug)]
    slug: Option<Slug>,
    #[command(flatten)]
    fields: Fields,
    /// Do not store arguments and results of calls
    #[arg(long)]
    no_history: bool,
    /// Add the server disabled
    #[arg(long)]
    disabled: bool,

    /// Use separate credentials for each agent
    #[arg(long, help_heading = "Remote server", requires = "url")]
    per_agent: bool,

    /// Environment variable of the server process; repeatable
    #[arg(long = "env", help_heading = "Stdio server", value_name = "NAME=VALUE", value_parser = parse_pair, conflicts_with = "url")]
    env: Vec<(String, String)>,
    /// Environment variable inherited from the hub; repeatable
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
    /// Returns the given fields. The configuration file and the API use the same names.
    fn said(&self) -> Map<String, Value> {
        let list = |list: &[String]| (!list.is_empty()).then(|| json!(list));
        let (command, args) = self.command.split_first().unzip();
        let mut said = members([("name", Some(json!(self.name)))]);
        said.extend(self.fields.said());
        said.extend(members([
            ("credentials", self.per_agent.then(|| json!("per-agent"))),
            ("command", command.map(|command| json!(command))),
            ("args", args.and_then(list)),
            ("env", pairs(&self.env)),
            ("inherit", list(&self.inherit)),
            ("secrets", list(&self.secrets)),
            ("directory", self.directory.as_ref().map(|path| json!(path))),
            ("keep_history", self.no_history.then(|| json!(false))),
            ("enabled", self.disabled.then(|| json!(false))),
        ]));
        said
    }
}

fn parse_slug(text: &str) -> Result<Slug, String> {
    Slug::new(text).map_err(|error| error.message().to_owned())
}

/// Converts a field error into a usage error that names the option.
fn wrong(error: &Error) -> Failure {
    let field = error.field().and_then(|field| field.split('.').next()).unwrap_or_default();
    let option = match field {
        "name" => "the name",
        "description" => "--description",
        "timeout_ms" => "--timeout",
        "retry_attempts" => "--retries",
        "calls_per_minute" => "--calls-per-minute",
        "calls_at_once" => "--calls-at-once",
        "revision" => "--revision",
        "env" => "--env",
        "inherit" => "--inherit",
        "secrets" => "--secret",
        "directory" => "--directory",
        _ => "the command after `--`",
    };
    Failure::usage(format!("{option}: {}", error.message()))
}

pub(super) async fn run(asked: &Asked, add: &Add) -> Result<(), Failure> {
    if add.fields.url.is_none() {
        return add_program(asked, add).await;
    }
    let mut fields = add.said();
    fields.extend(add.slug.as_ref().map(|slug| ("slug".to_owned(), json!(slug))));
    let server = asked.api()?.post("/servers", &Value::Object(fields)).await?;
    let slug = server["slug"].as_str().unwrap_or_default();
    let whose = if add.per_agent { " --agent NAME" } else { "" };
    let next = match add.fields.auth.as_deref() {
        None | Some("none") => format!("sync its tools with `linchpin server sync {slug}`"),
        Some("oauth") => format!("sign in with `linchpin server sign-in {slug}{whose}`"),
        Some(_) => format!("store the credential with `linchpin server credential set {slug}{whose}`"),
    };
    asked.output.done(&server, &format!("server `{slug}` added: {next}"))?;
    warn(&server);
    Ok(())
}

async fn add_program(asked: &Asked, add: &Add) -> Result<(), Failure> {
    if asked.hub.is_some() {
        let text = "--hub is not supported for stdio servers: add the server on the machine of the hub";
        return Err(Failure::usage(text));
    }
    if add.command.is_empty() {
        return Err(Failure::usage(
            "missing command or URL: add the command after `--`, or the URL with --url",
        ));
    }
    let slug = match &add.slug {
        Some(slug) => slug.clone(),
        None => Slug::from_name(&add.name)
            .ok_or_else(|| Failure::usage("no slug can be derived from this name: add --slug"))?,
    };
    Operated::read(slug.as_str(), Value::Object(add.said())).map_err(|error| wrong(&error))?;
    let place = asked.place()?;
    check_demo(&place, &slug, add.replace_demo)?;
    let api = place.running().is_some().then(|| asked.api()).transpose()?;
    if let Some(api) = &api
        && let Ok(server) = api.get(&format!("/servers/{}", slug.as_str())).await
        && server["is_from_file"] == false
    {
        let text =
            format!("server `{0}` already exists: remove it first, or choose another --slug", slug.as_str());
        return Err(Failure::new(Kind::Other, text));
    }
    config::add(&place.config, slug.as_str(), &add.said())?;
    let file = place.config.display();
    let Some(api) = api else {
        let answer = json!({ "slug": slug, "file": file.to_string() });
        return Ok(asked.output.done(
            &answer,
            &format!("server `{}` added to `{file}`: start the hub to use it", slug.as_str()),
        )?);
    };
    let server = taken_over(asked, &api, slug.as_str(), |server| server["has_left_file"] == false).await?;
    Ok(asked
        .output
        .done(&server, &format!("server `{}` added to `{file}` and applied by the hub", slug.as_str()))?)
}

/// Checks that the built-in demo server is replaced only with `--replace-demo`.
fn check_demo(place: &Place, slug: &Slug, replace: bool) -> Result<(), Failure> {
    let is_demo = slug.as_str() == DEMO;
    if replace && !is_demo {
        return Err(Failure::usage(format!("--replace-demo requires the slug `{DEMO}`: add --slug {DEMO}")));
    }
    // A `demo` server in the file means that the built-in one is already replaced.
    let in_file = || Ok::<_, Failure>(config::Watched::open(place.config.clone())?.config());
    if !is_demo || replace || in_file()?.servers.iter().any(|server| server.slug == *slug) {
        return Ok(());
    }
    let text = format!(
        "`{DEMO}` is the built-in demo server: choose another --slug, or add --replace-demo to replace it"
    );
    Err(Failure::usage(text))
}

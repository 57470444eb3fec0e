//! `linchpin server add`: a program is written into the operator's file, a URL is told to the hub.

use clap::Args;
use linchpin_hub_core::Error;
use linchpin_hub_core::names::Slug;
use linchpin_hub_core::server::Operated;
use serde_json::{Map, Value, json};

use super::fields::{Fields, members, pairs};
use super::file::taken_over;
use super::warn;
use crate::cli::{Asked, parse_pair};
use crate::config;
use crate::config::Place;
use crate::failure::{Failure, Kind};
use crate::serve::programs::DEMO;

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Add {
    /// What people call it
    name: String,
    /// Its short name, for ever; made of the name when left out
    #[arg(long, value_parser = parse_slug)]
    slug: Option<Slug>,
    #[command(flatten)]
    fields: Fields,
    /// Keep no arguments and results of its calls
    #[arg(long)]
    no_history: bool,
    /// Do not use it yet
    #[arg(long)]
    disabled: bool,

    /// Each agent has credentials of its own
    #[arg(long, help_heading = "At a URL", requires = "url")]
    per_agent: bool,

    /// A variable of its environment; may be given again
    #[arg(long = "env", help_heading = "A program", value_name = "NAME=VALUE", value_parser = parse_pair, conflicts_with = "url")]
    env: Vec<(String, String)>,
    /// A variable that it gets from the environment of the hub; may be given again
    #[arg(long = "inherit", help_heading = "A program", value_name = "NAME", conflicts_with = "url")]
    inherit: Vec<String>,
    /// A variable whose value is kept in the vault: enter it with `secret set`; may be given again
    #[arg(long = "secret", help_heading = "A program", value_name = "NAME", conflicts_with = "url")]
    secrets: Vec<String>,
    /// The directory to start in
    #[arg(long, help_heading = "A program", conflicts_with = "url")]
    directory: Option<String>,
    /// Use it in place of the built-in demo server, whose slug it has
    #[arg(long, help_heading = "A program", conflicts_with = "url")]
    replace_demo: bool,
    /// The command that starts it, as you would type it, after `--`
    #[arg(last = true, help_heading = "A program", conflicts_with_all = ["url", "transport", "headers", "auth", "per_agent"])]
    command: Vec<String>,
}

impl Add {
    /// What is said of it, in the words of the operator's file and of the API, which are the same.
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

/// What is wrong, by the option that said it.
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
        None | Some("none") => format!("look at its tools with `linchpin server sync {slug}`"),
        Some("oauth") => format!("sign in with `linchpin server sign-in {slug}{whose}`"),
        Some(_) => format!("enter the secret with `linchpin server credential set {slug}{whose}`"),
    };
    asked.output.done(&server, &format!("`{slug}` is added: {next}"))?;
    warn(&server);
    Ok(())
}

async fn add_program(asked: &Asked, add: &Add) -> Result<(), Failure> {
    if asked.hub.is_some() {
        let text = "programs are added on the machine of the hub alone: run this there, without --hub";
        return Err(Failure::usage(text));
    }
    if add.command.is_empty() {
        return Err(Failure::usage("give the command that starts it after `--`, or its URL with --url"));
    }
    let slug = match &add.slug {
        Some(slug) => slug.clone(),
        None => Slug::from_name(&add.name)
            .ok_or_else(|| Failure::usage("no slug can be made of this name: give one with --slug"))?,
    };
    Operated::read(slug.as_str(), Value::Object(add.said())).map_err(|error| wrong(&error))?;
    let place = asked.place()?;
    check_demo(&place, &slug, add.replace_demo)?;
    let api = place.running().is_some().then(|| asked.api()).transpose()?;
    if let Some(api) = &api
        && let Ok(server) = api.get(&format!("/servers/{}", slug.as_str())).await
        && server["is_from_file"] == false
    {
        let text = format!(
            "there is a server `{0}` already: remove it first, or give another --slug",
            slug.as_str()
        );
        return Err(Failure::new(Kind::Other, text));
    }
    config::add(&place.config, slug.as_str(), &add.said())?;
    let file = place.config.display();
    let Some(api) = api else {
        let answer = json!({ "slug": slug, "file": file.to_string() });
        return Ok(asked
            .output
            .done(&answer, &format!("`{}` is in `{file}`: the next hub has it", slug.as_str()))?);
    };
    let server = taken_over(asked, &api, slug.as_str(), |server| server["has_left_file"] == false).await?;
    Ok(asked.output.done(&server, &format!("`{}` is in `{file}`, and the hub has it", slug.as_str()))?)
}

/// The built-in demo server is replaced on request alone.
fn check_demo(place: &Place, slug: &Slug, replace: bool) -> Result<(), Failure> {
    let is_demo = slug.as_str() == DEMO;
    if replace && !is_demo {
        return Err(Failure::usage(format!("--replace-demo is for the slug `{DEMO}`: add --slug {DEMO}")));
    }
    // One that is in the file already has been replaced before.
    let in_file = || Ok::<_, Failure>(config::Watched::open(place.config.clone())?.config());
    if !is_demo || replace || in_file()?.servers.iter().any(|server| server.slug == *slug) {
        return Ok(());
    }
    let text = format!(
        "`{DEMO}` is the built-in demo server: give another --slug, or --replace-demo to use this server in its place"
    );
    Err(Failure::usage(text))
}

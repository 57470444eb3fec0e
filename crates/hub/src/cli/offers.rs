//! `linchpin resource` and `linchpin prompt`: lists, reads and renders resources and prompts of servers.

use clap::Subcommand;
use serde_json::{Value, json};

use super::output::{Field, field, name};
use super::{Asked, print};
use crate::api_client::encoded;
use crate::error::Failure;
use crate::terminal::{Look, clean};

const RESOURCES: [Field; 5] = [
    name("uri", "/uri"),
    field("kind", "/kind"),
    field("name", "/name"),
    field("type", "/mimeType"),
    field("description", "/description"),
];
const PROMPTS: [Field; 2] = [name("name", "/name"), field("description", "/description")];

#[derive(Subcommand)]
pub(crate) enum Resource {
    /// List the resources and resource templates of a server
    List {
        /// Slug or id of the server
        server: String,
        /// List only resource templates
        #[arg(long)]
        templates: bool,
    },
    /// Read a resource
    Read {
        /// Slug or id of the server
        server: String,
        /// URI of the resource
        uri: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum Prompt {
    /// List the prompts of a server
    List {
        /// Slug or id of the server
        server: String,
    },
    /// Render a prompt
    Get {
        /// Slug or id of the server
        server: String,
        /// Name of the prompt
        prompt: String,
        /// Argument of the prompt; repeatable
        #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = super::parse_pair)]
        arguments: Vec<(String, String)>,
    },
}

pub(super) async fn resource(asked: &Asked, command: Resource) -> Result<(), Failure> {
    let api = asked.api()?;
    match command {
        Resource::List { server, templates } => {
            let kinds = [("resources", "resource"), ("resource-templates", "template")];
            let mut items = Vec::new();
            for (path, kind) in kinds.into_iter().skip(usize::from(templates)) {
                let listed = api.list(&format!("/servers/{}/{path}", encoded(&server)), usize::MAX).await?;
                items.extend(
                    listed.into_iter().map(|item| if asked.output.json { item } else { row(item, kind) }),
                );
            }
            asked.output.list(&items, &RESOURCES, "no resources")?;
        }
        Resource::Read { server, uri } => {
            let path = format!("/servers/{}/resources/read", encoded(&server));
            let read = api.post(&path, &json!({ "uri": uri })).await?;
            if asked.output.json {
                asked.output.value(&read)?;
            }
            for part in read["contents"].as_array().into_iter().flatten().filter(|_| !asked.output.json) {
                let kind = part["mimeType"].as_str().unwrap_or("bytes");
                let text =
                    part["text"].as_str().map_or_else(|| format!("[{kind}: use --json to show it]"), shown);
                print(&format!("{text}\n"))?;
            }
        }
    }
    Ok(())
}

pub(super) async fn prompt(asked: &Asked, command: Prompt) -> Result<(), Failure> {
    let api = asked.api()?;
    match command {
        Prompt::List { server } => {
            let prompts = api.list(&format!("/servers/{}/prompts", encoded(&server)), usize::MAX).await?;
            asked.output.list(&prompts, &PROMPTS, "no prompts")?;
        }
        Prompt::Get { server, prompt, arguments } => {
            let arguments: serde_json::Map<_, _> =
                arguments.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
            let path = format!("/servers/{}/prompts/{}", encoded(&server), encoded(&prompt));
            let got = api.post(&path, &json!({ "arguments": arguments })).await?;
            if asked.output.json {
                asked.output.value(&got)?;
            }
            for message in got["messages"].as_array().into_iter().flatten().filter(|_| !asked.output.json) {
                let role = message["role"].as_str().unwrap_or_default();
                let content = &message["content"];
                let text = content["text"].as_str().map_or_else(|| content.to_string(), str::to_owned);
                print(&format!("{role}: {}\n", shown(&text)))?;
            }
        }
    }
    Ok(())
}

/// Turns a resource or resource template into a row of the table.
fn row(mut item: Value, kind: &str) -> Value {
    if let Some(template) = item.get("uriTemplate").cloned() {
        item["uri"] = template;
    }
    item["kind"] = json!(kind);
    item
}

/// Removes control characters on a terminal; a pipe receives every byte.
fn shown(text: &str) -> String {
    if Look::stdout().is_terminal { clean(text) } else { text.to_owned() }
}

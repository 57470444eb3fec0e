//! `linchpin resource` and `linchpin prompt`: lists, reads and renders resources and prompts of servers.

use clap::Subcommand;
use serde_json::{Value, json};

use super::output::{Column, column, name_column};
use super::{CommandContext, print};
use crate::api_client::percent_encode;
use crate::error::CliError;
use crate::terminal::{OutputStyle, sanitize};

const RESOURCE_COLUMNS: [Column; 5] = [
    name_column("uri", "/uri"),
    column("kind", "/kind"),
    column("name", "/name"),
    column("type", "/mimeType"),
    column("description", "/description"),
];
const PROMPT_COLUMNS: [Column; 2] = [name_column("name", "/name"), column("description", "/description")];

#[derive(Subcommand)]
pub(crate) enum ResourceCommand {
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
pub(crate) enum PromptCommand {
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

pub(super) async fn run_resource(context: &CommandContext, command: ResourceCommand) -> Result<(), CliError> {
    let api = context.api()?;
    match command {
        ResourceCommand::List { server, templates } => {
            let kinds = [("resources", "resource"), ("resource-templates", "template")];
            let mut items = Vec::new();
            for (path, kind) in kinds.into_iter().skip(usize::from(templates)) {
                let listed =
                    api.list(&format!("/servers/{}/{path}", percent_encode(&server)), usize::MAX).await?;
                items.extend(
                    listed
                        .into_iter()
                        .map(|item| if context.output.json { item } else { to_row(item, kind) }),
                );
            }
            context.output.print_list(&items, &RESOURCE_COLUMNS, "no resources")?;
        }
        ResourceCommand::Read { server, uri } => {
            let path = format!("/servers/{}/resources/read", percent_encode(&server));
            let read = api.post(&path, &json!({ "uri": uri })).await?;
            if context.output.json {
                context.output.print_value(&read)?;
            }
            for part in read["contents"].as_array().into_iter().flatten().filter(|_| !context.output.json) {
                let kind = part["mimeType"].as_str().unwrap_or("bytes");
                let text = part["text"]
                    .as_str()
                    .map_or_else(|| format!("[{kind}: use --json to show it]"), printable);
                print(&format!("{text}\n"))?;
            }
        }
    }
    Ok(())
}

pub(super) async fn run_prompt(context: &CommandContext, command: PromptCommand) -> Result<(), CliError> {
    let api = context.api()?;
    match command {
        PromptCommand::List { server } => {
            let prompts =
                api.list(&format!("/servers/{}/prompts", percent_encode(&server)), usize::MAX).await?;
            context.output.print_list(&prompts, &PROMPT_COLUMNS, "no prompts")?;
        }
        PromptCommand::Get { server, prompt, arguments } => {
            let arguments: serde_json::Map<_, _> =
                arguments.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
            let path = format!("/servers/{}/prompts/{}", percent_encode(&server), percent_encode(&prompt));
            let rendered = api.post(&path, &json!({ "arguments": arguments })).await?;
            if context.output.json {
                context.output.print_value(&rendered)?;
            }
            for message in
                rendered["messages"].as_array().into_iter().flatten().filter(|_| !context.output.json)
            {
                let role = message["role"].as_str().unwrap_or_default();
                let block = &message["content"];
                let text = block["text"].as_str().map_or_else(|| block.to_string(), str::to_owned);
                print(&format!("{role}: {}\n", printable(&text)))?;
            }
        }
    }
    Ok(())
}

/// Turns a resource or resource template into a row of the table.
fn to_row(mut item: Value, kind: &str) -> Value {
    if let Some(template) = item.get("uriTemplate").cloned() {
        item["uri"] = template;
    }
    item["kind"] = json!(kind);
    item
}

/// Removes control characters on a terminal; a pipe receives every byte.
fn printable(text: &str) -> String {
    if OutputStyle::stdout().is_terminal { sanitize(text) } else { text.to_owned() }
}

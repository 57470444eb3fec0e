//! `linchpin resource`: lists and reads resources of servers.

use clap::Subcommand;
use serde_json::{Value, json};

use super::output::{Column, column, name_column, printable};
use super::{CommandContext, print};
use crate::api_client::percent_encode;
use crate::error::CliError;

const COLUMNS: [Column; 5] = [
    name_column("uri", "/uri"),
    column("kind", "/kind"),
    column("name", "/name"),
    column("type", "/mimeType"),
    column("description", "/description"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
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

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let api = context.api()?;
    match command {
        Command::List { server, templates } => {
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
            context.output.print_list(&items, &COLUMNS, "no resources")?;
        }
        Command::Read { server, uri } => {
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

/// Turns a resource or resource template into a row of the table.
fn to_row(mut item: Value, kind: &str) -> Value {
    if let Some(template) = item.get("uriTemplate").cloned() {
        item["uri"] = template;
    }
    item["kind"] = json!(kind);
    item
}

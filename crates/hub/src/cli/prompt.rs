//! `linchpin prompt`: lists and renders prompts of servers.

use clap::Subcommand;
use serde_json::{Value, json};

use super::output::{Column, column, name_column, printable};
use super::{CommandContext, print};
use crate::api_client::percent_encode;
use crate::error::CliError;

const COLUMNS: [Column; 2] = [name_column("name", "/name"), column("description", "/description")];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the prompts of a server
    List {
        /// Slug or id of the server
        server: String,
    },
    /// Get a prompt with its arguments filled in
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

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let api = context.api()?;
    match command {
        Command::List { server } => {
            let prompts =
                api.list(&format!("/servers/{}/prompts", percent_encode(&server)), usize::MAX).await?;
            context.output.print_list(&prompts, &COLUMNS, "no prompts")?;
        }
        Command::Get { server, prompt, arguments } => {
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

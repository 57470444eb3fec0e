//! `linchpin inspect`: shows the identity, capabilities, tools, resources and prompts of a server.

mod schema;
mod text;

use linchpin::client::{Item, Listing, Pages};
use linchpin::encode::{Encode, to_value};
use linchpin::model::{
    ElicitParams, ElicitResult, Implementation, Prompt, Resource, ResourceTemplate, ServerCapabilities, Tool,
};
use linchpin::{CallError, Client, ClientBuilder, ClientError, Revision, code};
use linchpin_hub_core::hub::usable_tools;
use serde_json::{Value, json};

use crate::cli::print;
use crate::error::CliError;
use crate::roots;
use crate::target::Target;
use crate::terminal::OutputStyle;

/// What `linchpin inspect` found out about a server.
struct Inspection {
    server: Option<Implementation>,
    revision: Revision,
    instructions: Option<String>,
    capabilities: ServerCapabilities,
    /// Listed tools. This and the following lists are `None` if the server does not announce them; they are then not
    /// requested.
    tools: Option<Listing<Tool>>,
    resources: Option<Listing<Resource>>,
    templates: Option<Listing<ResourceTemplate>>,
    prompts: Option<Listing<Prompt>>,
}

pub(crate) async fn run(target: Target, json: bool) -> Result<(), CliError> {
    let verbose = target.verbose;
    let found = target.with_client(configure, async |client| Inspection::collect(client).await).await?;
    Ok(print(&if json {
        format!("{}\n", found.to_json())
    } else {
        text::render(&found, OutputStyle::stdout(), verbose)
    })?)
}

/// Announces elicitation, since some servers list certain tools only for clients that support it. Every request is
/// declined.
fn configure(client: ClientBuilder) -> ClientBuilder {
    let decline = |_: ElicitParams| std::future::ready(Ok(ElicitResult::decline()));
    client.roots(roots::current_directory()).on_elicit(decline).on_elicit_url(decline)
}

impl Inspection {
    async fn collect(client: &Client) -> Result<Self, CliError> {
        let capabilities = client.capabilities();
        let has_resources = capabilities.resources.is_some();
        Ok(Inspection {
            server: client.server().cloned(),
            revision: client.revision(),
            instructions: client.instructions().map(str::to_owned),
            capabilities: capabilities.clone(),
            tools: list(capabilities.tools.is_some(), client.tools(), "tools").await?.map(usable_tools),
            resources: list(has_resources, client.resources(), "resources").await?,
            templates: list(has_resources, client.resource_templates(), "resource templates").await?,
            prompts: list(capabilities.prompts.is_some(), client.prompts(), "prompts").await?,
        })
    }

    fn to_json(&self) -> Value {
        fn encode_items<T: Encode>(list: Option<&Listing<T>>, revision: Revision) -> Value {
            list.map_or_else(|| json!([]), |list| to_value(&list.items, revision))
        }
        fn encode_skipped<T>(list: Option<&Listing<T>>) -> Value {
            let all = list.into_iter().flat_map(|list| &list.skipped);
            all.map(|left| json!({ "name": left.name, "reason": left.reason })).collect()
        }
        let revision = self.revision;
        json!({
            "server": self.server.as_ref().map(|server| to_value(server, revision)),
            "revision": revision.as_str(),
            "instructions": self.instructions,
            "capabilities": to_value(&self.capabilities, revision),
            "tools": encode_items(self.tools.as_ref(), revision),
            "resources": encode_items(self.resources.as_ref(), revision),
            "resource_templates": encode_items(self.templates.as_ref(), revision),
            "prompts": encode_items(self.prompts.as_ref(), revision),
            "skipped": {
                "tools": encode_skipped(self.tools.as_ref()),
                "resources": encode_skipped(self.resources.as_ref()),
                "resource_templates": encode_skipped(self.templates.as_ref()),
                "prompts": encode_skipped(self.prompts.as_ref()),
            },
        })
    }
}

async fn list<T: Item>(announced: bool, pages: Pages<T>, noun: &str) -> Result<Option<Listing<T>>, CliError> {
    if !announced {
        return Ok(None);
    }
    match pages.listing().await {
        Ok(listing) => Ok(Some(listing)),
        // A server with resources need not have templates, and some servers announce more than they implement.
        Err(ClientError::Call(CallError::Rejected(error))) if error.code == code::METHOD_NOT_FOUND => {
            Ok(Some(Listing::default()))
        }
        Err(error) => Err(CliError::from(error).context(&format!("failed to list the {noun}"))),
    }
}

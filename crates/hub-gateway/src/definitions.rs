//! Definitions that a caller sees at the gateway: those of all its servers, under names that are unique.

use std::collections::HashMap;
use std::time::Duration;

use linchpin::model::{Meta, Prompt, Resource, ResourceTemplate, TaskSupport, Tool, ToolExecution};
use linchpin::server::ForwardedDefinitions;
use linchpin_hub_core::hub::ServerSurface;
use linchpin_hub_core::tool::names::{MAX_NAME_LEN, qualified_name};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::uris::Uris;

/// Time after which a call becomes a task, for clients that leave the decision to the server.
const TASK_DELAY: Duration = Duration::from_secs(2);
/// Identifier of the extension for user interfaces of tools (MCP Apps).
const APPS_EXTENSION: &str = "io.modelcontextprotocol/ui";

/// Names under which a caller finds the prompts and resources of its servers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Slug of the server and upstream name of each prompt, by its name at the gateway.
    prompts: HashMap<String, (String, String)>,
    pub(crate) uris: Uris,
}

impl Names {
    /// Returns the slug of the server and the upstream name of a prompt.
    pub(crate) fn prompt(&self, name: &str) -> Option<(&str, &str)> {
        self.prompts.get(name).map(|(server, prompt)| (&**server, &**prompt))
    }
}

/// Creates the definitions of a caller, with the names that they have: qualified ones, or those of the only server.
pub(crate) fn definitions(surfaces: &[ServerSurface], is_qualified: bool) -> (ForwardedDefinitions, Names) {
    let mut names = Names { prompts: HashMap::new(), uris: Uris::new(surfaces) };
    let mut all = ForwardedDefinitions { task_delay: TASK_DELAY, ..ForwardedDefinitions::default() };
    for surface in surfaces {
        let slug = surface.slug.as_str();
        for (name, definition) in &surface.tools {
            let mut definition = definition.clone();
            if let Some(meta) = definition.get_mut("_meta") {
                names.uris.rewrite(slug, meta);
            }
            all.tools.extend(decode::<Tool>(definition).map(|tool| Tool {
                name: if is_qualified { name.clone() } else { tool.name },
                // Any call can run as a task of the gateway, whether or not the server supports tasks.
                execution: Some(ToolExecution { task_support: Some(TaskSupport::Optional) }),
                ..tool
            }));
        }
        for resource in &surface.resources {
            let uri = names.uris.public(slug, resource["uri"].as_str().unwrap_or_default());
            all.resources
                .extend(decode::<Resource>(resource.clone()).map(|resource| Resource { uri, ..resource }));
        }
        for template in &surface.resource_templates {
            let text = template["uriTemplate"].as_str().unwrap_or_default();
            let uri_template = names.uris.public_template(slug, text);
            all.resource_templates.extend(
                decode::<ResourceTemplate>(template.clone())
                    .map(|template| ResourceTemplate { uri_template, ..template }),
            );
        }
        for prompt in surface.prompts.iter().cloned().filter_map(decode::<Prompt>) {
            let name = if is_qualified {
                qualified_name(&surface.slug, &prompt.name, MAX_NAME_LEN)
            } else {
                prompt.name.clone()
            };
            names.prompts.insert(name.clone(), (slug.to_owned(), prompt.name.clone()));
            all.prompts.push(Prompt { name, ..prompt });
        }
    }
    all.instructions = match surfaces {
        [only] if !is_qualified => only.instructions.clone(),
        _ => instructions(surfaces),
    };
    all.extensions = extensions(surfaces);
    (all, names)
}

/// Decodes a stored definition. Stored definitions were decoded before, so that a failure is not expected.
fn decode<T: DeserializeOwned>(definition: Value) -> Option<T> {
    serde_json::from_value(definition)
        .inspect_err(|error| tracing::warn!(%error, "skipping a stored definition that cannot be decoded"))
        .ok()
}

/// Joins the instructions of the servers, each under the name of its server.
fn instructions(surfaces: &[ServerSurface]) -> Option<String> {
    let sections: Vec<_> = surfaces
        .iter()
        .filter_map(|surface| {
            let text = surface.instructions.as_deref()?;
            let prefix = qualified_name(&surface.slug, "", MAX_NAME_LEN);
            let prefix = prefix.split("__").next().unwrap_or_default();
            Some(format!("# {} (names start with `{prefix}__`)\n\n{text}", surface.name))
        })
        .collect();
    (!sections.is_empty()).then(|| sections.join("\n\n"))
}

/// Returns the extensions that the gateway passes through, if a server supports them.
fn extensions(surfaces: &[ServerSurface]) -> Option<Meta> {
    let has_apps = surfaces.iter().any(|surface| surface.extensions.contains(APPS_EXTENSION));
    has_apps.then(|| Meta::from_iter([(APPS_EXTENSION.to_owned(), json!({}))]))
}

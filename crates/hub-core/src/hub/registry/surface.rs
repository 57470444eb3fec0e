//! Surface of a caller: everything that it may use of each server, from the stored records, for the gateway.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Registry;
use crate::actor::Actor;
use crate::agent::Agent;
use crate::error::Result;
use crate::hub::upstream::features::StoredFeatures;
use crate::hub::{ToolFilter, ToolView};
use crate::id::ServerId;
use crate::store::DocumentKind;
use crate::tool::names::Slug;

/// What a caller may use of one server. All definitions are as the server lists them, with secrets redacted.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSurface {
    /// Id of the server.
    pub id: ServerId,
    /// Slug of the server.
    pub slug: Slug,
    /// Display name of the server.
    pub name: String,
    /// Instructions of the server for models.
    pub instructions: Option<String>,
    /// Extensions that the server supports, by identifier.
    pub extensions: BTreeSet<String>,
    /// Tools that the caller may call now: qualified name and definition.
    pub tools: Vec<(String, Value)>,
    /// Resources that the caller may read.
    pub resources: Vec<Value>,
    /// Resource templates whose resources the caller may read.
    pub resource_templates: Vec<Value>,
    /// Prompts that the caller may use.
    pub prompts: Vec<Value>,
}

impl Registry {
    /// Returns what the caller may use of each enabled server, in the order in which the servers were added. A server
    /// that cannot be reached has what its last sync has found.
    pub async fn surface(&self, actor: Actor) -> Result<Vec<ServerSurface>> {
        let tenant = actor.tenant();
        let agent = match actor.agent() {
            Some(id) => Some(self.context.require::<Agent>(tenant, DocumentKind::Agent, id).await?.0),
            None => None,
        };
        let callable = ToolFilter { callable: Some(true), ..ToolFilter::default() };
        let tools = self.tools(actor, &callable).await?;
        let mut servers = self.servers.list_servers(tenant).await?;
        servers.retain(|server| server.settings.enabled);
        servers.sort_unstable_by_key(|server| server.id);
        let mut surfaces = Vec::with_capacity(servers.len());
        for server in servers {
            let (id, slug) = (server.id, server.slug);
            let is_own = |tool: &&ToolView| tool.server == slug.as_str();
            let mut own_tools: Vec<_> = tools
                .iter()
                .filter(is_own)
                .map(|tool| (tool.name.clone(), tool.definition.clone()))
                .collect();
            own_tools.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            let stored = self.context.load::<StoredFeatures>(tenant, DocumentKind::Features, id).await?;
            let stored = stored.map(|(features, _)| features).unwrap_or_default();
            let mut features = stored.of(actor.agent(), server.settings.credentials);
            if let Some(agent) = &agent {
                features.retain_granted(agent, id);
            }
            let (contact, _) = self.servers.contact(tenant, id).await?;
            let surface = ServerSurface {
                id,
                name: server.settings.name,
                instructions: contact.info.and_then(|info| info.instructions),
                extensions: features.extensions,
                tools: own_tools,
                resources: features.resources,
                resource_templates: features.resource_templates,
                prompts: features.prompts,
                slug,
            };
            let is_empty = surface.tools.is_empty()
                && surface.resources.is_empty()
                && surface.resource_templates.is_empty()
                && surface.prompts.is_empty();
            if !is_empty {
                surfaces.push(surface);
            }
        }
        Ok(surfaces)
    }

    /// Returns the generation of the stored records that surfaces are built from: it changes with each of them.
    pub fn generation(&self) -> u64 {
        self.context.generation.get()
    }
}

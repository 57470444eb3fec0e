//! Targets of calls: tools with their servers, built once from the stored documents and dropped when a document changes.

use std::sync::{Arc, OnceLock};

use super::Calls;
use super::admit::ToolRef;
use super::schema_cache::{InputSchema, SchemaCache};
use crate::actor::Actor;
use crate::digest::Digest;
use crate::error::Result;
use crate::events::NewEvent;
use crate::hub::event_payloads;
use crate::hub::identity::snapshots::AgentSnapshot;
use crate::id::CallId;
use crate::server::Server;
use crate::store::CallStatus;
use crate::tool::ToolRecord;
use crate::tool::names::{MAX_NAME_LEN, qualified_name};
use crate::tool::pin::{TrustState, pin};

/// Tool of a call and its server, with everything that is derived from their documents.
pub(in crate::hub) struct CallTarget {
    pub(in crate::hub) server: Server,
    pub(in crate::hub) tool: ToolRecord,
    /// Version of the document of the tool.
    pub(in crate::hub) tool_version: u64,
    /// Qualified name of the tool.
    pub(in crate::hub) name: String,
    /// Pin of the current definition.
    pub(in crate::hub) pin: Digest,
    pub(in crate::hub) state: TrustState,
    /// Compiled input schema, once it was needed.
    input_schema: OnceLock<InputSchema>,
}

impl CallTarget {
    pub(in crate::hub) fn new(server: Server, tool: ToolRecord, tool_version: u64) -> Self {
        let name = qualified_name(&server.slug, &tool.name, MAX_NAME_LEN);
        let (pin, state) = (pin(&tool.definition), tool.state());
        CallTarget { server, tool, tool_version, name, pin, state, input_schema: OnceLock::new() }
    }

    /// Returns the event that reports a status of a call of the tool.
    pub(in crate::hub) fn status_event(&self, call: CallId, status: CallStatus) -> NewEvent {
        event_payloads::call(call, self.server.id, &self.tool.name, status)
    }

    /// Returns the compiled input schema of the tool.
    pub(in crate::hub) fn input_schema(&self, cache: &SchemaCache) -> &InputSchema {
        self.input_schema.get_or_init(|| cache.input_schema(&self.tool))
    }
}

impl Calls {
    /// Returns the tool of a call if it is in memory and the caller may use it.
    pub(in crate::hub) fn known_target(
        &self,
        actor: Actor,
        agent: Option<&AgentSnapshot>,
        tool: &ToolRef,
    ) -> Option<Arc<CallTarget>> {
        let found = self.targets.get(&(actor.tenant(), tool.clone()));
        found.filter(|target| match agent {
            Some(AgentSnapshot { agent, .. }) => agent.may_use(target.server.id, &target.tool.name),
            None => actor.agent().is_none(), // a removed agent may use nothing
        })
    }

    /// Returns the tool of a call and its server. For an agent, a tool that it was not granted does not exist.
    pub(in crate::hub) async fn call_target(
        &self,
        actor: Actor,
        agent: Option<&AgentSnapshot>,
        tool: ToolRef,
    ) -> Result<Arc<CallTarget>> {
        let (key, generation) = ((actor.tenant(), tool), self.targets.generation());
        if let Some(found) = self.known_target(actor, agent, &key.1) {
            return Ok(found);
        }
        // A denied caller takes this path as well, which records the attempt.
        let (server, tool, version) = match &key.1 {
            ToolRef::Qualified(name) => {
                Box::pin(self.registry.visible_tool(actor, name, "call.rejected")).await?
            }
            ToolRef::Upstream { server, tool } => {
                self.registry.visible_upstream_tool(actor, server, tool, "call.rejected").await?
            }
        };
        let target = Arc::new(CallTarget::new(server, tool, version));
        self.targets.insert(generation, key, target.clone());
        Ok(target)
    }
}

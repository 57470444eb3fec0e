//! Calls of a user with the credential of an agent: a way to try a tool where each agent has its own credential. The
//! user stays the subject of the call.

use std::sync::Arc;

use super::Calls;
use super::plan::PlannedCall;
use crate::actor::{Actor, Subject};
use crate::error::{Error, ErrorKind, Result};
use crate::hub::identity::snapshots::AgentSnapshot;
use crate::server::{CredentialMode, Server};
use crate::text::shorten;

impl PlannedCall {
    /// Returns the subject whose credential and connection the call uses: the caller, or the agent that a user chose.
    pub(in crate::hub) fn upstream_actor(&self, actor: Actor) -> Actor {
        match &self.credential_agent {
            Some(snapshot) => Actor::new(actor.tenant(), Subject::Agent(snapshot.agent.id)),
            None => actor,
        }
    }
}

impl Calls {
    /// Returns the agent, by name or id, with whose credential a user calls a tool of this server.
    pub(super) async fn credential_agent(
        &self,
        actor: Actor,
        server: &Server,
        name: &str,
    ) -> Result<Arc<AgentSnapshot>> {
        if actor.agent().is_some() {
            let text = "only a user may call a tool with the credential of another agent: omit `as_agent`";
            return Err(Error::new(ErrorKind::PermissionDenied, "forbidden", text).with_field("as_agent"));
        }
        if server.settings.credentials == CredentialMode::Shared {
            let text = format!(
                "all callers of the server `{}` share one credential, so agents have none of their own: omit `as_agent`",
                server.slug.as_str()
            );
            return Err(Error::invalid("as_agent", text));
        }
        let (tenant, missing) = (actor.tenant(), || Error::not_found("agent", shorten(name)));
        let id = self.identity.find_agent(tenant, name).await?.ok_or_else(missing)?;
        let snapshot = self.identity.agent_snapshot(tenant, id).await?.ok_or_else(missing)?;
        if !snapshot.agent.enabled {
            let text = format!("the agent `{}` is disabled: enable it first", snapshot.agent.name);
            return Err(Error::new(ErrorKind::Conflict, "agent_disabled", text).with_field("as_agent"));
        }
        Ok(snapshot)
    }
}

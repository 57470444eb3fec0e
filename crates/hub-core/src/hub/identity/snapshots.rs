//! Snapshots of agents and API tokens, which every call of an agent needs.

use std::sync::Arc;

use super::Identity;
use super::tokens::TokenRecord;
use crate::actor::{Actor, Subject};
use crate::agent::Agent;
use crate::approval_rule::ApprovalRule;
use crate::error::{Error, Result};
use crate::id::{AgentId, TenantId, TokenId};
use crate::store::{DocumentKey, DocumentKind};
use crate::text::shorten;

/// Agent with the version of its document and its approval rules.
pub(in crate::hub) struct AgentSnapshot {
    pub(in crate::hub) agent: Agent,
    pub(in crate::hub) version: u64,
    pub(in crate::hub) rules: Vec<ApprovalRule>,
}

/// API token: its owner, digest and expiry.
pub(in crate::hub) struct TokenSnapshot {
    pub(in crate::hub) tenant: TenantId,
    pub(in crate::hub) record: TokenRecord,
    pub(in crate::hub) owner: Subject,
}

impl Identity {
    /// Returns the calling agent. `None` for a user. Fails for the hub itself.
    pub(in crate::hub) async fn calling_agent(&self, actor: Actor) -> Result<Option<Arc<AgentSnapshot>>> {
        let Some(id) = actor.agent() else { return actor.require_user().map(|_| None) };
        self.agent_snapshot(actor.tenant(), id).await
    }

    /// Returns an agent with its version and approval rules. `None` if it was removed.
    pub(in crate::hub) async fn agent_snapshot(
        &self,
        tenant: TenantId,
        id: AgentId,
    ) -> Result<Option<Arc<AgentSnapshot>>> {
        let (key, generation) = ((tenant, id), self.agents.generation());
        if let Some(found) = self.agents.get(&key) {
            return Ok(Some(found));
        }
        let Some((agent, version)) = self.context.load::<Agent>(tenant, DocumentKind::Agent, id).await?
        else {
            return Ok(None);
        };
        let parent = id.to_string();
        let rules = self.context.load_all(tenant, DocumentKind::ApprovalRule, Some(&parent)).await?;
        let rules = rules.into_iter().map(|(rule, _)| rule).collect();
        let snapshot = Arc::new(AgentSnapshot { agent, version, rules });
        self.agents.insert(generation, key, snapshot.clone());
        Ok(Some(snapshot))
    }

    /// Finds an agent by id or name.
    pub(in crate::hub) async fn find_agent(&self, tenant: TenantId, name: &str) -> Result<Option<AgentId>> {
        if let Ok(id) = name.parse() {
            return Ok(Some(id));
        }
        let found = self.context.store.document_by_name(tenant, DocumentKind::Agent, name).await?;
        found.map(|stored| stored.document.key.id.parse()).transpose()
    }

    /// Returns the actor and the id of an enabled agent, by id or name, in whose place the caller acts: a user for any
    /// agent, an agent only for itself.
    pub async fn act_as_agent(&self, actor: Actor, name: &str) -> Result<(Actor, AgentId)> {
        let missing = || Error::not_found("agent", shorten(name));
        let (tenant, found) = (actor.tenant(), self.find_agent(actor.tenant(), name).await?);
        let id = found.filter(|id| actor.agent().is_none_or(|own| own == *id)).ok_or_else(missing)?;
        let snapshot = self.agent_snapshot(tenant, id).await?.filter(|snapshot| snapshot.agent.enabled);
        snapshot.map(|_| (Actor::new(tenant, Subject::Agent(id)), id)).ok_or_else(missing)
    }

    /// Returns an API token by its id. In a cluster it is always read from the store: another hub may have revoked it.
    pub(in crate::hub) async fn token_snapshot(&self, id: TokenId) -> Result<Option<Arc<TokenSnapshot>>> {
        let (generation, is_cached) = (self.tokens.generation(), self.context.store.shared().is_none());
        if is_cached && let Some(found) = self.tokens.get(&id) {
            return Ok(Some(found));
        }
        let found =
            self.context.store.document_in_any_tenant(&DocumentKey::new(DocumentKind::Token, id)).await?;
        let Some((tenant, stored)) = found else { return Ok(None) };
        let record: TokenRecord = stored.document.parse_body()?;
        let Ok(owner) = record.owner.parse() else { return Ok(None) };
        let snapshot = Arc::new(TokenSnapshot { tenant, record, owner });
        if is_cached {
            self.tokens.insert(generation, id, snapshot.clone());
        }
        Ok(Some(snapshot))
    }
}

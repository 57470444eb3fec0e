//! Operations on agents: list, add, update and remove, with their views.

mod fields;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::actor::{Actor, Subject};
use crate::agent::{Agent, ApprovalMode, ServerAccess};
use crate::error::{self, Result};
use crate::hub::identity::Identity;
use crate::hub::{delete_children, document, event_payloads, upsert};
use crate::id::{AgentId, ServerId, TenantId};
use crate::store::{Batch, DocumentKey, DocumentKind, MAX_PAGE_SIZE, Page, PageRequest, StoreChange};
use crate::tool::ToolRecord;

/// Agent, as shown in lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentSummary {
    /// Agent id.
    #[schemars(with = "String")]
    pub id: AgentId,
    /// Display name.
    pub name: String,
    /// Name of the model, stored for information; the hub calls no model.
    pub model: Option<String>,
    /// Approval mode: which calls of the agent a user must approve.
    pub approval: ApprovalMode,
    /// Whether the agent is enabled. A disabled agent cannot do anything.
    pub enabled: bool,
    /// Rate limit in calls per minute.
    pub calls_per_minute: Option<u32>,
    /// Maximum number of concurrent calls.
    pub max_concurrent_calls: Option<u32>,
    /// Whether the client of the agent may ask its own user to approve a call, by elicitation. Otherwise calls are approved
    /// only in the hub.
    pub client_approvals: bool,
    /// Number of servers that the agent may use.
    pub server_count: usize,
    /// Number of tools: the selected ones, and all known tools of servers without a selection.
    pub tool_count: usize,
    /// Time at which the agent was created.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time of the last change of the agent.
    #[schemars(with = "String")]
    pub updated: Timestamp,
}

/// Agent as shown on its own: the fields of lists, its instructions, and its servers with their tool selections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentView {
    /// Fields of the agent that lists show as well.
    #[serde(flatten)]
    pub summary: AgentSummary,
    /// System instructions for the model of the agent.
    pub instructions: String,
    /// Servers that the agent may use, by id, each with its tool selection.
    #[schemars(with = "BTreeMap<String, ServerAccess>")]
    pub servers: BTreeMap<ServerId, ServerAccess>,
}

/// Criteria that select agents when they are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentFilter {
    /// Only agents with this text in their name, case-insensitive.
    pub name: Option<String>,
    /// Lists only enabled or only disabled agents.
    pub enabled: Option<bool>,
    /// Selects only agents that may use this server.
    pub server: Option<ServerId>,
}

impl AgentFilter {
    fn matches(&self, agent: &Agent) -> bool {
        let name = self.name.as_ref().map(|name| name.to_lowercase());
        name.is_none_or(|name| agent.name.to_lowercase().contains(&name))
            && self.enabled.is_none_or(|enabled| agent.enabled == enabled)
            && self.server.is_none_or(|server| agent.servers.contains_key(&server))
    }
}

impl Identity {
    /// Lists agents in the order of their creation.
    pub async fn agents(
        &self,
        actor: Actor,
        filter: &AgentFilter,
        paging: &PageRequest,
    ) -> Result<Page<AgentSummary>> {
        actor.require_user()?;
        let all = self.context.load_all::<Agent>(actor.tenant(), DocumentKind::Agent, None).await?;
        let after = paging.after.as_deref().unwrap_or_default();
        let mut matching = all
            .into_iter()
            .map(|(agent, _)| agent)
            .filter(|agent| agent.id.to_string().as_str() > after && filter.matches(agent));
        let (mut items, mut tool_counts) = (Vec::new(), HashMap::new());
        for agent in matching.by_ref().take(paging.limit.clamp(1, MAX_PAGE_SIZE)) {
            items.push(self.agent_summary(actor.tenant(), &agent, &mut tool_counts).await?);
        }
        let next = matching.next().and(items.last()).map(|agent| agent.id.to_string());
        Ok(Page { items, next })
    }

    /// Returns one agent.
    pub async fn agent(&self, actor: Actor, id: AgentId) -> Result<AgentView> {
        actor.require_user()?;
        let (agent, _) = self.context.require::<Agent>(actor.tenant(), DocumentKind::Agent, id).await?;
        self.agent_view(actor.tenant(), agent).await
    }

    /// Adds an agent. It needs a name and has no servers unless they are given.
    pub async fn add_agent(&self, actor: Actor, value: Value) -> Result<AgentView> {
        actor.require_user()?;
        let now = self.context.platform.now();
        let blank = Agent {
            id: AgentId::new(&*self.context.platform),
            name: String::new(),
            instructions: String::new(),
            model: None,
            servers: BTreeMap::new(),
            approval: ApprovalMode::default(),
            enabled: true,
            calls_per_minute: None,
            max_concurrent_calls: None,
            client_approvals: true,
            created: now,
            updated: now,
        };
        let agent = self.read_agent(actor.tenant(), blank, value).await?;
        self.save_agent(actor, agent, 0, "agent.added").await
    }

    /// Changes the given fields of an agent. `null` resets a field to its default.
    pub async fn update_agent(&self, actor: Actor, id: AgentId, value: Value) -> Result<AgentView> {
        actor.require_user()?;
        let (agent, version) = self.context.require::<Agent>(actor.tenant(), DocumentKind::Agent, id).await?;
        let mut agent = self.read_agent(actor.tenant(), agent, value).await?;
        agent.updated = self.context.platform.now();
        self.save_agent(actor, agent, version, "agent.updated").await
    }

    /// Removes an agent, with its tokens, approval rules and credentials.
    pub async fn remove_agent(&self, actor: Actor, id: AgentId) -> Result<()> {
        actor.require_user()?;
        let tenant = actor.tenant();
        let (agent, _) = self.context.require::<Agent>(tenant, DocumentKind::Agent, id).await?;
        let entry =
            self.context.entry(actor, "agent.removed").with("agent", id.to_string()).with("name", agent.name);
        let mut batch =
            Batch::new().change(StoreChange::Delete(DocumentKey::new(DocumentKind::Agent, id))).audit(entry);
        batch
            .changes
            .extend([DocumentKind::Token, DocumentKind::ApprovalRule].map(|kind| delete_children(kind, id)));
        batch.changes.extend(self.upstream.delete_agent_credentials(tenant, id).await?);
        let batch = batch
            .with_event(event_payloads::tokens(Subject::Agent(id)))
            .with_event(event_payloads::agent(id));
        self.upstream.commit_subject(tenant, batch, Subject::Agent(id)).await
    }

    async fn save_agent(
        &self,
        actor: Actor,
        agent: Agent,
        version: u64,
        action: &'static str,
    ) -> Result<AgentView> {
        let entry =
            self.context.entry(actor, action).with("agent", agent.id.to_string()).with("name", &*agent.name);
        let entry = entry.with("approval", json!(agent.approval)).with("enabled", agent.enabled);
        let stored = document(DocumentKind::Agent, agent.id, &agent)?.with_name(&agent.name);
        let batch = Batch::new()
            .change(upsert(stored, version))
            .audit(entry)
            .with_event(event_payloads::agent(agent.id));
        // Store the agent and the trust in its tools in one commit.
        let commit = async || {
            let batch = self.registry.trust_agent_tools(actor, &agent, batch.clone()).await?;
            self.upstream.commit_subject(actor.tenant(), batch, Subject::Agent(agent.id)).await
        };
        match commit().await {
            // One of the tools may have been synced concurrently.
            Err(error) if error.kind() == error::ErrorKind::Conflict => commit().await?,
            done => done?,
        }
        self.agent_view(actor.tenant(), agent).await
    }

    async fn agent_view(&self, tenant: TenantId, agent: Agent) -> Result<AgentView> {
        let summary = self.agent_summary(tenant, &agent, &mut HashMap::new()).await?;
        Ok(AgentView { summary, instructions: agent.instructions, servers: agent.servers })
    }

    /// Creates the summary of an agent for lists. `tool_counts` caches the number of tools per server.
    async fn agent_summary(
        &self,
        tenant: TenantId,
        agent: &Agent,
        tool_counts: &mut HashMap<ServerId, usize>,
    ) -> Result<AgentSummary> {
        let mut tool_count = 0;
        for (server, selection) in &agent.servers {
            tool_count += match (&selection.tools, tool_counts.get(server)) {
                (None, Some(count)) => *count,
                (None, None) => {
                    let all = self
                        .context
                        .load_all::<ToolRecord>(tenant, DocumentKind::Tool, Some(&server.to_string()))
                        .await?;
                    let count = all.iter().filter(|(tool, _)| !tool.is_removed).count();
                    *tool_counts.entry(*server).or_insert(count)
                }
                (Some(tools), _) => tools.len(),
            };
        }
        Ok(AgentSummary {
            id: agent.id,
            name: agent.name.clone(),
            model: agent.model.clone(),
            approval: agent.approval,
            enabled: agent.enabled,
            calls_per_minute: agent.calls_per_minute,
            max_concurrent_calls: agent.max_concurrent_calls,
            client_approvals: agent.client_approvals,
            server_count: agent.servers.len(),
            tool_count,
            created: agent.created,
            updated: agent.updated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_is_written() {
        let schema = schemars::schema_for!(AgentView).to_value();
        let properties = &schema["properties"];
        for name in ["id", "created", "updated", "instructions"] {
            assert_eq!(properties[name]["type"], "string", "{name}: {schema}");
        }
        assert_eq!(properties["servers"]["type"], "object");
        let page = schemars::schema_for!(Page<AgentSummary>).to_value();
        assert_eq!(page["properties"]["items"]["type"], "array");
    }
}

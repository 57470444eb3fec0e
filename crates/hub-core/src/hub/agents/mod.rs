//! Agents: identity, tool selection and approval mode.

mod fields;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Hub, document, event_payloads, put, without_parts};
use crate::actor::{Scope, Subject};
use crate::agent::{Agent, ApprovalMode, Selection};
use crate::error::{self, Result};
use crate::id::{AgentId, ServerId, TenantId};
use crate::store::{Batch, Change, Key, Kind, MOST_ON_PAGE, Page, Paging};
use crate::tool::Tool;

/// Agent, as shown in lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentSummary {
    /// Agent id.
    #[schemars(with = "String")]
    pub id: AgentId,
    /// Display name.
    pub name: String,
    /// Model that the agent uses, if the hub runs it.
    pub model: Option<String>,
    /// When a user must approve a call.
    pub approval: ApprovalMode,
    /// Whether the agent is enabled. A disabled agent cannot do anything.
    pub enabled: bool,
    /// Rate limit in calls per minute.
    pub calls_per_minute: Option<u32>,
    /// Maximum number of concurrent calls.
    pub calls_at_once: Option<u32>,
    /// Number of servers that the agent may use.
    pub server_count: usize,
    /// Number of tools: the selected ones, and all known tools of servers without a selection.
    pub tool_count: usize,
    /// Time of creation.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time of the last change.
    #[schemars(with = "String")]
    pub updated: Timestamp,
}

/// Agent with instructions and tool selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentView {
    /// Fields that lists show as well.
    #[serde(flatten)]
    pub summary: AgentSummary,
    /// System instructions.
    pub instructions: String,
    /// Servers that the agent may use, by id, each with its tool selection.
    #[schemars(with = "BTreeMap<String, Selection>")]
    pub servers: BTreeMap<ServerId, Selection>,
}

/// Filter for agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentFilter {
    /// Part of the name, case-insensitive.
    pub name: Option<String>,
    /// Whether the agent is enabled.
    pub enabled: Option<bool>,
    /// Server that the agent may use.
    pub server: Option<ServerId>,
}

impl AgentFilter {
    fn fits(&self, agent: &Agent) -> bool {
        let name = self.name.as_ref().map(|name| name.to_lowercase());
        name.is_none_or(|name| agent.name.to_lowercase().contains(&name))
            && self.enabled.is_none_or(|enabled| agent.enabled == enabled)
            && self.server.is_none_or(|server| agent.servers.contains_key(&server))
    }
}

impl Hub {
    /// Lists agents in the order of their creation.
    pub async fn agents(
        &self,
        scope: Scope,
        filter: &AgentFilter,
        paging: &Paging,
    ) -> Result<Page<AgentSummary>> {
        scope.person()?;
        let all = self.all::<Agent>(scope.tenant(), Kind::Agent, None).await?;
        let after = paging.after.as_deref().unwrap_or_default();
        let mut wanted = all
            .into_iter()
            .map(|(agent, _)| agent)
            .filter(|agent| agent.id.to_string().as_str() > after && filter.fits(agent));
        let (mut items, mut known) = (Vec::new(), HashMap::new());
        for agent in wanted.by_ref().take(paging.limit.clamp(1, MOST_ON_PAGE)) {
            items.push(self.agent_summary(scope.tenant(), &agent, &mut known).await?);
        }
        let next = wanted.next().and(items.last()).map(|agent| agent.id.to_string());
        Ok(Page { items, next })
    }

    /// Returns one agent.
    pub async fn agent(&self, scope: Scope, id: AgentId) -> Result<AgentView> {
        scope.person()?;
        let (agent, _) = self.need::<Agent>(scope.tenant(), Kind::Agent, id).await?;
        self.agent_view(scope.tenant(), agent).await
    }

    /// Adds an agent. It needs a name and has no servers unless they are given.
    pub async fn add_agent(&self, scope: Scope, value: Value) -> Result<AgentView> {
        scope.person()?;
        let now = self.world.now();
        let blank = Agent {
            id: AgentId::new(&*self.world),
            name: String::new(),
            instructions: String::new(),
            model: None,
            servers: BTreeMap::new(),
            approval: ApprovalMode::default(),
            enabled: true,
            calls_per_minute: None,
            calls_at_once: None,
            created: now,
            updated: now,
        };
        let agent = self.read_agent(scope.tenant(), blank, value).await?;
        self.keep_agent(scope, agent, 0, "agent.added").await
    }

    /// Changes the given fields of an agent. `null` resets a field to its default.
    pub async fn update_agent(&self, scope: Scope, id: AgentId, value: Value) -> Result<AgentView> {
        scope.person()?;
        let (agent, version) = self.need::<Agent>(scope.tenant(), Kind::Agent, id).await?;
        let mut agent = self.read_agent(scope.tenant(), agent, value).await?;
        agent.updated = self.world.now();
        self.keep_agent(scope, agent, version, "agent.changed").await
    }

    /// Removes an agent, with its tokens and credentials.
    pub async fn remove_agent(&self, scope: Scope, id: AgentId) -> Result<()> {
        scope.person()?;
        let tenant = scope.tenant();
        let (agent, _) = self.need::<Agent>(tenant, Kind::Agent, id).await?;
        let entry = self.entry(scope, "agent.removed").with("agent", id.to_string()).with("name", agent.name);
        let mut batch = Batch::new().change(Change::Remove(Key::new(Kind::Agent, id))).audit(entry);
        batch.changes.push(without_parts(Kind::Token, id));
        batch.changes.extend(self.credentials_of_agent(tenant, id).await?);
        let batch = batch.tell(event_payloads::tokens(Subject::Agent(id))).tell(event_payloads::agent(id));
        self.commit_subject(tenant, batch, Subject::Agent(id)).await
    }

    async fn keep_agent(
        &self,
        scope: Scope,
        agent: Agent,
        version: u64,
        action: &'static str,
    ) -> Result<AgentView> {
        let entry = self.entry(scope, action).with("agent", agent.id.to_string()).with("name", &*agent.name);
        let entry = entry.with("approval", json!(agent.approval)).with("enabled", agent.enabled);
        let kept = document(Kind::Agent, agent.id, &agent)?.named(&agent.name);
        let batch =
            Batch::new().change(put(kept, version)).audit(entry).tell(event_payloads::agent(agent.id));
        // Store the agent and the trust in its tools in one commit.
        let commit = async || {
            let batch = self.trust_listed(scope, &agent, batch.clone()).await?;
            self.commit_subject(scope.tenant(), batch, Subject::Agent(agent.id)).await
        };
        match commit().await {
            // One of the tools may have been synced concurrently.
            Err(error) if error.kind() == error::Kind::Conflict => commit().await?,
            done => done?,
        }
        self.agent_view(scope.tenant(), agent).await
    }

    async fn agent_view(&self, tenant: TenantId, agent: Agent) -> Result<AgentView> {
        let summary = self.agent_summary(tenant, &agent, &mut HashMap::new()).await?;
        Ok(AgentView { summary, instructions: agent.instructions, servers: agent.servers })
    }

    /// `known` caches the number of tools per server.
    async fn agent_summary(
        &self,
        tenant: TenantId,
        agent: &Agent,
        known: &mut HashMap<ServerId, usize>,
    ) -> Result<AgentSummary> {
        let mut tool_count = 0;
        for (server, selection) in &agent.servers {
            tool_count += match (&selection.tools, known.get(server)) {
                (None, Some(count)) => *count,
                (None, None) => {
                    let all = self.all::<Tool>(tenant, Kind::Tool, Some(&server.to_string())).await?;
                    let count = all.iter().filter(|(tool, _)| !tool.is_gone).count();
                    *known.entry(*server).or_insert(count)
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
            calls_at_once: agent.calls_at_once,
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

//! Operations on tools: list and find them by qualified name, and trust their definitions.

pub(in crate::hub) mod export;
pub(in crate::hub) mod listing;
pub(in crate::hub) mod name_cache;
pub(in crate::hub) mod sync;
pub(in crate::hub) mod sync_queue;
pub(in crate::hub) mod sync_schedule;

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::sync::{tool_document, tool_id};
use crate::actor::Actor;
use crate::agent::Agent;
use crate::error::{self, Error, Result};
use crate::events::NewEvent;
use crate::hub::registry::Registry;
use crate::hub::upsert;
use crate::id::{AgentId, ServerId, TenantId};
use crate::policy::PolicyReason;
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::{Batch, DocumentKind};
use crate::text::shorten;
use crate::tool::ToolRecord;
use crate::tool::names::{MAX_NAME_LEN, MAX_NAME_LEN_SHORT, qualified_name};
use crate::tool::pin::{DefinitionChange, TrustState, count_invisible, pin};

/// Tool, as shown to users and models.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ToolView {
    /// Qualified name of the tool, such as `mcp_demo__add`.
    pub name: String,
    /// Slug of the server that has the tool.
    pub server: String,
    /// Upstream name of the tool: the name that its server uses.
    pub tool: String,
    /// Complete definition from the server.
    pub definition: Value,
    /// Trust state of the tool: whether a user trusts its current definition.
    pub state: TrustState,
    /// Pin: digest of the security-relevant fields of the definition. Required to trust the tool.
    pub pin: String,
    /// Whether the tool can be called now.
    pub is_callable: bool,
    /// Whether the last sync of the server failed.
    pub is_stale: bool,
    /// Whether the server no longer has the tool.
    pub is_removed: bool,
    /// Changes since the tool was trusted.
    pub changes: Vec<DefinitionChange>,
    /// Number of invisible, control and direction characters in its definition.
    pub hidden_characters: usize,
    /// Time at which the tool was first listed.
    #[schemars(with = "String")]
    pub first_seen: Timestamp,
    /// Time at which the listing of the tool last changed.
    #[schemars(with = "String")]
    pub last_seen: Timestamp,
}

/// Criteria that select tools when they are listed.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolFilter {
    /// Lists only tools of this server, given by id or slug.
    pub server: Option<String>,
    /// Lists only tools in this trust state.
    pub state: Option<TrustState>,
    /// Agent that may use the tool.
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentId>,
    /// Lists only tools that can, or cannot, be called now.
    pub callable: Option<bool>,
    /// Only tools with this text in their name or description.
    pub q: Option<String>,
}

impl Registry {
    /// Lists the tools of all servers that the caller may see. A server that does not respond does not hide the others.
    pub async fn tools(&self, actor: Actor, filter: &ToolFilter) -> Result<Vec<ToolView>> {
        let tenant = actor.tenant();
        let agent = if let Some(agent) = actor.agent().or(filter.agent) {
            Some(self.context.require::<Agent>(tenant, DocumentKind::Agent, agent).await?.0)
        } else {
            actor.require_user()?;
            None
        };
        let servers = match &filter.server {
            Some(name) => vec![self.visible_server(actor, name).await?],
            None => self.servers.list_servers(tenant).await?,
        };
        let mut views = Vec::new();
        for server in &servers {
            let is_stale = self.servers.contact(tenant, server.id).await?.0.error.is_some();
            for (tool, _) in self
                .context
                .load_all::<ToolRecord>(tenant, DocumentKind::Tool, Some(&server.id.to_string()))
                .await?
            {
                let may = agent.as_ref().is_none_or(|agent| agent.may_use(server.id, &tool.name));
                let view = tool_view(server, tool, is_stale);
                let matches_query = |q: &String| {
                    let text = view.definition.get("description").and_then(Value::as_str).unwrap_or_default();
                    [&*view.name, text].iter().any(|text| text.to_lowercase().contains(&q.to_lowercase()))
                };
                let is_match = may
                    && filter.state.is_none_or(|state| state == view.state)
                    && filter.callable.is_none_or(|value| value == view.is_callable)
                    && (actor.agent().is_none() || view.is_callable)
                    && filter.q.as_ref().is_none_or(matches_query);
                if is_match {
                    views.push(view);
                }
            }
        }
        Ok(drop_ambiguous_names(views))
    }

    /// Returns one tool by its qualified name.
    pub async fn tool(&self, actor: Actor, name: &str) -> Result<ToolView> {
        let found = self.visible_tool(actor, name, "tool.rejected").await;
        let (server, tool, _) = match (found, slug_in(name)) {
            (Err(error), Some(slug)) => return Err(self.explain_missing_tool(actor, slug, error).await),
            (found, _) => found?,
        };
        let is_stale = self.servers.contact(actor.tenant(), server.id).await?.0.error.is_some();
        Ok(tool_view(&server, tool, is_stale))
    }

    /// Trusts the current definition of a tool, which must be the one that the user has reviewed. `reviewed_pin` is the
    /// pin of the definition that the user has reviewed.
    pub async fn trust_tool(&self, actor: Actor, name: &str, reviewed_pin: &str) -> Result<ToolView> {
        actor.require_user()?;
        let (server, tool, version) = self.find_tool(actor.tenant(), name).await?;
        if reviewed_pin != pin(&tool.definition).to_string() {
            let text = "the tool has changed since you reviewed it: review it again";
            return Err(Error::new(error::ErrorKind::Conflict, "tool_changed", text));
        }
        let batch = self.trust(actor, server.id, vec![(tool, version)], Batch::new())?;
        self.context.store.commit(actor.tenant(), batch).await?;
        self.tool(actor, name).await
    }

    /// Trusts the current definitions of all new tools of a server. Changed tools are left out: a user must review
    /// each. Returns the number of trusted tools.
    pub async fn trust_server(&self, actor: Actor, name: &str) -> Result<usize> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        let mut tools = self
            .context
            .load_all::<ToolRecord>(actor.tenant(), DocumentKind::Tool, Some(&server.id.to_string()))
            .await?;
        tools.retain(|(tool, _)| tool.state() == TrustState::New && !tool.is_removed);
        let count = tools.len();
        if count > 0 {
            let batch = self.trust(actor, server.id, tools, Batch::new())?;
            self.context.store.commit(actor.tenant(), batch).await?;
        }
        Ok(count)
    }

    /// Extends a batch with the user's trust in the new tools that an agent may call without an approval.
    pub(in crate::hub) async fn trust_agent_tools(
        &self,
        actor: Actor,
        agent: &Agent,
        mut batch: Batch,
    ) -> Result<Batch> {
        for (server, selection) in agent.servers.iter().filter(|(_, selection)| !selection.trusted.is_empty())
        {
            let mut tools = Vec::new();
            for name in &selection.trusted {
                let found = self.find_upstream_tool(actor.tenant(), *server, name).await?;
                tools.extend(found.filter(|(tool, _)| tool.state() == TrustState::New));
            }
            batch = self.trust(actor, *server, tools, batch)?;
        }
        Ok(batch)
    }

    /// Extends a batch with the user's trust in these tools.
    fn trust(
        &self,
        actor: Actor,
        server: ServerId,
        tools: Vec<(ToolRecord, u64)>,
        mut batch: Batch,
    ) -> Result<Batch> {
        if tools.is_empty() {
            return Ok(batch);
        }
        let body = json!({ "server": server, "change": "trusted" });
        batch = batch.with_event(NewEvent::new("tools", body));
        for (mut tool, version) in tools {
            let entry = self.context.entry(actor, "tool.trusted").with("server", server.to_string());
            let entry = entry.with("tool", tool.name.as_str()).with("pin", pin(&tool.definition).to_string());
            tool.trust();
            batch = batch.change(upsert(tool_document(&tool)?, version)).audit(entry);
        }
        Ok(batch)
    }

    /// Resolves the qualified name of a tool that the caller may see to its server and tool record. For an agent, a
    /// tool that it was not granted does not exist; the attempt is recorded in the audit with this action.
    pub(in crate::hub) async fn visible_tool(
        &self,
        actor: Actor,
        name: &str,
        action: &'static str,
    ) -> Result<(Server, ToolRecord, u64)> {
        if actor.agent().is_some() {
            let (slug, _) = require_parts(name)?;
            self.visible_server(actor, slug).await.map_err(|error| as_missing_tool(error, name))?;
        }
        let found = self.find_tool(actor.tenant(), name).await?;
        if self.may_use(actor, &found.0, &found.1, action).await? {
            Ok(found)
        } else {
            Err(tool_not_found(name))
        }
    }

    /// Like [`Self::visible_tool`], for a tool named by its server and upstream name.
    pub(in crate::hub) async fn visible_upstream_tool(
        &self,
        actor: Actor,
        server: &str,
        name: &str,
        action: &'static str,
    ) -> Result<(Server, ToolRecord, u64)> {
        let server = self.visible_server(actor, server).await?;
        let found = self.find_upstream_tool(actor.tenant(), server.id, name).await?;
        let (tool, version) = found.ok_or_else(|| tool_not_found(name))?;
        let may = self.may_use(actor, &server, &tool, action).await?;
        if may { Ok((server, tool, version)) } else { Err(tool_not_found(name)) }
    }

    /// Reports whether the caller may use a tool. A denial is recorded in the audit.
    async fn may_use(
        &self,
        actor: Actor,
        server: &Server,
        tool: &ToolRecord,
        action: &'static str,
    ) -> Result<bool> {
        let Some(agent) = actor.agent() else { return Ok(true) };
        let agent = self.context.load::<Agent>(actor.tenant(), DocumentKind::Agent, agent).await?;
        let may = agent.is_some_and(|(agent, _)| agent.may_use(server.id, &tool.name));
        if !may {
            let entry = self.context.tool_entry(actor, action, server, tool);
            self.audit.audit_rejection_later(
                actor.tenant(),
                entry.with("reason", PolicyReason::NotSelected.code()),
            );
        }
        Ok(may)
    }

    /// Resolves the qualified name of a tool to its server and tool record, without checking grants.
    pub(in crate::hub) async fn find_tool(
        &self,
        tenant: TenantId,
        name: &str,
    ) -> Result<(Server, ToolRecord, u64)> {
        let (slug, rest) = require_parts(name)?;
        let server =
            self.servers.find_server(tenant, slug).await.map_err(|error| as_missing_tool(error, name))?;
        // Most names contain the upstream name unchanged.
        if let Some((tool, version)) = self.find_upstream_tool(tenant, server.id, rest).await?
            && qualified_name(&server.slug, &tool.name, MAX_NAME_LEN) == name
        {
            return Ok((server, tool, version));
        }
        let mut upstream_name = self.tool_names.find(tenant, server.id, name);
        if upstream_name.is_none() {
            let all = self
                .context
                .load_all::<ToolRecord>(tenant, DocumentKind::Tool, Some(&server.id.to_string()))
                .await?;
            let mut names = HashMap::new();
            let mut duplicates = HashSet::new();
            for (ToolRecord { name, .. }, _) in all {
                // Exports for some providers use shorter names, which calls then use as well.
                let [qualified, short] = [MAX_NAME_LEN, MAX_NAME_LEN_SHORT]
                    .map(|max_len| qualified_name(&server.slug, &name, max_len));
                for qualified in BTreeSet::from([qualified, short]) {
                    if names.insert(qualified.clone(), name.clone()).is_some() {
                        duplicates.insert(qualified);
                    }
                }
            }
            names.retain(|qualified, _| !duplicates.contains(qualified));
            upstream_name = names.get(name).cloned();
            self.tool_names.insert(tenant, server.id, names);
        }
        let found = self
            .find_upstream_tool(tenant, server.id, &upstream_name.ok_or_else(|| tool_not_found(name))?)
            .await?;
        let (tool, version) = found.ok_or_else(|| tool_not_found(name))?;
        Ok((server, tool, version))
    }

    /// Explains a missing tool: if the tools of its server are not known yet, the error says what to do. Only for
    /// users, since agents must not learn of servers this way.
    pub(in crate::hub) async fn explain_missing_tool(
        &self,
        actor: Actor,
        server: &str,
        error: Error,
    ) -> Error {
        if error.kind() != error::ErrorKind::NotFound || actor.require_user().is_err() {
            return error;
        }
        let Ok(server) = self.servers.find_server(actor.tenant(), server).await else { return error };
        self.tools_unknown_error(actor.tenant(), &server).await.ok().flatten().unwrap_or(error)
    }

    /// Returns the error that explains why the tools of a server are not known yet. `None` if they are.
    async fn tools_unknown_error(&self, tenant: TenantId, server: &Server) -> Result<Option<Error>> {
        let (contact, _) = self.servers.contact(tenant, server.id).await?;
        if contact.last_synced.is_some() {
            return Ok(None);
        }
        let slug = server.slug.as_str();
        let is_shared = server.settings.credentials == CredentialMode::Shared;
        let needs_sign_in = match server.settings.authentication {
            Authentication::OAuth { .. } => {
                !is_shared || !self.upstream.has_grant(tenant, server, None).await?
            }
            _ => false,
        };
        let (code, text) = if !server.settings.enabled {
            ("server_disabled", format!("the server `{slug}` is disabled: enable it first"))
        } else if needs_sign_in {
            let owner = if is_shared { "" } else { " --agent NAME" };
            let text = format!(
                "the tools of `{slug}` are unknown until a sign-in: sign in first with `linchpin server sign-in \
                 {slug}{owner}`"
            );
            ("sign_in_needed", text)
        } else if let Some(error) = contact.error {
            ("tools_unknown", format!("the tools of `{slug}` are not known yet: {error}"))
        } else {
            let text = format!("the tools of `{slug}` are not known yet: run `linchpin server sync {slug}`");
            ("tools_unknown", text)
        };
        Ok(Some(Error::new(error::ErrorKind::Conflict, code, text)))
    }

    /// Returns a tool by its upstream name.
    pub(in crate::hub) async fn find_upstream_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        name: &str,
    ) -> Result<Option<(ToolRecord, u64)>> {
        let found =
            self.context.load::<ToolRecord>(tenant, DocumentKind::Tool, tool_id(server, name)).await?;
        Ok(found.filter(|(tool, _)| tool.name == name))
    }
}

/// Returns the server slug in the qualified name of a tool.
pub(in crate::hub) fn slug_in(name: &str) -> Option<&str> {
    Some(split_name(name)?.0)
}

fn tool_not_found(name: &str) -> Error {
    Error::not_found("tool", shorten(name))
}

/// Splits the qualified name of a tool into server slug and rest.
fn split_name(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("mcp_")?.split_once("__")
}

/// Splits a qualified tool name into server and tool, or fails as for an unknown tool.
fn require_parts(name: &str) -> Result<(&str, &str)> {
    split_name(name).ok_or_else(|| tool_not_found(name))
}

/// Turns the error for a missing server into one for the tool.
fn as_missing_tool(error: Error, name: &str) -> Error {
    if error.kind() == error::ErrorKind::NotFound { tool_not_found(name) } else { error }
}

/// Removes tools whose names are ambiguous: a caller could hit the wrong one.
pub(in crate::hub) fn drop_ambiguous_names(mut views: Vec<ToolView>) -> Vec<ToolView> {
    let mut counts = HashMap::new();
    for view in &views {
        *counts.entry(view.name.clone()).or_insert(0_usize) += 1;
    }
    let duplicates: HashSet<_> =
        counts.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect();
    views.retain(|view| !duplicates.contains(&view.name));
    views
}

fn tool_view(server: &Server, tool: ToolRecord, is_stale: bool) -> ToolView {
    let state = tool.state();
    let changes = if state == TrustState::Changed { tool.changes() } else { Vec::new() };
    ToolView {
        name: qualified_name(&server.slug, &tool.name, MAX_NAME_LEN),
        server: server.slug.as_str().to_owned(),
        state,
        pin: pin(&tool.definition).to_string(),
        is_callable: server.settings.enabled && !tool.is_removed && state != TrustState::Changed,
        is_stale,
        is_removed: tool.is_removed,
        changes,
        hidden_characters: count_invisible(&tool.definition),
        first_seen: tool.first_seen,
        last_seen: tool.last_seen,
        tool: tool.name,
        definition: tool.definition,
    }
}

//! Tools: views with qualified names and trust state, lookup, and trust.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sync::{kept, tool_id};
use super::{Hub, put};
use crate::actor::Scope;
use crate::agent::Agent;
use crate::error::{self, Error, Result};
use crate::events::Told;
use crate::id::{AgentId, ServerId, TenantId};
use crate::policy::Reason;
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::{Batch, Kind};
use crate::text::shortened;
use crate::tool::Tool;
use crate::tool::names::{LONGEST, LONGEST_FOR_SOME, local};
use crate::tool::pin::{Change, State, hidden_characters, pin};

/// Tool, as shown to users and models.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ToolView {
    /// Qualified name.
    pub name: String,
    /// Slug of the server.
    pub server: String,
    /// Upstream name.
    pub tool: String,
    /// Complete definition from the server.
    pub definition: Value,
    /// Trust state.
    pub state: State,
    /// Pin: digest of the security-relevant fields of the definition. Required to trust the tool.
    pub pin: String,
    /// Whether the tool can be called now.
    pub is_callable: bool,
    /// Whether the last sync of the server failed.
    pub is_stale: bool,
    /// Whether the server no longer has the tool.
    pub is_gone: bool,
    /// Changes since the tool was trusted.
    pub changes: Vec<Change>,
    /// Number of invisible, control and direction characters in its definition.
    pub hidden_characters: usize,
    /// Time at which it was first listed.
    #[schemars(with = "String")]
    pub first_seen: Timestamp,
    /// Time at which its listing last changed.
    #[schemars(with = "String")]
    pub last_seen: Timestamp,
}

/// Filter for tools.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolFilter {
    /// Server id or slug.
    pub server: Option<String>,
    /// Trust state.
    pub state: Option<State>,
    /// Agent that may use the tool.
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentId>,
    /// Whether the tool can be called now.
    pub callable: Option<bool>,
    /// Part of the name or description.
    pub q: Option<String>,
}

impl Hub {
    /// Lists the tools of all servers that the caller may see. A server that does not respond does not hide the others.
    pub async fn tools(&self, scope: Scope, filter: &ToolFilter) -> Result<Vec<ToolView>> {
        let tenant = scope.tenant();
        let agent = match (scope.agent(), filter.agent) {
            (Some(own), _) => Some(self.need::<Agent>(tenant, Kind::Agent, own).await?.0),
            (None, Some(agent)) => Some(self.need::<Agent>(tenant, Kind::Agent, agent).await?.0),
            (None, None) => {
                scope.person()?;
                None
            }
        };
        let servers = match &filter.server {
            Some(name) => vec![self.visible_server(scope, name).await?],
            None => self.every_server(tenant).await?,
        };
        let mut views = Vec::new();
        for server in &servers {
            let is_stale = self.contact(tenant, server.id).await?.0.error.is_some();
            for (tool, _) in self.all::<Tool>(tenant, Kind::Tool, Some(&server.id.to_string())).await? {
                let may = agent.as_ref().is_none_or(|agent| agent.may_use(server.id, &tool.name));
                let view = view(server, tool, is_stale);
                let has = |q: &String| {
                    let text = view.definition.get("description").and_then(Value::as_str).unwrap_or_default();
                    [&*view.name, text].iter().any(|text| text.to_lowercase().contains(&q.to_lowercase()))
                };
                let fits = may
                    && filter.state.is_none_or(|state| state == view.state)
                    && filter.callable.is_none_or(|wanted| wanted == view.is_callable)
                    && (scope.agent().is_none() || view.is_callable)
                    && filter.q.as_ref().is_none_or(has);
                if fits {
                    views.push(view);
                }
            }
        }
        Ok(without_doubles(views))
    }

    /// Returns one tool by its qualified name.
    pub async fn tool(&self, scope: Scope, name: &str) -> Result<ToolView> {
        let found = self.visible_tool(scope, name, "tool.refused").await;
        let (server, tool, _) = match (found, slug_in(name)) {
            (Err(error), Some(slug)) => return Err(self.why_missing(scope, slug, error).await),
            (found, _) => found?,
        };
        let is_stale = self.contact(scope.tenant(), server.id).await?.0.error.is_some();
        Ok(view(&server, tool, is_stale))
    }

    /// Trusts a tool as it is now. `seen` is the pin of the definition that the user has reviewed.
    pub async fn trust_tool(&self, scope: Scope, name: &str, seen: &str) -> Result<ToolView> {
        scope.person()?;
        let (server, tool, version) = self.find_tool(scope.tenant(), name).await?;
        if seen != pin(&tool.definition).to_string() {
            let text = "the tool has changed since you reviewed it: review it again";
            return Err(Error::new(error::Kind::Conflict, "tool_changed", text));
        }
        let batch = self.trust(scope, server.id, vec![(tool, version)], Batch::new())?;
        self.store.commit(scope.tenant(), batch).await?;
        self.tool(scope, name).await
    }

    /// Trusts all new tools of a server. Changed tools are left out: a user must review each. Returns the number of
    /// trusted tools.
    pub async fn trust_server(&self, scope: Scope, name: &str) -> Result<usize> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        let mut tools = self.all::<Tool>(scope.tenant(), Kind::Tool, Some(&server.id.to_string())).await?;
        tools.retain(|(tool, _)| tool.state() == State::New && !tool.is_gone);
        let count = tools.len();
        if count > 0 {
            let batch = self.trust(scope, server.id, tools, Batch::new())?;
            self.store.commit(scope.tenant(), batch).await?;
        }
        Ok(count)
    }

    /// Extends a batch with the user's trust in the new tools that an agent may call without an approval.
    pub(super) async fn trust_listed(&self, scope: Scope, agent: &Agent, mut batch: Batch) -> Result<Batch> {
        for (server, selection) in agent.servers.iter().filter(|(_, selection)| !selection.trusted.is_empty())
        {
            let mut tools = Vec::new();
            for name in &selection.trusted {
                let found = self.tool_of(scope.tenant(), *server, name).await?;
                tools.extend(found.filter(|(tool, _)| tool.state() == State::New));
            }
            batch = self.trust(scope, *server, tools, batch)?;
        }
        Ok(batch)
    }

    /// Extends a batch with the user's trust in these tools.
    fn trust(
        &self,
        scope: Scope,
        server: ServerId,
        tools: Vec<(Tool, u64)>,
        mut batch: Batch,
    ) -> Result<Batch> {
        if tools.is_empty() {
            return Ok(batch);
        }
        let body = json!({ "server": server, "change": "trusted" });
        batch = batch.tell(Told::new("tools", body));
        for (mut tool, version) in tools {
            let entry = self.entry(scope, "tool.trusted").with("server", server.to_string());
            let entry = entry.with("tool", tool.name.as_str()).with("pin", pin(&tool.definition).to_string());
            tool.trust();
            batch = batch.change(put(kept(&tool)?, version)).audit(entry);
        }
        Ok(batch)
    }

    /// Resolves a qualified name to a server and a tool. For an agent, a tool that it was not granted does not exist;
    /// the attempt is recorded in the audit with this action.
    pub(super) async fn visible_tool(
        &self,
        scope: Scope,
        name: &str,
        action: &'static str,
    ) -> Result<(Server, Tool, u64)> {
        if scope.agent().is_some() {
            let (slug, _) = parts(name)?;
            self.visible_server(scope, slug).await.map_err(|error| as_tool(error, name))?;
        }
        let found = self.find_tool(scope.tenant(), name).await?;
        if self.may_use(scope, &found.0, &found.1, action).await? { Ok(found) } else { Err(missing(name)) }
    }

    /// Like [`Self::visible_tool`], for a tool named by its server and upstream name.
    pub(super) async fn visible_tool_of(
        &self,
        scope: Scope,
        server: &str,
        name: &str,
        action: &'static str,
    ) -> Result<(Server, Tool, u64)> {
        let server = self.visible_server(scope, server).await?;
        let found = self.tool_of(scope.tenant(), server.id, name).await?;
        let (tool, version) = found.ok_or_else(|| missing(name))?;
        let may = self.may_use(scope, &server, &tool, action).await?;
        if may { Ok((server, tool, version)) } else { Err(missing(name)) }
    }

    /// Reports whether the caller may use a tool. A denial is recorded in the audit.
    async fn may_use(
        &self,
        scope: Scope,
        server: &Server,
        tool: &Tool,
        action: &'static str,
    ) -> Result<bool> {
        let Some(agent) = scope.agent() else { return Ok(true) };
        let agent = self.find::<Agent>(scope.tenant(), Kind::Agent, agent).await?;
        let may = agent.is_some_and(|(agent, _)| agent.may_use(server.id, &tool.name));
        if !may {
            let entry = self.about_tool(scope, action, server, tool);
            self.audit_refusal_later(scope.tenant(), entry.with("reason", Reason::NotSelected.code()));
        }
        Ok(may)
    }

    /// Resolves a qualified name to a server and a tool.
    pub(super) async fn find_tool(&self, tenant: TenantId, name: &str) -> Result<(Server, Tool, u64)> {
        let (slug, rest) = parts(name)?;
        let server = self.find_server(tenant, slug).await.map_err(|error| as_tool(error, name))?;
        // Most names contain the upstream name unchanged.
        if let Some((tool, version)) = self.tool_of(tenant, server.id, rest).await?
            && local(&server.slug, &tool.name, LONGEST) == name
        {
            return Ok((server, tool, version));
        }
        let mut own = self.adapted.find(tenant, server.id, name);
        if own.is_none() {
            let all = self.all::<Tool>(tenant, Kind::Tool, Some(&server.id.to_string())).await?;
            let mut names = HashMap::new();
            let mut doubles = HashSet::new();
            for (Tool { name, .. }, _) in all {
                // Exports for some providers use shorter names, which calls then use as well.
                let [here, short] =
                    [LONGEST, LONGEST_FOR_SOME].map(|longest| local(&server.slug, &name, longest));
                for here in BTreeSet::from([here, short]) {
                    if names.insert(here.clone(), name.clone()).is_some() {
                        doubles.insert(here);
                    }
                }
            }
            names.retain(|here, _| !doubles.contains(here));
            own = names.get(name).cloned();
            self.adapted.keep(tenant, server.id, names);
        }
        let found = self.tool_of(tenant, server.id, &own.ok_or_else(|| missing(name))?).await?;
        let (tool, version) = found.ok_or_else(|| missing(name))?;
        Ok((server, tool, version))
    }

    /// Explains a missing tool: if the tools of its server are not known yet, the error says what to do. Only for
    /// users, since agents must not learn of servers this way.
    pub(super) async fn why_missing(&self, scope: Scope, server: &str, error: Error) -> Error {
        if error.kind() != error::Kind::NotFound || scope.person().is_err() {
            return error;
        }
        let Ok(server) = self.find_server(scope.tenant(), server).await else { return error };
        self.tools_unknown(scope.tenant(), &server).await.ok().flatten().unwrap_or(error)
    }

    /// Returns why the tools of a server are not known yet. `None` if they are.
    async fn tools_unknown(&self, tenant: TenantId, server: &Server) -> Result<Option<Error>> {
        let (contact, _) = self.contact(tenant, server.id).await?;
        if contact.last_synced.is_some() {
            return Ok(None);
        }
        let slug = server.slug.as_str();
        let is_shared = server.settings.credentials == CredentialMode::Shared;
        let needs_sign_in = match server.settings.authentication {
            Authentication::OAuth { .. } => !is_shared || !self.has_grant(tenant, server, None).await?,
            _ => false,
        };
        let (code, text) = if !server.settings.enabled {
            ("server_disabled", format!("`{slug}` is disabled: enable it first"))
        } else if needs_sign_in {
            let whose = if is_shared { "" } else { " --agent NAME" };
            let text = format!(
                "the tools of `{slug}` are unknown until a sign-in: sign in first with `linchpin server sign-in \
                 {slug}{whose}`"
            );
            ("sign_in_needed", text)
        } else if let Some(error) = contact.error {
            ("tools_unknown", format!("the tools of `{slug}` are not known yet: {error}"))
        } else {
            let text = format!("the tools of `{slug}` are not known yet: run `linchpin server sync {slug}`");
            ("tools_unknown", text)
        };
        Ok(Some(Error::new(error::Kind::Conflict, code, text)))
    }

    /// Returns a tool by its upstream name.
    pub(super) async fn tool_of(
        &self,
        tenant: TenantId,
        server: ServerId,
        name: &str,
    ) -> Result<Option<(Tool, u64)>> {
        let found = self.find::<Tool>(tenant, Kind::Tool, tool_id(server, name)).await?;
        Ok(found.filter(|(tool, _)| tool.name == name))
    }
}

/// Returns the slug in a qualified name.
pub(super) fn slug_in(name: &str) -> Option<&str> {
    Some(split(name)?.0)
}

fn missing(name: &str) -> Error {
    Error::not_found("tool", shortened(name))
}

/// Splits a qualified name into slug and rest.
fn split(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("mcp_")?.split_once("__")
}

/// Like [`split`], with an error.
fn parts(name: &str) -> Result<(&str, &str)> {
    split(name).ok_or_else(|| missing(name))
}

/// Turns the error for a missing server into one for the tool.
fn as_tool(error: Error, name: &str) -> Error {
    if error.kind() == error::Kind::NotFound { missing(name) } else { error }
}

/// Removes tools whose names are ambiguous: a caller could hit the wrong one.
pub(super) fn without_doubles(mut views: Vec<ToolView>) -> Vec<ToolView> {
    let mut counts = HashMap::new();
    for view in &views {
        *counts.entry(view.name.clone()).or_insert(0_usize) += 1;
    }
    let doubles: HashSet<_> =
        counts.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect();
    views.retain(|view| !doubles.contains(&view.name));
    views
}

fn view(server: &Server, tool: Tool, is_stale: bool) -> ToolView {
    let state = tool.state();
    let changes = if state == State::Changed { tool.changes() } else { Vec::new() };
    ToolView {
        name: local(&server.slug, &tool.name, LONGEST),
        server: server.slug.as_str().to_owned(),
        state,
        pin: pin(&tool.definition).to_string(),
        is_callable: server.settings.enabled && !tool.is_gone && state != State::Changed,
        is_stale,
        is_gone: tool.is_gone,
        changes,
        hidden_characters: hidden_characters(&tool.definition),
        first_seen: tool.first_seen,
        last_seen: tool.last_seen,
        tool: tool.name,
        definition: tool.definition,
    }
}

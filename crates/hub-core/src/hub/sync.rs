//! Tool sync: on request, when a server reports changes, and periodically. A server that cannot be reached retains its
//! known tools and does not affect others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin::client::Listing;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::connect::{failed, list_tools};
use super::server_records::Contact;
use super::tool_listing::Listed;
use super::{Hub, document, event_payloads, put};
use crate::actor::{Scope, Subject};
use crate::agent::Agent;
use crate::audit;
use crate::connection::{backoff, may_pass};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::events::Told;
use crate::id::{AgentId, ServerId, TenantId};
use crate::lock::lock;
use crate::secrets::redact::Hidden;
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::{Batch, Change, Key, Kind};
use crate::text::shortened;
use crate::tool::pin::{State, pin};
use crate::tool::{LeftOut, Tool};

/// Maximum number of tools of a server.
const MOST_TOOLS: usize = 10_000;
/// Maximum number of agents whose tools are listed where each has its own credentials.
const MOST_AGENTS: usize = 20;
/// Attempts to commit a listing.
const TAKES: u8 = 5;
/// Maximum number of tool names in an event.
const MOST_NAMES: usize = 20;

/// Result of a sync.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Synced {
    /// Number of tools.
    pub tools: usize,
    /// Tools that are new.
    pub added: Vec<String>,
    /// Tools whose definitions have changed. They cannot be called until a user trusts them again.
    pub changed: Vec<String>,
    /// Tools that the server no longer has.
    pub gone: Vec<String>,
    /// Tools that the server has again, or whose trusted definition is back.
    pub back: Vec<String>,
    /// Tools that the hub does not use, with the reasons. At most 100.
    pub left_out: Vec<LeftOut>,
}

/// Locks that serialize the syncs of each server.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<(TenantId, ServerId), Turn>>);

type Turn = Arc<tokio::sync::Mutex<()>>;

impl Turns {
    fn of(&self, tenant: TenantId, server: ServerId) -> Turn {
        let mut turns = lock(&self.0);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry((tenant, server)).or_default().clone()
    }
}

impl Hub {
    /// Syncs the tools of a server now. With an agent, lists them with the credentials of that agent.
    pub async fn sync_server(&self, scope: Scope, name: &str, agent: Option<AgentId>) -> Result<Synced> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        let scope = match agent {
            None => scope,
            Some(agent) => {
                self.need::<Agent>(scope.tenant(), Kind::Agent, agent).await?;
                Scope::new(scope.tenant(), Subject::Agent(agent))
            }
        };
        self.sync(scope, &server, true).await
    }

    /// Schedules a sync of a server in the background.
    pub(super) fn look_soon(&self, tenant: TenantId, server: ServerId) {
        self.due.add((tenant, server));
    }

    /// Syncs the tools of a server and records the error if it fails.
    pub(super) async fn sync(&self, scope: Scope, server: &Server, insist: bool) -> Result<Synced> {
        let (tenant, turn) = (scope.tenant(), self.turns.of(scope.tenant(), server.id));
        let _turn = turn.lock().await;
        // The server may have been changed or removed while this sync waited for the lock.
        let server = &self.find_server(tenant, &server.id.to_string()).await?;
        let synced = match self.listed(scope, server, insist).await {
            Ok(listed) => {
                let mut tries = TAKES;
                loop {
                    tries -= 1;
                    match self.take_in(tenant, server, &listed).await {
                        // A user has just trusted one of the tools, or another hub syncs as well: retry with the new
                        // versions.
                        Err(error) if error.kind() == error::Kind::Conflict && tries > 0 => {}
                        done => break done,
                    }
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &synced {
            self.contacted(tenant, server, Some(error)).await?;
            self.events.publish(tenant, event_payloads::server(server.id, "sync_failed"));
        }
        synced
    }

    /// Lists the tools of a server for the subject; with credentials per agent, for all agents that have one.
    async fn listed(&self, scope: Scope, server: &Server, insist: bool) -> Result<Listed> {
        let mut listed = Listed::default();
        let (mut agents, are_all) = match server.settings.credentials {
            CredentialMode::Shared => (Vec::new(), true),
            CredentialMode::PerAgent => self.agents_with_credentials(scope.tenant(), server).await?,
        };
        listed.is_whole = are_all && agents.len() <= MOST_AGENTS;
        if let Some(own) = scope.agent().filter(|_| server.settings.credentials == CredentialMode::PerAgent) {
            listed.is_whole &= agents.iter().all(|agent| *agent == own);
            listed.is_of_one = !listed.is_whole;
            agents.clear();
        }
        let (mut has_answered, mut last) = (false, None);
        for agent in agents.into_iter().take(MOST_AGENTS) {
            let scope = Scope::new(scope.tenant(), Subject::Agent(agent));
            match self.listed_by(scope, server, insist).await {
                Ok((tools, hidden)) => {
                    listed.add(tools, &hidden);
                    has_answered = true;
                }
                Err(error) => {
                    tracing::debug!(server.id = %server.id, agent.id = %agent, %error, "failed to list tools as an agent");
                    (listed.is_whole, last) = (false, Some(error));
                }
            }
        }
        if !has_answered {
            // Some servers list tools without authentication. If not, the error of an agent is more helpful.
            let (tools, hidden) =
                self.listed_by(scope, server, insist).await.map_err(|error| last.unwrap_or(error))?;
            listed.add(tools, &hidden);
        }
        Ok(listed)
    }

    /// Returns the enabled agents with a credential, and whether no other agent has one.
    pub(super) async fn agents_with_credentials(
        &self,
        tenant: TenantId,
        server: &Server,
    ) -> Result<(Vec<AgentId>, bool)> {
        let (mut found, mut are_all) = (Vec::new(), true);
        for (agent, _) in self.all::<Agent>(tenant, Kind::Agent, None).await? {
            let scope = Scope::new(tenant, Subject::Agent(agent.id));
            let has_one = match &server.settings.authentication {
                Authentication::OAuth { .. } => self.has_grant(tenant, server, Some(agent.id)).await,
                _ => self.credential_of(scope, server).await.map(|known| known.is_some()),
            };
            match has_one {
                Ok(false) => {}
                Ok(true) if agent.enabled => found.push(agent.id),
                _ => are_all = false,
            }
        }
        Ok((found, are_all))
    }

    async fn listed_by(
        &self,
        scope: Scope,
        server: &Server,
        insist: bool,
    ) -> Result<(Listing<linchpin::model::Tool>, Arc<Hidden>)> {
        let mut tries = 0;
        loop {
            // The hub itself may use any open connection.
            let live = self.connections.live(scope.tenant(), server);
            let client = match live.filter(|_| scope.subject() == Subject::Hub) {
                Some(live) => live,
                // A user's request connects at once; the hub's own waits for the backoff after a failure.
                None => self.reach_server(scope, server, insist).await?,
            };
            match list_tools(&client).await {
                Ok(tools) if tools.items.len() > MOST_TOOLS => {
                    let text = format!(
                        "`{}` lists {} tools; the limit is {MOST_TOOLS}",
                        server.slug.as_str(),
                        tools.items.len()
                    );
                    return Err(Error::new(error::Kind::Unavailable, "too_many_tools", text));
                }
                Ok(tools) => return Ok((tools, client.hidden.clone())),
                Err(error) if tries < server.settings.retry_attempts && may_pass(&error) => {
                    tokio::time::sleep(backoff(tries)).await;
                    tries += 1;
                }
                Err(error) => {
                    self.connections.failed(&client, &error).await;
                    return Err(failed(server, &client.hidden, "its tools cannot be listed", &error));
                }
            }
        }
    }

    /// Stores the tools that a server lists. Tools with changed definitions are quarantined.
    async fn take_in(&self, tenant: TenantId, server: &Server, listed: &Listed) -> Result<Synced> {
        let left_out = listed.left_out();
        let (now, mut found) = (self.world.now(), Synced { left_out, ..Synced::default() });
        let known = self.all::<Tool>(tenant, Kind::Tool, Some(&server.id.to_string())).await?;
        let mut known: HashMap<_, _> =
            known.into_iter().map(|(tool, version)| (tool.name.clone(), (tool, version))).collect();
        let mut batch = Batch::new();
        for (name, definitions) in &listed.tools {
            let Some((mut tool, version)) = known.remove(name) else {
                found.added.push(name.clone());
                let tool = Tool::new(server.id, name.as_str(), definitions[0].clone(), now);
                batch = batch.change(put(kept(&tool)?, 0));
                continue;
            };
            if !tool.is_gone && (listed.is_of_one || definitions.contains(&tool.definition)) {
                continue;
            }
            // Prefer the pinned definition if any agent still sees it.
            let definition = definitions.iter().find(|seen| **seen == tool.pinned).unwrap_or(&definitions[0]);
            let (state, was_gone) = (tool.state(), tool.is_gone);
            tool.listed(definition.clone(), now);
            if tool.state() == State::Changed && state != State::Changed {
                found.changed.push(name.clone());
                batch = batch.audit(self.noticed(server, "tool.changed", &tool));
            } else if was_gone || tool.state() != State::Changed && state == State::Changed {
                found.back.push(name.clone());
            }
            batch = batch.change(put(kept(&tool)?, version));
        }
        let mut others = 0;
        for (mut tool, version) in known.into_values().filter(|(tool, _)| !tool.is_gone) {
            if listed.is_whole {
                tool.is_gone = true;
                found.gone.push(tool.name.clone());
                batch = batch.change(put(kept(&tool)?, version));
            } else {
                others += 1;
            }
        }
        found.tools = listed.tools.len() + others;
        let has_news = !batch.changes.is_empty();
        let (before, version) = self.contact(tenant, server.id).await?;
        if before.of > server.version {
            return Ok(found); // a newer version of the server was synced
        }
        let contact = Contact {
            last_connected: Some(now),
            last_synced: Some(now),
            error: None,
            of: server.version,
            tools: found.tools,
            left_out: found.left_out.clone(),
        };
        batch = batch.change(put(document(Kind::Contact, server.id, &contact)?.of(server.id), version));
        if has_news || before.last_synced.is_none() {
            let entry = audit::Entry::new(now, "hub", "server.synced").with("server", server.id.to_string());
            let count = |names: &[String]| names.len();
            batch = batch.audit(
                entry
                    .with("tools", found.tools)
                    .with("added", count(&found.added))
                    .with("changed", count(&found.changed))
                    .with("gone", count(&found.gone))
                    .with("back", count(&found.back)),
            );
        }
        if has_news {
            let news = [&found.added, &found.changed, &found.gone, &found.back].map(|names| {
                let first: Vec<_> = names.iter().take(MOST_NAMES).map(|name| shortened(name)).collect();
                json!({ "count": names.len(), "first": first })
            });
            let [added, changed, gone, back] = news;
            let body = json!({ "server": server.id, "tools": found.tools, "added": added, "changed": changed,
                "gone": gone, "back": back });
            batch = batch.tell(Told::new("tools", body));
        }
        let is_there = Change::Need(Key::new(Kind::Server, server.id));
        let (adapted, id) = (self.adapted.clone(), server.id);
        let batch = batch.change(is_there).tell(event_payloads::server(id, "synced"));
        self.commit_then(tenant, batch, move |done| {
            if has_news && done.is_ok() {
                adapted.forget(tenant, id);
            }
        })
        .await?;
        if !found.left_out.is_empty() {
            let slug = server.slug.as_str();
            let tools = found.left_out.len();
            tracing::warn!(server = slug, server.id = %server.id, tools, "skipping unusable tools of a server");
        }
        Ok(found)
    }

    fn noticed(&self, server: &Server, action: &'static str, tool: &Tool) -> audit::Entry {
        let pins = [&tool.pinned, &tool.definition].map(|definition| pin(definition).to_string());
        let [before, after] = pins;
        let entry = audit::Entry::new(self.world.now(), "hub", action).with("server", server.id.to_string());
        entry.with("tool", tool.name.as_str()).with("before", before).with("after", after)
    }
}

/// Creates the document of a tool.
pub(super) fn kept(tool: &Tool) -> Result<crate::store::Document> {
    Ok(document(Kind::Tool, tool_id(tool.server, &tool.name), tool)?.of(tool.server))
}

/// Derives the id of a tool from its upstream name.
pub(super) fn tool_id(server: ServerId, name: &str) -> String {
    let digest = Digest::of("linchpin tool id").part(name).end().to_string();
    format!("{server}.{}", &digest[..32])
}

//! Tool sync: on request, when a server reports changes, and periodically. A server that cannot be reached retains its
//! known tools and does not affect others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::listing::ToolListing;
use super::sync_queue::{ServerKey, SyncTicket};
use super::sync_schedule::SyncSchedule;
use crate::actor::{Actor, Subject};
use crate::agent::Agent;
use crate::audit;
use crate::digest::Digest;
use crate::error::{self, Result};
use crate::events::NewEvent;
use crate::hub::registry::Registry;
use crate::hub::registry::records::ServerContact;
use crate::hub::registry::views::ServerOffers;
use crate::hub::upstream::features::{FeatureDefinitions, StoredFeatures};
use crate::hub::upstream::server_info::ServerReport;
use crate::hub::{document, event_payloads, upsert};
use crate::id::{AgentId, ServerId, TenantId};
use crate::lock::lock;
use crate::server::{CredentialMode, Server};
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange};
use crate::text::shorten;
use crate::tool::pin::{TrustState, pin};
use crate::tool::{SkippedTool, ToolRecord};

/// Maximum number of agents whose tools are listed where each has its own credentials.
const MAX_LISTING_AGENTS: usize = 20;
/// Maximum number of attempts to commit the listed tools while users or other hubs change the tools.
const MAX_COMMIT_ATTEMPTS: u8 = 5;
/// Maximum number of tool names in an event.
const MAX_EVENT_NAMES: usize = 20;

/// Result of a tool sync: which tools of the server are new, changed, gone or skipped.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct SyncReport {
    /// Number of tools of the server after the sync, without skipped ones.
    pub tools: usize,
    /// Names of the tools that are new.
    pub added: Vec<String>,
    /// Names of the tools whose definitions have changed. They cannot be called until a user trusts them again.
    pub changed: Vec<String>,
    /// Names of the tools that the server no longer has.
    pub removed: Vec<String>,
    /// Names of the tools that the server has again, or whose trusted definition is back.
    pub restored: Vec<String>,
    /// Tools that the sync has skipped, with the reasons. At most 100.
    pub skipped: Vec<SkippedTool>,
}

/// Locks by server, which prevent two syncs of one server at the same time.
#[derive(Default)]
pub(in crate::hub) struct SyncLocks(Mutex<HashMap<(TenantId, ServerId), SyncLock>>);

type SyncLock = Arc<tokio::sync::Mutex<()>>;

impl SyncLocks {
    fn get(&self, tenant: TenantId, server: ServerId) -> SyncLock {
        let mut locks = lock(&self.0);
        locks.retain(|_, sync_lock| Arc::strong_count(sync_lock) > 1);
        locks.entry((tenant, server)).or_default().clone()
    }
}

impl Registry {
    /// Updates the stored tools of a server from its tool list now. With an agent, lists them with the credentials of
    /// that agent.
    pub async fn sync_server(&self, actor: Actor, name: &str, agent: Option<AgentId>) -> Result<SyncReport> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        let actor = match agent {
            None => actor,
            Some(agent) => {
                self.context.require::<Agent>(actor.tenant(), DocumentKind::Agent, agent).await?;
                Actor::new(actor.tenant(), Subject::Agent(agent))
            }
        };
        Ok(self.sync(actor, &server, true).await?.0)
    }

    /// Waits until a sync is requested, or a requested one is due.
    pub(in crate::hub) async fn sync_requested(&self) {
        let requested = self.sync_queue.wakeup.notified();
        match self.sync_queue.next_due() {
            Some(due) => drop(timeout_at(due, requested).await),
            None => requested.await,
        }
    }

    /// Returns the servers whose sync is due. Each counts as running until its ticket is dropped.
    pub(in crate::hub) fn take_due_syncs(&self) -> Vec<SyncTicket> {
        self.sync_queue.start_due()
    }

    /// Schedules a sync of a server in the background.
    pub(in crate::hub) fn schedule_sync(&self, tenant: TenantId, server: ServerId) {
        self.sync_queue.add((tenant, server));
    }

    /// Schedules a sync of every enabled server.
    pub(in crate::hub) async fn schedule_all_syncs(&self, tenant: TenantId) -> Result<()> {
        for server in self.servers.list_servers(tenant).await?.iter().filter(|server| server.settings.enabled)
        {
            self.schedule_sync(tenant, server.id);
        }
        Ok(())
    }

    /// Lists the tools of the enabled servers that were never synced, so that their first client finds them.
    pub async fn sync_new_servers(self: &Arc<Self>, tenant: TenantId) -> Result<()> {
        let mut syncs = JoinSet::new();
        for server in self.servers.list_servers(tenant).await? {
            let is_new = self.servers.contact(tenant, server.id).await?.0.last_synced.is_none();
            if server.settings.enabled && is_new {
                let registry = self.clone();
                syncs.spawn(async move { registry.sync_queued((tenant, server.id)).await });
            }
        }
        while let Some(synced) = syncs.join_next().await {
            if let Ok(Err(error)) = synced {
                tracing::debug!(%error, "failed to sync the tools of a new server");
            }
        }
        Ok(())
    }

    /// Schedules the periodic syncs of a tenant that are due.
    pub(in crate::hub) async fn schedule_due_syncs(
        &self,
        tenant: TenantId,
        now: Timestamp,
        schedule: &mut SyncSchedule,
    ) -> Result<()> {
        let listed = self.servers.list_servers(tenant).await;
        if listed.is_err() {
            schedule.examine_again();
        }
        let servers = listed?;
        let enabled = servers.iter().filter(|server| server.settings.enabled);
        let intervals: Vec<_> = enabled
            .map(|server| (server.id, server.settings.limits.sync_interval(), server.updated))
            .collect();
        for server in schedule.take_due(tenant, now, &intervals) {
            self.schedule_sync(tenant, server);
        }
        Ok(())
    }

    /// Syncs a server that was in the queue, unless it was disabled since.
    pub(in crate::hub) async fn sync_queued(&self, (tenant, server): ServerKey) -> Result<()> {
        let server = self.servers.find_server(tenant, &server.to_string()).await?;
        if server.settings.enabled {
            self.sync(Actor::new(tenant, Subject::Hub), &server, false).await?;
        }
        Ok(())
    }

    /// Lists the tools of a server and stores them, or records the error. Also returns the names of what it offers.
    pub(in crate::hub) async fn sync(
        &self,
        actor: Actor,
        server: &Server,
        bypass_backoff: bool,
    ) -> Result<(SyncReport, ServerOffers)> {
        let (tenant, sync_lock) = (actor.tenant(), self.sync_locks.get(actor.tenant(), server.id));
        let _guard = sync_lock.lock().await;
        // The server may have been changed or removed while this sync waited for the lock.
        let server = &self.servers.find_server(tenant, &server.id.to_string()).await?;
        let synced = match self.list_all_subjects(actor, server, bypass_backoff).await {
            Ok((listed, report)) => {
                let mut attempts = MAX_COMMIT_ATTEMPTS;
                loop {
                    attempts -= 1;
                    match self.store_listing(tenant, server, &listed, &report).await {
                        // A user has just trusted one of the tools, or another hub syncs as well: retry with the new
                        // versions.
                        Err(error) if error.kind() == error::ErrorKind::Conflict && attempts > 0 => {}
                        done => {
                            let features = report.features.unwrap_or_default().names();
                            let offers = ServerOffers { tools: listed.names(), features };
                            break done.map(|found| (found, offers));
                        }
                    }
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &synced {
            self.servers.record_contact(tenant, server, Some(error)).await?;
            self.context.events.publish(tenant, event_payloads::server(server.id, "sync_failed"));
        }
        synced
    }

    /// Lists the tools of a server for the subject; with credentials per agent, for all agents that have one.
    async fn list_all_subjects(
        &self,
        actor: Actor,
        server: &Server,
        bypass_backoff: bool,
    ) -> Result<(ToolListing, ServerReport)> {
        let (mut listed, mut report) = (ToolListing::default(), ServerReport::default());
        let (mut agents, are_all) = match server.settings.credentials {
            CredentialMode::Shared => (Vec::new(), true),
            CredentialMode::PerAgent => self.upstream.agents_with_credentials(actor.tenant(), server).await?,
        };
        listed.is_complete = are_all && agents.len() <= MAX_LISTING_AGENTS;
        if let Some(own_agent) =
            actor.agent().filter(|_| server.settings.credentials == CredentialMode::PerAgent)
        {
            listed.is_complete &= agents.iter().all(|agent| *agent == own_agent);
            listed.is_partial = !listed.is_complete;
            agents.clear();
        }
        let (mut has_listing, mut last_error) = (false, None);
        for agent in agents.into_iter().take(MAX_LISTING_AGENTS) {
            let actor = Actor::new(actor.tenant(), Subject::Agent(agent));
            match self.upstream.list_as(actor, server, bypass_backoff).await {
                Ok((tools, own_report, redactor)) => {
                    listed.add(tools, &redactor);
                    report.add(own_report);
                    has_listing = true;
                }
                Err(error) => {
                    tracing::debug!(server.id = %server.id, agent.id = %agent, %error, "failed to list the tools of a server with the credential of an agent");
                    (listed.is_complete, last_error) = (false, Some(error));
                }
            }
        }
        if !has_listing {
            // Some servers list tools without authentication. If not, the error of an agent is more helpful.
            let (tools, own_report, redactor) = self
                .upstream
                .list_as(actor, server, bypass_backoff)
                .await
                .map_err(|error| last_error.unwrap_or(error))?;
            listed.add(tools, &redactor);
            report.add(own_report);
        }
        Ok((listed, report))
    }

    /// Stores the tools that a server lists and returns what has changed. Tools with changed definitions are
    /// quarantined.
    async fn store_listing(
        &self,
        tenant: TenantId,
        server: &Server,
        listed: &ToolListing,
        report: &ServerReport,
    ) -> Result<SyncReport> {
        let skipped = listed.skipped();
        let (now, mut found) = (self.context.platform.now(), SyncReport { skipped, ..SyncReport::default() });
        let existing = self
            .context
            .load_all::<ToolRecord>(tenant, DocumentKind::Tool, Some(&server.id.to_string()))
            .await?;
        let mut existing: HashMap<_, _> =
            existing.into_iter().map(|(tool, version)| (tool.name.clone(), (tool, version))).collect();
        let mut batch = Batch::new();
        for (name, definitions) in &listed.tools {
            let Some((mut tool, version)) = existing.remove(name) else {
                found.added.push(name.clone());
                let tool = ToolRecord::new(server.id, name.as_str(), definitions[0].clone(), now);
                batch = batch.change(upsert(tool_document(&tool)?, 0));
                continue;
            };
            if !tool.is_removed && (listed.is_partial || definitions.contains(&tool.definition)) {
                continue;
            }
            // Prefer the pinned definition if any agent still sees it.
            let definition =
                definitions.iter().find(|candidate| **candidate == tool.pinned).unwrap_or(&definitions[0]);
            let (state, was_removed) = (tool.state(), tool.is_removed);
            tool.update_listing(definition.clone(), now);
            if tool.state() == TrustState::Changed && state != TrustState::Changed {
                found.changed.push(name.clone());
                batch = batch.audit(self.change_entry(server, "tool.quarantined", &tool));
            } else if was_removed || tool.state() != TrustState::Changed && state == TrustState::Changed {
                found.restored.push(name.clone());
            }
            batch = batch.change(upsert(tool_document(&tool)?, version));
        }
        let mut others = 0;
        for (mut tool, version) in existing.into_values().filter(|(tool, _)| !tool.is_removed) {
            if listed.is_complete {
                tool.is_removed = true;
                found.removed.push(tool.name.clone());
                batch = batch.change(upsert(tool_document(&tool)?, version));
            } else {
                others += 1;
            }
        }
        found.tools = listed.tools.len() + others;
        let has_changes = !batch.changes.is_empty();
        let (features_change, has_new_features) =
            self.features_change(tenant, server.id, listed, report).await?;
        batch.changes.extend(features_change);
        let (before, version) = self.servers.contact(tenant, server.id).await?;
        if before.server_version > server.version {
            return Ok(found); // a newer version of the server was synced
        }
        let contact = ServerContact {
            last_connected: Some(now),
            last_synced: Some(now),
            error: None,
            server_version: server.version,
            tools: found.tools,
            info: Some(report.info.clone()),
            features: report.features.as_ref().map(FeatureDefinitions::counts).or(before.features),
            skipped: found.skipped.clone(),
        };
        batch = batch.change(upsert(
            document(DocumentKind::Contact, server.id, &contact)?.with_parent(server.id),
            version,
        ));
        if has_changes || before.last_synced.is_none() {
            batch = batch.audit(synced_entry(now, server.id, &found));
        }
        if has_changes {
            batch = batch.with_event(changed_tools_event(server.id, &found));
        }
        if has_new_features {
            batch = batch.with_event(event_payloads::server(server.id, "features_changed"));
        }
        let require_server = StoreChange::RequireExists(DocumentKey::new(DocumentKind::Server, server.id));
        let (tool_names, id) = (self.tool_names.clone(), server.id);
        let batch = batch.change(require_server).with_event(event_payloads::server(id, "synced"));
        self.context
            .commit_then(tenant, batch, move |done| {
                if has_changes && done.is_ok() {
                    tool_names.remove(tenant, id);
                }
            })
            .await?;
        if !found.skipped.is_empty() {
            let slug = server.slug.as_str();
            let tools = found.skipped.len();
            tracing::warn!(server = slug, server.id = %server.id, tools, "skipping unusable tools of a server");
        }
        Ok(found)
    }

    /// Returns the change that stores the listed resources and prompts of a server, if they have changed.
    async fn features_change(
        &self,
        tenant: TenantId,
        server: ServerId,
        listed: &ToolListing,
        report: &ServerReport,
    ) -> Result<(Option<StoreChange>, bool)> {
        let Some(features) = &report.features else { return Ok((None, false)) };
        let stored = self.context.load::<StoredFeatures>(tenant, DocumentKind::Features, server).await?;
        let (before, version) = stored.unwrap_or_default();
        let mut features = StoredFeatures { all: features.clone(), by_agent: report.by_agent.clone() };
        if listed.is_partial {
            features.all.add(before.all.clone());
            for (agent, known) in &before.by_agent {
                features.by_agent.entry(*agent).or_insert_with(|| known.clone());
            }
        }
        if version > 0 && features == before {
            return Ok((None, false));
        }
        let document = document(DocumentKind::Features, server, &features)?.with_parent(server);
        Ok((Some(upsert(document, version)), features != before))
    }

    fn change_entry(&self, server: &Server, action: &'static str, tool: &ToolRecord) -> audit::AuditEntry {
        let pins = [&tool.pinned, &tool.definition].map(|definition| pin(definition).to_string());
        let [before, after] = pins;
        let entry = audit::AuditEntry::new(self.context.platform.now(), "hub", action)
            .with("server", server.id.to_string());
        entry.with("tool", tool.name.as_str()).with("before", before).with("after", after)
    }
}

/// Creates the document of a tool.
pub(in crate::hub) fn tool_document(tool: &ToolRecord) -> Result<crate::store::Document> {
    Ok(document(DocumentKind::Tool, tool_id(tool.server, &tool.name), tool)?.with_parent(tool.server))
}

/// Derives the id of a tool from its upstream name.
pub(in crate::hub) fn tool_id(server: ServerId, name: &str) -> String {
    let digest = Digest::of("linchpin tool id").part(name).finish().to_string();
    format!("{server}.{}", &digest[..32])
}

/// Creates the audit entry of a sync.
fn synced_entry(now: Timestamp, server: ServerId, found: &SyncReport) -> audit::AuditEntry {
    let count = |names: &[String]| names.len();
    audit::AuditEntry::new(now, "hub", "server.synced")
        .with("server", server.to_string())
        .with("tools", found.tools)
        .with("added", count(&found.added))
        .with("changed", count(&found.changed))
        .with("removed", count(&found.removed))
        .with("restored", count(&found.restored))
}

/// Creates the event of changed tools, with the first names of each kind of change.
fn changed_tools_event(server: ServerId, found: &SyncReport) -> NewEvent {
    let summary = |names: &[String]| {
        let first: Vec<_> = names.iter().take(MAX_EVENT_NAMES).map(|name| shorten(name)).collect();
        json!({ "count": names.len(), "first": first })
    };
    let body = json!({
        "server": server, "tools": found.tools,
        "added": summary(&found.added), "changed": summary(&found.changed),
        "removed": summary(&found.removed), "restored": summary(&found.restored),
    });
    NewEvent::new("tools", body)
}

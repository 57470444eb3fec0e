//! Looking at the tools of servers: when somebody asks, when a server says that they changed, and every now and then. A
//! server that cannot be reached keeps the tools that are known of it, and nobody else's are touched.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use linchpin::Revision;
use linchpin::encode::to_value;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;

use super::connecting::{failed, list_tools};
use super::servers::Contact;
use super::{Hub, document, put};
use crate::agent::Agent;
use crate::audit::Entry;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hidden::Hidden;
use crate::id::{AgentId, ServerId, TenantId};
use crate::pin::{State, pin};
use crate::scope::{Scope, Subject};
use crate::server::{CredentialMode, Server};
use crate::store::{Batch, Kind};
use crate::sync::lock;
use crate::tool::Tool;

/// The most tools of a server that are kept, and the longest name.
const MOST_TOOLS: usize = 10_000;
const LONGEST_NAME: usize = 1_000;

/// What a look at a server's tools found.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Synced {
    /// How many tools it has.
    pub tools: usize,
    /// Those that were not known.
    pub added: Vec<String>,
    /// Those that are not what they were: they cannot be called until somebody has looked at them.
    pub changed: Vec<String>,
    /// Those that it no longer has.
    pub gone: Vec<String>,
}

/// What a server lists, and what must not be seen of it.
type Listed = (Vec<linchpin::model::Tool>, Arc<Hidden>);

/// Servers that are to be looked at soon, and as whom.
#[derive(Default)]
pub(super) struct Due {
    servers: Mutex<HashSet<(TenantId, ServerId, Subject)>>,
    pub(super) bell: Notify,
}

impl Due {
    pub(super) fn add(&self, tenant: TenantId, server: ServerId, subject: Subject) {
        lock(&self.servers).insert((tenant, server, subject));
        self.bell.notify_one();
    }

    pub(super) fn take(&self) -> Vec<(TenantId, ServerId, Subject)> {
        std::mem::take(&mut *lock(&self.servers)).into_iter().collect()
    }
}

/// One at a time for each server.
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
    /// Looks at the tools of a server now: as an agent, where each has its own credentials and it is named.
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

    /// A server is looked at soon, by the hub itself.
    pub(super) fn look_soon(&self, tenant: TenantId, server: ServerId) {
        self.look_soon_as(tenant, server, Subject::Hub);
    }

    pub(super) fn look_soon_as(&self, tenant: TenantId, server: ServerId, subject: Subject) {
        self.due.add(tenant, server, subject);
    }

    /// Looks at the tools of a server, and keeps what went wrong if something did.
    pub(super) async fn sync(&self, scope: Scope, server: &Server, insist: bool) -> Result<Synced> {
        let (tenant, turn) = (scope.tenant(), self.turns.of(scope.tenant(), server.id));
        let _turn = turn.lock().await;
        // It may have been changed or removed while others had their turn.
        let server = &self.find_server(tenant, &server.id.to_string()).await?;
        let synced = match self.listed(scope, server, insist).await {
            Ok((listed, hidden)) => self.take_in(tenant, server, listed, &hidden).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &synced {
            self.contacted(tenant, server.id, Some(error)).await?;
            self.server_changed(tenant, server.id, "sync_failed");
        }
        synced
    }

    /// What a server lists for whoever may ask it: the subject, or else an agent that has credentials of its own.
    async fn listed(&self, scope: Scope, server: &Server, insist: bool) -> Result<Listed> {
        let first = self.listed_by(scope, server, insist).await;
        let is_per_agent = server.settings.credentials == CredentialMode::PerAgent;
        let Err(error) = first else { return first };
        if !is_per_agent || scope.agent().is_some() {
            return Err(error);
        }
        for (agent, _) in self.all::<Agent>(scope.tenant(), Kind::Agent, None).await? {
            let scope = Scope::new(scope.tenant(), Subject::Agent(agent.id));
            if agent.enabled && self.credential_of(scope, server).await?.is_some() {
                return self.listed_by(scope, server, insist).await;
            }
        }
        Err(error)
    }

    async fn listed_by(&self, scope: Scope, server: &Server, insist: bool) -> Result<Listed> {
        // The hub itself looks through any connection that there is.
        let live = self.connections.live(scope.tenant(), server).filter(|_| scope.subject() == Subject::Hub);
        let (client, hidden) = match live {
            Some(live) => live,
            // People insist; what the hub does by itself waits until a server is tried again.
            None => self.client_and_secrets(scope, server, insist).await?,
        };
        let mut tries = 0;
        loop {
            match list_tools(&client).await {
                Ok(tools) if tools.len() > MOST_TOOLS => {
                    let text = format!(
                        "`{}` lists {} tools, of which {MOST_TOOLS} at most are taken in",
                        server.slug.as_str(),
                        tools.len()
                    );
                    return Err(Error::new(error::Kind::Unavailable, "too_many_tools", text));
                }
                Ok(tools) => return Ok((tools, hidden)),
                Err(_) if tries < server.settings.retry_attempts && !client.is_closed() => tries += 1,
                Err(error) => return Err(failed(server, &hidden, "its tools cannot be listed", &error)),
            }
        }
    }

    /// Keeps what a server lists. What is not as it was is set aside.
    async fn take_in(
        &self,
        tenant: TenantId,
        server: &Server,
        listed: Vec<linchpin::model::Tool>,
        hidden: &Hidden,
    ) -> Result<Synced> {
        let (now, mut found) = (self.world.now(), Synced::default());
        let known = self.all::<Tool>(tenant, Kind::Tool, Some(&server.id.to_string())).await?;
        let mut known: HashMap<_, _> =
            known.into_iter().map(|(tool, version)| (tool.name.clone(), (tool, version))).collect();
        let mut batch = Batch::new();
        let mut seen = HashSet::new();
        for tool in listed {
            // A name that cannot be kept, or comes twice, is left out: nothing else is hidden by it.
            let fits =
                tool.name.chars().count() <= LONGEST_NAME && hidden.hide_in(tool.name.clone()) == tool.name;
            if !fits || !seen.insert(tool.name.clone()) {
                continue;
            }
            found.tools += 1;
            // Secrets are taken out first: what people look at is what is pinned.
            let definition = hidden.hide(to_value(&tool, Revision::LATEST));
            let Some((mut tool, version)) = known.remove(&tool.name) else {
                found.added.push(tool.name.clone());
                batch = batch.change(put(kept(&Tool::new(server.id, tool.name, definition, now))?, 0));
                continue;
            };
            let (state, was_gone, before) = (tool.state(), tool.is_gone, tool.definition.clone());
            tool.listed(definition, now);
            if state != State::Changed && tool.state() == State::Changed {
                found.changed.push(tool.name.clone());
                batch = batch.audit(self.noticed(server, "tool.changed", &tool));
            }
            if was_gone || before != tool.definition {
                batch = batch.change(put(kept(&tool)?, version));
            }
        }
        for (mut tool, version) in known.into_values().filter(|(tool, _)| !tool.is_gone) {
            tool.is_gone = true;
            found.gone.push(tool.name.clone());
            batch = batch.change(put(kept(&tool)?, version));
        }
        let has_news = !batch.changes.is_empty();
        let (before, version) = self.contact(tenant, server.id).await?;
        let contact =
            Contact { last_connected: Some(now), last_synced: Some(now), error: None, tools: found.tools };
        batch = batch.change(put(document(Kind::Contact, server.id, &contact)?.of(server.id), version));
        if has_news || before.last_synced.is_none() {
            let entry = Entry::new(now, "hub", "server.synced").with("server", server.id.to_string());
            let count = |names: &[String]| names.len();
            batch = batch.audit(
                entry
                    .with("tools", found.tools)
                    .with("added", count(&found.added))
                    .with("changed", count(&found.changed))
                    .with("gone", count(&found.gone)),
            );
        }
        if !self.has_server(tenant, server.id).await? {
            return Err(Error::not_found("server", server.slug.as_str()));
        }
        self.store.commit(tenant, batch).await?;
        let body = json!({ "server": server.id, "tools": found.tools, "added": found.added,
            "changed": found.changed, "gone": found.gone });
        self.events.publish(tenant, "tools", body);
        Ok(found)
    }

    fn noticed(&self, server: &Server, action: &'static str, tool: &Tool) -> Entry {
        let pins = [&tool.pinned, &tool.definition].map(|definition| pin(definition).to_string());
        let [before, after] = pins;
        let entry = Entry::new(self.world.now(), "hub", action).with("server", server.id.to_string());
        entry.with("tool", tool.name.as_str()).with("before", before).with("after", after)
    }
}

/// A tool as it is kept.
pub(super) fn kept(tool: &Tool) -> Result<crate::store::Document> {
    Ok(document(Kind::Tool, tool_id(tool.server, &tool.name), tool)?.of(tool.server))
}

/// The id of a tool, by the server's name for it.
pub(super) fn tool_id(server: ServerId, name: &str) -> String {
    let digest = Digest::of("linchpin tool id").part(name).end().to_string();
    format!("{server}.{}", &digest[..32])
}

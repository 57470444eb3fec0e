//! Snapshots of what every call needs: tool, agent, token, and access to the server. Each is built once from the stored
//! documents and dropped when a document changes.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use super::admit::ToolRef;
use crate::actor::{Actor, Subject};
use crate::agent::Agent;
use crate::connection::ConnectionCredential;
use crate::digest::Digest;
use crate::error::Result;
use crate::hub::Hub;
use crate::hub::identity::tokens::TokenRecord;
use crate::hub::servers::connect::strip_authentication;
use crate::id::{AgentId, ServerId, TenantId, TokenId};
use crate::lock::lock;
use crate::secrets::redact::Redactor;
use crate::server::{Authentication, Server};
use crate::store::{DocumentKey, DocumentKind, Generation};
use crate::tool::ToolRecord;
use crate::tool::names::{MAX_NAME_LEN, qualified_name};
use crate::tool::pin::{TrustState, pin};

/// Maximum number of snapshots of one kind.
const MAX_SNAPSHOTS: usize = 10_000;

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
}

impl CallTarget {
    pub(in crate::hub) fn new(server: Server, tool: ToolRecord, tool_version: u64) -> Self {
        let name = qualified_name(&server.slug, &tool.name, MAX_NAME_LEN);
        let (pin, state) = (pin(&tool.definition), tool.state());
        CallTarget { server, tool, tool_version, name, pin, state }
    }
}

/// Access of a user or agent to a server: server with its secrets, credential, and redactor of both.
pub(in crate::hub) struct UpstreamAccess {
    pub(in crate::hub) server: Server,
    pub(in crate::hub) credential: Option<ConnectionCredential>,
    pub(in crate::hub) redactor: Redactor,
}

/// Agent with the version of its document.
pub(in crate::hub) struct AgentSnapshot {
    pub(in crate::hub) agent: Agent,
    pub(in crate::hub) version: u64,
}

/// API token: its owner, digest and expiry.
pub(in crate::hub) struct TokenSnapshot {
    pub(in crate::hub) tenant: TenantId,
    pub(in crate::hub) record: TokenRecord,
    pub(in crate::hub) owner: Subject,
}

/// Snapshots of one kind, all of the same generation of the documents.
struct SnapshotMap<K, V> {
    generation: u64,
    entries: HashMap<K, Arc<V>>,
}

/// Snapshots of tools, agents, tokens and access to servers.
pub(in crate::hub) struct Snapshots {
    generation: Generation,
    targets: Mutex<SnapshotMap<(TenantId, ToolRef), CallTarget>>,
    agents: Mutex<SnapshotMap<(TenantId, AgentId), AgentSnapshot>>,
    access: Mutex<SnapshotMap<(TenantId, ServerId, Subject), UpstreamAccess>>,
    tokens: Mutex<SnapshotMap<TokenId, TokenSnapshot>>,
}

impl<K: Eq + Hash, V> SnapshotMap<K, V> {
    fn new() -> Mutex<Self> {
        Mutex::new(SnapshotMap { generation: 0, entries: HashMap::new() })
    }

    /// Returns the snapshot, unless a document has changed since it was built.
    fn get(&self, generation: u64, key: &K) -> Option<Arc<V>> {
        self.entries.get(key).filter(|_| self.generation == generation).cloned()
    }

    /// Stores a snapshot of documents that were read in this generation.
    fn insert(&mut self, generation: u64, key: K, value: Arc<V>) {
        if self.generation != generation || self.entries.len() >= MAX_SNAPSHOTS {
            self.entries.clear();
            self.generation = generation;
        }
        self.entries.insert(key, value);
    }
}

impl Snapshots {
    pub(in crate::hub) fn new(generation: Generation) -> Self {
        Snapshots {
            generation,
            targets: SnapshotMap::new(),
            agents: SnapshotMap::new(),
            access: SnapshotMap::new(),
            tokens: SnapshotMap::new(),
        }
    }

    /// Drops all snapshots, after a change that is not in the store.
    pub(in crate::hub) fn invalidate(&self) {
        self.generation.advance();
    }
}

impl Hub {
    /// Returns the tool of a call if it is in memory and the caller may use it.
    pub(in crate::hub) fn known_target(
        &self,
        actor: Actor,
        agent: Option<&AgentSnapshot>,
        tool: &ToolRef,
    ) -> Option<Arc<CallTarget>> {
        let generation = self.snapshots.generation.get();
        let found = lock(&self.snapshots.targets).get(generation, &(actor.tenant(), tool.clone()));
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
        let (key, generation) = ((actor.tenant(), tool), self.snapshots.generation.get());
        if let Some(found) = self.known_target(actor, agent, &key.1) {
            return Ok(found);
        }
        // A denied caller takes this path as well, which records the attempt.
        let (server, tool, version) = match &key.1 {
            ToolRef::Qualified(name) => Box::pin(self.visible_tool(actor, name, "call.rejected")).await?,
            ToolRef::Upstream { server, tool } => {
                self.visible_upstream_tool(actor, server, tool, "call.rejected").await?
            }
        };
        let target = Arc::new(CallTarget::new(server, tool, version));
        lock(&self.snapshots.targets).insert(generation, key, target.clone());
        Ok(target)
    }

    /// Returns the calling agent. `None` for a user. Fails for the hub itself.
    pub(in crate::hub) async fn calling_agent(&self, actor: Actor) -> Result<Option<Arc<AgentSnapshot>>> {
        let Some(id) = actor.agent() else { return actor.require_user().map(|_| None) };
        self.agent_snapshot(actor.tenant(), id).await
    }

    /// Returns an agent with its version. `None` if it was removed.
    pub(in crate::hub) async fn agent_snapshot(
        &self,
        tenant: TenantId,
        id: AgentId,
    ) -> Result<Option<Arc<AgentSnapshot>>> {
        let (key, generation) = ((tenant, id), self.snapshots.generation.get());
        if let Some(found) = lock(&self.snapshots.agents).get(generation, &key) {
            return Ok(Some(found));
        }
        let Some((agent, version)) = self.load::<Agent>(tenant, DocumentKind::Agent, id).await? else {
            return Ok(None);
        };
        let snapshot = Arc::new(AgentSnapshot { agent, version });
        lock(&self.snapshots.agents).insert(generation, key, snapshot.clone());
        Ok(Some(snapshot))
    }

    /// Returns an API token by its id. In a cluster it is always read from the store: another hub may have revoked it.
    pub(in crate::hub) async fn token_snapshot(&self, id: TokenId) -> Result<Option<Arc<TokenSnapshot>>> {
        let (generation, is_cached) = (self.snapshots.generation.get(), self.store.shared().is_none());
        if is_cached && let Some(found) = lock(&self.snapshots.tokens).get(generation, &id) {
            return Ok(Some(found));
        }
        let found = self.store.document_in_any_tenant(&DocumentKey::new(DocumentKind::Token, id)).await?;
        let Some((tenant, stored)) = found else { return Ok(None) };
        let record: TokenRecord = stored.document.parse_body()?;
        let Ok(owner) = record.owner.parse() else { return Ok(None) };
        let snapshot = Arc::new(TokenSnapshot { tenant, record, owner });
        if is_cached {
            lock(&self.snapshots.tokens).insert(generation, id, snapshot.clone());
        }
        Ok(Some(snapshot))
    }

    /// Returns the access of a user or agent to a server. A change of a credential or secret changes the version of
    /// its server; only OAuth grants change on their own, so that access with OAuth is not stored.
    pub(in crate::hub) async fn upstream_access(
        &self,
        actor: Actor,
        server: &Server,
    ) -> Result<Arc<UpstreamAccess>> {
        let key = (actor.tenant(), server.id, actor.subject());
        let generation = self.snapshots.generation.get();
        let found = lock(&self.snapshots.access).get(generation, &key);
        if let Some(found) = found.filter(|found| found.server.version == server.version) {
            return Ok(found);
        }
        let credential = self.load_credential(actor, server).await?;
        let server = strip_authentication(actor, server.clone(), credential.is_some());
        let server = self.resolve_env_secrets(actor.tenant(), server).await?;
        let proof = credential.as_ref().map(|credential| &credential.proof);
        let redactor = Redactor::for_server(&server, proof, Some(self.keys.hub_secrets()));
        let access = Arc::new(UpstreamAccess { server, credential, redactor });
        if !matches!(access.server.settings.authentication, Authentication::OAuth { .. }) {
            lock(&self.snapshots.access).insert(generation, key, access.clone());
        }
        Ok(access)
    }
}

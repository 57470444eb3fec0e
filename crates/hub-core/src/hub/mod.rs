//! Hub operations: one function per operation, shared by all interfaces. The caller is a [`Scope`]; each operation
//! checks what the caller may see and records what it did in the audit.

mod admit;
pub mod agents;
mod approvals;
mod audit;
mod audit_heads;
mod audit_verify;
mod authenticator;
mod background;
mod call_records;
mod cancel;
mod client_config;
mod commit_effects;
mod connect;
mod credentials;
mod deferred;
mod egress_denials;
mod env_secrets;
mod event_payloads;
mod execute;
mod export;
mod hash_queue;
mod health;
mod limits;
mod login_links;
mod login_refusals;
mod login_throttle;
mod metrics;
pub mod oauth;
mod passwords;
mod recent_results;
mod reconcile;
mod repeated_events;
mod resources_prompts;
mod restore;
mod retention;
mod schema_cache;
mod server_records;
mod servers;
pub mod sessions;
mod subject_names;
mod sync;
mod sync_queue;
pub mod tokens;
mod tool_listing;
mod tool_name_cache;
mod tools;
pub mod users;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::client::Changed;
use linchpin::egress::Egress;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::actor::Scope;
use crate::api_token;
use crate::audit::head_file::HeadFile;
use crate::audit::{Entry, Signer};
use crate::bounded_result;
use crate::connection::{Connections, Processes};
use crate::error::{self, Error, Result};
use crate::events::Events;
use crate::id::{CallId, ServerId, TenantId, UserId};
use crate::platform::World;
use crate::server::Launch;
use crate::store::{
    Batch, Cached, Change, Clock, Document, Key, Kind, MOST_ON_PAGE, Page, Paging, Store, Stored,
};
use crate::task_set::Tasks;
use crate::vault::KeyFile;
use crate::vault::key_ring::{Keys, Rotated};

pub use admit::{Wanted, Which};
pub use approvals::ApprovalView;
pub use audit::{AuditView, last_checkpoint};
pub use audit_verify::{Beside, Verified, every_segment, verify};
pub use call_records::CallView;
pub use client_config::{Client, Snippet};
pub use connect::Tried;
pub use credentials::CredentialView;
pub use export::Format;
pub use login_links::LoginLink;
pub use metrics::{BOUNDS, Ended, Meters};
pub use resources_prompts::Offer;
pub use retention::Retention;
pub use servers::{ServerFilter, ServerView};
pub use sync::Synced;
pub use tool_listing::usable_tools;
pub use tools::{ToolFilter, ToolView};

/// Built-in tenant.
pub const LOCAL: TenantId = TenantId::fixed(1);
/// Built-in user.
pub const LOCAL_USER: UserId = UserId::fixed(1);

/// Settings of a hub.
#[derive(Debug, Clone)]
pub struct Options {
    /// Size in bytes up to which a result is passed on complete.
    pub result_limit: usize,
    /// Time that a user has to decide about a call.
    pub approval_lifetime: Duration,
    /// Retention at startup.
    pub retention: Retention,
    /// Interval between periodic syncs of all servers.
    pub sync_every: Duration,
    /// File for audit checkpoints outside the store, so that truncating the store does not remove them as well.
    pub checkpoints: Option<PathBuf>,
    /// File for the signed heads of the audit: beside the keys, outside the data directory.
    pub heads: Option<HeadFile>,
    /// Folder for audit entries that are archived from the store.
    pub segments: Option<PathBuf>,
    /// OAuth redirect URL of this hub.
    pub callback: Option<String>,
    /// How stdio servers are started.
    pub processes: Processes,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            result_limit: bounded_result::DEFAULT_LIMIT,
            approval_lifetime: Duration::from_hours(1),
            retention: Retention { history: Duration::from_hours(30 * 24), audit: None },
            sync_every: Duration::from_mins(15),
            checkpoints: None,
            heads: None,
            segments: None,
            callback: None,
            processes: Processes::default(),
        }
    }
}

/// MCP hub: manages upstream servers, enforces policy and records calls.
pub struct Hub {
    world: Arc<dyn World>,
    store: Arc<dyn Store>,
    keys: Arc<Keys>,
    signer: Signer,
    heads: audit_heads::Heads,
    events: Events,
    options: Options,
    retention: Mutex<Retention>,
    connections: Arc<Connections>,
    /// Programs of the configured stdio servers. `None` if the program is unknown and this was logged.
    launches: Mutex<HashMap<(TenantId, ServerId), Option<Launch>>>,
    /// Whether the configuration file was applied since the hub was started.
    has_operated: AtomicBool,
    schemas: schema_cache::Schemas,
    user_names: subject_names::UserNames,
    adapted: Arc<tool_name_cache::Adapted>,
    /// Running calls, each with its stop signal.
    running: Mutex<HashMap<(TenantId, CallId), execute::Running>>,
    passing: recent_results::Passing,
    late: deferred::Late,
    denials: Arc<egress_denials::Denials>,
    due: Arc<sync_queue::Due>,
    turns: sync::Turns,
    tasks: Arc<Tasks>,
    /// Store commits that finish even if their callers are dropped.
    commits: Arc<Tasks>,
    looks: Tasks,
    broker: oauth::Broker,
    meters: Meters,
    people: authenticator::People,
    /// Time at which the shutdown began, if it has.
    ending: watch::Sender<Option<Instant>>,
}

impl Hub {
    /// Creates a hub on this store, with the keys of this file.
    pub fn new(
        world: Arc<dyn World>,
        store: Arc<dyn Store>,
        keys: KeyFile,
        egress: Egress,
        options: Options,
    ) -> Self {
        let signer = Signer::new(&keys.audit);
        let store = Cached::new(store);
        let (events, commits) = (store.events().clone(), store.commits().clone());
        let store: Arc<dyn Store> = Arc::new(store);
        let world: Arc<dyn World> = match store.shared() {
            Some(_) => Arc::new(Clock::new(world, store.clone())),
            None => world,
        };
        let keys = Arc::new(Keys::new(store.clone(), world.clone(), keys));
        let due = Arc::new(sync_queue::Due::default());
        let changed = {
            let due = due.clone();
            Arc::new(move |tenant, server, changed| {
                if changed == Changed::Tools {
                    due.add((tenant, server));
                }
            })
        };
        let processes = options.processes.clone();
        let (denials, tasks) = (Arc::<egress_denials::Denials>::default(), Arc::<Tasks>::default());
        let told = egress_denials::told(denials.clone(), world.clone(), store.clone(), tasks.clone());
        let connections = Connections::new(world.clone(), egress, events.clone(), changed, processes);
        let connections = Arc::new(connections.on_denied(told).masking(keys.own_secrets().clone()));
        let people = authenticator::People::new(&*world);
        keys.own_secrets().learn(api_token::secret_of(&people.process.secret).iter().map(|secret| &**secret));
        Hub {
            world,
            store,
            keys,
            signer,
            heads: audit_heads::Heads::default(),
            events,
            retention: Mutex::new(options.retention),
            options,
            connections,
            launches: Mutex::default(),
            has_operated: AtomicBool::new(false),
            schemas: schema_cache::Schemas::default(),
            user_names: subject_names::UserNames::default(),
            adapted: Arc::default(),
            running: Mutex::default(),
            passing: recent_results::Passing::default(),
            late: deferred::Late::default(),
            denials,
            due,
            turns: sync::Turns::default(),
            tasks,
            commits,
            looks: Tasks::default(),
            broker: oauth::Broker::default(),
            meters: Meters::default(),
            people,
            ending: watch::Sender::new(None),
        }
    }

    /// Begins the shutdown: callers that wait for an approval receive the current state of their calls instead.
    pub fn stop_waiting(&self) {
        self.ending.send_replace(Some(Instant::now()));
    }

    /// Replaces the egress policy. Connections that the new policy would not have opened are closed once they are
    /// unused.
    pub fn change_egress(&self, egress: &Egress) {
        self.connections.change_egress(egress);
    }

    /// Returns the event log.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the id of the event log that the hubs of a cluster share. `None` for a single hub.
    pub fn line(&self) -> Option<&str> {
        self.store.shared().map(|shared| &*shared.line)
    }

    /// Returns the call metrics.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Opens the keys of every tenant, so that a wrong key file is noticed at startup.
    pub async fn unlock(&self) -> Result<()> {
        for tenant in self.store.tenants().await? {
            self.keys.of(tenant).await?;
        }
        Ok(())
    }

    /// Rotates the root key, and with `data` the tenant keys as well. Finishes even if the caller is dropped.
    pub async fn rotate_keys(self: &Arc<Self>, scope: Scope, data: bool) -> Result<Rotated> {
        scope.person()?;
        if scope.tenant() != LOCAL {
            let text = "the root key protects all tenants: only users of the built-in tenant can rotate it";
            return Err(Error::new(error::Kind::Denied, "not_yours", text));
        }
        let hub = self.clone();
        let rotation = async move {
            let rotated = hub.keys.rotate(data).await?;
            let entry = hub.entry(scope, "key.rotation").with("tenants", rotated.tenants);
            let entry = if data { entry.with("secrets", rotated.secrets) } else { entry };
            hub.store.commit(scope.tenant(), Batch::new().audit(entry)).await?;
            Ok(rotated)
        };
        self.detached(rotation).await
    }

    /// Loads a document with its version.
    async fn find<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: Kind,
        id: impl std::fmt::Display,
    ) -> Result<Option<(T, u64)>> {
        let Some(Stored { document, version }) = self.store.document(tenant, &Key::new(kind, id)).await?
        else {
            return Ok(None);
        };
        Ok(Some((document.read()?, version)))
    }

    /// Loads a document with its version, or fails if there is none.
    async fn need<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: Kind,
        id: impl std::fmt::Display,
    ) -> Result<(T, u64)> {
        let missing = Error::not_found(kind.name(), &id);
        self.find(tenant, kind, id).await?.ok_or(missing)
    }

    /// Loads all documents of a kind. Only for kinds that users configure, of which there are few.
    async fn all<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: Kind,
        parent: Option<&str>,
    ) -> Result<Vec<(T, u64)>> {
        let all = self.stored(tenant, kind, parent).await?;
        all.into_iter().map(|Stored { document, version }| Ok((document.read()?, version))).collect()
    }

    async fn stored(&self, tenant: TenantId, kind: Kind, parent: Option<&str>) -> Result<Vec<Stored>> {
        let (mut all, mut paging) = (Vec::new(), Paging { after: None, limit: MOST_ON_PAGE });
        loop {
            let Page { items, next } = self.store.documents(tenant, kind, parent, &paging).await?;
            all.extend(items);
            match next {
                None => return Ok(all),
                after => paging.after = after,
            }
        }
    }

    /// Deletes a document. Succeeds if another caller has deleted it already.
    async fn forget(&self, tenant: TenantId, key: Key) -> Result<()> {
        match self.store.commit(tenant, Batch::new().change(Change::Remove(key))).await {
            Err(error) if error.kind() != error::Kind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates an audit entry of this actor.
    fn entry(&self, scope: Scope, action: &'static str) -> Entry {
        Entry::new(self.world.now(), &scope.subject().to_string(), action)
    }
}

/// Creates a document of a kind.
fn document(kind: Kind, id: impl std::fmt::Display, body: &impl Serialize) -> Result<Document> {
    Document::new(Key::new(kind, id), body)
}

/// Creates the change that deletes all documents of a kind that belong to `parent`.
fn without_parts(kind: Kind, parent: impl std::fmt::Display) -> Change {
    Change::RemoveParts { kind, parent: parent.to_string() }
}

/// Creates the change that replaces this version of a document.
fn put(document: Document, version: u64) -> Change {
    Change::Put { document, version }
}

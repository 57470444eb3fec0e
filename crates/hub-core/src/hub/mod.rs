//! Hub operations: one function per operation, shared by all interfaces. The caller is an [`Actor`]; each operation
//! checks what the caller may see and records what it did in the audit.

pub mod agents;
mod audit;
mod background;
mod calls;
mod commit_effects;
mod event_payloads;
mod health;
mod identity;
mod limits;
mod metrics;
pub mod oauth;
mod rejections;
mod repeated_events;
mod restore;
mod retention;
mod servers;
mod subject_names;
mod tools;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::client::ListChanged;
use linchpin::egress::Egress;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::actor::Actor;
use crate::api_token;
use crate::audit::head_file::HeadFile;
use crate::audit::{AuditEntry, AuditSigner};
use crate::bounded_result;
use crate::connection::{ConnectionPool, Processes};
use crate::error::{self, Error, Result};
use crate::events::EventLog;
use crate::id::{CallId, ServerId, TenantId, UserId};
use crate::platform::Platform;
use crate::server::ProgramSpec;
use crate::store::{
    Batch, CachedStore, ClusterClock, Document, DocumentKey, DocumentKind, MAX_PAGE_SIZE, Page, PageRequest,
    Store, StoreChange, StoredDocument,
};
use crate::task_set::TaskSet;
use crate::vault::KeyFile;
use crate::vault::key_ring::{KeyRing, RotationSummary};

pub use audit::verify::{AuditFiles, AuditVerification, list_segments, verify};
pub use audit::{AuditView, last_checkpoint};
pub use calls::admit::{CallRequest, ToolRef};
pub use calls::approvals::ApprovalView;
pub use calls::records::CallView;
pub use identity::login_links::LoginLink;
pub use identity::{sessions, tokens, users};
pub use metrics::{BUCKET_BOUNDS_MS, CallMetrics, DurationHistogram};
pub use retention::Retention;
pub use servers::client_config::{ClientApp, ClientConfig};
pub use servers::connect::ProbeReport;
pub use servers::credentials::CredentialView;
pub use servers::resources_prompts::FeatureList;
pub use servers::views::{ServerFilter, ServerView};
pub use tools::export::ProviderFormat;
pub use tools::listing::usable_tools;
pub use tools::sync::SyncReport;
pub use tools::{ToolFilter, ToolView};

/// Id of the built-in tenant, which exists in every hub.
pub const LOCAL: TenantId = TenantId::from_u128(1);
/// Id of the built-in user of the built-in tenant.
pub const LOCAL_USER: UserId = UserId::from_u128(1);

/// Settings of a hub, such as result size limit, retention and audit files.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Maximum size in bytes of a tool result; a larger one is truncated.
    pub result_limit: usize,
    /// Time that a user has to approve or deny a call.
    pub approval_lifetime: Duration,
    /// Retention of call history and audit entries at startup.
    pub retention: Retention,
    /// Interval between periodic syncs of all servers.
    pub sync_interval: Duration,
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

impl Default for HubOptions {
    fn default() -> Self {
        HubOptions {
            result_limit: bounded_result::DEFAULT_LIMIT,
            approval_lifetime: Duration::from_hours(1),
            retention: Retention { history: Duration::from_hours(30 * 24), audit: None },
            sync_interval: Duration::from_mins(15),
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
    platform: Arc<dyn Platform>,
    store: Arc<dyn Store>,
    keys: Arc<KeyRing>,
    signer: AuditSigner,
    heads: audit::heads::Heads,
    events: EventLog,
    options: HubOptions,
    retention: Mutex<Retention>,
    connections: Arc<ConnectionPool>,
    /// Programs of the configured stdio servers. `None` if the program is unknown and this was logged.
    programs: Mutex<HashMap<(TenantId, ServerId), Option<ProgramSpec>>>,
    /// Whether the configuration file was applied since the hub was started.
    config_applied: AtomicBool,
    schema_cache: calls::schema_cache::SchemaCache,
    snapshots: calls::snapshots::Snapshots,
    user_names: subject_names::UserNames,
    tool_names: Arc<tools::name_cache::ToolNameCache>,
    /// Running calls, each with its stop signal.
    running_calls: Mutex<HashMap<(TenantId, CallId), calls::execute::RunningCall>>,
    recent_results: calls::recent_results::RecentResults,
    deferred_commits: calls::deferred::DeferredCommits,
    rejections: Arc<rejections::Rejections>,
    sync_queue: Arc<tools::sync_queue::SyncQueue>,
    sync_locks: tools::sync::SyncLocks,
    tasks: Arc<TaskSet>,
    /// Store commits that finish even if their callers are dropped.
    commits: Arc<TaskSet>,
    background_tasks: TaskSet,
    oauth_broker: oauth::OAuthBroker,
    metrics: CallMetrics,
    authenticator: identity::authenticator::Authenticator,
    /// Time at which the shutdown of the hub began, if it has.
    shutdown_started: watch::Sender<Option<Instant>>,
}

impl Hub {
    /// Creates a hub on this store, with the keys of this file.
    pub fn new(
        platform: Arc<dyn Platform>,
        store: Arc<dyn Store>,
        keys: KeyFile,
        egress: Egress,
        options: HubOptions,
    ) -> Self {
        let signer = AuditSigner::new(&keys.audit);
        let store = CachedStore::new(store);
        let (events, commits) = (store.events().clone(), store.commits().clone());
        let snapshots = calls::snapshots::Snapshots::new(store.generation());
        let store: Arc<dyn Store> = Arc::new(store);
        let platform: Arc<dyn Platform> = match store.shared() {
            Some(_) => Arc::new(ClusterClock::new(platform, store.clone())),
            None => platform,
        };
        let keys = Arc::new(KeyRing::new(store.clone(), platform.clone(), keys));
        let sync_queue = Arc::new(tools::sync_queue::SyncQueue::default());
        let changed = {
            let due = sync_queue.clone();
            Arc::new(move |tenant, server, changed| {
                if changed == ListChanged::Tools {
                    due.add((tenant, server));
                }
            })
        };
        let processes = options.processes.clone();
        let (rejections, tasks) = (Arc::<rejections::Rejections>::default(), Arc::<TaskSet>::default());
        let denied_hook =
            rejections::denial_recorder(rejections.clone(), platform.clone(), store.clone(), tasks.clone());
        let connections = ConnectionPool::new(platform.clone(), egress, events.clone(), changed, processes);
        let connections =
            Arc::new(connections.on_denied(denied_hook).with_hub_secrets(keys.hub_secrets().clone()));
        let authenticator = identity::authenticator::Authenticator::new(&*platform);
        keys.hub_secrets()
            .add(api_token::secret_bytes(&authenticator.process.secret).iter().map(|secret| &**secret));
        Hub {
            platform,
            store,
            keys,
            signer,
            heads: audit::heads::Heads::default(),
            events,
            retention: Mutex::new(options.retention),
            options,
            connections,
            programs: Mutex::default(),
            config_applied: AtomicBool::new(false),
            schema_cache: calls::schema_cache::SchemaCache::default(),
            snapshots,
            user_names: subject_names::UserNames::default(),
            tool_names: Arc::default(),
            running_calls: Mutex::default(),
            recent_results: calls::recent_results::RecentResults::default(),
            deferred_commits: calls::deferred::DeferredCommits::default(),
            rejections,
            sync_queue,
            sync_locks: tools::sync::SyncLocks::default(),
            tasks,
            commits,
            background_tasks: TaskSet::default(),
            oauth_broker: oauth::OAuthBroker::default(),
            metrics: CallMetrics::default(),
            authenticator,
            shutdown_started: watch::Sender::new(None),
        }
    }

    /// Begins the shutdown: callers that wait for an approval receive the current state of their calls instead.
    pub fn begin_shutdown(&self) {
        self.shutdown_started.send_replace(Some(Instant::now()));
    }

    /// Replaces the egress policy for connections to servers. Connections that the new policy would not have opened are
    /// closed once they are unused.
    pub fn change_egress(&self, egress: &Egress) {
        self.connections.change_egress(egress);
    }

    /// Returns the event log, to which clients of the hub subscribe.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// Returns the id of the event log that the hubs of a cluster share. `None` for a single hub.
    pub fn event_log_id(&self) -> Option<&str> {
        self.store.shared().map(|shared| &*shared.event_log_id)
    }

    /// Returns the call metrics.
    pub fn metrics(&self) -> &CallMetrics {
        &self.metrics
    }

    /// Opens the keys of every tenant, so that a wrong key file is noticed at startup.
    pub async fn unlock(&self) -> Result<()> {
        for tenant in self.store.tenants().await? {
            self.keys.tenant_keys(tenant).await?;
        }
        Ok(())
    }

    /// Rotates the root key of the hub, and with `data` also the tenant keys, which encrypt secrets. Finishes even if
    /// the caller is dropped.
    pub async fn rotate_keys(self: &Arc<Self>, actor: Actor, data: bool) -> Result<RotationSummary> {
        actor.require_user()?;
        if actor.tenant() != LOCAL {
            let text = "the root key protects all tenants: only users of the built-in tenant can rotate it";
            return Err(Error::new(error::ErrorKind::PermissionDenied, "forbidden", text));
        }
        let hub = self.clone();
        let rotation = async move {
            let rotated = hub.keys.rotate(data).await?;
            let entry = hub.entry(actor, "key.rotation_finished").with("tenants", rotated.tenants);
            let entry = if data { entry.with("secrets", rotated.secrets) } else { entry };
            hub.store.commit(actor.tenant(), Batch::new().audit(entry)).await?;
            Ok(rotated)
        };
        self.detached(rotation).await
    }

    /// Loads a document with its version.
    async fn load<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        id: impl std::fmt::Display,
    ) -> Result<Option<(T, u64)>> {
        let Some(StoredDocument { document, version }) =
            self.store.document(tenant, &DocumentKey::new(kind, id)).await?
        else {
            return Ok(None);
        };
        Ok(Some((document.parse_body()?, version)))
    }

    /// Loads a document with its version, or fails if there is none.
    async fn require<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        id: impl std::fmt::Display,
    ) -> Result<(T, u64)> {
        let missing = Error::not_found(kind.name(), &id);
        self.load(tenant, kind, id).await?.ok_or(missing)
    }

    /// Loads all documents of a kind. Only for kinds that users configure, of which there are few.
    async fn load_all<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
    ) -> Result<Vec<(T, u64)>> {
        let all = self.load_documents(tenant, kind, parent).await?;
        all.into_iter()
            .map(|StoredDocument { document, version }| Ok((document.parse_body()?, version)))
            .collect()
    }

    async fn load_documents(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
    ) -> Result<Vec<StoredDocument>> {
        let (mut all, mut paging) = (Vec::new(), PageRequest { after: None, limit: MAX_PAGE_SIZE });
        loop {
            let Page { items, next } = self.store.documents(tenant, kind, parent, &paging).await?;
            all.extend(items);
            match next {
                None => return Ok(all),
                after => paging.after = after,
            }
        }
    }

    /// Deletes a document, if it exists. Succeeds if another caller has deleted it already.
    async fn delete_if_present(&self, tenant: TenantId, key: DocumentKey) -> Result<()> {
        match self.store.commit(tenant, Batch::new().change(StoreChange::Delete(key))).await {
            Err(error) if error.kind() != error::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates an audit entry of this actor.
    fn entry(&self, actor: Actor, action: &'static str) -> AuditEntry {
        AuditEntry::new(self.platform.now(), &actor.subject().to_string(), action)
    }
}

/// Creates a document of a kind with the serialized body.
fn document(kind: DocumentKind, id: impl std::fmt::Display, body: &impl Serialize) -> Result<Document> {
    Document::new(DocumentKey::new(kind, id), body)
}

/// Creates the change that deletes all documents of a kind that belong to `parent`.
fn delete_children(kind: DocumentKind, parent: impl std::fmt::Display) -> StoreChange {
    StoreChange::DeleteChildren { kind, parent: parent.to_string() }
}

/// Creates the change that replaces this version of a document.
fn upsert(document: Document, version: u64) -> StoreChange {
    StoreChange::Put { document, version }
}

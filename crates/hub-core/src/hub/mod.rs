//! Hub operations: one function per operation, shared by all interfaces. The caller is an [`Actor`]; each operation
//! checks what the caller may see and records what it did in the audit.

mod audit;
mod background;
mod calls;
mod context;
mod event_payloads;
mod hub_limits;
mod identity;
mod registry;
mod restore;
mod snapshots;
mod upstream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linchpin::egress::Egress;
use serde::Serialize;
use tokio::time::Instant;

use self::context::HubContext;
use self::registry::directory::ServerDirectory;
use self::registry::tools::sync_queue::SyncQueue;
use crate::actor::Actor;
use crate::audit::AuditSigner;
use crate::audit::head_file::HeadFile;
use crate::connection::Processes;
use crate::error::{self, Error, Result};
use crate::events::EventLog;
use crate::id::{TenantId, UserId};
use crate::platform::Platform;
use crate::store::{Batch, Document, DocumentKey, DocumentKind, Store, StoreChange};
use crate::task_set::TaskSet;
use crate::telemetry::SpanContextOf;
use crate::vault::KeyFile;
use crate::vault::key_ring::RotationSummary;

pub use audit::query::AuditQuery;
pub use audit::retention::Retention;
pub use audit::verify::{AuditFiles, AuditVerification, list_segments, verify};
pub use audit::{Audit, AuditView, chain_head_at, last_checkpoint};
pub use calls::Calls;
pub use calls::admit::{CallRequest, ToolRef};
pub use calls::approvals::ApprovalView;
pub use calls::arguments::CallArguments;
pub use calls::calling_client::{CallingClient, ClientReply};
pub use calls::client_call::{ClientCall, Participation};
pub use calls::handle::{CallEvent, CallHandle, CallOptions, CallProgress};
pub use calls::metrics::{BUCKET_BOUNDS_MS, CallMetrics, DurationHistogram};
pub use calls::records::CallView;
pub use calls::resources_prompts::FeatureList;
pub use calls::rules::{ApprovalRuleFilter, ApprovalRuleView, NewApprovalRule};
pub use calls::server_requests::{ServerReply, ServerRequestKind, ServerRequestView};
pub use calls::waiting_requests::CLIENT_LOST_TIMEOUT;
pub use hub_limits::HubLimits;
pub use identity::login_links::LoginLink;
pub use identity::{Identity, agents, sessions, tokens, users};
pub use registry::Registry;
pub use registry::client_config::{ClientApp, ClientConfig};
pub use registry::surface::ServerSurface;
pub use registry::tools::export::ProviderFormat;
pub use registry::tools::listing::usable_tools;
pub use registry::tools::sync::SyncReport;
pub use registry::tools::{ToolFilter, ToolView};
pub use registry::views::{ConnectReport, ServerFilter, ServerOffers, ServerView};
pub use upstream::connect::ProbeReport;
pub use upstream::credentials::CredentialView;
pub use upstream::features::OfferedFeatures;
pub use upstream::server_info::ServerInfo;
pub use upstream::subscriptions::SubscriptionView;
pub use upstream::{Upstream, oauth};

/// Id of the built-in tenant, which exists in every hub.
pub const LOCAL: TenantId = TenantId::from_u128(1);
/// Id of the built-in user of the built-in tenant.
pub const LOCAL_USER: UserId = UserId::from_u128(1);

/// Settings of a hub, such as limits, retention and audit files.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Limits at startup.
    pub limits: HubLimits,
    /// Time that a user has to approve or deny a call.
    pub approval_lifetime: Duration,
    /// Retention of call history and audit entries at startup.
    pub retention: Retention,
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
    /// Trace context of the spans that are exported. Upstream servers receive it with calls.
    pub span_context: Option<SpanContextOf>,
}

impl Default for HubOptions {
    fn default() -> Self {
        HubOptions {
            limits: HubLimits::default(),
            approval_lifetime: Duration::from_hours(1),
            retention: Retention { history: Duration::from_hours(30 * 24), audit: None },
            checkpoints: None,
            heads: None,
            segments: None,
            callback: None,
            processes: Processes::default(),
            span_context: None,
        }
    }
}

/// MCP hub: manages upstream servers, enforces policy and records calls. It creates the components and runs their
/// background jobs; each component owns its state.
pub struct Hub {
    context: Arc<HubContext>,
    audit: Arc<Audit>,
    upstream: Arc<Upstream>,
    registry: Arc<Registry>,
    identity: Arc<Identity>,
    calls: Arc<Calls>,
    background_tasks: TaskSet,
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
        let context = Arc::new(HubContext::new(platform, store, keys, options));
        let audit = Arc::new(Audit::new(context.clone(), signer));
        let servers = Arc::new(ServerDirectory::new(context.clone()));
        // Shared: connections report changed tools to it, and the registry starts the syncs.
        let sync_queue = Arc::new(SyncQueue::default());
        let upstream =
            Arc::new(Upstream::new(context.clone(), &audit, servers.clone(), sync_queue.clone(), egress));
        let registry = Arc::new(Registry::new(
            context.clone(),
            audit.clone(),
            servers.clone(),
            upstream.clone(),
            sync_queue,
        ));
        let identity =
            Arc::new(Identity::new(context.clone(), servers.clone(), upstream.clone(), registry.clone()));
        let calls = Arc::new(Calls::new(
            context.clone(),
            audit.clone(),
            servers,
            upstream.clone(),
            registry.clone(),
            identity.clone(),
        ));
        let background_tasks = TaskSet::default();
        Hub { context, audit, upstream, registry, identity, calls, background_tasks }
    }

    /// Returns the audit: its entries, verification, signatures and retention.
    pub fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    /// Returns the access to upstream servers: connections, credentials and OAuth.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// Returns the registry of servers and their tools.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the users, sessions, tokens and agents.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the calls with their approvals, and the reads of resources and prompts.
    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Begins the shutdown: callers that wait for an approval receive the current state of their calls instead.
    pub fn begin_shutdown(&self) {
        self.context.shutdown_started.send_replace(Some(Instant::now()));
    }

    /// Replaces the egress policy for connections to servers. Connections that the new policy would not have opened are
    /// closed once they are unused.
    pub fn change_egress(&self, egress: &Egress) {
        self.upstream.change_egress(egress);
    }

    /// Returns the event log, to which clients of the hub subscribe.
    pub fn events(&self) -> &EventLog {
        &self.context.events
    }

    /// Returns the id of the event log that the hubs of a cluster share. `None` for a single hub.
    pub fn event_log_id(&self) -> Option<&str> {
        self.context.store.shared().map(|shared| &*shared.event_log_id)
    }

    /// Completes a sign-in with the callback URL of the browser, which presents the proof that it received at the start,
    /// and lists the tools of the server.
    pub async fn complete_sign_in(&self, query: &str, proof: &str) -> Result<oauth::SignInView> {
        let registry = self.registry.clone();
        let sync = move |actor, server| async move { registry.sync(actor, &server, true).await.map(drop) };
        self.upstream.complete_sign_in(query, proof, sync).await
    }

    /// Returns the key that seals the request state of gateway clients, which hubs with the same key file share.
    pub fn gateway_key(&self) -> [u8; 32] {
        self.context.gateway_key
    }

    /// Checks that the store is reachable.
    pub async fn check(&self) -> Result<()> {
        self.context.store.tenants().await.map(drop)
    }

    /// Opens the keys of every tenant, so that a wrong key file is noticed at startup, and refuses from then on
    /// documents that another program has added or changed. Must run before documents are read.
    pub async fn unlock(&self) -> Result<()> {
        let tenants = self.context.store.tenants().await?;
        // The key of the built-in tenant is created at the first start: from then on, a wrong key file is noticed.
        for tenant in tenants.into_iter().filter(|tenant| *tenant != LOCAL).chain([LOCAL]) {
            self.context.keys.tenant_keys(tenant).await?;
        }
        self.audit.authenticate_documents().await
    }

    /// Rotates the root key of the hub, and with `data` also the tenant keys, which encrypt secrets. Finishes even if
    /// the caller is dropped.
    pub async fn rotate_keys(&self, actor: Actor, data: bool) -> Result<RotationSummary> {
        actor.require_user()?;
        if actor.tenant() != LOCAL {
            let text = "the root key protects all tenants: only users of the built-in tenant can rotate it";
            return Err(Error::new(error::ErrorKind::PermissionDenied, "forbidden", text));
        }
        let context = self.context.clone();
        let rotation = async move {
            let rotated = context.keys.rotate(data).await?;
            let entry = context.entry(actor, "key.rotation_finished").with("tenants", rotated.tenants);
            let entry = if data { entry.with("secrets", rotated.secrets) } else { entry };
            context.store.commit(actor.tenant(), Batch::new().audit(entry)).await?;
            Ok(rotated)
        };
        self.context.detached(rotation).await
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

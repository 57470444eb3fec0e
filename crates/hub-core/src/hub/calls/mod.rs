//! Call pipeline: admission, approval, execution, server requests, cancellation and records of
//! tool calls.

pub(super) mod admit;
pub(super) mod approvals;
pub(super) mod arguments;
mod as_agent;
mod call_error;
mod call_start;
pub(super) mod calling_client;
pub(super) mod cancel;
pub(super) mod client_call;
pub(super) mod deferred;
pub(super) mod exchange;
pub(super) mod execute;
pub(super) mod handle;
pub(super) mod limits;
pub(super) mod metrics;
pub(super) mod plan;
pub(super) mod recent_results;
pub(super) mod records;
pub(super) mod resources_prompts;
pub(super) mod rules;
pub(super) mod schema_cache;
pub(super) mod server_requests;
pub(super) mod subscriptions;
pub(super) mod target;
pub(super) mod waiting_requests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use self::admit::ToolRef;
use self::deferred::DeferredCommits;
use self::execute::RunningCall;
use self::handle::PendingCallers;
use self::metrics::CallMetrics;
use self::recent_results::RecentResults;
use self::schema_cache::SchemaCache;
use self::server_requests::OpenServerRequests;
use self::target::CallTarget;
use super::audit::Audit;
use super::context::HubContext;
use super::identity::Identity;
use super::registry::Registry;
use super::registry::directory::ServerDirectory;
use super::snapshots::Snapshots;
use super::upstream::Upstream;
use crate::id::{CallId, TenantId};

/// Calls of tools, from the request to the recorded outcome, and reads of resources and prompts.
pub struct Calls {
    context: Arc<HubContext>,
    audit: Arc<Audit>,
    servers: Arc<ServerDirectory>,
    upstream: Arc<Upstream>,
    registry: Arc<Registry>,
    identity: Arc<Identity>,
    schema_cache: SchemaCache,
    targets: Snapshots<(TenantId, ToolRef), CallTarget>,
    /// Running calls, each with its stop signal.
    running: Mutex<HashMap<(TenantId, CallId), RunningCall>>,
    /// Callers of the calls that wait for an approval.
    pending_callers: PendingCallers,
    server_requests: OpenServerRequests,
    recent_results: RecentResults,
    deferred_commits: DeferredCommits,
    metrics: CallMetrics,
}

impl Calls {
    pub(in crate::hub) fn new(
        context: Arc<HubContext>,
        audit: Arc<Audit>,
        servers: Arc<ServerDirectory>,
        upstream: Arc<Upstream>,
        registry: Arc<Registry>,
        identity: Arc<Identity>,
    ) -> Self {
        let targets = Snapshots::new(context.generation.clone());
        Calls {
            context,
            audit,
            servers,
            upstream,
            registry,
            identity,
            schema_cache: SchemaCache::default(),
            targets,
            running: Mutex::default(),
            pending_callers: PendingCallers::default(),
            server_requests: OpenServerRequests::default(),
            recent_results: RecentResults::default(),
            deferred_commits: DeferredCommits::default(),
            metrics: CallMetrics::default(),
        }
    }

    /// Returns the call metrics.
    pub fn metrics(&self) -> &CallMetrics {
        &self.metrics
    }
}

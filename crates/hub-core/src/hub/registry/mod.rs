//! Registry: the servers of the hub and their tools, with pins, trust and syncs.

pub(super) mod client_config;
pub(super) mod directory;
mod reconcile;
pub(super) mod records;
pub(super) mod servers;
pub(super) mod surface;
pub(super) mod tools;
pub(super) mod views;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::directory::ServerDirectory;
use self::tools::name_cache::ToolNameCache;
use self::tools::sync::SyncLocks;
use self::tools::sync_queue::SyncQueue;
use super::audit::Audit;
use super::context::HubContext;
use super::upstream::Upstream;

/// Servers and their tools: what is configured, what is known of it, and which of it each caller may use.
pub struct Registry {
    context: Arc<HubContext>,
    audit: Arc<Audit>,
    servers: Arc<ServerDirectory>,
    upstream: Arc<Upstream>,
    /// Whether the configuration file was applied since the hub was started.
    config_applied: AtomicBool,
    tool_names: Arc<ToolNameCache>,
    sync_queue: Arc<SyncQueue>,
    sync_locks: SyncLocks,
}

impl Registry {
    pub(in crate::hub) fn new(
        context: Arc<HubContext>,
        audit: Arc<Audit>,
        servers: Arc<ServerDirectory>,
        upstream: Arc<Upstream>,
        sync_queue: Arc<SyncQueue>,
    ) -> Self {
        Registry {
            context,
            audit,
            servers,
            upstream,
            config_applied: AtomicBool::new(false),
            tool_names: Arc::default(),
            sync_queue,
            sync_locks: SyncLocks::default(),
        }
    }
}

//! Cluster: what hubs on one store exchange, which is events, cache invalidations and the common clock.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};

use super::{DocumentKey, DocumentKind, Store, StoreChange};
use crate::events::EventLog;
use crate::id::TenantId;
use crate::lock::lock;
use crate::platform::Platform;

/// Cached documents that a change by a peer hub invalidates: one document, or all children of a parent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CacheScope {
    /// One cached document.
    Document(DocumentKey),
    /// All documents of a kind with this parent.
    Children(DocumentKind, String),
}

impl CacheScope {
    /// Returns the scope that a store change invalidates in other hubs, if they cache it: documents that the store
    /// caches, and tenant keys.
    pub fn of(change: &StoreChange) -> Option<Self> {
        let scope = match change {
            StoreChange::Put { document, .. } => CacheScope::Document(document.key.clone()),
            StoreChange::Delete(key) => CacheScope::Document(key.clone()),
            StoreChange::DeleteChildren { kind, parent } => CacheScope::Children(*kind, parent.clone()),
            _ => return None,
        };
        let (CacheScope::Document(DocumentKey { kind, .. }) | CacheScope::Children(kind, _)) = &scope;
        (kind.is_cached() || *kind == DocumentKind::TenantKey).then_some(scope)
    }
}

/// Notice that a peer hub has changed documents; `None` if the changed documents are not known.
pub type Invalidation<'a> = Option<(TenantId, &'a CacheScope)>;

type InvalidationListener = Box<dyn Fn(Invalidation<'_>) + Send + Sync>;

/// State of a hub in a cluster of hubs on one store: the event log of the cluster, and the listeners of this hub for
/// cache invalidations.
pub struct Cluster {
    /// Event log of the cluster.
    pub events: EventLog,
    /// Id of the shared event log of the cluster. Event numbers are comparable between hubs with the same id.
    pub event_log_id: String,
    listeners: Mutex<Vec<InvalidationListener>>,
}

impl Cluster {
    /// Creates the cluster state of a hub with its event log.
    pub fn new(events: EventLog, event_log_id: String) -> Self {
        Cluster { events, event_log_id, listeners: Mutex::default() }
    }

    /// Registers a listener of invalidations by peer hubs. It is called before their events are published.
    pub fn on_invalidation(&self, listener: impl Fn(Invalidation<'_>) + Send + Sync + 'static) {
        lock(&self.listeners).push(Box::new(listener));
    }

    /// Notifies the listeners of an invalidation by a peer hub.
    pub fn notify(&self, invalidation: Invalidation<'_>) {
        lock(&self.listeners).iter().for_each(|listener| listener(invalidation));
    }
}

/// Common clock of all hubs on a store, independent of the clocks of their machines.
pub struct ClusterClock {
    platform: Arc<dyn Platform>,
    store: Arc<dyn Store>,
}

impl ClusterClock {
    /// Creates a clock from the local one and the offset that the store measures.
    pub fn new(platform: Arc<dyn Platform>, store: Arc<dyn Store>) -> Self {
        ClusterClock { platform, store }
    }
}

impl Platform for ClusterClock {
    fn now(&self) -> Timestamp {
        let now = self.platform.now();
        match self.store.clock_offset() {
            SignedDuration::ZERO => now,
            offset => now.saturating_add(offset).unwrap_or(now),
        }
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.platform.fill_random(bytes);
    }
}

//! Cluster: what hubs on one store exchange, which is events, cache invalidations and the common clock.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};

use super::{Change, Key, Kind, Store};
use crate::events::Events;
use crate::id::TenantId;
use crate::lock::lock;
use crate::platform::World;

/// Scope of a cache invalidation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum About {
    /// A document.
    One(Key),
    /// All documents of a kind with this parent.
    Parts(Kind, String),
}

impl About {
    /// Returns the scope that a change invalidates, if hubs cache it: documents that the store caches, and tenant keys.
    pub fn of(change: &Change) -> Option<Self> {
        let about = match change {
            Change::Put { document, .. } => About::One(document.key.clone()),
            Change::Remove(key) => About::One(key.clone()),
            Change::RemoveParts { kind, parent } => About::Parts(*kind, parent.clone()),
            _ => return None,
        };
        let (About::One(Key { kind, .. }) | About::Parts(kind, _)) = &about;
        (kind.is_remembered() || *kind == Kind::TenantKey).then_some(about)
    }
}

/// Invalidation by a peer hub; `None` if the changed documents are not known.
pub type Changed<'a> = Option<(TenantId, &'a About)>;

type Ear = Box<dyn Fn(Changed<'_>) + Send + Sync>;

/// Cluster of hubs on one store.
pub struct Shared {
    /// Event log of the cluster.
    pub events: Events,
    /// Id of the event log. Event numbers are comparable between hubs with the same id.
    pub line: String,
    ears: Mutex<Vec<Ear>>,
}

impl Shared {
    /// Creates the cluster with its event log.
    pub fn new(events: Events, line: String) -> Self {
        Shared { events, line, ears: Mutex::default() }
    }

    /// Registers a listener of invalidations by peer hubs. It is called before their events are published.
    pub fn listen(&self, ear: impl Fn(Changed<'_>) + Send + Sync + 'static) {
        lock(&self.ears).push(Box::new(ear));
    }

    /// Notifies the listeners of an invalidation by a peer hub.
    pub fn changed(&self, what: Changed<'_>) {
        lock(&self.ears).iter().for_each(|ear| ear(what));
    }
}

/// Common clock of all hubs on a store, independent of the clocks of their machines.
pub struct Clock {
    world: Arc<dyn World>,
    store: Arc<dyn Store>,
}

impl Clock {
    /// Creates a clock from the local one and the offset that the store measures.
    pub fn new(world: Arc<dyn World>, store: Arc<dyn Store>) -> Self {
        Clock { world, store }
    }
}

impl World for Clock {
    fn now(&self) -> Timestamp {
        let now = self.world.now();
        match self.store.ahead() {
            SignedDuration::ZERO => now,
            ahead => now.saturating_add(ahead).unwrap_or(now),
        }
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.world.fill(bytes);
    }
}

//! What hubs that share a store tell each other: what happens, what was changed of what they remember, and what time it is.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};

use super::{Change, Key, Kind, Store};
use crate::events::Events;
use crate::id::TenantId;
use crate::sync::lock;
use crate::world::World;

/// Something that may be remembered was changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum About {
    /// One document.
    One(Key),
    /// All of a kind that belong to something.
    Parts(Kind, String),
}

impl About {
    /// What a change is about, if hubs cache it: documents that the store caches, and tenant keys.
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

/// What another hub has changed; nothing, if nobody knows.
pub type Changed<'a> = Option<(TenantId, &'a About)>;

type Ear = Box<dyn Fn(Changed<'_>) + Send + Sync>;

/// What hubs on one store tell each other.
pub struct Shared {
    /// What happens at any of them.
    pub events: Events,
    /// Numbers of events mean the same at all hubs with the same line.
    pub line: String,
    ears: Mutex<Vec<Ear>>,
}

impl Shared {
    /// Those of a line.
    pub fn new(events: Events, line: String) -> Self {
        Shared { events, line, ears: Mutex::default() }
    }

    /// Calls this whenever another hub has changed something, before its events are told.
    pub fn listen(&self, ear: impl Fn(Changed<'_>) + Send + Sync + 'static) {
        lock(&self.ears).push(Box::new(ear));
    }

    /// Another hub has changed something.
    pub fn changed(&self, what: Changed<'_>) {
        lock(&self.ears).iter().for_each(|ear| ear(what));
    }
}

/// The time that all hubs on a store have in common, whatever their machines say.
pub struct Clock {
    world: Arc<dyn World>,
    store: Arc<dyn Store>,
}

impl Clock {
    /// What this world says, corrected by what the store says.
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

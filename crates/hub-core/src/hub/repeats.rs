//! Aggregation of repeated audit entries: the first of a kind is written at once, the others are counted and written once
//! a minute. A flood of the same event cannot fill the audit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};

use crate::audit::Entry;
use crate::id::TenantId;
use crate::store::{Batch, Store};
use crate::sync::lock;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Kinds of one share that are counted apart; the rest is counted together.
pub(super) const MAX_KINDS: usize = 100;

/// A kind of event: events that compare equal are counted together.
pub(super) trait Repeated: Clone + Eq + Hash {
    /// The tenant whose audit has the entry.
    fn tenant(&self) -> TenantId;

    /// Whether both kinds take from the same [`MAX_KINDS`]. Default: those of one tenant do.
    fn shares_with(&self, other: &Self) -> bool {
        self.tenant() == other.tenant()
    }

    /// The kind of all events of its share beyond [`MAX_KINDS`].
    fn others(&self) -> Self;

    /// The audit entry of `count` events.
    fn entry(&self, at: Timestamp, count: u64) -> Entry;
}

struct Count {
    written: Timestamp,
    more: u64,
}

/// The events of the last minute.
pub(super) struct Repeats<K>(Mutex<HashMap<K, Count>>);

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Repeats(Mutex::default())
    }
}

impl<K: Repeated> Repeats<K> {
    /// Counts an event. Returns its kind if it is the first one, which is to be written at once.
    pub(super) fn add(&self, kind: K, now: Timestamp) -> Option<K> {
        let (kind, is_first) = self.count(kind, now);
        is_first.then_some(kind)
    }

    /// Counts an event. Returns the kind of the first one, and whether this is it.
    pub(super) fn count(&self, kind: K, now: Timestamp) -> (K, bool) {
        let mut all = lock(&self.0);
        let is_known = all.contains_key(&kind);
        let is_full = || all.keys().filter(|known| known.shares_with(&kind)).count() >= MAX_KINDS;
        let kind = if !is_known && is_full() { kind.others() } else { kind };
        if let Some((first, _)) = all.get_key_value(&kind) {
            let first = first.clone();
            all.entry(kind).and_modify(|count| count.more += 1);
            return (first, false);
        }
        all.insert(kind.clone(), Count { written: now, more: 0 });
        (kind, true)
    }

    /// Forgets a kind whose first entry could not be written.
    pub(super) fn forget(&self, kind: &K) {
        lock(&self.0).remove(kind);
    }

    /// Returns the kinds that were repeated and are due, or all of them, with their counts. A kind that was not repeated for
    /// a minute is dropped.
    pub(super) fn due(&self, now: Timestamp, all: bool) -> Vec<(K, u64)> {
        let mut due = Vec::new();
        lock(&self.0).retain(|kind, count| {
            if !all && now.duration_since(count.written) < MINUTE {
                return true;
            }
            let more = std::mem::replace(count, Count { written: now, more: 0 }).more;
            if more > 0 {
                due.push((kind.clone(), more));
            }
            more > 0
        });
        due
    }

    /// Writes what is due, or all of it.
    pub(super) async fn write_due(&self, store: &dyn Store, now: Timestamp, all: bool) {
        for (kind, count) in self.due(now, all) {
            write(store, kind.tenant(), kind.entry(now, count)).await;
        }
    }
}

/// Writes an audit entry on its own. What it reports has happened already, so a failure is logged.
pub(super) async fn write(store: &dyn Store, tenant: TenantId, entry: Entry) {
    if let Err(error) = store.commit(tenant, Batch::new().audit(entry)).await {
        tracing::error!(%error, "failed to write an audit entry");
    }
}

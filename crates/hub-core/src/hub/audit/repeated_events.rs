//! Aggregation of repeated audit entries: the first of a kind is written at once, the others are counted and written once
//! a minute. A flood of the same event cannot fill the audit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};

use crate::audit::AuditEntry;
use crate::error::{self, Result};
use crate::id::TenantId;
use crate::lock::lock;
use crate::store::{Batch, Store};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Maximum number of kinds of events that are counted separately, per share; the rest is counted together.
pub(in crate::hub) const MAX_KINDS: usize = 100;

/// Kind of an event for the audit; events of equal kind are counted together.
pub(in crate::hub) trait RepeatedEvent: Clone + Eq + Hash {
    /// Returns the tenant in whose audit the events are recorded.
    fn tenant(&self) -> TenantId;

    /// Reports whether two kinds of events count against the same share of [`MAX_KINDS`]. Default: kinds of the same
    /// tenant do.
    fn has_same_share(&self, other: &Self) -> bool {
        self.tenant() == other.tenant()
    }

    /// Returns the kind under which all events beyond [`MAX_KINDS`] are counted.
    fn overflow_kind(&self) -> Self;

    /// Creates the audit entry of `count` events.
    fn entry(&self, at: Timestamp, count: u64) -> AuditEntry;

    /// Clears the reference to the stored record of the first event if that record could not be stored.
    fn drop_record(&mut self) {}
}

struct RepeatCount {
    last_written: Timestamp,
    /// Number of events that are not in an audit entry yet.
    pending: u64,
    /// Whether the last audit entry could not be written. The next event is then written at once.
    write_failed: bool,
}

/// Counter of repeated events by kind, from which audit entries with a count are written once a minute.
pub(in crate::hub) struct RepeatCounter<K>(Mutex<HashMap<K, RepeatCount>>);

impl<K> Default for RepeatCounter<K> {
    fn default() -> Self {
        RepeatCounter(Mutex::default())
    }
}

impl<K: RepeatedEvent> RepeatCounter<K> {
    /// Counts an event of a kind that may repeat often. Returns the kind of the first one, and, if this event is the
    /// first, the number of events for its entry: more than one if the previous entry could not be written. The caller
    /// writes it with [`Self::commit`].
    pub(in crate::hub) fn count(&self, kind: K, now: Timestamp) -> (K, Option<u64>) {
        let mut all = lock(&self.0);
        let is_known = all.contains_key(&kind);
        let is_full = || all.keys().filter(|counted| counted.has_same_share(&kind)).count() >= MAX_KINDS;
        let kind = if !is_known && is_full() { kind.overflow_kind() } else { kind };
        let mut lost = 0;
        if let Some((first, count)) = all.remove_entry(&kind) {
            if !count.write_failed {
                all.insert(first.clone(), RepeatCount { pending: count.pending + 1, ..count });
                return (first, None);
            }
            lost = count.pending;
        }
        all.insert(kind.clone(), RepeatCount { last_written: now, pending: 0, write_failed: false });
        (kind, Some(lost + 1))
    }

    /// Commits the batch with the audit entry of `count` events. If that fails, the next event of the kind counts as
    /// the first again, and its entry includes these events.
    pub(in crate::hub) async fn commit(
        &self,
        store: &dyn Store,
        kind: &K,
        (at, count): (Timestamp, u64),
        batch: Batch,
    ) -> Result<()> {
        let done = store.commit(kind.tenant(), batch).await;
        if let Err(error) = &done {
            // After a conflict the caller retries and counts the event again.
            let lost = if error.kind() == error::ErrorKind::Conflict { count - 1 } else { count };
            let mut all = lock(&self.0);
            let pending = all.remove(kind).map_or(0, |counted| counted.pending) + lost;
            let mut kind = kind.clone();
            kind.drop_record();
            all.insert(kind, RepeatCount { last_written: at, pending, write_failed: true });
        }
        done
    }

    /// Writes the audit entry of `count` events of one kind. The events have already happened, so a failure is only
    /// logged.
    pub(in crate::hub) async fn write(&self, store: &dyn Store, kind: &K, (at, count): (Timestamp, u64)) {
        let batch = Batch::new().audit(kind.entry(at, count));
        if let Err(error) = self.commit(store, kind, (at, count), batch).await {
            tracing::error!(%error, "failed to write an audit entry; its events are counted in the next one");
        }
    }

    /// Returns the kinds of events whose repetitions have to be recorded now, or all kinds, with their counts. Drops
    /// kinds that were not repeated for a minute.
    pub(in crate::hub) fn take_due(&self, now: Timestamp, all: bool) -> Vec<(K, u64)> {
        let mut due = Vec::new();
        lock(&self.0).retain(|kind, count| {
            if !all && now.duration_since(count.last_written) < MINUTE {
                return true;
            }
            let RepeatCount { pending, write_failed, .. } =
                std::mem::replace(count, RepeatCount { last_written: now, pending: 0, write_failed: false });
            if pending > 0 {
                due.push((kind.clone(), pending));
            }
            pending > 0 && !write_failed
        });
        due
    }

    /// Writes the audit entries of repeated events that are due, or all.
    pub(in crate::hub) async fn write_due(&self, store: &dyn Store, now: Timestamp, all: bool) {
        for (kind, count) in self.take_due(now, all) {
            self.write(store, &kind, (now, count)).await;
        }
    }
}

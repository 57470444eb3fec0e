//! Queue of servers that wait for a tool sync. Each server is synced at most four times per second and never twice
//! concurrently, however often it reports changed tools.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::id::{ServerId, TenantId};
use crate::lock::lock;

/// Minimum time between the starts of two syncs of a server.
const MIN_SYNC_INTERVAL: Duration = Duration::from_millis(250);

/// Key of a server in the sync queue: tenant and id.
pub(in crate::hub) type ServerKey = (TenantId, ServerId);

/// Queue of servers that wait for a tool sync, with the servers that were synced recently.
#[derive(Default)]
pub(in crate::hub) struct SyncQueue {
    state: Mutex<QueueState>,
    pub(in crate::hub) wakeup: Notify,
}

#[derive(Default)]
struct QueueState {
    queued: HashSet<ServerKey>,
    /// Start time of each sync that is running or was started less than [`MIN_SYNC_INTERVAL`] ago, and whether it is
    /// running.
    started: HashMap<ServerKey, (Instant, bool)>,
}

impl SyncQueue {
    pub(in crate::hub) fn add(&self, key: ServerKey) {
        lock(&self.state).queued.insert(key);
        self.wakeup.notify_one();
    }

    /// Marks the queued syncs that are due as started and returns a ticket for each. The others stay queued until the
    /// next call.
    pub(in crate::hub) fn start_due(self: &Arc<Self>) -> Vec<SyncTicket> {
        self.take_ready().into_iter().map(|key| SyncTicket { queue: self.clone(), key }).collect()
    }

    fn take_ready(&self) -> Vec<ServerKey> {
        let (mut state, now) = (lock(&self.state), Instant::now());
        let QueueState { queued, started } = &mut *state;
        started.retain(|_, (at, is_running)| *is_running || now.duration_since(*at) < MIN_SYNC_INTERVAL);
        let ready: Vec<_> = queued.extract_if(|key| !started.contains_key(key)).collect();
        started.extend(ready.iter().map(|key| (*key, (now, true))));
        ready
    }

    /// Returns when the next queued sync is due, if its server is not being synced now.
    pub(in crate::hub) fn next_due(&self) -> Option<Instant> {
        let state = lock(&self.state);
        let started = state.queued.iter().filter_map(|key| state.started.get(key));
        started.filter(|(_, is_running)| !is_running).map(|(at, _)| *at + MIN_SYNC_INTERVAL).min()
    }

    fn finish(&self, key: ServerKey) {
        let mut state = lock(&self.state);
        if let Some((_, is_running)) = state.started.get_mut(&key) {
            *is_running = false;
        }
        if state.queued.contains(&key) {
            self.wakeup.notify_one();
        }
    }
}

/// Guard of a running tool sync. The sync counts as finished on drop.
pub(in crate::hub) struct SyncTicket {
    queue: Arc<SyncQueue>,
    pub(in crate::hub) key: ServerKey,
}

impl Drop for SyncTicket {
    fn drop(&mut self) {
        self.queue.finish(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ServerKey = (TenantId::from_u128(1), ServerId::from_u128(1));
    const SECOND: ServerKey = (TenantId::from_u128(1), ServerId::from_u128(2));

    #[tokio::test(start_paused = true)]
    async fn whoever_shouts_is_looked_at_once_at_a_time_and_not_all_the_time() {
        let due = SyncQueue::default();
        for _ in 0..1_000 {
            due.add(FIRST);
        }
        assert_eq!(due.take_ready(), [FIRST]);
        assert_eq!(due.take_ready(), []);
        tokio::time::advance(MIN_SYNC_INTERVAL).await;
        due.add(FIRST);
        due.add(SECOND);
        assert_eq!(due.take_ready(), [SECOND], "the first sync is still running");
        due.finish(FIRST);
        assert_eq!(due.take_ready(), [FIRST], "a change during a sync is not lost");
        due.finish(FIRST);
        due.add(FIRST);
        assert_eq!(due.take_ready(), [], "the last sync started too recently");
        assert_eq!(due.next_due(), Some(Instant::now() + MIN_SYNC_INTERVAL));
        tokio::time::advance(MIN_SYNC_INTERVAL).await;
        assert_eq!(due.take_ready(), [FIRST]);
        assert_eq!(lock(&due.state).started.len(), 2, "the second sync is still running");
    }
}

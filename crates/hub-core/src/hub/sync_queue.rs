//! Sync queue: servers that wait for a sync. Each server is synced at most once per second and never twice
//! concurrently, however often it reports changed tools.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::id::{ServerId, TenantId};
use crate::lock::lock;

/// Minimum time between the starts of two syncs of a server.
const SHORTEST: Duration = Duration::from_secs(1);

/// Tenant and id of a server.
pub(super) type Look = (TenantId, ServerId);

/// Queued syncs, and those that were started recently.
#[derive(Default)]
pub(super) struct Due {
    looks: Mutex<Looks>,
    pub(super) bell: Notify,
}

#[derive(Default)]
struct Looks {
    wanted: HashSet<Look>,
    /// Start time of each sync, and whether it is still running.
    begun: HashMap<Look, (Instant, bool)>,
}

impl Due {
    pub(super) fn add(&self, look: Look) {
        lock(&self.looks).wanted.insert(look);
        self.bell.notify_one();
    }

    /// Starts the syncs that are due. The others stay queued until the next call.
    pub(super) fn begin(self: &Arc<Self>) -> Vec<Looking> {
        self.ready().into_iter().map(|look| Looking { due: self.clone(), look }).collect()
    }

    fn ready(&self) -> Vec<Look> {
        let (mut looks, now) = (lock(&self.looks), Instant::now());
        let Looks { wanted, begun } = &mut *looks;
        begun.retain(|_, (at, goes_on)| *goes_on || now.duration_since(*at) < SHORTEST);
        let ready: Vec<_> = wanted.extract_if(|look| !begun.contains_key(look)).collect();
        begun.extend(ready.iter().map(|look| (*look, (now, true))));
        ready
    }

    fn end(&self, look: Look) {
        if let Some((_, goes_on)) = lock(&self.looks).begun.get_mut(&look) {
            *goes_on = false;
        }
    }
}

/// Guard of a running sync. The sync counts as finished on drop.
pub(super) struct Looking {
    due: Arc<Due>,
    pub(super) look: Look,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.due.end(self.look);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Look = (TenantId::fixed(1), ServerId::fixed(1));
    const SECOND: Look = (TenantId::fixed(1), ServerId::fixed(2));

    #[tokio::test(start_paused = true)]
    async fn whoever_shouts_is_looked_at_once_at_a_time_and_not_all_the_time() {
        let due = Due::default();
        for _ in 0..1_000 {
            due.add(FIRST);
        }
        assert_eq!(due.ready(), [FIRST]);
        assert_eq!(due.ready(), []);
        tokio::time::advance(SHORTEST).await;
        due.add(FIRST);
        due.add(SECOND);
        assert_eq!(due.ready(), [SECOND], "the first sync is still running");
        due.end(FIRST);
        assert_eq!(due.ready(), [FIRST], "a change during a sync is not lost");
        due.end(FIRST);
        due.add(FIRST);
        assert_eq!(due.ready(), [], "the last sync started less than a second ago");
        tokio::time::advance(SHORTEST).await;
        assert_eq!(due.ready(), [FIRST]);
        assert_eq!(lock(&due.looks).begun.len(), 2, "the second sync is still running");
    }
}

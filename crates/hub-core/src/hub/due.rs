//! Which servers are to be looked at soon. A server that says all the time that its tools have changed is looked at once a
//! second at most, and never twice at once.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::id::{ServerId, TenantId};
use crate::sync::lock;

/// The shortest time from the beginning of one look to that of the next.
const SHORTEST: Duration = Duration::from_secs(1);

/// A server.
pub(super) type Look = (TenantId, ServerId);

/// Looks that are wanted, and those that were begun lately.
#[derive(Default)]
pub(super) struct Due {
    looks: Mutex<Looks>,
    pub(super) bell: Notify,
}

#[derive(Default)]
struct Looks {
    wanted: HashSet<Look>,
    /// When each was begun, and whether it is still going on.
    begun: HashMap<Look, (Instant, bool)>,
}

impl Due {
    pub(super) fn add(&self, look: Look) {
        lock(&self.looks).wanted.insert(look);
        self.bell.notify_one();
    }

    /// Those that can begin now. The others wait until the next time that somebody asks.
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

/// A look that goes on for as long as this is there.
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
        assert_eq!(due.ready(), [SECOND], "the first look goes on");
        due.end(FIRST);
        assert_eq!(due.ready(), [FIRST], "what was said meanwhile is not forgotten");
        due.end(FIRST);
        due.add(FIRST);
        assert_eq!(due.ready(), [], "it was a moment ago");
        tokio::time::advance(SHORTEST).await;
        assert_eq!(due.ready(), [FIRST]);
        assert_eq!(lock(&due.looks).begun.len(), 2, "the second still goes on");
    }
}

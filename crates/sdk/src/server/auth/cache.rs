//! Tokens that were found good a moment ago, known by their digest. Bounded in number, in bytes and in time, so that a
//! key that is withdrawn is not believed for long.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::super::Identity;
use crate::sync::lock;

/// How long a token is believed without being looked at.
const LONGEST: Duration = Duration::from_mins(5);
const MAX_COUNT: usize = 4_096;
/// Bytes of all tokens that are remembered; what they say takes about as much.
const MAX_BYTES: usize = 8 << 20;

/// What stands for a token.
pub(super) type Mark = [u8; 32];

pub(super) fn mark(token: &str) -> Mark {
    Sha256::digest(token).into()
}

/// Who was found to be behind a token.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) identity: Arc<Identity>,
    /// What everything of theirs is bound to.
    pub(crate) principal: Arc<str>,
}

impl From<Identity> for Known {
    fn from(identity: Identity) -> Self {
        Known { principal: identity.principal().into(), identity: Arc::new(identity) }
    }
}

#[derive(Default)]
pub(super) struct Cache(Mutex<Table>);

#[derive(Default)]
struct Table {
    known: HashMap<Mark, (Known, Instant)>,
    /// The oldest first, with the length of the token.
    order: VecDeque<(Mark, Instant, usize)>,
    bytes: usize,
}

impl Cache {
    pub(super) fn find(&self, mark: &Mark) -> Option<Known> {
        let table = lock(&self.0);
        let (known, since) = table.known.get(mark)?;
        (since.elapsed() < LONGEST).then(|| known.clone())
    }

    pub(super) fn add(&self, mark: Mark, length: usize, known: Known) {
        let now = Instant::now();
        let mut table = lock(&self.0);
        table.shrink(now, length);
        if table.known.insert(mark, (known, now)).is_none() {
            table.order.push_back((mark, now, length));
            table.bytes += length;
        }
    }
}

impl Table {
    /// Forgets what is too old, and the oldest until there is room.
    fn shrink(&mut self, now: Instant, more: usize) {
        while let Some((mark, since, length)) = self.order.front() {
            let full = self.known.len() >= MAX_COUNT || self.bytes + more > MAX_BYTES;
            if !full && now.duration_since(*since) < LONGEST {
                return;
            }
            self.known.remove(mark);
            self.bytes -= length;
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Known {
        Identity::new(name).into()
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_bounded_in_number_and_bytes_and_time() {
        let cache = Cache::default();
        for number in 0..3 * MAX_COUNT {
            cache.add(mark(&number.to_string()), 100, known("ada"));
        }
        assert_eq!(lock(&cache.0).known.len(), MAX_COUNT);
        assert_eq!(lock(&cache.0).order.len(), MAX_COUNT);
        assert!(cache.find(&mark("0")).is_none(), "the oldest went");
        assert!(cache.find(&mark(&(3 * MAX_COUNT - 1).to_string())).is_some());
        for number in 0..2_000 {
            cache.add(mark(&format!("long {number}")), 16 << 10, known("bob"));
        }
        let (count, bytes) = {
            let table = lock(&cache.0);
            (table.known.len(), table.bytes)
        };
        assert!(bytes <= MAX_BYTES && count == MAX_BYTES / (16 << 10), "{count} {bytes}");
        tokio::time::advance(LONGEST).await;
        assert!(cache.find(&mark("long 1999")).is_none());
        cache.add(mark("new"), 1, known("eve"));
        let table = lock(&cache.0);
        assert_eq!((table.known.len(), table.bytes), (1, 1));
    }
}

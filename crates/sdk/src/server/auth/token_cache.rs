//! Cache of recently verified tokens, keyed by their digest. It is bounded in entries, bytes and age, so that a token
//! signed with a withdrawn key is not accepted for long.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::super::Identity;
use crate::lock::lock;

/// How long a token is accepted without being verified again.
const LONGEST: Duration = Duration::from_mins(5);
const MAX_COUNT: usize = 4_096;
/// Maximum total length of the cached tokens; their identities take about as much memory.
const MAX_BYTES: usize = 8 << 20;

/// SHA-256 digest of a token.
pub(super) type Mark = [u8; 32];

pub(super) fn mark(token: &str) -> Mark {
    Sha256::digest(token).into()
}

/// Identity behind a verified token.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) identity: Arc<Identity>,
    /// The principal that the sessions and tasks of this identity are bound to.
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
    /// Entries in insertion order, with the length of the token.
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
    /// Evicts expired entries, then the oldest ones until `more` bytes fit.
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
        assert!(cache.find(&mark("0")).is_none(), "the oldest is evicted");
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

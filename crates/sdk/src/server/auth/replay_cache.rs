//! Replay cache: detects that a `DPoP` proof is used twice. It consists of two generations; the older one is dropped as
//! a whole once all its proofs have expired.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::token_cache::{TokenDigest, token_digest};
use crate::lock::lock;

/// Maximum number of remembered `DPoP` proofs per generation of the replay cache.
const MAX_PROOFS: usize = 1 << 19;

pub(super) struct ReplayCache {
    generations: Mutex<Generations>,
    /// How long a proof can be accepted, and therefore has to be remembered.
    window: Duration,
    max_proofs: usize,
}

struct Generations {
    current: HashSet<[u8; 16]>,
    previous: HashSet<[u8; 16]>,
    started_at: Instant,
}

/// Reason why the replay cache does not accept a `DPoP` proof: it was used before, or the cache is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplayError {
    Used,
    /// The replay cache is full; entries are never evicted early.
    Full,
}

impl ReplayCache {
    pub(super) fn new(window: Duration) -> Self {
        let generations =
            Generations { current: HashSet::new(), previous: HashSet::new(), started_at: Instant::now() };
        ReplayCache { generations: Mutex::new(generations), window, max_proofs: MAX_PROOFS }
    }

    /// Records that a `DPoP` proof with this key and `jti` was used, and fails if it was used before.
    pub(super) fn record(&self, key: &str, id: &str) -> Result<(), ReplayError> {
        let digest: TokenDigest = token_digest(&format!("{key}.{id}"));
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        let mut generations = lock(&self.generations);
        if generations.started_at.elapsed() > self.window {
            let is_old = generations.started_at.elapsed() > self.window * 2;
            let previous = std::mem::take(&mut generations.current);
            generations.previous = if is_old { HashSet::new() } else { previous };
            generations.started_at = Instant::now();
        }
        if generations.previous.contains(&short) || generations.current.contains(&short) {
            return Err(ReplayError::Used);
        }
        if generations.current.len() >= self.max_proofs {
            return Err(ReplayError::Full);
        }
        generations.current.insert(short);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_forgotten_before_its_time_and_everything_after() {
        let window = Duration::from_secs(100);
        let replay = ReplayCache { max_proofs: 3, ..ReplayCache::new(window) };
        assert_eq!(replay.record("k", "1"), Ok(()));
        assert_eq!(replay.record("k", "1"), Err(ReplayError::Used));
        assert_eq!(replay.record("l", "1"), Ok(()), "another key has ids of its own");
        tokio::time::advance(Duration::from_secs(99)).await;
        assert_eq!(replay.record("k", "2"), Ok(()));
        assert_eq!(replay.record("k", "3"), Err(ReplayError::Full));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(33)).await;
            assert_eq!(replay.record("k", "2"), Err(ReplayError::Used));
        }
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(replay.record("k", "3"), Ok(()), "free space after the window");
        tokio::time::advance(Duration::from_secs(201)).await;
        assert_eq!(replay.record("k", "2"), Ok(()));
        assert_eq!(lock(&replay.generations).previous.len(), 0);
    }
}

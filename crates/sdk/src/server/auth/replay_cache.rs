//! Replay cache of used `DPoP` proofs. It consists of two generations; the older one is dropped as a whole once all its
//! proofs have expired.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::token_cache::{Mark, mark};
use crate::lock::lock;

/// Maximum number of proofs per generation.
const MOST: usize = 1 << 19;

pub(super) struct Replay {
    seen: Mutex<Seen>,
    /// How long a proof can be accepted.
    window: Duration,
    most: usize,
}

struct Seen {
    now: HashSet<[u8; 16]>,
    before: HashSet<[u8; 16]>,
    since: Instant,
}

/// Reason why a proof is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Again {
    Used,
    /// The cache is full; entries are never evicted early.
    Full,
}

impl Replay {
    pub(super) fn new(window: Duration) -> Self {
        let seen = Seen { now: HashSet::new(), before: HashSet::new(), since: Instant::now() };
        Replay { seen: Mutex::new(seen), window, most: MOST }
    }

    /// Records the use of a proof by this key.
    pub(super) fn note(&self, key: &str, id: &str) -> Result<(), Again> {
        let whole: Mark = mark(&format!("{key}.{id}"));
        let mut short = [0; 16];
        short.copy_from_slice(&whole[..16]);
        let mut seen = lock(&self.seen);
        if seen.since.elapsed() > self.window {
            let is_old = seen.since.elapsed() > self.window * 2;
            let passed = std::mem::take(&mut seen.now);
            seen.before = if is_old { HashSet::new() } else { passed };
            seen.since = Instant::now();
        }
        if seen.before.contains(&short) || seen.now.contains(&short) {
            return Err(Again::Used);
        }
        if seen.now.len() >= self.most {
            return Err(Again::Full);
        }
        seen.now.insert(short);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_forgotten_before_its_time_and_everything_after() {
        let window = Duration::from_secs(100);
        let replay = Replay { most: 3, ..Replay::new(window) };
        assert_eq!(replay.note("k", "1"), Ok(()));
        assert_eq!(replay.note("k", "1"), Err(Again::Used));
        assert_eq!(replay.note("l", "1"), Ok(()), "another key has ids of its own");
        tokio::time::advance(Duration::from_secs(99)).await;
        assert_eq!(replay.note("k", "2"), Ok(()));
        assert_eq!(replay.note("k", "3"), Err(Again::Full));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(33)).await;
            assert_eq!(replay.note("k", "2"), Err(Again::Used));
        }
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(replay.note("k", "3"), Ok(()), "free space after the window");
        tokio::time::advance(Duration::from_secs(201)).await;
        assert_eq!(replay.note("k", "2"), Ok(()));
        assert_eq!(lock(&replay.seen).before.len(), 0);
    }
}

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
const MAX_TOKEN_AGE: Duration = Duration::from_mins(5);
const MAX_ENTRIES: usize = 4_096;
/// Maximum total length of the cached tokens; their identities take about as much memory.
const MAX_BYTES: usize = 8 << 20;

/// SHA-256 digest of an access token, the key of the token cache.
pub(super) type TokenDigest = [u8; 32];

pub(super) fn token_digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

/// Identity and principal of the sender of a verified token.
#[derive(Debug, Clone)]
pub(crate) struct VerifiedToken {
    pub(crate) identity: Arc<Identity>,
    /// Principal that the sessions and tasks of this identity are bound to.
    pub(crate) principal: Arc<str>,
}

impl From<Identity> for VerifiedToken {
    fn from(identity: Identity) -> Self {
        VerifiedToken { principal: identity.principal().into(), identity: Arc::new(identity) }
    }
}

#[derive(Default)]
pub(super) struct TokenCache(Mutex<CacheTable>);

#[derive(Default)]
struct CacheTable {
    entries: HashMap<TokenDigest, (VerifiedToken, Instant)>,
    /// Cached tokens in insertion order: digest, time, and length of the token.
    order: VecDeque<(TokenDigest, Instant, usize)>,
    bytes: usize,
}

impl TokenCache {
    pub(super) fn find(&self, digest: &TokenDigest) -> Option<VerifiedToken> {
        let table = lock(&self.0);
        let (verified, since) = table.entries.get(digest)?;
        (since.elapsed() < MAX_TOKEN_AGE).then(|| verified.clone())
    }

    pub(super) fn insert(&self, digest: TokenDigest, length: usize, verified: VerifiedToken) {
        let now = Instant::now();
        let mut table = lock(&self.0);
        table.evict(now, length);
        if table.entries.insert(digest, (verified, now)).is_none() {
            table.order.push_back((digest, now, length));
            table.bytes += length;
        }
    }
}

impl CacheTable {
    /// Evicts expired entries, then the oldest ones until `needed` bytes fit.
    fn evict(&mut self, now: Instant, needed: usize) {
        while let Some((digest, since, length)) = self.order.front() {
            let is_full = self.entries.len() >= MAX_ENTRIES || self.bytes + needed > MAX_BYTES;
            if !is_full && now.duration_since(*since) < MAX_TOKEN_AGE {
                return;
            }
            self.entries.remove(digest);
            self.bytes -= length;
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified_token(name: &str) -> VerifiedToken {
        Identity::new(name).into()
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_bounded_in_number_and_bytes_and_time() {
        let cache = TokenCache::default();
        for number in 0..3 * MAX_ENTRIES {
            cache.insert(token_digest(&number.to_string()), 100, verified_token("ada"));
        }
        assert_eq!(lock(&cache.0).entries.len(), MAX_ENTRIES);
        assert_eq!(lock(&cache.0).order.len(), MAX_ENTRIES);
        assert!(cache.find(&token_digest("0")).is_none(), "the oldest is evicted");
        assert!(cache.find(&token_digest(&(3 * MAX_ENTRIES - 1).to_string())).is_some());
        for number in 0..2_000 {
            cache.insert(token_digest(&format!("long {number}")), 16 << 10, verified_token("bob"));
        }
        let (count, bytes) = {
            let table = lock(&cache.0);
            (table.entries.len(), table.bytes)
        };
        assert!(bytes <= MAX_BYTES && count == MAX_BYTES / (16 << 10), "{count} {bytes}");
        tokio::time::advance(MAX_TOKEN_AGE).await;
        assert!(cache.find(&token_digest("long 1999")).is_none());
        cache.insert(token_digest("new"), 1, verified_token("eve"));
        let table = lock(&cache.0);
        assert_eq!((table.entries.len(), table.bytes), (1, 1));
    }
}

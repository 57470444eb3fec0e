//! Cache hints in results: how long, and by which caches, they may be cached.

use crate::encode::words;

words! {
    /// Who may cache a result.
    pub enum CacheScope {
        /// Any cache, including shared ones: the result is the same for all callers.
        Public = "public",
        /// Only the cache of the caller: the result may depend on the caller.
        Private = "private",
    }
}

/// Cache hints of a list or of a resource that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHints {
    /// Time for which the result is fresh, in milliseconds. Default: 0.
    pub ttl_ms: u64,
    /// Scope of caching: whether shared caches or only the client may cache the result. Default:
    /// [`CacheScope::Private`].
    pub scope: CacheScope,
}

impl Default for CacheHints {
    /// Returns cache hints that are safe for every server: immediately stale and private.
    fn default() -> Self {
        Self { ttl_ms: 0, scope: CacheScope::Private }
    }
}

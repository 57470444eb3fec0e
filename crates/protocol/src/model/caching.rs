//! How long and by whom a result may be kept.

use crate::encode::words;

words! {
    /// Who may keep a result.
    pub enum CacheScope {
        /// Anybody: it is the same for all.
        Public = "public",
        /// Only who asked: it may depend on the caller.
        Private = "private",
    }
}

/// Freshness of a list or of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHints {
    /// Milliseconds for which it counts as fresh.
    pub ttl_ms: u64,
    /// Who may keep it.
    pub scope: CacheScope,
}

impl Default for CacheHints {
    /// Stale at once and not to be shared: what is true of any server.
    fn default() -> Self {
        Self { ttl_ms: 0, scope: CacheScope::Private }
    }
}

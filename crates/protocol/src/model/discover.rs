//! What a stateless server says of itself.

use super::results::results;
use super::{CacheScope, ServerCapabilities};

results! {
    /// The answer to `server/discover`; who the server is stands in `_meta`.
    pub struct DiscoverResult {
        /// The revisions it speaks; text, since some may be unknown to us.
        supported_versions: Vec<String> = "supportedVersions",
        /// What it can do.
        capabilities: ServerCapabilities = "capabilities",
        /// How to use it, for the model.
        instructions: Option<String> = "instructions",
        /// Milliseconds for which this counts as fresh.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may keep it.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }
}

//! Result of `server/discover`, with which a client of the stateless era learns about a server.

use super::results::results;
use super::{CacheScope, ServerCapabilities};

results! {
    /// Result of `server/discover`. Its `_meta` identifies the server.
    pub struct DiscoverResult {
        /// Supported protocol versions, as strings since some may be unknown to this crate.
        supported_versions: Vec<String> = "supportedVersions",
        /// Capabilities of the server.
        capabilities: ServerCapabilities = "capabilities",
        /// Instructions for the model on how to use the server.
        instructions: Option<String> = "instructions",
        /// Time for which the result is fresh, in milliseconds.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may cache the result.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }
}

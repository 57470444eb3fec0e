//! Cache of the last negotiated revision per server, which saves the probe on the next connection.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use linchpin_protocol::Revision;

use crate::lock::lock;
use crate::siphash::stable_hash;

/// Maximum number of servers whose revision is cached.
const MAX_SERVERS: usize = 1_000;

/// Cache of the last negotiated revision of each server, which saves a probe at the next connection. Clones share their
/// entries; all clients of a process share one cache unless they are given another. Keys are hashes of the server name,
/// since a command line may contain a secret.
#[derive(Clone, Default)]
pub struct RevisionCache(Arc<Mutex<HashMap<u64, Revision>>>);

static PROCESS_CACHE: LazyLock<RevisionCache> = LazyLock::new(RevisionCache::default);

impl RevisionCache {
    /// Creates an empty revision cache.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn shared() -> Self {
        PROCESS_CACHE.clone()
    }

    /// Returns all cached revisions, by server hash, for persisting them.
    pub fn entries(&self) -> Vec<(u64, Revision)> {
        lock(&self.0).iter().map(|(server, revision)| (*server, *revision)).collect()
    }

    /// Creates a revision cache from persisted entries.
    pub fn from_entries(entries: impl IntoIterator<Item = (u64, Revision)>) -> Self {
        RevisionCache(Arc::new(Mutex::new(entries.into_iter().take(MAX_SERVERS).collect())))
    }

    /// Returns the last negotiated revision of a server.
    pub fn get(&self, server: &str) -> Option<Revision> {
        lock(&self.0).get(&server_hash(server)).copied()
    }

    /// Stores the negotiated protocol revision of a server.
    pub fn set(&self, server: &str, revision: Revision) {
        let mut entries = lock(&self.0);
        if entries.len() >= MAX_SERVERS && !entries.contains_key(&server_hash(server)) {
            entries.clear(); // a miss costs one request
        }
        entries.insert(server_hash(server), revision);
    }

    /// Removes the cached protocol revision of a server.
    pub fn remove(&self, server: &str) {
        lock(&self.0).remove(&server_hash(server));
    }
}

/// Returns the hash of a server name, which is the cache key. It may be persisted, so it must be the same in every
/// build.
fn server_hash(server: &str) -> u64 {
    stable_hash(&[server.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_the_same_in_every_build() {
        let cache = RevisionCache::new();
        cache.set("https://example.com/mcp", Revision::LATEST);
        assert_eq!(cache.entries(), [(0x939c_1f40_6a16_d6e1, Revision::LATEST)]);
    }
}

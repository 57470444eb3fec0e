//! Cache of the last negotiated revision per server, which saves the probe on the next connection.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use linchpin_protocol::Revision;

use crate::lock::lock;
use crate::siphash::mark_of;

/// Maximum number of cached servers.
const MAX_SERVERS: usize = 1_000;

/// Revision cache. Clones share their entries; all clients of a process share one cache unless they are given
/// another. Keys are hashes of the server name, since a command line may contain a secret.
#[derive(Clone, Default)]
pub struct Eras(Arc<Mutex<HashMap<u64, Revision>>>);

static OF_PROCESS: LazyLock<Eras> = LazyLock::new(Eras::default);

impl Eras {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn of_process() -> Self {
        OF_PROCESS.clone()
    }

    /// Returns all entries, keyed by server hash, for persisting them.
    pub fn known(&self) -> Vec<(u64, Revision)> {
        lock(&self.0).iter().map(|(server, revision)| (*server, *revision)).collect()
    }

    /// Creates a cache from persisted entries.
    pub fn of(known: impl IntoIterator<Item = (u64, Revision)>) -> Self {
        Eras(Arc::new(Mutex::new(known.into_iter().take(MAX_SERVERS).collect())))
    }

    /// Returns the last negotiated revision of a server.
    pub fn find(&self, server: &str) -> Option<Revision> {
        lock(&self.0).get(&mark(server)).copied()
    }

    /// Stores the revision of a server.
    pub fn set(&self, server: &str, revision: Revision) {
        let mut known = lock(&self.0);
        if known.len() >= MAX_SERVERS && !known.contains_key(&mark(server)) {
            known.clear(); // a miss costs one request
        }
        known.insert(mark(server), revision);
    }

    /// Removes a server.
    pub fn forget(&self, server: &str) {
        lock(&self.0).remove(&mark(server));
    }
}

/// Returns the hash of a server name. It may be persisted, so it must be the same in every build.
fn mark(server: &str) -> u64 {
    mark_of(&[server.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_the_same_in_every_build() {
        let eras = Eras::new();
        eras.set("https://example.com/mcp", Revision::LATEST);
        assert_eq!(eras.known(), [(0x939c_1f40_6a16_d6e1, Revision::LATEST)]);
    }
}

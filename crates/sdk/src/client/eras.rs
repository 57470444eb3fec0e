//! Which revision a server spoke last, so that it is not asked again.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use linchpin_protocol::Revision;

use crate::mark::mark_of;
use crate::sync::lock;

/// Servers that are remembered.
const MAX_SERVERS: usize = 1_000;

/// Remembers the revision of servers. Clones share what they know; all clients of a process share one unless they
/// are given another. Servers are remembered by a mark of their name, since a command line may hold a secret.
#[derive(Clone, Default)]
pub struct Eras(Arc<Mutex<HashMap<u64, Revision>>>);

static OF_PROCESS: LazyLock<Eras> = LazyLock::new(Eras::default);

impl Eras {
    /// An empty memory.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn of_process() -> Self {
        OF_PROCESS.clone()
    }

    /// What is known, by marks of the servers, to be kept beyond the end of the process.
    pub fn known(&self) -> Vec<(u64, Revision)> {
        lock(&self.0).iter().map(|(server, revision)| (*server, *revision)).collect()
    }

    /// A memory of what was known before.
    pub fn of(known: impl IntoIterator<Item = (u64, Revision)>) -> Self {
        Eras(Arc::new(Mutex::new(known.into_iter().take(MAX_SERVERS).collect())))
    }

    /// The revision that a server spoke last.
    pub fn find(&self, server: &str) -> Option<Revision> {
        lock(&self.0).get(&mark(server)).copied()
    }

    /// Notes the revision of a server.
    pub fn set(&self, server: &str, revision: Revision) {
        let mut known = lock(&self.0);
        if known.len() >= MAX_SERVERS && !known.contains_key(&mark(server)) {
            known.clear(); // asking again costs one message
        }
        known.insert(mark(server), revision);
    }

    /// Forgets a server.
    pub fn forget(&self, server: &str) {
        lock(&self.0).remove(&mark(server));
    }
}

/// The mark of a server. It may be stored, so every build must compute the same one.
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

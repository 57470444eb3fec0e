//! Which revision a server spoke last, so that it is not asked again.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use linchpin_protocol::Revision;

use crate::sync::lock;

/// Servers that are remembered.
const MAX_SERVERS: usize = 1_000;

/// Remembers the revision of servers. Clones share what they know; all clients of a process share one unless they
/// are given another.
#[derive(Clone, Default)]
pub struct Eras(Arc<Mutex<HashMap<String, Revision>>>);

static OF_PROCESS: LazyLock<Eras> = LazyLock::new(Eras::default);

impl Eras {
    /// An empty memory.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn of_process() -> Self {
        OF_PROCESS.clone()
    }

    /// What is known, by the names of the servers, to be kept beyond the end of the process.
    pub fn known(&self) -> Vec<(String, Revision)> {
        lock(&self.0).iter().map(|(server, revision)| (server.clone(), *revision)).collect()
    }

    /// The revision that a server spoke last.
    pub fn find(&self, server: &str) -> Option<Revision> {
        lock(&self.0).get(server).copied()
    }

    /// Notes the revision of a server.
    pub fn set(&self, server: &str, revision: Revision) {
        let mut known = lock(&self.0);
        if known.len() >= MAX_SERVERS && !known.contains_key(server) {
            known.clear(); // asking again costs one message
        }
        known.insert(server.to_owned(), revision);
    }

    /// Forgets a server.
    pub fn forget(&self, server: &str) {
        lock(&self.0).remove(server);
    }
}

//! Names of tools that had to be adapted for models, and what their servers call them. Whoever looks one up checks it: what
//! is remembered only saves reading all tools of a server.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::id::{ServerId, TenantId};
use crate::sync::lock;

/// How many names are remembered of all servers.
const MOST: usize = 50_000;

#[derive(Default)]
pub(super) struct Adapted(Mutex<HashMap<(TenantId, ServerId), HashMap<String, String>>>);

impl Adapted {
    /// What the server calls the tool with this name here.
    pub(super) fn find(&self, tenant: TenantId, server: ServerId, name: &str) -> Option<String> {
        lock(&self.0).get(&(tenant, server))?.get(name).cloned()
    }

    /// Remembers the names of a server's tools here, each with what the server calls it.
    pub(super) fn keep(&self, tenant: TenantId, server: ServerId, names: HashMap<String, String>) {
        let mut all = lock(&self.0);
        if all.values().map(HashMap::len).sum::<usize>() + names.len() > MOST {
            all.clear();
        }
        all.insert((tenant, server), names);
    }

    /// The tools of a server are not what they were.
    pub(super) fn forget(&self, tenant: TenantId, server: ServerId) {
        lock(&self.0).remove(&(tenant, server));
    }
}

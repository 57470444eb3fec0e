//! Cache from qualified tool names to upstream names, for tools whose names had to be adapted. Callers verify what they
//! find: the cache only saves reading all tools of a server.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::id::{ServerId, TenantId};
use crate::lock::lock;

/// Maximum number of cached tool names of all servers together.
const MAX_CACHED_NAMES: usize = 50_000;

#[derive(Default)]
pub(in crate::hub) struct ToolNameCache(Mutex<HashMap<(TenantId, ServerId), HashMap<String, String>>>);

impl ToolNameCache {
    /// Returns the cached upstream name of the tool with this qualified name.
    pub(in crate::hub) fn find(&self, tenant: TenantId, server: ServerId, name: &str) -> Option<String> {
        lock(&self.0).get(&(tenant, server))?.get(name).cloned()
    }

    /// Caches the names of a server's tools: qualified name to upstream name.
    pub(in crate::hub) fn insert(&self, tenant: TenantId, server: ServerId, names: HashMap<String, String>) {
        let mut all = lock(&self.0);
        if all.values().map(HashMap::len).sum::<usize>() + names.len() > MAX_CACHED_NAMES {
            all.clear();
        }
        all.insert((tenant, server), names);
    }

    /// Drops the names of a server after its tools have changed.
    pub(in crate::hub) fn remove(&self, tenant: TenantId, server: ServerId) {
        lock(&self.0).remove(&(tenant, server));
    }
}

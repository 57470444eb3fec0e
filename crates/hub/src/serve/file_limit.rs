//! Limit of open files: raised at the start, and divided between client connections and the hub itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum limit of open files that the hub sets for itself. The hub needs no more, stdio servers inherit it, and some
/// programs iterate over all descriptors below it at startup.
const MAX_DESCRIPTORS: u64 = 65_536;
/// Maximum client connections, also if there is no limit of open files.
const MAX_CONNECTIONS: usize = 16_384;
/// Minimum number of open files reserved for the hub itself, but at most half of all.
const MIN_RESERVED: u64 = 256;

/// Raises the soft limit of open files to the hard limit, but not above `MAX_DESCRIPTORS`.
pub(super) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(before) = current else { return };
    let wanted = maximum.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS).max(before);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        tracing::warn!(%error, limit = before, "failed to raise the limit of open files");
    }
}

/// Returns the maximum number of connections per listener that the open-file limit allows. A quarter of the descriptors
/// is reserved for the database, upstream connections and the pipes of stdio servers.
pub(super) fn max_connections(listeners: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return MAX_CONNECTIONS };
    let reserved = MIN_RESERVED.max(limit / 4).min(limit / 2);
    let all = usize::try_from(limit - reserved).unwrap_or(MAX_CONNECTIONS).min(MAX_CONNECTIONS);
    (all / listeners).max(1)
}

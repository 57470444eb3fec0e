//! The limit of open files: raised at the start, and shared by connections and the work of the hub itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The highest limit that is set. The hub needs no more, stdio servers inherit it, and some programs walk over all
/// descriptors below it when they start.
const MAX_DESCRIPTORS: u64 = 65_536;
/// Connections if there is no limit.
const MAX_CONNECTIONS: usize = 16_384;
/// Descriptors that connections leave at least, unless that is more than half of them.
const RESERVED: u64 = 256;

/// Raises the soft limit to the hard limit.
pub(super) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(before) = current else { return };
    let wanted = maximum.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS).max(before);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        tracing::warn!(%error, limit = before, "failed to raise the limit of open files");
    }
}

/// How many connections each of so many listeners may accept. The database, upstream connections and the pipes of stdio
/// servers always have a quarter of the descriptors.
pub(super) fn connections(listeners: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return MAX_CONNECTIONS };
    let reserved = RESERVED.max(limit / 4).min(limit / 2);
    let all = usize::try_from(limit - reserved).unwrap_or(MAX_CONNECTIONS).min(MAX_CONNECTIONS);
    (all / listeners).max(1)
}

//! The limit of open files: raised at the start, and shared by connections and the work of the hub itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The highest limit that is set. The hub needs no more, stdio servers inherit it, and some programs walk over all
/// descriptors below it when they start.
const MAX_DESCRIPTORS: u64 = 65_536;
/// Connections if there is no limit.
const MAX_CONNECTIONS: usize = 16_384;
/// Descriptors that connections leave at least, unless that is more than half of them.
const RESERVED: u64 = 256;

/// Raises the soft limit to the hard limit. Returns how many connections the hub may accept: the database, upstream
/// connections and the pipes of stdio servers always have a quarter of the descriptors.
pub(super) fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(before) = current else { return MAX_CONNECTIONS };
    let wanted = maximum.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS).max(before);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    let limit = match raised {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(%error, limit = before, "failed to raise the limit of open files");
            before
        }
    };
    let reserved = RESERVED.max(limit / 4).min(limit / 2);
    usize::try_from(limit - reserved).unwrap_or(MAX_CONNECTIONS).clamp(1, MAX_CONNECTIONS)
}

//! Lineage markers in the environment of processes, inherited by all descendants. They identify a process even after
//! it has left its process group and its parent has exited.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::process_finder::ProcessFinder;
use super::process_tree::{KILL_TIMEOUT, kill_all};
use crate::server::random_id;

/// Environment variable that marks a server process and its descendants, so that they can be found and killed: markers
/// of their connections and lineages, separated by colons.
pub(super) const LINEAGE_VARIABLE: &str = "LINCHPIN_LINEAGE";
/// Maximum number of repeated scans because of a process in the middle of `exec`. More often than for a connection,
/// since the process may be the start of a server.
const MAX_RESCANS: usize = 100;

/// Marker in the environment of server processes and their descendants, set with [`Command::lineage`], so that all of
/// them can be killed together. A connection ends what its server has started; a lineage can also be ended by another
/// process, after the process with the connections was killed.
///
/// [`Command::lineage`]: super::Command::lineage
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage(Arc<str>);

impl Lineage {
    /// Creates a lineage with a new unique marker.
    pub fn unique() -> Self {
        Lineage(new_marker().into())
    }

    /// Parses the text form of a lineage. Returns `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let (process, random) = text.split_once('-')?;
        let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        let is_random = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_number && is_random).then(|| Lineage(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Kills all processes that carry the marker, with all descendants, except the calling process. Blocks until
    /// they have exited, at most two seconds, and returns their number. On systems other than Linux it finds no
    /// processes and does nothing.
    pub fn kill(&self) -> usize {
        let mut finder = ProcessFinder::with_marker(&self.0);
        if !kill_all(&mut finder, Instant::now() + KILL_TIMEOUT, MAX_RESCANS, |_| ()) {
            tracing::warn!(
                refused = finder.not_permitted_count(),
                "failed to end processes started by servers"
            );
        }
        finder.killed_count()
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn new_marker() -> String {
    format!("{}-{}", std::process::id(), &random_id()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_shown_is_read() {
        let lineage = Lineage::unique();
        assert_eq!(Lineage::parse(&lineage.to_string()), Some(lineage.clone()));
        assert_ne!(Lineage::unique(), lineage);
        let good = "12-0123456789abcdef";
        assert!(Lineage::parse(good).is_some());
        let of_two = format!("{good}:{good}");
        for bad in
            ["", "-", "12", "12-", "-0123456789abcdef", &good[..18], &of_two, "12-0123456789abcdef\n", "x"]
        {
            assert_eq!(Lineage::parse(bad), None, "{bad}");
        }
    }
}

//! Lineage markers in the environment of processes, inherited by all descendants. They identify a process even after
//! it has left its process group and its parent has exited.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::process_finder::Census;
use super::process_tree::{PATIENCE, kill_all};
use crate::server::unguessable;

/// Environment variable with the markers of connections and lineages of a process, separated by colons.
pub(super) const LINEAGE: &str = "LINCHPIN_LINEAGE";
/// How often to repeat a scan because of a process in the middle of `exec`. More often than for a connection, since
/// the process may be the start of a server.
const UNCLEAR_ROUNDS: usize = 100;

/// Marker shared by several servers, set with [`Command::lineage`]. A connection ends what its server has started; a
/// lineage can also be ended by another process, after the process with the connections was killed.
///
/// [`Command::lineage`]: super::Command::lineage
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage(Arc<str>);

impl Lineage {
    /// Creates a new lineage.
    pub fn unique() -> Self {
        Lineage(new_mark().into())
    }

    /// Parses the text form of a lineage. Returns `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let (process, chance) = text.split_once('-')?;
        let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        let is_random = chance.len() == 16 && chance.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_number && is_random).then(|| Lineage(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Kills all processes that carry the marker, with all descendants, except the calling process. Blocks until
    /// they have exited, at most two seconds, and returns their number. On systems other than Linux it finds no
    /// processes and does nothing.
    pub fn end(&self) -> usize {
        let mut census = Census::of(&self.0);
        if !kill_all(&mut census, Instant::now() + PATIENCE, UNCLEAR_ROUNDS, |_| ()) {
            tracing::warn!(refused = census.refused(), "failed to end processes started by servers");
        }
        census.killed()
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn new_mark() -> String {
    format!("{}-{}", std::process::id(), &unguessable()[..16])
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

//! Marks in the environment of processes, which they hand down to whatever they start. By them a process is found also
//! after it has left its process group and its parent has ended.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::census::Census;
use super::tree::{PATIENCE, kill_all};
use crate::server::unguessable;

/// The variable that names the connections and lineages that a process belongs to, separated by colons.
pub(super) const LINEAGE: &str = "LINCHPIN_LINEAGE";
/// How often to look again because somebody could not be told from a stranger. More patient than a connection that
/// ends: a process may just be becoming the program that it was started for.
const UNCLEAR_ROUNDS: usize = 100;

/// A mark that several servers carry together, given to them by [`Command::lineage`]. A connection ends what its
/// server has started; a lineage can be ended by another process as well, after the one that held the connections
/// was killed.
///
/// [`Command::lineage`]: super::Command::lineage
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage(Arc<str>);

impl Lineage {
    /// One that nobody carries yet.
    pub fn unique() -> Self {
        Lineage(new_mark().into())
    }

    /// What one was shown as; `None` if the text is no lineage.
    pub fn parse(text: &str) -> Option<Self> {
        let (process, chance) = text.split_once('-')?;
        let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        let is_random = chance.len() == 16 && chance.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_number && is_random).then(|| Lineage(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Kills every process that carries it, with all descendants, but never the one that asks for it. Returns when
    /// they are gone, after two seconds at the latest, and says how many there were. It blocks. Elsewhere than on
    /// Linux nobody can be found, and nobody is touched.
    pub fn end(&self) -> usize {
        let mut census = Census::of(&self.0);
        if !kill_all(&mut census, Instant::now() + PATIENCE, UNCLEAR_ROUNDS, |_| ()) {
            tracing::warn!(refused = census.refused(), "processes that servers started could not be ended");
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

//! Session era: choice of the revision in the handshake.

use crate::version::{Era, Revision};

/// Returns the revision for the `initialize` result: the requested one if the server supports it, otherwise the latest
/// session-era revision that the server supports. `None` if it supports none.
pub fn negotiate(requested: &str, supported: &[Revision]) -> Option<Revision> {
    let candidates = supported.iter().copied().filter(|revision| revision.era() == Era::Session);
    let requested_revision = Revision::find(requested);
    candidates
        .clone()
        .find(|revision| Some(*revision) == requested_revision)
        .or_else(|| candidates.max_by(Ord::cmp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_wins_and_the_newest_stands_in() {
        for revision in Revision::ALL.into_iter().filter(|revision| revision.era() == Era::Session) {
            assert_eq!(negotiate(revision.as_str(), &Revision::ALL), Some(revision));
        }
        assert_eq!(negotiate("1999-01-01", &Revision::ALL), Some(Revision::LATEST_SESSION));
        assert_eq!(negotiate(Revision::LATEST.as_str(), &Revision::ALL), Some(Revision::LATEST_SESSION));
        let pinned = [Revision::ALL[1]];
        assert_eq!(negotiate(Revision::LATEST_SESSION.as_str(), &pinned), Some(Revision::ALL[1]));
        assert_eq!(negotiate("1999-01-01", &[Revision::LATEST]), None);
    }
}

//! What happens at once, or not at all.

use jiff::Timestamp;

use super::call::{Approval, Call, Decision, Outcome};
use super::document::{Document, Key, Kind};
use crate::audit::{Checkpoint, Entry, Head};
use crate::digest::Digest;
use crate::events::Told;
use crate::id::{ApprovalId, CallId, ServerId};
use crate::limit::Rate;

/// One change, and what must be true before it.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Keeps a document. `version` is the one that it had, zero if it is new.
    Put {
        /// The document.
        document: Document,
        /// Its version before.
        version: u64,
    },
    /// A document must be there: what belongs to something is kept only as long as that is there.
    Need(Key),
    /// Documents must still have these versions: something was decided by them.
    Same(Vec<(Key, u64)>),
    /// Forgets a document. It must be there.
    Remove(Key),
    /// Forgets all documents of a kind that belong to something.
    RemoveParts {
        /// The kind.
        kind: Kind,
        /// What they belong to.
        parent: String,
    },
    /// One less of what may be had in a minute; if there is none, how long to wait is said.
    Take {
        /// Of what.
        of: String,
        /// How much there is.
        rate: Rate,
        /// When.
        at: Timestamp,
    },
    /// Fewer calls than this must be in this state.
    Room {
        /// Of which.
        of: Room,
        /// How many at most, with the one that follows.
        most: u32,
    },
    /// A call that is new.
    Open(Box<Call>),
    /// A call that was pending is sent now.
    Start {
        /// The call.
        call: CallId,
        /// When.
        at: Timestamp,
    },
    /// A call that was pending or running is over.
    Finish {
        /// The call.
        call: CallId,
        /// What came of it.
        outcome: Outcome,
    },
    /// Other arguments for a call that is pending.
    Edit {
        /// The call.
        call: CallId,
        /// Their digest.
        digest: Digest,
        /// They themselves, sealed.
        arguments: Option<Vec<u8>>,
    },
    /// A question to a person.
    Ask(Approval),
    /// An answer to a question that is open and has not expired.
    Decide {
        /// The question.
        approval: ApprovalId,
        /// The answer: approved, denied or expired.
        decision: Decision,
        /// Whose answer it is.
        by: String,
        /// When.
        at: Timestamp,
        /// What it is bound to from now on, if it is not what was asked.
        digest: Option<Digest>,
    },
    /// An approval that was given, for exactly this, and has not expired is used up.
    Use {
        /// The approval.
        approval: ApprovalId,
        /// What it must be bound to.
        digest: Digest,
        /// When.
        at: Timestamp,
    },
    /// Deletes the oldest calls that finished before `before`, with their approvals.
    Forget {
        /// The time.
        before: Timestamp,
        /// How many calls at most: a batch must not hold the writer for long.
        most: u32,
    },
    /// How far the audit goes, signed.
    Checkpoint(Checkpoint),
    /// Entries of the audit are in a file now, and leave the store, as do the checkpoints of then. All of them must be there,
    /// and at least one more: where the chain ends is read from the last.
    Seal {
        /// The number of the first; none before it is there.
        first: u64,
        /// The last.
        last: Head,
    },
}

/// Of which calls there may be only so many at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// Those of a server.
    Server(ServerId),
    /// Those that somebody wants.
    Subject(String),
    /// Those of a subject that wait for an approval.
    Waiting(String),
}

/// What happens at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// The changes, in their order.
    pub changes: Vec<Change>,
    /// What the audit says of them.
    pub audit: Vec<Entry>,
    /// What those who watch are told of them.
    pub told: Vec<Told>,
}

impl Batch {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// With another change.
    #[must_use]
    pub fn change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Those who watch are told this, too.
    #[must_use]
    pub fn tell(mut self, told: Told) -> Self {
        self.told.push(told);
        self
    }

    /// With another entry of the audit.
    #[must_use]
    pub fn audit(mut self, entry: Entry) -> Self {
        self.audit.push(entry);
        self
    }
}

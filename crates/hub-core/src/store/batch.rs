//! Batches: changes, audit entries and events that are committed in one transaction.

use jiff::Timestamp;

use super::call::{Approval, Call, Decision, Outcome};
use super::document::{Document, Key, Kind};
use crate::audit::{Checkpoint, Entry, Head};
use crate::digest::Digest;
use crate::events::Told;
use crate::id::{ApprovalId, CallId, ServerId};
use crate::rate_limit::Rate;

/// Change of the store, or a condition that must hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Stores a document. `version` is its previous version, 0 for a new document.
    Put {
        /// Document.
        document: Document,
        /// Previous version.
        version: u64,
    },
    /// Requires that a document exists, such as the parent of a new one.
    Need(Key),
    /// Requires that documents still have these versions, on which a decision is based.
    Same(Vec<(Key, u64)>),
    /// Deletes a document. It must exist.
    Remove(Key),
    /// Deletes all documents of a kind with this parent.
    RemoveParts {
        /// Kind of the documents.
        kind: Kind,
        /// Id of the parent.
        parent: String,
    },
    /// Takes a token from a rate limit. If there is none, the error contains the time to wait.
    Take {
        /// Name of the bucket.
        of: String,
        /// Rate limit.
        rate: Rate,
        /// Current time.
        at: Timestamp,
    },
    /// Requires that fewer calls than the limit are in this scope.
    Room {
        /// Scope of the limit.
        of: Room,
        /// Maximum number of calls, including the one of this batch.
        most: u32,
    },
    /// Inserts a call.
    Open(Box<Call>),
    /// Marks a pending call as running, before it is sent.
    Start {
        /// Call.
        call: CallId,
        /// Start time.
        at: Timestamp,
    },
    /// Finishes a pending or running call.
    Finish {
        /// Call.
        call: CallId,
        /// Outcome.
        outcome: Outcome,
    },
    /// Replaces the arguments of a pending call.
    Edit {
        /// Call.
        call: CallId,
        /// Digest of the arguments.
        digest: Digest,
        /// Encrypted arguments, if they are stored.
        arguments: Option<Vec<u8>>,
    },
    /// Inserts an approval.
    Ask(Approval),
    /// Decides an approval that is open and has not expired.
    Decide {
        /// Approval.
        approval: ApprovalId,
        /// Decision: approved, denied, expired or withdrawn.
        decision: Decision,
        /// Subject that decided.
        by: String,
        /// Time of the decision.
        at: Timestamp,
        /// New binding, if the user has changed the arguments.
        digest: Option<Digest>,
    },
    /// Consumes an approval that was granted for exactly this call and has not expired.
    Use {
        /// Approval.
        approval: ApprovalId,
        /// Required binding.
        digest: Digest,
        /// Current time.
        at: Timestamp,
    },
    /// Deletes the oldest calls that finished before `before`, with their approvals.
    Forget {
        /// Time limit.
        before: Timestamp,
        /// Maximum number of calls: a batch must not block the writer for long.
        most: u32,
    },
    /// Inserts a signed chain head.
    Checkpoint(Checkpoint),
    /// Removes audit entries that are in a segment file now, and the checkpoints up to the last of them except the
    /// newest checkpoint. All entries must exist, and at least one later entry: the chain head is read from the last
    /// one.
    Seal {
        /// Number of the first entry, which must be the first in the store.
        first: u64,
        /// Chain head at the last entry.
        last: Head,
    },
}

/// Scope of a concurrency limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// Running calls of a server.
    Server(ServerId),
    /// Running calls of a subject.
    Subject(String),
    /// Calls of a subject that wait for approval.
    Waiting(String),
}

/// Changes, audit entries and events of one transaction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Changes, in order.
    pub changes: Vec<Change>,
    /// Audit entries.
    pub audit: Vec<Entry>,
    /// Events, published if the commit succeeds.
    pub told: Vec<Told>,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change.
    #[must_use]
    pub fn change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Adds an event.
    #[must_use]
    pub fn tell(mut self, told: Told) -> Self {
        self.told.push(told);
        self
    }

    /// Adds an audit entry.
    #[must_use]
    pub fn audit(mut self, entry: Entry) -> Self {
        self.audit.push(entry);
        self
    }
}

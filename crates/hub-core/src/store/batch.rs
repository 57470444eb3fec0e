//! Batches: changes, audit entries and events that are committed in one transaction.

use std::sync::Arc;

use jiff::Timestamp;

use super::authenticator::StoreAuthenticator;
use super::call::{Approval, ApprovalStatus, CallOutcome, CallRecord};
use super::document::{Document, DocumentKey, DocumentKind};
use crate::audit::{AuditEntry, ChainHead, Checkpoint};
use crate::digest::Digest;
use crate::events::NewEvent;
use crate::id::{ApprovalId, CallId, ServerId};
use crate::rate_limit::RateLimit;

/// Change of the store in a batch, or a condition without which the batch is rejected.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreChange {
    /// Stores a new or changed document. `version` is its previous version, 0 for a new document.
    Put {
        /// Document to store.
        document: Document,
        /// Version of the document that the change replaces; 0 for a new document.
        version: u64,
    },
    /// Requires that a document exists, such as the parent of a new one.
    RequireExists(DocumentKey),
    /// Requires that the documents that a decision was based on still have these versions.
    RequireVersions(Vec<(DocumentKey, u64)>),
    /// Requires that no document of a kind has this name.
    RequireUnusedName {
        /// Kind of the documents.
        kind: DocumentKind,
        /// Name that no document may have.
        name: String,
    },
    /// Deletes a document. It must exist.
    Delete(DocumentKey),
    /// Deletes all documents of a kind with this parent.
    DeleteChildren {
        /// Kind of the documents to delete.
        kind: DocumentKind,
        /// Id of the parent of the documents to delete.
        parent: String,
    },
    /// Takes a token from the bucket of a rate limit. If there is none, the error contains the time to wait.
    ConsumeRate {
        /// Name of the token bucket.
        bucket: String,
        /// Rate limit of the bucket.
        rate: RateLimit,
        /// Current time of the hub.
        at: Timestamp,
    },
    /// Requires that fewer calls than the limit count against this concurrency scope.
    RequireConcurrency {
        /// Calls that count against the limit.
        scope: CountedCalls,
        /// Maximum number of calls, including the one of this batch.
        max_calls: u32,
    },
    /// Inserts a call.
    InsertCall(Box<CallRecord>),
    /// Marks a pending call as running, before it is sent.
    StartCall {
        /// Call to mark as running.
        call: CallId,
        /// Time at which the call starts.
        at: Timestamp,
    },
    /// Finishes a pending or running call.
    FinishCall {
        /// Call to finish.
        call: CallId,
        /// Outcome of the call to store.
        outcome: CallOutcome,
    },
    /// Replaces the arguments of a pending call.
    EditArguments {
        /// Pending call whose arguments change.
        call: CallId,
        /// Digest of the new arguments.
        digest: Digest,
        /// Encrypted arguments, if they are stored.
        arguments: Option<Vec<u8>>,
    },
    /// Inserts an approval.
    InsertApproval(Approval),
    /// Decides an approval that is open and has not expired.
    DecideApproval {
        /// Approval to decide.
        approval: ApprovalId,
        /// Decision: approved, denied, expired or withdrawn.
        decision: ApprovalStatus,
        /// Subject that decided; `hub` for an expiry or a denial by the policy.
        decided_by: String,
        /// Time of the decision.
        at: Timestamp,
        /// New digest that the approval is bound to, if the user has changed the arguments.
        digest: Option<Digest>,
    },
    /// Consumes an approval that was granted for exactly this call and has not expired.
    ConsumeApproval {
        /// Approval to consume, so that it cannot be used for another call.
        approval: ApprovalId,
        /// Digest that the approval must be bound to: that of the call to run.
        digest: Digest,
        /// Current time of the hub, compared with the expiry of the approval.
        at: Timestamp,
    },
    /// Deletes the oldest calls that finished before `before`, with their approvals.
    PruneCalls {
        /// Time before which a call must have finished to be deleted.
        before: Timestamp,
        /// Maximum number of calls to delete: a batch must not block the writer for long.
        max_calls: u32,
    },
    /// Inserts a signed chain head.
    InsertCheckpoint(Checkpoint),
    /// Removes audit entries that are in a segment file now, and the checkpoints up to the last of them except the
    /// newest checkpoint. All entries must exist, and at least one later entry: the chain head is read from the last
    /// one.
    RemoveSealedEntries {
        /// Number of the first audit entry to remove, which must be the first in the store.
        first: u64,
        /// Head of the hash chain at the last removed entry.
        last: ChainHead,
    },
}

/// Calls that count against a limit: the running calls of a server or subject, or the calls of a subject that wait for
/// approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CountedCalls {
    /// Calls to this server that are running.
    Server(ServerId),
    /// Calls of this subject that are running.
    Subject(String),
    /// Calls of this subject that wait for approval.
    Pending(String),
}

/// Changes, audit entries and events that the store commits in one transaction.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Changes of the store, in order.
    pub changes: Vec<StoreChange>,
    /// Audit entries to append.
    pub audit: Vec<AuditEntry>,
    /// Events, published if the commit succeeds.
    pub events: Vec<NewEvent>,
    /// Authenticator that computes the codes of the audit entries.
    pub authenticator: Option<Arc<StoreAuthenticator>>,
    /// Whether the entry before the new audit entries must have been written by a hub.
    pub requires_authentic_head: bool,
}

impl Batch {
    /// Creates an empty batch of store changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change of the store to the batch.
    #[must_use]
    pub fn change(mut self, change: StoreChange) -> Self {
        self.changes.push(change);
        self
    }

    /// Adds an event to publish if the commit succeeds.
    #[must_use]
    pub fn with_event(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }

    /// Adds an audit entry that the commit of this batch appends.
    #[must_use]
    pub fn audit(mut self, entry: AuditEntry) -> Self {
        self.audit.push(entry);
        self
    }
}

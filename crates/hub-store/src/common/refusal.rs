//! Refusals: the errors of changes whose preconditions do not hold.

use jiff::Timestamp;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId};
use linchpin_hub_core::rate_limit::{approvals_limited, concurrency_limited};
use linchpin_hub_core::store::{
    Approval, ApprovalStatus, CallRecord, CountedCalls, Document, DocumentKey, DocumentKind,
};
use linchpin_hub_core::{Error, error};

/// Refusal of a statement that changed no row.
pub(crate) enum Refusal<'a> {
    /// The statement may change any number of rows.
    Never,
    Plain(PlainRefusal<'a>),
    /// The call does not exist, or cannot make the requested transition.
    Call(CallId),
    /// The approval does not exist, or cannot be decided or used.
    Approval(ApprovalUse<'a>),
}

/// Refusal whose error needs no further read.
pub(crate) enum PlainRefusal<'a> {
    /// The document has another version, or its name or id is taken.
    Document(&'a Document),
    NoDocument(&'a DocumentKey),
    CallExists(CallId),
    ApprovalExists(ApprovalId),
}

/// Attempt to decide an approval, or to use it for the call with a digest.
#[derive(Clone, Copy)]
pub(crate) struct ApprovalUse<'a> {
    pub(crate) id: ApprovalId,
    pub(crate) at: Timestamp,
    pub(crate) digest: Option<&'a Digest>,
}

impl PlainRefusal<'_> {
    /// Returns the error of a statement that changed no row.
    pub(crate) fn error(&self) -> Error {
        match self {
            PlainRefusal::Document(document) => version_conflict(&document.key),
            PlainRefusal::NoDocument(key) => Error::not_found(key.kind.name(), &key.id),
            PlainRefusal::CallExists(call) => conflict("call_exists", format!("call {call} already exists")),
            PlainRefusal::ApprovalExists(id) => {
                conflict("approval_exists", format!("approval {id} already exists"))
            }
        }
    }
}

impl Refusal<'_> {
    /// Returns the error for a violated unique index, if it is one that a change can violate.
    pub(crate) fn unique_violation(&self) -> Option<Error> {
        let Refusal::Plain(PlainRefusal::Document(document)) = self else { return None };
        let kind = document.key.kind.name();
        Some(match &document.name {
            Some(name) => conflict(
                "name_taken",
                format!("the name `{name}` is used by another {kind}: choose another name"),
            ),
            None => conflict("id_taken", format!("another {kind} has the same id")),
        })
    }
}

/// Returns the error for a change that conflicts with the stored state.
pub(crate) fn conflict(code: &'static str, text: impl Into<String>) -> Error {
    Error::new(error::ErrorKind::Conflict, code, text)
}

/// Returns the error for a document whose version has changed.
pub(crate) fn version_conflict(key: &DocumentKey) -> Error {
    conflict("version_conflict", format!("the {} was changed concurrently: read it again", key.kind.name()))
}

/// Returns the error for a name that must be unused but belongs to a document.
pub(crate) fn name_taken(kind: DocumentKind) -> Error {
    conflict("name_taken", format!("a {} with this name exists", kind.name()))
}

/// Returns the error for audit entries that were sealed by another hub.
pub(crate) fn sealed_concurrently() -> Error {
    conflict("version_conflict", "another hub has archived these audit entries at the same time: try again")
}

/// Returns the error for too many calls that run or wait for approval.
pub(crate) fn limit_exceeded(scope: &CountedCalls, max: u32) -> Error {
    match scope {
        CountedCalls::Server(_) | CountedCalls::Subject(_) => concurrency_limited(max),
        CountedCalls::Pending(_) => approvals_limited(max),
    }
}

/// Returns the error that explains why a call cannot make the requested transition.
pub(crate) fn call_conflict(call: CallId, found: Option<&CallRecord>) -> Error {
    match found {
        None => Error::not_found("call", call),
        Some(found) => {
            conflict("call_state_conflict", format!("call {call} is already {}", found.status.name()))
        }
    }
}

/// Returns the error that explains why an approval cannot be decided or used.
pub(crate) fn approval_conflict(attempt: ApprovalUse<'_>, found: Option<&Approval>) -> Error {
    let ApprovalUse { id, at, digest } = attempt;
    let Some(found) = found else { return Error::not_found("approval", id) };
    let is_granted = found.decision == ApprovalStatus::Approved;
    if is_granted && digest.is_some_and(|digest| *digest != found.digest) {
        return conflict("approval_mismatch", format!("approval {id} was given for another call"));
    }
    if found.expires <= at && (is_granted || found.decision == ApprovalStatus::Open) {
        return conflict("approval_expired", format!("approval {id} has expired: request the call again"));
    }
    conflict("approval_decided", format!("approval {id} is already {}", found.decision.name()))
}

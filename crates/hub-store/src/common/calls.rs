//! SQL of calls and approvals. The SQL of each change contains its precondition.

use jiff::Timestamp;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId};
use linchpin_hub_core::store::{Approval, ApprovalStatus, CallOutcome, CallRecord};

use super::refusal::{ApprovalUse, PlainRefusal, Refusal};
use super::value::Value;
use super::{Statement, to_millis};

pub(crate) const CALL_COLUMNS: &str =
    "id, server, tool, subject, status, digest, arguments, result, error, created, started, completed";
/// Columns for lists: without arguments and result, which may be large.
pub(crate) const LISTED_CALLS: &str = "id, server, tool, subject, status, digest, CAST(NULL AS BYTEA), \
     CAST(NULL AS BYTEA), error, created, started, completed FROM calls";
pub(crate) const APPROVAL_COLUMNS: &str = "id, call, digest, decision, decided_by, created, expires, decided";

pub(crate) const SELECT_CALL: &str =
    "SELECT id, server, tool, subject, status, digest, arguments, result, error, created, started, completed
     FROM calls WHERE tenant = $1 AND id = $2";
pub(crate) const SELECT_APPROVAL: &str =
    "SELECT id, call, digest, decision, decided_by, created, expires, decided
     FROM approvals WHERE tenant = $1 AND id = $2";

const INSERT_CALL: &str = "INSERT INTO calls (tenant, id, server, tool, subject, status, digest, arguments, result, error,
         created, started, completed, hub)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (tenant, id) DO NOTHING";
const START_CALL: &str = "UPDATE calls SET status = 'running', started = $3, hub = $4
     WHERE tenant = $1 AND id = $2 AND status = 'pending'";
const FINISH_CALL: &str = "UPDATE calls SET status = $3, result = $4, error = $5, completed = $6,
         arguments = CASE WHEN $7 THEN arguments END
     WHERE tenant = $1 AND id = $2 AND status IN ('pending', 'running')";
const EDIT_CALL: &str =
    "UPDATE calls SET digest = $3, arguments = $4 WHERE tenant = $1 AND id = $2 AND status = 'pending'";
const INSERT_APPROVAL: &str =
    "INSERT INTO approvals (tenant, id, call, digest, decision, decided_by, created, expires, decided)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (tenant, id) DO NOTHING";
/// After its expiry an approval can only become `expired` or `withdrawn`.
const DECIDE_APPROVAL: &str =
    "UPDATE approvals SET decision = $3, decided_by = $4, decided = $5, digest = COALESCE($6, digest)
     WHERE tenant = $1 AND id = $2 AND decision = 'open' AND (expires > $5 OR $3 IN ('expired', 'withdrawn'))";
const CONSUME_APPROVAL: &str = "UPDATE approvals SET decision = 'used'
     WHERE tenant = $1 AND id = $2 AND decision = 'approved' AND digest = $3 AND expires > $4";

/// Creates the statement that inserts a call.
pub(crate) fn insert<'a>(tenant: Value<'a>, call: &'a CallRecord, hub: Option<&'a str>) -> Statement<'a> {
    let values = vec![
        tenant,
        call.id.into(),
        call.server.into(),
        (&call.tool).into(),
        (&call.subject).into(),
        call.status.name().into(),
        (&call.digest).into(),
        call.arguments.as_ref().into(),
        call.result.as_ref().into(),
        call.error.as_ref().into(),
        to_millis(call.created).into(),
        call.started.map(to_millis).into(),
        call.completed.map(to_millis).into(),
        hub.into(),
    ];
    let refusal = Refusal::Plain(PlainRefusal::CallExists(call.id));
    Statement { sql: INSERT_CALL, values, refusal }
}

/// Creates the statement that marks a pending call as running.
pub(crate) fn start<'a>(
    tenant: Value<'a>,
    call: CallId,
    at: Timestamp,
    hub: Option<&'a str>,
) -> Statement<'a> {
    let values = vec![tenant, call.into(), to_millis(at).into(), hub.into()];
    Statement { sql: START_CALL, values, refusal: Refusal::Call(call) }
}

/// Creates the statement that finishes a pending or running call.
pub(crate) fn finish<'a>(tenant: Value<'a>, call: CallId, outcome: &'a CallOutcome) -> Statement<'a> {
    let values = [tenant, call.into()].into_iter().chain(outcome_values(outcome)).collect();
    Statement { sql: FINISH_CALL, values, refusal: Refusal::Call(call) }
}

/// Returns the values of an outcome: status, result, error, time, and whether the arguments stay.
pub(crate) fn outcome_values(outcome: &CallOutcome) -> [Value<'_>; 5] {
    let CallOutcome { status, result, error, at, retains_arguments } = outcome;
    [
        status.name().into(),
        result.as_ref().into(),
        error.as_ref().into(),
        to_millis(*at).into(),
        (*retains_arguments).into(),
    ]
}

/// Creates the statement that replaces the arguments of a pending call.
pub(crate) fn edit<'a>(
    tenant: Value<'a>,
    call: CallId,
    digest: &'a Digest,
    arguments: Option<&'a [u8]>,
) -> Statement<'a> {
    let values = vec![tenant, call.into(), digest.into(), arguments.into()];
    Statement { sql: EDIT_CALL, values, refusal: Refusal::Call(call) }
}

/// Creates the statement that inserts an approval.
pub(crate) fn insert_approval<'a>(tenant: Value<'a>, approval: &'a Approval) -> Statement<'a> {
    let values = vec![
        tenant,
        approval.id.into(),
        approval.call.into(),
        (&approval.digest).into(),
        approval.decision.name().into(),
        approval.decided_by.as_ref().into(),
        to_millis(approval.created).into(),
        to_millis(approval.expires).into(),
        approval.decided.map(to_millis).into(),
    ];
    let refusal = Refusal::Plain(PlainRefusal::ApprovalExists(approval.id));
    Statement { sql: INSERT_APPROVAL, values, refusal }
}

/// Creates the statement that decides an open approval.
pub(crate) fn decide_approval<'a>(
    tenant: Value<'a>,
    id: ApprovalId,
    decision: ApprovalStatus,
    by: &'a str,
    at: Timestamp,
    digest: Option<&'a Digest>,
) -> Statement<'a> {
    let values =
        vec![tenant, id.into(), decision.name().into(), by.into(), to_millis(at).into(), digest.into()];
    let refusal = Refusal::Approval(ApprovalUse { id, at, digest: None });
    Statement { sql: DECIDE_APPROVAL, values, refusal }
}

/// Creates the statement that uses an approval for the call with this digest.
pub(crate) fn consume_approval<'a>(
    tenant: Value<'a>,
    id: ApprovalId,
    digest: &'a Digest,
    at: Timestamp,
) -> Statement<'a> {
    let values = vec![tenant, id.into(), digest.into(), to_millis(at).into()];
    let refusal = Refusal::Approval(ApprovalUse { id, at, digest: Some(digest) });
    Statement { sql: CONSUME_APPROVAL, values, refusal }
}

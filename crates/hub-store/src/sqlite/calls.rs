//! Calls and approvals in the `SQLite` store: lists, old calls, and calls of earlier hub processes.

use jiff::Timestamp;
use linchpin_hub_core::Result;
use linchpin_hub_core::id::CallId;
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, CallFilter, CallRecord, CallStatus, Page, PageRequest,
};
use rusqlite::Connection;

use super::errors::database_error;
use super::statements::{execute, query, query_one};
use crate::common::calls::{APPROVAL_COLUMNS, LISTED_CALLS};
use crate::common::filter::{ListQuery, approval_query, call_query};
use crate::common::rows::{read_approval, read_call};
use crate::common::value::Value;
use crate::common::{build_page, to_millis};

/// SQL that selects the calls that finished before a time, the oldest first. Calls are created before they finish, so
/// their ids are below `$2`.
const SELECT_FINISHED_BEFORE: &str = "SELECT id FROM calls INDEXED BY calls_by_id
     WHERE tenant = $1 AND id < $2 AND completed < $3 ORDER BY id LIMIT $4";

fn finished_before<'a>(tenant: i64, before: Timestamp, limit: u32) -> [Value<'a>; 4] {
    let millis = u128::try_from(to_millis(before)).unwrap_or_default();
    let first_later_id = CallId::from_u128(millis << 80);
    [tenant.into(), first_later_id.into(), to_millis(before).into(), i64::from(limit).into()]
}

/// Deletes the oldest calls that finished before a time, with their approvals.
pub(super) fn prune(db: &Connection, tenant: i64, before: Timestamp, max: u32) -> Result<()> {
    let sql = format!("DELETE FROM calls WHERE tenant = $1 AND id IN ({SELECT_FINISHED_BEFORE})");
    let done = execute(db, &sql, &finished_before(tenant, before, max));
    done.map(drop).map_err(|error| database_error(&error))
}

pub(super) fn has_finished_before(db: &Connection, tenant: i64, before: Timestamp) -> Result<bool> {
    let values = finished_before(tenant, before, 1);
    Ok(query_one(db, SELECT_FINISHED_BEFORE, &values, |_| Ok(()))?.is_some())
}

/// Creates the query for a page of calls. Its index is named, since without statistics the query planner would read a
/// whole tenant. Calls without success have an index of their status; all others are read in the order of their ids.
fn list_query<'a>(
    tenant: i64,
    filter: &'a CallFilter,
    paging: &PageRequest,
) -> Result<(String, ListQuery<'a>)> {
    let index = match filter.status {
        None | Some(CallStatus::Success) => "calls_by_id",
        Some(_) => "calls_by_status WHERE status <> 'success'",
    };
    let mut query = call_query(tenant.into(), filter, paging)?;
    Ok((query.sql(&format!("{LISTED_CALLS} INDEXED BY {index}")), query))
}

/// Lists calls, the newest first.
pub(super) fn list(
    db: &Connection,
    tenant: i64,
    filter: &CallFilter,
    paging: &PageRequest,
) -> Result<Page<CallRecord>> {
    let (sql, list) = list_query(tenant, filter, paging)?;
    Ok(build_page(query(db, &sql, &list.values, |row| read_call(row))?, list.limit, |call| {
        call.id.to_string()
    }))
}

/// Lists running calls that an earlier hub process started.
pub(super) fn abandoned_calls(db: &Connection, hub: &str, tenant: i64) -> Result<Vec<CallRecord>> {
    let sql = format!(
        "SELECT {LISTED_CALLS} INDEXED BY calls_by_status
         WHERE status <> 'success' AND tenant = $1 AND status = 'running' AND hub IS NOT $2 LIMIT 100"
    );
    query(db, &sql, &[tenant.into(), hub.into()], |row| read_call(row))
}

fn approvals_query(
    tenant: i64,
    filter: &ApprovalFilter,
    paging: &PageRequest,
) -> Result<(String, ListQuery<'static>)> {
    let index = match (filter.call, filter.decision) {
        (Some(_), _) => "approvals_by_call",
        (None, Some(_)) => "approvals_by_decision",
        (None, None) => "approvals_by_id",
    };
    let mut query = approval_query(tenant.into(), filter, paging)?;
    Ok((query.sql(&format!("{APPROVAL_COLUMNS} FROM approvals INDEXED BY {index}")), query))
}

/// Lists approvals, the newest first.
pub(super) fn approvals(
    db: &Connection,
    tenant: i64,
    filter: &ApprovalFilter,
    paging: &PageRequest,
) -> Result<Page<Approval>> {
    let (sql, list) = approvals_query(tenant, filter, paging)?;
    let items = query(db, &sql, &list.values, |row| read_approval(row))?;
    Ok(build_page(items, list.limit, |approval| approval.id.to_string()))
}

#[cfg(test)]
mod tests {
    use linchpin_hub_core::store::ApprovalStatus;

    use super::*;
    use crate::sqlite::tests::query_plan;

    #[test]
    fn every_list_is_read_in_the_order_of_an_index() {
        let (now, none) = (Some(Timestamp::UNIX_EPOCH), CallFilter::default);
        for after in [None, Some(CallId::from_u128(1).to_string())] {
            let paging = PageRequest { after, limit: 100 };
            for (filter, index) in [
                (none(), "calls_by_id"),
                (CallFilter { status: Some(CallStatus::Success), ..none() }, "calls_by_id"),
                (CallFilter { status: Some(CallStatus::Running), ..none() }, "calls_by_status"),
                (
                    CallFilter { status: Some(CallStatus::Error), since: now, until: now, ..none() },
                    "calls_by_status",
                ),
                (CallFilter { subject: Some("user:1".into()), ..none() }, "calls_by_id"),
                (CallFilter { tool: Some("echo".into()), ..none() }, "calls_by_id"),
            ] {
                let (sql, list) = list_query(1, &filter, &paging).unwrap();
                let plan = query_plan(&sql, &list.values);
                assert!(
                    plan.contains(&format!("SEARCH calls USING INDEX {index} (tenant=?"))
                        && !plan.contains("B-TREE"),
                    "{filter:?}: {plan}"
                );
            }
            for (call, decision, index) in [
                (None, Some(ApprovalStatus::Open), "approvals_by_decision"),
                (Some(CallId::from_u128(1)), None, "approvals_by_call"),
                (None, None, "approvals_by_id"),
            ] {
                let filter = ApprovalFilter { call, decision };
                let (sql, list) = approvals_query(1, &filter, &paging).unwrap();
                let plan = query_plan(&sql, &list.values);
                assert!(plan.contains(&format!("INDEX {index} ")) && !plan.contains("B-TREE"), "{plan}");
            }
        }
    }

    #[test]
    fn a_deleted_call_finds_its_approvals_by_its_id() {
        let sql = format!("DELETE FROM calls WHERE tenant = $1 AND id IN ({SELECT_FINISHED_BEFORE})");
        let plan = query_plan(&sql, &finished_before(1, Timestamp::UNIX_EPOCH, 1));
        assert!(plan.contains("INDEX approvals_by_call (tenant=? AND call=?)"), "{plan}");
        assert!(!plan.contains("SCAN"), "{plan}");
    }
}

//! Calls and approvals in the PostgreSQL store: lists, old calls, and calls of hubs that are gone.

use jiff::Timestamp;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Approval, ApprovalFilter, CallFilter, CallRecord, Page, PageRequest};

use super::cluster::ABANDONED_CONDITION;
use super::connection::DbConnection;
use super::statements::{change, query, query_one};
use super::{QueryExecutor, StoreFailure};
use crate::common::calls::{APPROVAL_COLUMNS, LISTED_CALLS};
use crate::common::filter::{ListQuery, approval_query, call_query};
use crate::common::rows::{read_approval, read_call};
use crate::common::value::Value;
use crate::common::{build_page, to_millis};

type Result<T> = std::result::Result<T, StoreFailure>;

/// SQL that selects the calls that finished before a time, the oldest first.
const SELECT_FINISHED_BEFORE: &str =
    "SELECT id FROM calls WHERE tenant = $1 AND completed < $2 ORDER BY completed LIMIT $3";

fn finished_before<'a>(tenant: TenantId, before: Timestamp, limit: u32) -> [Value<'a>; 3] {
    [tenant.into(), to_millis(before).into(), i64::from(limit).into()]
}

/// Deletes the oldest calls that finished before a time, with their approvals.
pub(super) async fn prune(db: &DbConnection, tenant: TenantId, before: Timestamp, max: u32) -> Result<()> {
    let sql = format!("DELETE FROM calls WHERE tenant = $1 AND id IN ({SELECT_FINISHED_BEFORE})");
    change(db, &sql, &finished_before(tenant, before, max)).await.map(drop)
}

pub(super) async fn has_finished_before(
    db: &impl QueryExecutor,
    tenant: TenantId,
    before: Timestamp,
) -> Result<bool> {
    let values = finished_before(tenant, before, 1);
    Ok(query_one(db, SELECT_FINISHED_BEFORE, &values, |_| Ok(())).await?.is_some())
}

fn calls_query<'a>(
    tenant: TenantId,
    filter: &'a CallFilter,
    paging: &PageRequest,
) -> Result<(String, ListQuery<'a>)> {
    let mut query = call_query(tenant.into(), filter, paging)?;
    Ok((query.sql(LISTED_CALLS), query))
}

/// Lists calls, the newest first.
pub(super) async fn list(
    db: &impl QueryExecutor,
    tenant: TenantId,
    filter: &CallFilter,
    paging: &PageRequest,
) -> Result<Page<CallRecord>> {
    let (sql, list) = calls_query(tenant, filter, paging)?;
    let items = query(db, &sql, &list.values, read_call).await?;
    Ok(build_page(items, list.limit, |call| call.id.to_string()))
}

/// Lists calls that were running at a hub that is gone.
pub(super) async fn abandoned_calls(
    db: &impl QueryExecutor,
    hub: Option<&str>,
    tenant: TenantId,
) -> Result<Vec<CallRecord>> {
    let sql = format!("SELECT {LISTED_CALLS} WHERE tenant = $1 AND {ABANDONED_CONDITION} LIMIT 100");
    query(db, &sql, &[tenant.into(), hub.into()], read_call).await
}

fn approvals_query(
    tenant: TenantId,
    filter: &ApprovalFilter,
    paging: &PageRequest,
) -> Result<(String, ListQuery<'static>)> {
    let mut query = approval_query(tenant.into(), filter, paging)?;
    Ok((query.sql(&format!("{APPROVAL_COLUMNS} FROM approvals")), query))
}

/// Lists approvals, the newest first.
pub(super) async fn approvals(
    db: &impl QueryExecutor,
    tenant: TenantId,
    filter: &ApprovalFilter,
    paging: &PageRequest,
) -> Result<Page<Approval>> {
    let (sql, list) = approvals_query(tenant, filter, paging)?;
    let items = query(db, &sql, &list.values, read_approval).await?;
    Ok(build_page(items, list.limit, |approval| approval.id.to_string()))
}

#[cfg(test)]
mod tests {
    use linchpin_hub_core::Error;
    use linchpin_hub_core::id::CallId;
    use linchpin_hub_core::store::{ApprovalStatus, CallStatus};

    use super::*;
    use crate::postgres::statements::references;
    use crate::postgres::tests::{database_with_many_rows, query_plan};

    #[tokio::test]
    async fn every_list_has_an_index() {
        let (tenant, now, none) = (TenantId::from_u128(1), Some(Timestamp::UNIX_EPOCH), CallFilter::default);
        let db = database_with_many_rows(tenant).await;
        for after in [None, Some(CallId::from_u128(1).to_string())] {
            let paging = PageRequest { after, limit: 100 };
            for (filter, index) in [
                (none(), "calls_pkey"),
                (CallFilter { status: Some(CallStatus::Running), ..none() }, "calls_by_status"),
                (
                    CallFilter { status: Some(CallStatus::Error), since: now, until: now, ..none() },
                    "calls_by_status",
                ),
                (CallFilter { subject: Some("1".into()), ..none() }, "calls_by_subject"),
                (CallFilter { tool: Some("1".into()), ..none() }, "calls_by_tool"),
            ] {
                let (sql, list) = calls_query(tenant, &filter, &paging).map_err(Error::from).unwrap();
                let plan = query_plan(&db, &sql, &references(&list.values)).await;
                assert!(plan.contains(index) && !plan.contains("Seq Scan"), "{filter:?}: {plan}");
            }
            let open = ApprovalFilter { decision: Some(ApprovalStatus::Open), ..ApprovalFilter::default() };
            let (sql, list) = approvals_query(tenant, &open, &paging).map_err(Error::from).unwrap();
            let plan = query_plan(&db, &sql, &references(&list.values)).await;
            assert!(plan.contains("approvals_by_decision") && !plan.contains("Seq Scan"), "{plan}");
        }
    }
}

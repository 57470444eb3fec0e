//! Tables of calls and approvals in the PostgreSQL store. The SQL of each change contains its precondition.

use std::fmt::{Display, Write as _};

use jiff::Timestamp;
use linchpin_hub_core::Error;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, ApprovalStatus, CallFilter, CallOutcome, CallRecord, CallStatus, MAX_PAGE_SIZE,
    Page, PageRequest,
};
use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::ToSql;

use super::cluster::ABANDONED_CONDITION;
use super::connection::{DbConnection, Values};
use super::documents::to_bigint;
use super::{QueryExecutor, StoreFailure, conflict, invalid_data};
use crate::common::build_page;

type Result<T> = std::result::Result<T, StoreFailure>;

pub(super) const CALL_COLUMNS: &str =
    "id, server, tool, subject, status, digest, arguments, result, error, created, started, completed";
/// Columns for lists: without arguments and result, which may be large.
const LISTED_CALLS: &str = "id, server, tool, subject, status, digest, NULL::BYTEA, NULL::BYTEA, error, created, started, completed \
                      FROM calls";
pub(super) const APPROVAL_COLUMNS: &str = "id, call, digest, decision, decided_by, created, expires, decided";

/// Converts a time to the stored form: milliseconds since the Unix epoch.
pub(super) fn to_millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub(super) fn from_millis(at: i64) -> Result<Timestamp> {
    Timestamp::from_millisecond(at).map_err(|_| invalid_data("invalid time"))
}

fn read_optional_time(row: &Row, column: usize) -> Result<Option<Timestamp>> {
    row.try_get::<_, Option<i64>>(column)?.map(from_millis).transpose()
}

pub(super) fn read_digest(row: &Row, column: usize) -> Result<Digest> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes.try_into().map(Digest::from_bytes).map_err(|_| invalid_data("invalid digest"))
}

pub(super) fn parse_column<T: std::str::FromStr<Err = Error>>(
    row: &Row,
    column: impl RowIndex + Display,
) -> Result<T> {
    row.try_get::<_, &str>(column)?.parse().map_err(|_| invalid_data("invalid id"))
}

/// Runs a statement for one row, and returns whether it changed the row.
async fn changes_row(db: &DbConnection, sql: &str, values: Values<'_>) -> Result<bool> {
    Ok(db.execute(sql, values).await? > 0)
}

pub(super) async fn insert(
    db: &DbConnection,
    hub: Option<&str>,
    tenant: TenantId,
    call: &CallRecord,
) -> Result<()> {
    let sql = format!(
        "INSERT INTO calls (tenant, {CALL_COLUMNS}, hub) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
         ON CONFLICT (tenant, id) DO NOTHING"
    );
    let values: Values<'_> = &[
        &tenant.to_string(),
        &call.id.to_string(),
        &call.server.to_string(),
        &call.tool,
        &call.subject,
        &call.status.name(),
        &&call.digest.bytes()[..],
        &call.arguments,
        &call.result,
        &call.error,
        &to_millis(call.created),
        &call.started.map(to_millis),
        &call.completed.map(to_millis),
        &hub,
    ];
    if changes_row(db, &sql, values).await? {
        return Ok(());
    }
    Err(conflict("call_exists", format!("call {} already exists", call.id)))
}

/// Changes a call, or returns the reason why it cannot make the requested transition.
async fn advance(
    db: &DbConnection,
    tenant: TenantId,
    call: CallId,
    sql: &str,
    values: Values<'_>,
) -> Result<()> {
    if changes_row(db, sql, values).await? {
        return Ok(());
    }
    Err(match get(db, tenant, call).await? {
        None => Error::not_found("call", call).into(),
        Some(found) => {
            conflict("call_state_conflict", format!("call {call} is already {}", found.status.name()))
        }
    })
}

pub(super) async fn start(
    db: &DbConnection,
    hub: Option<&str>,
    tenant: TenantId,
    call: CallId,
    at: Timestamp,
) -> Result<()> {
    let sql = "UPDATE calls SET status = 'running', started = $3, hub = $4
               WHERE tenant = $1 AND id = $2 AND status = 'pending'";
    advance(db, tenant, call, sql, &[&tenant.to_string(), &call.to_string(), &to_millis(at), &hub]).await
}

pub(super) async fn finish(
    db: &DbConnection,
    tenant: TenantId,
    call: CallId,
    outcome: &CallOutcome,
) -> Result<()> {
    let sql = "UPDATE calls SET status = $3, result = $4, error = $5, completed = $6,
               arguments = CASE WHEN $7 THEN arguments END
               WHERE tenant = $1 AND id = $2 AND status IN ('pending', 'running')";
    let CallOutcome { status, result, error, at, retains_arguments } = outcome;
    let (owner, id) = (tenant.to_string(), call.to_string());
    let values: Values<'_> =
        &[&owner, &id, &status.name(), result, error, &to_millis(*at), retains_arguments];
    advance(db, tenant, call, sql, values).await
}

pub(super) async fn edit(
    db: &DbConnection,
    tenant: TenantId,
    call: CallId,
    digest: Digest,
    arguments: Option<&[u8]>,
) -> Result<()> {
    let sql =
        "UPDATE calls SET digest = $3, arguments = $4 WHERE tenant = $1 AND id = $2 AND status = 'pending'";
    let values: Values<'_> = &[&tenant.to_string(), &call.to_string(), &&digest.bytes()[..], &arguments];
    advance(db, tenant, call, sql, values).await
}

/// SQL that selects the calls that finished before a time, the oldest first.
const SELECT_FINISHED_BEFORE: &str =
    "SELECT id FROM calls WHERE tenant = $1 AND completed < $2 ORDER BY completed";

pub(super) async fn prune(db: &DbConnection, tenant: TenantId, before: Timestamp, max: u32) -> Result<()> {
    let sql = format!("DELETE FROM calls WHERE tenant = $1 AND id IN ({SELECT_FINISHED_BEFORE} LIMIT $3)");
    db.execute(&sql, &[&tenant.to_string(), &to_millis(before), &i64::from(max)]).await.map(drop)
}

pub(super) async fn has_finished_before(
    db: &impl QueryExecutor,
    tenant: TenantId,
    before: Timestamp,
) -> Result<bool> {
    let sql = format!("{SELECT_FINISHED_BEFORE} LIMIT 1");
    Ok(!db.query(&sql, &[&tenant.to_string(), &to_millis(before)]).await?.is_empty())
}

pub(super) fn read_call(row: &Row) -> Result<CallRecord> {
    Ok(CallRecord {
        id: parse_column(row, 0)?,
        server: parse_column(row, 1)?,
        tool: row.try_get(2)?,
        subject: row.try_get(3)?,
        status: CallStatus::find(row.try_get(4)?).ok_or_else(|| invalid_data("unknown status"))?,
        digest: read_digest(row, 5)?,
        arguments: row.try_get(6)?,
        result: row.try_get(7)?,
        error: row.try_get(8)?,
        created: from_millis(row.try_get(9)?)?,
        started: read_optional_time(row, 10)?,
        completed: read_optional_time(row, 11)?,
    })
}

pub(super) async fn get(
    db: &impl QueryExecutor,
    tenant: TenantId,
    call: CallId,
) -> Result<Option<CallRecord>> {
    let sql = format!("SELECT {CALL_COLUMNS} FROM calls WHERE tenant = $1 AND id = $2");
    let found = db.query(&sql, &[&tenant.to_string(), &call.to_string()]).await?;
    found.first().map(read_call).transpose()
}

/// Conditions of a `WHERE` clause, joined by `AND`, and their values.
#[derive(Default)]
struct Conditions {
    text: String,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl Conditions {
    fn new(tenant: TenantId, paging: &PageRequest) -> Self {
        let mut all = Conditions::default();
        all.add("tenant =", Some(tenant.to_string()));
        all.add("id <", paging.after.clone());
        all
    }

    fn add(&mut self, condition: &str, value: Option<impl ToSql + Sync + Send + 'static>) {
        let Some(value) = value else { return };
        self.values.push(Box::new(value));
        let separator = if self.text.is_empty() { "" } else { " AND " };
        write!(self.text, "{separator}{condition} ${}", self.values.len())
            .expect("writing to a string never fails");
    }

    fn sql(&self, columns_from: &str) -> String {
        format!("SELECT {columns_from} WHERE {} ORDER BY id DESC LIMIT ${}", self.text, self.values.len() + 1)
    }

    fn values<'a>(&'a self, limit: &'a i64) -> Vec<&'a (dyn ToSql + Sync)> {
        let values = self.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        values.chain([limit as _]).collect()
    }

    /// Lists the rows that meet all conditions, the newest first.
    async fn fetch<T>(
        self,
        db: &impl QueryExecutor,
        columns_from: &str,
        paging: &PageRequest,
        read: impl Fn(&Row) -> Result<T>,
        name: impl Fn(&T) -> String,
    ) -> Result<Page<T>> {
        let limit = paging.limit.clamp(1, MAX_PAGE_SIZE);
        let fetch_limit = to_bigint(limit as u64 + 1);
        let found = db.query(&self.sql(columns_from), &self.values(&fetch_limit)).await?;
        Ok(build_page(found.iter().map(read).collect::<Result<Vec<_>>>()?, limit, name))
    }
}

fn call_conditions(tenant: TenantId, filter: &CallFilter, paging: &PageRequest) -> Conditions {
    let mut conditions = Conditions::new(tenant, paging);
    conditions.add("tool =", filter.tool.clone());
    conditions.add("server =", filter.server.map(|server| server.to_string()));
    conditions.add("subject =", filter.subject.clone());
    conditions.add("status =", filter.status.map(CallStatus::name));
    conditions.add("created >=", filter.since.map(to_millis));
    conditions.add("created <", filter.until.map(to_millis));
    conditions
}

pub(super) async fn list(
    db: &impl QueryExecutor,
    tenant: TenantId,
    filter: &CallFilter,
    paging: &PageRequest,
) -> Result<Page<CallRecord>> {
    let name = |call: &CallRecord| call.id.to_string();
    call_conditions(tenant, filter, paging).fetch(db, LISTED_CALLS, paging, read_call, name).await
}

/// Lists calls that were running at a hub that is gone.
pub(super) async fn abandoned_calls(
    db: &impl QueryExecutor,
    hub: Option<&str>,
    tenant: TenantId,
) -> Result<Vec<CallRecord>> {
    let sql = format!("SELECT {LISTED_CALLS} WHERE tenant = $1 AND {ABANDONED_CONDITION} LIMIT 100");
    let found = db.query(&sql, &[&tenant.to_string(), &hub]).await?;
    found.iter().map(read_call).collect()
}

pub(super) async fn insert_approval(db: &DbConnection, tenant: TenantId, approval: &Approval) -> Result<()> {
    let sql = format!(
        "INSERT INTO approvals (tenant, {APPROVAL_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (tenant, id) DO NOTHING"
    );
    let values: Values<'_> = &[
        &tenant.to_string(),
        &approval.id.to_string(),
        &approval.call.to_string(),
        &&approval.digest.bytes()[..],
        &approval.decision.name(),
        &approval.decided_by,
        &to_millis(approval.created),
        &to_millis(approval.expires),
        &approval.decided.map(to_millis),
    ];
    if changes_row(db, &sql, values).await? {
        return Ok(());
    }
    Err(conflict("approval_exists", format!("approval {} already exists", approval.id)))
}

/// Returns the error that explains why an approval cannot be decided or used.
fn approval_state_conflict(id: ApprovalId, found: Option<&Approval>, at: Timestamp) -> StoreFailure {
    match found {
        None => Error::not_found("approval", id).into(),
        Some(found)
            if found.expires <= at
                && matches!(found.decision, ApprovalStatus::Open | ApprovalStatus::Approved) =>
        {
            conflict("approval_expired", format!("approval {id} has expired: request the call again"))
        }
        Some(found) => {
            let text = format!("approval {id} is already {}", found.decision.name());
            conflict("approval_decided", text)
        }
    }
}

pub(super) async fn decide_approval(
    db: &DbConnection,
    tenant: TenantId,
    id: ApprovalId,
    decision: ApprovalStatus,
    by: &str,
    at: Timestamp,
    digest: Option<Digest>,
) -> Result<()> {
    // After its expiry an approval can only become `expired` or `withdrawn`.
    let sql =
        "UPDATE approvals SET decision = $3, decided_by = $4, decided = $5, digest = COALESCE($6, digest)
               WHERE tenant = $1 AND id = $2 AND decision = 'open' AND (expires > $5 OR $3 IN ('expired', 'withdrawn'))";
    let (owner, digest) = (tenant.to_string(), digest.as_ref().map(|digest| &digest.bytes()[..]));
    let values: Values<'_> = &[&owner, &id.to_string(), &decision.name(), &by, &to_millis(at), &digest];
    if changes_row(db, sql, values).await? {
        return Ok(());
    }
    Err(approval_state_conflict(id, approval(db, tenant, id).await?.as_ref(), at))
}

pub(super) async fn consume_approval(
    db: &DbConnection,
    tenant: TenantId,
    id: ApprovalId,
    digest: Digest,
    at: Timestamp,
) -> Result<()> {
    let sql = "UPDATE approvals SET decision = 'used'
               WHERE tenant = $1 AND id = $2 AND decision = 'approved' AND digest = $3 AND expires > $4";
    let values: Values<'_> = &[&tenant.to_string(), &id.to_string(), &&digest.bytes()[..], &to_millis(at)];
    if changes_row(db, sql, values).await? {
        return Ok(());
    }
    Err(match approval(db, tenant, id).await? {
        Some(found) if found.decision == ApprovalStatus::Approved && found.digest != digest => {
            conflict("approval_mismatch", format!("approval {id} was given for another call"))
        }
        found => approval_state_conflict(id, found.as_ref(), at),
    })
}

pub(super) fn read_approval(row: &Row) -> Result<Approval> {
    Ok(Approval {
        id: parse_column(row, 0)?,
        call: parse_column(row, 1)?,
        digest: read_digest(row, 2)?,
        decision: ApprovalStatus::find(row.try_get(3)?).ok_or_else(|| invalid_data("unknown decision"))?,
        decided_by: row.try_get(4)?,
        created: from_millis(row.try_get(5)?)?,
        expires: from_millis(row.try_get(6)?)?,
        decided: read_optional_time(row, 7)?,
    })
}

pub(super) async fn approval(
    db: &impl QueryExecutor,
    tenant: TenantId,
    id: ApprovalId,
) -> Result<Option<Approval>> {
    let sql = format!("SELECT {APPROVAL_COLUMNS} FROM approvals WHERE tenant = $1 AND id = $2");
    let found = db.query(&sql, &[&tenant.to_string(), &id.to_string()]).await?;
    found.first().map(read_approval).transpose()
}

fn approval_conditions(tenant: TenantId, filter: &ApprovalFilter, paging: &PageRequest) -> Conditions {
    let mut conditions = Conditions::new(tenant, paging);
    conditions.add("call =", filter.call.map(|call| call.to_string()));
    conditions.add("decision =", filter.decision.map(ApprovalStatus::name));
    conditions
}

pub(super) async fn approvals(
    db: &impl QueryExecutor,
    tenant: TenantId,
    filter: &ApprovalFilter,
    paging: &PageRequest,
) -> Result<Page<Approval>> {
    let (columns_from, name) =
        (format!("{APPROVAL_COLUMNS} FROM approvals"), |approval: &Approval| approval.id.to_string());
    approval_conditions(tenant, filter, paging).fetch(db, &columns_from, paging, read_approval, name).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::tests::{database_with_many_rows, query_plan};

    #[tokio::test]
    async fn every_list_has_an_index() {
        let (tenant, now, none) = (TenantId::from_u128(1), Some(Timestamp::UNIX_EPOCH), CallFilter::default);
        let db = database_with_many_rows(tenant).await;
        let planned = async |conditions: Conditions, columns_from: &str| {
            query_plan(&db, &conditions.sql(columns_from), &conditions.values(&100)).await
        };
        for after in [None, Some("x".to_owned())] {
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
                let plan = planned(call_conditions(tenant, &filter, &paging), LISTED_CALLS).await;
                assert!(plan.contains(index) && !plan.contains("Seq Scan"), "{filter:?}: {plan}");
            }
            let open = ApprovalFilter { decision: Some(ApprovalStatus::Open), ..ApprovalFilter::default() };
            let plan = planned(
                approval_conditions(tenant, &open, &paging),
                &format!("{APPROVAL_COLUMNS} FROM approvals"),
            )
            .await;
            assert!(plan.contains("approvals_by_decision") && !plan.contains("Seq Scan"), "{plan}");
        }
    }
}

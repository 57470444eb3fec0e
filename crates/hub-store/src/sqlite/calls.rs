//! Tables of calls and approvals in the `SQLite` store. The SQL of each change contains its precondition.

use std::fmt::Write as _;

use jiff::Timestamp;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, ApprovalStatus, CallFilter, CallOutcome, CallRecord, CallStatus, MAX_PAGE_SIZE,
    Page, PageRequest,
};
use linchpin_hub_core::{Error, Result};
use rusqlite::types::{ToSql, Type};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{conflict, database_error};
use crate::common::build_page;

pub(super) const CALL_COLUMNS: &str =
    "id, server, tool, subject, status, digest, arguments, result, error, created, started, completed";
/// Columns for lists: without arguments and result, which may be large.
const LISTED_CALLS: &str =
    "id, server, tool, subject, status, digest, NULL, NULL, error, created, started, completed FROM calls";
pub(super) const APPROVAL_COLUMNS: &str = "id, call, digest, decision, decided_by, created, expires, decided";

/// Converts a time to the stored form: milliseconds since the Unix epoch.
pub(super) fn to_millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub(super) fn read_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let at: Option<i64> = row.get(column)?;
    let read =
        |at| Timestamp::from_millisecond(at).map_err(|error| conversion_error(column, error.to_string()));
    at.map(read).transpose()
}

pub(super) fn conversion_error(
    column: usize,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

pub(super) fn parse_column<T: std::str::FromStr<Err = Error>>(
    row: &Row<'_>,
    column: impl rusqlite::RowIndex,
) -> rusqlite::Result<T> {
    let index = column.idx(row.as_ref())?;
    row.get::<_, String>(index)?.parse().map_err(|error: Error| conversion_error(index, error))
}

/// Runs a statement that must change exactly one row; `refusal` returns the error if it changed none.
fn change_one(
    db: &Connection,
    sql: &str,
    values: &[&dyn ToSql],
    refusal: impl FnOnce() -> Result<Error>,
) -> Result<()> {
    match db.prepare_cached(sql).and_then(|mut sql| sql.execute(values)) {
        Ok(0) => Err(refusal()?),
        Ok(_) => Ok(()),
        Err(error) => Err(database_error(&error)),
    }
}

pub(super) fn insert(db: &Connection, hub: &str, tenant: TenantId, call: &CallRecord) -> Result<()> {
    let sql = format!(
        "INSERT INTO calls (tenant, {CALL_COLUMNS}, hub) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT (tenant, id) DO NOTHING"
    );
    let (owner, id, server) = (tenant.to_string(), call.id.to_string(), call.server.to_string());
    let values = params![
        owner,
        id,
        server,
        call.tool,
        call.subject,
        call.status.name(),
        call.digest.bytes(),
        call.arguments,
        call.result,
        call.error,
        to_millis(call.created),
        call.started.map(to_millis),
        call.completed.map(to_millis),
        hub,
    ];
    change_one(db, &sql, values, || Ok(conflict("call_exists", format!("call {} already exists", call.id))))
}

/// Returns the error that explains why a call cannot make the requested transition.
fn call_state_conflict(db: &Connection, tenant: TenantId, call: CallId) -> Result<Error> {
    Ok(match get(db, tenant, call)? {
        None => Error::not_found("call", call),
        Some(found) => {
            conflict("call_state_conflict", format!("call {call} is already {}", found.status.name()))
        }
    })
}

pub(super) fn start(db: &Connection, hub: &str, tenant: TenantId, call: CallId, at: Timestamp) -> Result<()> {
    let sql = "UPDATE calls SET status = 'running', started = ?3, hub = ?4
               WHERE tenant = ?1 AND id = ?2 AND status = 'pending'";
    let values = params![tenant.to_string(), call.to_string(), to_millis(at), hub];
    change_one(db, sql, values, || call_state_conflict(db, tenant, call))
}

pub(super) fn finish(db: &Connection, tenant: TenantId, call: CallId, outcome: &CallOutcome) -> Result<()> {
    let sql = "UPDATE calls SET status = ?3, result = ?4, error = ?5, completed = ?6,
               arguments = CASE WHEN ?7 THEN arguments END
               WHERE tenant = ?1 AND id = ?2 AND status IN ('pending', 'running')";
    let CallOutcome { status, result, error, at, retains_arguments } = outcome;
    let (owner, id) = (tenant.to_string(), call.to_string());
    let values = params![owner, id, status.name(), result, error, to_millis(*at), retains_arguments];
    change_one(db, sql, values, || call_state_conflict(db, tenant, call))
}

pub(super) fn edit(
    db: &Connection,
    tenant: TenantId,
    call: CallId,
    digest: Digest,
    arguments: Option<&[u8]>,
) -> Result<()> {
    let sql =
        "UPDATE calls SET digest = ?3, arguments = ?4 WHERE tenant = ?1 AND id = ?2 AND status = 'pending'";
    let values = params![tenant.to_string(), call.to_string(), digest.bytes(), arguments];
    change_one(db, sql, values, || call_state_conflict(db, tenant, call))
}

/// SQL that selects the calls that finished before a time, the oldest first.
const SELECT_FINISHED_BEFORE: &str =
    "SELECT id FROM calls INDEXED BY calls_over WHERE tenant = ?1 AND completed < ?2 ORDER BY completed";

pub(super) fn prune(db: &Connection, tenant: TenantId, before: Timestamp, max: u32) -> Result<()> {
    let sql = format!("DELETE FROM calls WHERE tenant = ?1 AND id IN ({SELECT_FINISHED_BEFORE} LIMIT ?3)");
    let values = params![tenant.to_string(), to_millis(before), max];
    let done = db.prepare_cached(&sql).and_then(|mut sql| sql.execute(values));
    done.map(drop).map_err(|error| database_error(&error))
}

pub(super) fn has_finished_before(db: &Connection, tenant: TenantId, before: Timestamp) -> Result<bool> {
    let sql = format!("SELECT EXISTS ({SELECT_FINISHED_BEFORE})");
    let values = params![tenant.to_string(), to_millis(before)];
    let found = db.prepare_cached(&sql).and_then(|mut sql| sql.query_row(values, |row| row.get(0)));
    found.map_err(|error| database_error(&error))
}

pub(super) fn read_call(row: &Row<'_>) -> rusqlite::Result<CallRecord> {
    let status =
        CallStatus::find(&row.get::<_, String>(4)?).ok_or_else(|| conversion_error(4, "unknown status"))?;
    Ok(CallRecord {
        id: parse_column(row, 0)?,
        server: parse_column(row, 1)?,
        tool: row.get(2)?,
        subject: row.get(3)?,
        status,
        digest: Digest::from_bytes(row.get(5)?),
        arguments: row.get(6)?,
        result: row.get(7)?,
        error: row.get(8)?,
        created: read_time(row, 9)?.unwrap_or(Timestamp::UNIX_EPOCH),
        started: read_time(row, 10)?,
        completed: read_time(row, 11)?,
    })
}

pub(super) fn get(db: &Connection, tenant: TenantId, call: CallId) -> Result<Option<CallRecord>> {
    read_row(db, &format!("{CALL_COLUMNS} FROM calls"), [tenant.to_string(), call.to_string()], read_call)
}

/// Reads the row of a call or approval with this tenant and id.
fn read_row<T>(
    db: &Connection,
    columns_from: &str,
    ids: [String; 2],
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    let sql = format!("SELECT {columns_from} WHERE tenant = ?1 AND id = ?2");
    let found = db.prepare_cached(&sql).and_then(|mut sql| sql.query_row(ids, read).optional());
    found.map_err(|error| database_error(&error))
}

/// Conditions of a `WHERE` clause, joined by `AND`, and their values.
#[derive(Default)]
struct Conditions {
    text: String,
    values: Vec<Box<dyn ToSql>>,
    /// Index that the query must use (`INDEXED BY`), if one fits its conditions: without it, the planner scans all rows
    /// of the tenant.
    index: Option<&'static str>,
}

impl Conditions {
    fn new(tenant: TenantId, paging: &PageRequest) -> Self {
        let mut all = Conditions::default();
        all.add("tenant =", Some(tenant.to_string()));
        all.add("id <", paging.after.clone());
        all
    }

    fn add(&mut self, condition: &str, value: Option<impl ToSql + 'static>) {
        let Some(value) = value else { return };
        self.values.push(Box::new(value));
        let separator = if self.text.is_empty() { "" } else { " AND " };
        write!(self.text, "{separator}{condition} ?{}", self.values.len())
            .expect("writing to a string never fails");
    }

    /// Adds a condition like [`Self::add`] with the index that serves it; the first index is used.
    fn add_indexed(&mut self, index: &'static str, condition: &str, value: Option<impl ToSql + 'static>) {
        self.index = self.index.or(value.is_some().then_some(index));
        self.add(condition, value);
    }

    fn sql(&self, columns_from: &str, limit: usize) -> String {
        let index = self.index.map(|index| format!("INDEXED BY {index}")).unwrap_or_default();
        format!("SELECT {columns_from} {index} WHERE {} ORDER BY id DESC LIMIT {limit}", self.text)
    }

    /// Lists the rows that meet all conditions, the newest first.
    fn fetch<T>(
        self,
        db: &Connection,
        columns_from: &str,
        paging: &PageRequest,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
        name: impl Fn(&T) -> String,
    ) -> Result<Page<T>> {
        let limit = paging.limit.clamp(1, MAX_PAGE_SIZE);
        let sql = self.sql(columns_from, limit + 1);
        let found = db.prepare_cached(&sql).and_then(|mut sql| {
            sql.query_map(rusqlite::params_from_iter(self.values), read)?
                .collect::<rusqlite::Result<Vec<_>>>()
        });
        Ok(build_page(found.map_err(|error| database_error(&error))?, limit, name))
    }
}

fn call_conditions(tenant: TenantId, filter: &CallFilter, paging: &PageRequest) -> Conditions {
    let mut conditions = Conditions::new(tenant, paging);
    conditions.add_indexed("calls_by_tool", "tool =", filter.tool.clone());
    conditions.add_indexed("calls_by_server", "server =", filter.server.map(|server| server.to_string()));
    conditions.add_indexed("calls_by_subject", "subject =", filter.subject.clone());
    conditions.add_indexed("calls_by_status", "status =", filter.status.map(CallStatus::name));
    conditions.add("created >=", filter.since.map(to_millis));
    conditions.add("created <", filter.until.map(to_millis));
    conditions
}

pub(super) fn list(
    db: &Connection,
    tenant: TenantId,
    filter: &CallFilter,
    paging: &PageRequest,
) -> Result<Page<CallRecord>> {
    let name = |call: &CallRecord| call.id.to_string();
    call_conditions(tenant, filter, paging).fetch(db, LISTED_CALLS, paging, read_call, name)
}

/// Lists running calls that an earlier hub process started.
pub(super) fn abandoned_calls(db: &Connection, hub: &str, tenant: TenantId) -> Result<Vec<CallRecord>> {
    let sql = format!(
        "SELECT {LISTED_CALLS} INDEXED BY calls_by_status WHERE tenant = ?1 AND status = 'running' AND hub IS NOT ?2 LIMIT 100"
    );
    let found = db.prepare_cached(&sql).and_then(|mut sql| {
        sql.query_map(params![tenant.to_string(), hub], read_call)?.collect::<rusqlite::Result<Vec<_>>>()
    });
    found.map_err(|error| database_error(&error))
}

pub(super) fn insert_approval(db: &Connection, tenant: TenantId, approval: &Approval) -> Result<()> {
    let sql = format!(
        "INSERT INTO approvals (tenant, {APPROVAL_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (tenant, id) DO NOTHING"
    );
    let (owner, id, call) = (tenant.to_string(), approval.id.to_string(), approval.call.to_string());
    let values = params![
        owner,
        id,
        call,
        approval.digest.bytes(),
        approval.decision.name(),
        approval.decided_by,
        to_millis(approval.created),
        to_millis(approval.expires),
        approval.decided.map(to_millis),
    ];
    let exists = || Ok(conflict("approval_exists", format!("approval {} already exists", approval.id)));
    change_one(db, &sql, values, exists)
}

/// Returns the error that explains why an approval cannot be decided or used.
fn approval_state_conflict(
    db: &Connection,
    tenant: TenantId,
    id: ApprovalId,
    at: Timestamp,
) -> Result<Error> {
    Ok(match approval(db, tenant, id)? {
        None => Error::not_found("approval", id),
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
    })
}

pub(super) fn decide_approval(
    db: &Connection,
    tenant: TenantId,
    id: ApprovalId,
    decision: ApprovalStatus,
    by: &str,
    at: Timestamp,
    digest: Option<Digest>,
) -> Result<()> {
    // After its expiry an approval can only become `expired` or `withdrawn`.
    let sql =
        "UPDATE approvals SET decision = ?3, decided_by = ?4, decided = ?5, digest = COALESCE(?6, digest)
               WHERE tenant = ?1 AND id = ?2 AND decision = 'open' AND (expires > ?5 OR ?3 IN ('expired', 'withdrawn'))";
    let digest = digest.map(|digest| digest.bytes().to_vec());
    let values = params![tenant.to_string(), id.to_string(), decision.name(), by, to_millis(at), digest];
    change_one(db, sql, values, || approval_state_conflict(db, tenant, id, at))
}

pub(super) fn consume_approval(
    db: &Connection,
    tenant: TenantId,
    id: ApprovalId,
    digest: Digest,
    at: Timestamp,
) -> Result<()> {
    let sql = "UPDATE approvals SET decision = 'used'
               WHERE tenant = ?1 AND id = ?2 AND decision = 'approved' AND digest = ?3 AND expires > ?4";
    let values = params![tenant.to_string(), id.to_string(), digest.bytes(), to_millis(at)];
    change_one(db, sql, values, || match approval(db, tenant, id)? {
        Some(found) if found.decision == ApprovalStatus::Approved && found.digest != digest => {
            Ok(conflict("approval_mismatch", format!("approval {id} was given for another call")))
        }
        _ => approval_state_conflict(db, tenant, id, at),
    })
}

pub(super) fn read_approval(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let decision = ApprovalStatus::find(&row.get::<_, String>(3)?)
        .ok_or_else(|| conversion_error(3, "unknown decision"))?;
    Ok(Approval {
        id: parse_column(row, 0)?,
        call: parse_column(row, 1)?,
        digest: Digest::from_bytes(row.get(2)?),
        decision,
        decided_by: row.get(4)?,
        created: read_time(row, 5)?.unwrap_or(Timestamp::UNIX_EPOCH),
        expires: read_time(row, 6)?.unwrap_or(Timestamp::UNIX_EPOCH),
        decided: read_time(row, 7)?,
    })
}

pub(super) fn approval(db: &Connection, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>> {
    read_row(
        db,
        &format!("{APPROVAL_COLUMNS} FROM approvals"),
        [tenant.to_string(), id.to_string()],
        read_approval,
    )
}

fn approval_conditions(tenant: TenantId, filter: &ApprovalFilter, paging: &PageRequest) -> Conditions {
    let mut conditions = Conditions::new(tenant, paging);
    conditions.add_indexed("approvals_by_call", "call =", filter.call.map(|call| call.to_string()));
    conditions.add_indexed("approvals_by_decision", "decision =", filter.decision.map(ApprovalStatus::name));
    conditions
}

pub(super) fn approvals(
    db: &Connection,
    tenant: TenantId,
    filter: &ApprovalFilter,
    paging: &PageRequest,
) -> Result<Page<Approval>> {
    let name = |approval: &Approval| approval.id.to_string();
    approval_conditions(tenant, filter, paging).fetch(
        db,
        &format!("{APPROVAL_COLUMNS} FROM approvals"),
        paging,
        read_approval,
        name,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::migrations;

    #[test]
    fn every_list_has_an_index() {
        let mut db = Connection::open_in_memory().unwrap();
        migrations::migrate(&mut db).unwrap();
        let (tenant, now, none) = (TenantId::from_u128(1), Some(Timestamp::UNIX_EPOCH), CallFilter::default);
        let plan = |conditions: Conditions, columns_from: &str| {
            let sql = format!("EXPLAIN QUERY PLAN {}", conditions.sql(columns_from, 100));
            let mut sql = db.prepare(&sql).unwrap();
            let steps =
                sql.query_map(rusqlite::params_from_iter(conditions.values), |row| row.get(3)).unwrap();
            steps.collect::<rusqlite::Result<Vec<String>>>().unwrap().join("; ")
        };
        for after in [None, Some("x".to_owned())] {
            let paging = PageRequest { after, limit: 100 };
            for (filter, index) in [
                (CallFilter { status: Some(CallStatus::Running), ..none() }, "calls_by_status"),
                (
                    CallFilter { status: Some(CallStatus::Error), since: now, until: now, ..none() },
                    "calls_by_status",
                ),
                (CallFilter { subject: Some("user:1".into()), ..none() }, "calls_by_subject"),
                (CallFilter { tool: Some("echo".into()), ..none() }, "calls_by_tool"),
            ] {
                let plan = plan(call_conditions(tenant, &filter, &paging), LISTED_CALLS);
                assert!(
                    plan.contains(&format!("INDEX {index} ")) && !plan.contains("B-TREE"),
                    "{filter:?}: {plan}"
                );
            }
            let open = ApprovalFilter { decision: Some(ApprovalStatus::Open), ..ApprovalFilter::default() };
            let plan = plan(
                approval_conditions(tenant, &open, &paging),
                &format!("{APPROVAL_COLUMNS} FROM approvals"),
            );
            assert!(plan.contains("INDEX approvals_by_decision ") && !plan.contains("B-TREE"), "{plan}");
        }
    }
}

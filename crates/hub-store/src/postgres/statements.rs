//! Execution of the SQL that both databases share.

use linchpin_hub_core::Error;
use linchpin_hub_core::id::{CallId, TenantId};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::connection::DbConnection;
use super::{QueryExecutor, StoreFailure, invalid_data};
use crate::common::Statement;
use crate::common::calls::{SELECT_APPROVAL, SELECT_CALL};
use crate::common::refusal::{Refusal, approval_conflict, call_conflict};
use crate::common::rows::{StoredRow, read_approval, read_call};
use crate::common::value::Value;

type Result<T> = std::result::Result<T, StoreFailure>;

impl StoredRow for Row {
    type Error = StoreFailure;

    fn id(&self, column: usize) -> Result<u128> {
        let id = self.try_get::<_, &str>(column)?.parse::<CallId>();
        id.map(CallId::to_u128).map_err(|_| invalid_data("invalid id"))
    }

    fn text(&self, column: usize) -> Result<Option<String>> {
        Ok(self.try_get(column)?)
    }

    fn bytes(&self, column: usize) -> Result<Option<Vec<u8>>> {
        Ok(self.try_get(column)?)
    }

    fn integer(&self, column: usize) -> Result<Option<i64>> {
        Ok(self.try_get(column)?)
    }

    fn real(&self, column: usize) -> Result<f64> {
        Ok(self.try_get(column)?)
    }

    fn boolean(&self, column: usize) -> Result<bool> {
        Ok(self.try_get(column)?)
    }

    fn invalid(message: &'static str) -> StoreFailure {
        invalid_data(message)
    }
}

pub(super) fn references<'a>(values: &'a [Value<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    values.iter().map(|value| value as _).collect()
}

/// Runs a query, and reads its rows.
pub(super) async fn query<T>(
    db: &impl QueryExecutor,
    sql: &str,
    values: &[Value<'_>],
    read: impl Fn(&Row) -> Result<T>,
) -> Result<Vec<T>> {
    db.query(sql, &references(values)).await?.iter().map(read).collect()
}

/// Runs a query that finds at most one row, and reads it.
pub(super) async fn query_one<T>(
    db: &impl QueryExecutor,
    sql: &str,
    values: &[Value<'_>],
    read: impl Fn(&Row) -> Result<T>,
) -> Result<Option<T>> {
    db.query(sql, &references(values)).await?.first().map(read).transpose()
}

/// Runs a statement, and returns the number of changed rows.
pub(super) async fn change(db: &DbConnection, sql: &str, values: &[Value<'_>]) -> Result<u64> {
    db.execute(sql, &references(values)).await
}

/// Runs a statement of a change. Fails with its refusal if it changes no row.
pub(super) async fn execute(db: &DbConnection, tenant: TenantId, statement: &Statement<'_>) -> Result<()> {
    match change(db, statement.sql, &statement.values).await {
        Ok(0) => {
            refusal_error(db, tenant, &statement.refusal).await?.map_or(Ok(()), |error| Err(error.into()))
        }
        Ok(_) => Ok(()),
        Err(StoreFailure::Database(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            Err(statement
                .refusal
                .unique_violation()
                .map_or(StoreFailure::Database(error), StoreFailure::from))
        }
        Err(failure) => Err(failure),
    }
}

async fn refusal_error(db: &DbConnection, tenant: TenantId, refusal: &Refusal<'_>) -> Result<Option<Error>> {
    Ok(Some(match refusal {
        Refusal::Never => return Ok(None),
        Refusal::Plain(plain) => plain.error(),
        Refusal::Call(call) => {
            let found = query_one(db, SELECT_CALL, &[tenant.into(), (*call).into()], read_call).await?;
            call_conflict(*call, found.as_ref())
        }
        Refusal::Approval(attempt) => {
            let values = [tenant.into(), attempt.id.into()];
            let found = query_one(db, SELECT_APPROVAL, &values, read_approval).await?;
            approval_conflict(*attempt, found.as_ref())
        }
    }))
}

//! Execution of SQL statements, which stay prepared in the cache of their connection.

use linchpin_hub_core::{Error, Result};
use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, Row, params_from_iter};

use super::errors::{database_error, is_unique_violation};
use crate::common::calls::{SELECT_APPROVAL, SELECT_CALL};
use crate::common::refusal::{Refusal, approval_conflict, call_conflict};
use crate::common::rows::{StoredRow, read_approval, read_call};
use crate::common::value::Value;

impl StoredRow for Row<'_> {
    type Error = rusqlite::Error;

    fn id(&self, column: usize) -> rusqlite::Result<u128> {
        self.get(column).map(u128::from_be_bytes)
    }

    fn text(&self, column: usize) -> rusqlite::Result<Option<String>> {
        self.get(column)
    }

    fn bytes(&self, column: usize) -> rusqlite::Result<Option<Vec<u8>>> {
        self.get(column)
    }

    fn integer(&self, column: usize) -> rusqlite::Result<Option<i64>> {
        self.get(column)
    }

    fn real(&self, column: usize) -> rusqlite::Result<f64> {
        self.get(column)
    }

    fn boolean(&self, column: usize) -> rusqlite::Result<bool> {
        self.get(column)
    }

    fn invalid(message: &'static str) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(0, Type::Null, message.into())
    }
}

/// Converts the parameter marks of the common SQL to those of `SQLite`.
pub(super) fn with_marks(sql: &str) -> String {
    sql.replace('$', "?")
}

/// Runs a query, and reads its rows.
pub(super) fn query<T>(
    db: &Connection,
    sql: &str,
    values: &[Value<'_>],
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let found = db.prepare_cached(&with_marks(sql)).and_then(|mut statement| {
        statement.query_map(params_from_iter(values), read)?.collect::<rusqlite::Result<Vec<_>>>()
    });
    found.map_err(|error| database_error(&error))
}

/// Runs a query that finds at most one row, and reads it.
pub(super) fn query_one<T>(
    db: &Connection,
    sql: &str,
    values: &[Value<'_>],
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    Ok(query(db, sql, values, read)?.pop())
}

/// Runs a statement that changes rows once, and returns the number of changed rows.
pub(super) fn execute(db: &Connection, sql: &str, values: &[Value<'_>]) -> rusqlite::Result<usize> {
    db.prepare_cached(&with_marks(sql))?.execute(params_from_iter(values))
}

/// Returns the outcome of a statement that has changed some rows: a refusal if it changed none.
pub(super) fn check(
    db: &Connection,
    tenant: i64,
    changed: rusqlite::Result<usize>,
    refusal: &Refusal<'_>,
) -> Result<()> {
    match changed {
        Ok(0) => refusal_error(db, tenant, refusal)?.map_or(Ok(()), Err),
        Ok(_) => Ok(()),
        Err(error) => {
            let taken = if is_unique_violation(&error) { refusal.unique_violation() } else { None };
            Err(taken.unwrap_or_else(|| database_error(&error)))
        }
    }
}

fn refusal_error(db: &Connection, tenant: i64, refusal: &Refusal<'_>) -> Result<Option<Error>> {
    Ok(Some(match refusal {
        Refusal::Never => return Ok(None),
        Refusal::Plain(plain) => plain.error(),
        Refusal::Call(call) => {
            let found = query_one(db, SELECT_CALL, &[tenant.into(), (*call).into()], |row| read_call(row))?;
            call_conflict(*call, found.as_ref())
        }
        Refusal::Approval(attempt) => {
            let values = [tenant.into(), attempt.id.into()];
            let found = query_one(db, SELECT_APPROVAL, &values, |row| read_approval(row))?;
            approval_conflict(*attempt, found.as_ref())
        }
    }))
}

/// Prepared statements of a group, found by the address of their SQL: the cache of the connection, from which they are
/// taken, hashes the text at each use.
pub(super) struct PreparedStatements<'a> {
    db: &'a Connection,
    prepared: Vec<(&'static str, CachedStatement<'a>)>,
    /// Whether a row was changed since this was last set to `false`.
    pub(super) has_changed: bool,
}

impl<'a> PreparedStatements<'a> {
    pub(super) fn new(db: &'a Connection) -> Self {
        PreparedStatements { db, prepared: Vec::new(), has_changed: false }
    }

    fn get(&mut self, sql: &'static str) -> rusqlite::Result<&mut CachedStatement<'a>> {
        let known = self.prepared.iter().position(|(known, _)| std::ptr::eq(*known, sql));
        let index = if let Some(index) = known {
            index
        } else {
            self.prepared.push((sql, self.db.prepare_cached(&with_marks(sql))?));
            self.prepared.len() - 1
        };
        Ok(&mut self.prepared[index].1)
    }

    /// Runs a statement, and returns the number of changed rows.
    pub(super) fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> rusqlite::Result<usize> {
        let statement = self.get(sql)?;
        let changed = statement.execute(params_from_iter(values));
        statement.clear_bindings(); // they may be large
        self.has_changed |= changed.as_ref().is_ok_and(|changed| *changed > 0);
        changed
    }

    /// Runs a query that finds one integer.
    pub(super) fn integer(&mut self, sql: &'static str) -> rusqlite::Result<i64> {
        self.get(sql)?.query_row([], |row| row.get(0))
    }
}

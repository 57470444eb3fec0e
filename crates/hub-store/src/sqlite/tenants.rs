//! Numbers of tenants, which all other tables contain instead of their ids. A number never changes.

use linchpin_hub_core::Result;
use linchpin_hub_core::id::TenantId;
use rusqlite::Connection;

use super::errors::database_error;
use super::statements::{execute, query, query_one};
use crate::common::rows::StoredRow as _;

const SELECT_NUMBER: &str = "SELECT number FROM tenants WHERE id = $1";
const INSERT: &str = "INSERT INTO tenants (id) VALUES ($1)";
/// SQL query that lists the tenants that have documents.
const SELECT_ALL: &str =
    "SELECT id FROM tenants WHERE EXISTS (SELECT 1 FROM documents WHERE tenant = number) ORDER BY id";

/// Returns the number of a tenant; 0, which no tenant has, if the tenant is new.
pub(super) fn number(db: &Connection, tenant: TenantId) -> Result<i64> {
    Ok(query_one(db, SELECT_NUMBER, &[tenant.into()], |row| row.get(0))?.unwrap_or_default())
}

/// Returns the number of a tenant. A new tenant gets the next number.
pub(super) fn number_or_insert(db: &Connection, tenant: TenantId) -> Result<i64> {
    match number(db, tenant)? {
        0 => {
            execute(db, INSERT, &[tenant.into()]).map_err(|error| database_error(&error))?;
            Ok(db.last_insert_rowid())
        }
        number => Ok(number),
    }
}

/// Lists the tenants that have documents.
pub(super) fn all(db: &Connection) -> Result<Vec<TenantId>> {
    query(db, SELECT_ALL, &[], |row| row.id(0).map(TenantId::from_u128))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::tests::query_plan;

    #[test]
    fn tenants_are_found_without_reading_what_they_have() {
        let plan = query_plan(SELECT_ALL, &[]);
        assert!(plan.contains("SEARCH documents") && !plan.contains("SCAN documents"), "{plan}");
    }
}

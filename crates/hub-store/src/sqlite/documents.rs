//! Documents: versioned JSON, addressed by tenant, kind and id.

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Document, Key, Kind, MOST_ON_PAGE, Page, Paging, Stored};
use linchpin_hub_core::{Error, Result};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use super::{conflict, failed};
use crate::common::{TENANTS, changed, page};

pub(super) const COLUMNS: &str = "id, name, parent, version, body";
/// Kinds that authenticate a caller; they are found without knowing the tenant.
const PROVES: &str = "kind IN ('token', 'session')";

const INSERT: &str = "INSERT INTO documents (tenant, kind, id, name, parent, body, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7 + 1)
     ON CONFLICT (tenant, kind, id) DO NOTHING";
const UPDATE: &str = "UPDATE documents SET name = ?4, parent = ?5, body = ?6, version = ?7 + 1
     WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version = ?7";

pub(super) fn put(db: &Connection, tenant: TenantId, document: &Document, version: u64) -> Result<()> {
    let sql = if version == 0 { INSERT } else { UPDATE };
    keep(db, sql, tenant, document, version)
}

/// Stores a document of a snapshot with its version.
pub(super) fn insert(db: &Connection, tenant: TenantId, stored: &Stored) -> Result<()> {
    keep(db, INSERT, tenant, &stored.document, stored.version.saturating_sub(1))
}

fn keep(db: &Connection, sql: &str, tenant: TenantId, document: &Document, version: u64) -> Result<()> {
    let Document { key, name, parent, body } = document;
    let (tenant, kind, body) = (tenant.to_string(), key.kind.name(), body.to_string());
    let done = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![tenant, kind, key.id, name, parent, body, version]));
    match done {
        Ok(1) => Ok(()),
        Ok(_) => Err(changed(key)),
        Err(error) if is_taken(&error) => Err(match name {
            Some(name) => conflict(
                "name_taken",
                format!("the name `{name}` is used by another {kind}: choose another name"),
            ),
            None => conflict("id_taken", format!("another {kind} has the same id")),
        }),
        Err(error) => Err(failed(&error)),
    }
}

fn is_taken(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
}

pub(super) fn need(db: &Connection, tenant: TenantId, key: &Key) -> Result<()> {
    let sql = "SELECT 1 FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3";
    let is_there = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.exists(params![tenant.to_string(), key.kind.name(), key.id]))
        .map_err(|error| failed(&error))?;
    is_there.then_some(()).ok_or_else(|| Error::not_found(key.kind.name(), &key.id))
}

pub(super) fn same(db: &Connection, tenant: TenantId, all: &[(Key, u64)]) -> Result<()> {
    let sql = "SELECT 1 FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version = ?4";
    let mut sql = db.prepare_cached(sql).map_err(|error| failed(&error))?;
    for (key, version) in all {
        let is_same = sql.exists(params![tenant.to_string(), key.kind.name(), key.id, version]);
        if !is_same.map_err(|error| failed(&error))? {
            return Err(changed(key));
        }
    }
    Ok(())
}

pub(super) fn remove_parts(db: &Connection, tenant: TenantId, kind: Kind, parent: &str) -> Result<()> {
    let sql = "DELETE FROM documents WHERE tenant = ?1 AND kind = ?2 AND parent = ?3";
    db.prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![tenant.to_string(), kind.name(), parent]))
        .map(drop)
        .map_err(|error| failed(&error))
}

pub(super) fn remove(db: &Connection, tenant: TenantId, key: &Key) -> Result<()> {
    let sql = "DELETE FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3";
    let gone = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![tenant.to_string(), key.kind.name(), key.id]));
    match gone {
        Ok(0) => Err(Error::not_found(key.kind.name(), &key.id)),
        Ok(_) => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}

pub(super) fn stored(kind: Kind, row: &Row<'_>) -> rusqlite::Result<Stored> {
    let body: String = row.get(4)?;
    let body: Value = serde_json::from_str(&body).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, error.into())
    })?;
    let document = Document {
        key: Key::new(kind, row.get::<_, String>(0)?),
        name: row.get(1)?,
        parent: row.get(2)?,
        body,
    };
    Ok(Stored { document, version: row.get(3)? })
}

pub(super) fn get(db: &Connection, tenant: TenantId, key: &Key) -> Result<Option<Stored>> {
    let sql = format!("SELECT {COLUMNS} FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3");
    one(db, &sql, tenant, key.kind, &key.id)
}

pub(super) fn anywhere(db: &Connection, key: &Key) -> Result<Option<(TenantId, Stored)>> {
    let sql = format!(
        "SELECT {COLUMNS}, tenant FROM documents INDEXED BY documents_anywhere WHERE kind = ?1 AND id = ?2 AND {PROVES}"
    );
    let found = db.prepare_cached(&sql).and_then(|mut sql| {
        let read = |row: &Row<'_>| Ok((row.get::<_, String>(5)?, stored(key.kind, row)?));
        sql.query_row(params![key.kind.name(), key.id], read).optional()
    });
    let Some((tenant, stored)) = found.map_err(|error| failed(&error))? else { return Ok(None) };
    Ok(Some((tenant.parse()?, stored)))
}

pub(super) fn named(db: &Connection, tenant: TenantId, kind: Kind, name: &str) -> Result<Option<Stored>> {
    let sql = format!("SELECT {COLUMNS} FROM documents WHERE tenant = ?1 AND kind = ?2 AND name = ?3");
    one(db, &sql, tenant, kind, name)
}

fn one(db: &Connection, sql: &str, tenant: TenantId, kind: Kind, what: &str) -> Result<Option<Stored>> {
    let found = db.prepare_cached(sql).and_then(|mut sql| {
        sql.query_row(params![tenant.to_string(), kind.name(), what], |row| stored(kind, row)).optional()
    });
    found.map_err(|error| failed(&error))
}

pub(super) fn list(
    db: &Connection,
    tenant: TenantId,
    kind: Kind,
    parent: Option<&str>,
    paging: &Paging,
) -> Result<Page<Stored>> {
    let limit = paging.limit.clamp(1, MOST_ON_PAGE);
    let of_parent = if parent.is_some() { "AND parent = ?4" } else { "AND ?4 IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM documents WHERE tenant = ?1 AND kind = ?2 AND id > ?3 {of_parent} ORDER BY id LIMIT ?5"
    );
    let after = paging.after.as_deref().unwrap_or_default();
    let found = db.prepare_cached(&sql).and_then(|mut sql| {
        let rows = sql
            .query_map(params![tenant.to_string(), kind.name(), after, parent, limit + 1], |row| {
                stored(kind, row)
            })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    });
    let items = found.map_err(|error| failed(&error))?;
    Ok(page(items, limit, |item| item.document.key.id.clone()))
}

pub(super) fn tenants(db: &Connection) -> Result<Vec<TenantId>> {
    let found = db.prepare_cached(TENANTS).and_then(|mut sql| {
        sql.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()
    });
    found.map_err(|error| failed(&error))?.iter().map(|text| text.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::migrations;

    #[test]
    fn tenants_are_found_without_reading_what_they_have() {
        let mut db = Connection::open_in_memory().unwrap();
        migrations::bring_up(&mut db).unwrap();
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {TENANTS}")).unwrap();
        let steps = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let steps = steps.collect::<rusqlite::Result<Vec<_>>>().unwrap();
        assert!(steps.iter().any(|step| step.starts_with("SEARCH documents")), "{steps:?}");
        assert!(!steps.iter().any(|step| step.starts_with("SCAN documents")), "{steps:?}");
    }
}

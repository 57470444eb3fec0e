//! Table of documents in the `SQLite` store: versioned JSON, addressed by tenant, kind and id.

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{
    Document, DocumentKey, DocumentKind, MAX_PAGE_SIZE, Page, PageRequest, StoredDocument,
};
use linchpin_hub_core::{Error, Result};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use super::{conflict, database_error};
use crate::common::{SELECT_TENANTS, build_page, version_conflict};

pub(super) const COLUMNS: &str = "id, name, parent, version, body";
/// SQL condition: document kinds that authenticate a caller, which are found without knowing the tenant.
const IS_AUTHENTICATION_KIND: &str = "kind IN ('token', 'session')";

const INSERT: &str = "INSERT INTO documents (tenant, kind, id, name, parent, body, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7 + 1)
     ON CONFLICT (tenant, kind, id) DO NOTHING";
const UPDATE: &str = "UPDATE documents SET name = ?4, parent = ?5, body = ?6, version = ?7 + 1
     WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version = ?7";

pub(super) fn put(db: &Connection, tenant: TenantId, document: &Document, version: u64) -> Result<()> {
    let sql = if version == 0 { INSERT } else { UPDATE };
    write_document(db, sql, tenant, document, version)
}

/// Stores a document of a snapshot with its version.
pub(super) fn insert(db: &Connection, tenant: TenantId, stored: &StoredDocument) -> Result<()> {
    write_document(db, INSERT, tenant, &stored.document, stored.version.saturating_sub(1))
}

fn write_document(
    db: &Connection,
    sql: &str,
    tenant: TenantId,
    document: &Document,
    version: u64,
) -> Result<()> {
    let Document { key, name, parent, body } = document;
    let (tenant, kind, body) = (tenant.to_string(), key.kind.name(), body.to_string());
    let done = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![tenant, kind, key.id, name, parent, body, version]));
    match done {
        Ok(1) => Ok(()),
        Ok(_) => Err(version_conflict(key)),
        Err(error) if is_unique_violation(&error) => Err(match name {
            Some(name) => conflict(
                "name_taken",
                format!("the name `{name}` is used by another {kind}: choose another name"),
            ),
            None => conflict("id_taken", format!("another {kind} has the same id")),
        }),
        Err(error) => Err(database_error(&error)),
    }
}

fn is_unique_violation(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
}

pub(super) fn require_exists(db: &Connection, tenant: TenantId, key: &DocumentKey) -> Result<()> {
    let sql = "SELECT 1 FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3";
    let exists = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.exists(params![tenant.to_string(), key.kind.name(), key.id]))
        .map_err(|error| database_error(&error))?;
    exists.then_some(()).ok_or_else(|| Error::not_found(key.kind.name(), &key.id))
}

pub(super) fn require_versions(db: &Connection, tenant: TenantId, all: &[(DocumentKey, u64)]) -> Result<()> {
    let sql = "SELECT 1 FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version = ?4";
    let mut sql = db.prepare_cached(sql).map_err(|error| database_error(&error))?;
    for (key, version) in all {
        let is_same = sql.exists(params![tenant.to_string(), key.kind.name(), key.id, version]);
        if !is_same.map_err(|error| database_error(&error))? {
            return Err(version_conflict(key));
        }
    }
    Ok(())
}

pub(super) fn delete_children(
    db: &Connection,
    tenant: TenantId,
    kind: DocumentKind,
    parent: &str,
) -> Result<()> {
    let sql = "DELETE FROM documents WHERE tenant = ?1 AND kind = ?2 AND parent = ?3";
    db.prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![tenant.to_string(), kind.name(), parent]))
        .map(drop)
        .map_err(|error| database_error(&error))
}

pub(super) fn delete(db: &Connection, tenant: TenantId, key: &DocumentKey) -> Result<()> {
    let sql = "DELETE FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3";
    let deleted = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![tenant.to_string(), key.kind.name(), key.id]));
    match deleted {
        Ok(0) => Err(Error::not_found(key.kind.name(), &key.id)),
        Ok(_) => Ok(()),
        Err(error) => Err(database_error(&error)),
    }
}

pub(super) fn read_document(kind: DocumentKind, row: &Row<'_>) -> rusqlite::Result<StoredDocument> {
    let body: String = row.get(4)?;
    let body: Value = serde_json::from_str(&body).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, error.into())
    })?;
    let document = Document {
        key: DocumentKey::new(kind, row.get::<_, String>(0)?),
        name: row.get(1)?,
        parent: row.get(2)?,
        body,
    };
    Ok(StoredDocument { document, version: row.get(3)? })
}

pub(super) fn get(db: &Connection, tenant: TenantId, key: &DocumentKey) -> Result<Option<StoredDocument>> {
    let sql = format!("SELECT {COLUMNS} FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3");
    read_document_row(db, &sql, tenant, key.kind, &key.id)
}

pub(super) fn get_in_any_tenant(
    db: &Connection,
    key: &DocumentKey,
) -> Result<Option<(TenantId, StoredDocument)>> {
    let sql = format!(
        "SELECT {COLUMNS}, tenant FROM documents INDEXED BY documents_anywhere WHERE kind = ?1 AND id = ?2 AND {IS_AUTHENTICATION_KIND}"
    );
    let found = db.prepare_cached(&sql).and_then(|mut sql| {
        let read = |row: &Row<'_>| Ok((row.get::<_, String>(5)?, read_document(key.kind, row)?));
        sql.query_row(params![key.kind.name(), key.id], read).optional()
    });
    let Some((tenant, stored)) = found.map_err(|error| database_error(&error))? else { return Ok(None) };
    Ok(Some((tenant.parse()?, stored)))
}

pub(super) fn get_by_name(
    db: &Connection,
    tenant: TenantId,
    kind: DocumentKind,
    name: &str,
) -> Result<Option<StoredDocument>> {
    let sql = format!("SELECT {COLUMNS} FROM documents WHERE tenant = ?1 AND kind = ?2 AND name = ?3");
    read_document_row(db, &sql, tenant, kind, name)
}

fn read_document_row(
    db: &Connection,
    sql: &str,
    tenant: TenantId,
    kind: DocumentKind,
    id_or_name: &str,
) -> Result<Option<StoredDocument>> {
    let found = db.prepare_cached(sql).and_then(|mut sql| {
        sql.query_row(params![tenant.to_string(), kind.name(), id_or_name], |row| read_document(kind, row))
            .optional()
    });
    found.map_err(|error| database_error(&error))
}

pub(super) fn list(
    db: &Connection,
    tenant: TenantId,
    kind: DocumentKind,
    parent: Option<&str>,
    paging: &PageRequest,
) -> Result<Page<StoredDocument>> {
    let limit = paging.limit.clamp(1, MAX_PAGE_SIZE);
    let parent_condition = if parent.is_some() { "AND parent = ?4" } else { "AND ?4 IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM documents WHERE tenant = ?1 AND kind = ?2 AND id > ?3 {parent_condition} ORDER BY id LIMIT ?5"
    );
    let after = paging.after.as_deref().unwrap_or_default();
    let found = db.prepare_cached(&sql).and_then(|mut sql| {
        let rows = sql
            .query_map(params![tenant.to_string(), kind.name(), after, parent, limit + 1], |row| {
                read_document(kind, row)
            })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    });
    let items = found.map_err(|error| database_error(&error))?;
    Ok(build_page(items, limit, |item| item.document.key.id.clone()))
}

pub(super) fn tenants(db: &Connection) -> Result<Vec<TenantId>> {
    let found = db.prepare_cached(SELECT_TENANTS).and_then(|mut sql| {
        sql.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()
    });
    found.map_err(|error| database_error(&error))?.iter().map(|text| text.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::migrations;

    #[test]
    fn tenants_are_found_without_reading_what_they_have() {
        let mut db = Connection::open_in_memory().unwrap();
        migrations::migrate(&mut db).unwrap();
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {SELECT_TENANTS}")).unwrap();
        let steps = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let steps = steps.collect::<rusqlite::Result<Vec<_>>>().unwrap();
        assert!(steps.iter().any(|step| step.starts_with("SEARCH documents")), "{steps:?}");
        assert!(!steps.iter().any(|step| step.starts_with("SCAN documents")), "{steps:?}");
    }
}

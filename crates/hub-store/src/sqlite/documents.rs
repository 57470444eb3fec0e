//! Documents in the `SQLite` store: versioned JSON, addressed by tenant, kind and id.

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{DocumentKey, DocumentKind, MAX_PAGE_SIZE, Page, PageRequest, StoredDocument};
use linchpin_hub_core::{Error, Result};
use rusqlite::Connection;

use super::statements::{query, query_one};
use crate::common::build_page;
use crate::common::documents::{self, key_values};
use crate::common::refusal::{name_taken, version_conflict};
use crate::common::rows::{StoredRow as _, read_document};
use crate::common::to_integer;

const SELECT_EXISTS: &str = "SELECT 1 FROM documents WHERE tenant = $1 AND kind = $2 AND id = $3";
const SELECT_NAMED: &str = "SELECT 1 FROM documents WHERE tenant = $1 AND kind = $2 AND name = $3";
const SELECT_VERSION: &str =
    "SELECT 1 FROM documents WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $4";
/// SQL query for a document of a kind that authenticates a caller, which is found without its tenant.
const SELECT_IN_ANY_TENANT: &str = "SELECT documents.id, name, parent, version, body, code, tenants.id
     FROM documents INDEXED BY documents_anywhere JOIN tenants ON tenants.number = documents.tenant
     WHERE kind = $1 AND documents.id = $2 AND kind IN ('token', 'session')";

pub(super) fn require_exists(db: &Connection, tenant: i64, key: &DocumentKey) -> Result<()> {
    let found = query_one(db, SELECT_EXISTS, &key_values(tenant.into(), key), |_| Ok(()))?;
    found.ok_or_else(|| Error::not_found(key.kind.name(), &key.id))
}

pub(super) fn require_versions(db: &Connection, tenant: i64, all: &[(DocumentKey, u64)]) -> Result<()> {
    for (key, version) in all {
        let mut values = key_values(tenant.into(), key);
        values.push(to_integer(*version).into());
        query_one(db, SELECT_VERSION, &values, |_| Ok(()))?.ok_or_else(|| version_conflict(key))?;
    }
    Ok(())
}

pub(super) fn require_unused_name(
    db: &Connection,
    tenant: i64,
    kind: DocumentKind,
    name: &str,
) -> Result<()> {
    let values = [tenant.into(), kind.name().into(), name.into()];
    let found = query_one(db, SELECT_NAMED, &values, |_| Ok(()))?;
    found.map_or(Ok(()), |()| Err(name_taken(kind)))
}

/// Reads the document that a query with the values tenant, kind, and id or name finds.
pub(super) fn get(
    db: &Connection,
    sql: &str,
    tenant: i64,
    kind: DocumentKind,
    id_or_name: &str,
) -> Result<Option<StoredDocument>> {
    let values = [tenant.into(), kind.name().into(), id_or_name.into()];
    query_one(db, sql, &values, |row| read_document(kind, row))
}

pub(super) fn get_in_any_tenant(
    db: &Connection,
    key: &DocumentKey,
) -> Result<Option<(TenantId, StoredDocument)>> {
    query_one(db, SELECT_IN_ANY_TENANT, &[key.kind.name().into(), (&key.id).into()], |row| {
        Ok((TenantId::from_u128(row.id(6)?), read_document(key.kind, row)?))
    })
}

pub(super) fn list(
    db: &Connection,
    tenant: i64,
    kind: DocumentKind,
    parent: Option<&str>,
    paging: &PageRequest,
) -> Result<Page<StoredDocument>> {
    let limit = paging.limit.clamp(1, MAX_PAGE_SIZE);
    let (sql, values) = documents::list(tenant.into(), kind, parent, paging, limit + 1);
    let items = query(db, sql, &values, |row| read_document(kind, row))?;
    Ok(build_page(items, limit, |item| item.document.key.id.clone()))
}

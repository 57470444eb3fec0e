//! Documents in the PostgreSQL store: versioned JSON, addressed by tenant, kind and id.

use linchpin_hub_core::Error;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{DocumentKey, DocumentKind, MAX_PAGE_SIZE, Page, PageRequest, StoredDocument};

use super::connection::DbConnection;
use super::statements::{query, query_one};
use super::{QueryExecutor, StoreFailure, invalid_data};
use crate::common::documents::{self, SELECT_BY_NAME, key_values};
use crate::common::refusal::{name_taken, version_conflict};
use crate::common::rows::{StoredRow as _, read_document};
use crate::common::{build_page, to_integer};

type Result<T> = std::result::Result<T, StoreFailure>;

/// SQL that checks that a document exists, and locks it: it cannot be removed before this transaction ends.
const LOCK_EXISTING: &str =
    "SELECT 1 FROM documents WHERE tenant = $1 AND kind = $2 AND id = $3 FOR KEY SHARE";
/// SQL query for a document of a kind that authenticates a caller, which is found without its tenant.
const SELECT_IN_ANY_TENANT: &str = "SELECT id, name, parent, version, body, code, tenant FROM documents
     WHERE kind = $1 AND id = $2 AND kind IN ('token', 'session')";
const SELECT_MISMATCH: &str =
    "SELECT wanted.place FROM unnest($2::TEXT[], $3::TEXT[], $4::BIGINT[]) WITH ORDINALITY
         AS wanted (kind, id, version, place)
     WHERE NOT EXISTS (SELECT 1 FROM documents WHERE tenant = $1 AND kind = wanted.kind
         AND id = wanted.id AND version = wanted.version) LIMIT 1";
/// SQL query that lists all tenants. Steps from one tenant to the next in the index instead of scanning all documents.
const SELECT_TENANTS: &str = "
    WITH RECURSIVE found (tenant) AS (
        SELECT min(tenant) FROM documents
        UNION ALL
        SELECT (SELECT min(tenant) FROM documents WHERE tenant > found.tenant) FROM found WHERE tenant IS NOT NULL
    )
    SELECT tenant FROM found WHERE tenant IS NOT NULL";

/// Checks that a document exists, and locks it.
pub(super) async fn require_exists(db: &DbConnection, tenant: TenantId, key: &DocumentKey) -> Result<()> {
    let found = query_one(db, LOCK_EXISTING, &key_values(tenant.into(), key), |_| Ok(())).await?;
    found.ok_or_else(|| Error::not_found(key.kind.name(), &key.id).into())
}

pub(super) async fn require_versions(
    db: &DbConnection,
    tenant: TenantId,
    all: &[(DocumentKey, u64)],
) -> Result<()> {
    let kinds: Vec<_> = all.iter().map(|(key, _)| key.kind.name()).collect();
    let ids: Vec<_> = all.iter().map(|(key, _)| &key.id).collect();
    let versions: Vec<_> = all.iter().map(|(_, version)| to_integer(*version)).collect();
    let found = db.query(SELECT_MISMATCH, &[&tenant.to_string(), &kinds, &ids, &versions]).await?;
    let Some(row) = found.first() else { return Ok(()) };
    let index = usize::try_from(row.number(0)?).unwrap_or(usize::MAX);
    Err(all.get(index - 1).map_or_else(
        || invalid_data("the version check returned a row number out of range"),
        |(key, _)| version_conflict(key).into(),
    ))
}

pub(super) async fn require_unused_name(
    db: &DbConnection,
    tenant: TenantId,
    kind: DocumentKind,
    name: &str,
) -> Result<()> {
    match get(db, SELECT_BY_NAME, tenant, kind, name).await? {
        Some(_) => Err(name_taken(kind).into()),
        None => Ok(()),
    }
}

/// Reads the document that a query with the values tenant, kind, and id or name finds.
pub(super) async fn get(
    db: &impl QueryExecutor,
    sql: &str,
    tenant: TenantId,
    kind: DocumentKind,
    id_or_name: &str,
) -> Result<Option<StoredDocument>> {
    let values = [tenant.into(), kind.name().into(), id_or_name.into()];
    query_one(db, sql, &values, |row| read_document(kind, row)).await
}

pub(super) async fn get_in_any_tenant(
    db: &impl QueryExecutor,
    key: &DocumentKey,
) -> Result<Option<(TenantId, StoredDocument)>> {
    let values = [key.kind.name().into(), (&key.id).into()];
    query_one(db, SELECT_IN_ANY_TENANT, &values, |row| {
        Ok((TenantId::from_u128(row.id(6)?), read_document(key.kind, row)?))
    })
    .await
}

pub(super) async fn list(
    db: &impl QueryExecutor,
    tenant: TenantId,
    kind: DocumentKind,
    parent: Option<&str>,
    paging: &PageRequest,
) -> Result<Page<StoredDocument>> {
    let limit = paging.limit.clamp(1, MAX_PAGE_SIZE);
    let (sql, values) = documents::list(tenant.into(), kind, parent, paging, limit + 1);
    let items = query(db, sql, &values, |row| read_document(kind, row)).await?;
    Ok(build_page(items, limit, |item| item.document.key.id.clone()))
}

pub(super) async fn tenants(db: &impl QueryExecutor) -> Result<Vec<TenantId>> {
    query(db, SELECT_TENANTS, &[], |row| row.id(0).map(TenantId::from_u128)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::statements::references;
    use crate::postgres::tests::{database_with_many_rows, query_plan};

    #[tokio::test]
    async fn nothing_is_found_by_reading_everything() {
        let tenant = TenantId::from_u128(1);
        let (db, paging) = (database_with_many_rows(tenant).await, PageRequest { after: None, limit: 100 });
        for (parent, index) in [(None, "documents_pkey"), (Some("1"), "documents_by_parent")] {
            let (sql, values) = documents::list(tenant.into(), DocumentKind::Tool, parent, &paging, 100);
            let plan = query_plan(&db, sql, &references(&values)).await;
            assert!(plan.contains(&format!(" {index} on documents")) && !plan.contains("Sort"), "{plan}");
        }
        let plan = query_plan(&db, SELECT_TENANTS, &[]).await;
        assert!(plan.contains("Index Only Scan using documents_") && !plan.contains("Seq Scan"), "{plan}");
        assert_eq!(tenants(&*db).await.map_err(Error::from).unwrap(), [tenant]);
    }
}

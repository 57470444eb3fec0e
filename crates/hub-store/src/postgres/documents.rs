//! Table of documents in the PostgreSQL store: versioned JSON, addressed by tenant, kind and id.

use linchpin_hub_core::Error;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{
    Document, DocumentKey, DocumentKind, MAX_PAGE_SIZE, Page, PageRequest, StoredDocument,
};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::connection::DbConnection;
use super::{QueryExecutor, StoreFailure, conflict, invalid_data};
use crate::common::{SELECT_TENANTS, build_page, version_conflict};

pub(super) const COLUMNS: &str = "id, name, parent, version, body";
/// SQL condition: document kinds that authenticate a caller, which are found without knowing the tenant.
const IS_AUTHENTICATION_KIND: &str = "kind IN ('token', 'session')";

type Result<T> = std::result::Result<T, StoreFailure>;

/// Converts a number to `BIGINT`.
pub(super) fn to_bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a number from a `BIGINT` column.
pub(super) fn read_u64(row: &Row, column: usize) -> Result<u64> {
    u64::try_from(row.try_get::<_, i64>(column)?).map_err(|_| invalid_data("negative number"))
}

const INSERT: &str = "INSERT INTO documents (tenant, kind, id, name, parent, body, version)
     VALUES ($1, $2, $3, $4, $5, $6, $7::BIGINT + 1) ON CONFLICT (tenant, kind, id) DO NOTHING";
const UPDATE: &str = "UPDATE documents SET name = $4, parent = $5, body = $6, version = $7::BIGINT + 1
     WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $7";

pub(super) async fn put(
    db: &DbConnection,
    tenant: TenantId,
    document: &Document,
    version: u64,
) -> Result<()> {
    let sql = if version == 0 { INSERT } else { UPDATE };
    write_document(db, sql, tenant, document, version).await
}

/// Stores a document of a snapshot with its version.
pub(super) async fn insert(db: &DbConnection, tenant: TenantId, stored: &StoredDocument) -> Result<()> {
    write_document(db, INSERT, tenant, &stored.document, stored.version.saturating_sub(1)).await
}

async fn write_document(
    db: &DbConnection,
    sql: &str,
    tenant: TenantId,
    document: &Document,
    version: u64,
) -> Result<()> {
    let Document { key, name, parent, body } = document;
    let (tenant, kind, body) = (tenant.to_string(), key.kind.name(), body.to_string());
    match db.execute(sql, &[&tenant, &kind, &key.id, name, parent, &body, &to_bigint(version)]).await {
        Ok(1) => Ok(()),
        Ok(_) => Err(version_conflict(key).into()),
        Err(StoreFailure::Database(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            Err(match name {
                Some(name) => conflict(
                    "name_taken",
                    format!("the name `{name}` is used by another {kind}: choose another name"),
                ),
                None => conflict("id_taken", format!("another {kind} has the same id")),
            })
        }
        Err(stop) => Err(stop),
    }
}

fn not_found_error(key: &DocumentKey) -> StoreFailure {
    Error::not_found(key.kind.name(), &key.id).into()
}

/// Checks that a document exists, and locks it: it cannot be removed before this transaction ends.
pub(super) async fn require_exists(db: &DbConnection, tenant: TenantId, key: &DocumentKey) -> Result<()> {
    let sql = "SELECT 1 FROM documents WHERE tenant = $1 AND kind = $2 AND id = $3 FOR KEY SHARE";
    let found = db.query(sql, &[&tenant.to_string(), &key.kind.name(), &key.id]).await?;
    found.first().map(|_| ()).ok_or_else(|| not_found_error(key))
}

pub(super) async fn require_versions(
    db: &DbConnection,
    tenant: TenantId,
    all: &[(DocumentKey, u64)],
) -> Result<()> {
    let sql = "SELECT wanted.place FROM unnest($2::TEXT[], $3::TEXT[], $4::BIGINT[]) WITH ORDINALITY
                   AS wanted (kind, id, version, place)
               WHERE NOT EXISTS (SELECT 1 FROM documents WHERE tenant = $1 AND kind = wanted.kind
                   AND id = wanted.id AND version = wanted.version) LIMIT 1";
    let kinds: Vec<_> = all.iter().map(|(key, _)| key.kind.name()).collect();
    let ids: Vec<_> = all.iter().map(|(key, _)| &key.id).collect();
    let versions: Vec<_> = all.iter().map(|(_, version)| to_bigint(*version)).collect();
    let found = db.query(sql, &[&tenant.to_string(), &kinds, &ids, &versions]).await?;
    let Some(row) = found.first() else { return Ok(()) };
    let index = usize::try_from(read_u64(row, 0)?).unwrap_or(usize::MAX);
    Err(all.get(index - 1).map_or_else(
        || invalid_data("the version check returned a row number out of range"),
        |(key, _)| version_conflict(key).into(),
    ))
}

pub(super) async fn delete_children(
    db: &DbConnection,
    tenant: TenantId,
    kind: DocumentKind,
    parent: &str,
) -> Result<()> {
    let sql = "DELETE FROM documents WHERE tenant = $1 AND kind = $2 AND parent = $3";
    db.execute(sql, &[&tenant.to_string(), &kind.name(), &parent]).await.map(drop)
}

pub(super) async fn delete(db: &DbConnection, tenant: TenantId, key: &DocumentKey) -> Result<()> {
    let sql = "DELETE FROM documents WHERE tenant = $1 AND kind = $2 AND id = $3";
    match db.execute(sql, &[&tenant.to_string(), &key.kind.name(), &key.id]).await? {
        0 => Err(not_found_error(key)),
        _ => Ok(()),
    }
}

pub(super) fn read_document(kind: DocumentKind, row: &Row) -> Result<StoredDocument> {
    let body =
        serde_json::from_str(row.try_get(4)?).map_err(|_| invalid_data("a stored document is not JSON"))?;
    let key = DocumentKey::new(kind, row.try_get::<_, String>(0)?);
    let document = Document { key, name: row.try_get(1)?, parent: row.try_get(2)?, body };
    Ok(StoredDocument { document, version: read_u64(row, 3)? })
}

pub(super) async fn get(
    db: &impl QueryExecutor,
    tenant: TenantId,
    key: &DocumentKey,
) -> Result<Option<StoredDocument>> {
    let sql = format!("SELECT {COLUMNS} FROM documents WHERE tenant = $1 AND kind = $2 AND id = $3");
    let found = db.query(&sql, &[&tenant.to_string(), &key.kind.name(), &key.id]).await?;
    found.first().map(|row| read_document(key.kind, row)).transpose()
}

pub(super) async fn get_in_any_tenant(
    db: &impl QueryExecutor,
    key: &DocumentKey,
) -> Result<Option<(TenantId, StoredDocument)>> {
    let sql = format!(
        "SELECT {COLUMNS}, tenant FROM documents WHERE kind = $1 AND id = $2 AND {IS_AUTHENTICATION_KIND}"
    );
    let found = db.query(&sql, &[&key.kind.name(), &key.id]).await?;
    let read = |row: &Row| Ok((row.try_get::<_, &str>(5)?.parse()?, read_document(key.kind, row)?));
    found.first().map(read).transpose()
}

pub(super) async fn get_by_name(
    db: &impl QueryExecutor,
    tenant: TenantId,
    kind: DocumentKind,
    name: &str,
) -> Result<Option<StoredDocument>> {
    let sql = format!("SELECT {COLUMNS} FROM documents WHERE tenant = $1 AND kind = $2 AND name = $3");
    let found = db.query(&sql, &[&tenant.to_string(), &kind.name(), &name]).await?;
    found.first().map(|row| read_document(kind, row)).transpose()
}

pub(super) async fn list(
    db: &impl QueryExecutor,
    tenant: TenantId,
    kind: DocumentKind,
    parent: Option<&str>,
    paging: &PageRequest,
) -> Result<Page<StoredDocument>> {
    let limit = paging.limit.clamp(1, MAX_PAGE_SIZE);
    let after = paging.after.as_deref().unwrap_or_default();
    let values = (tenant.to_string(), kind.name(), to_bigint(limit as u64 + 1));
    let found = db.query(&list_sql(parent), &[&values.0, &values.1, &after, &parent, &values.2]).await?;
    let items = found.iter().map(|row| read_document(kind, row)).collect::<Result<Vec<_>>>()?;
    Ok(build_page(items, limit, |item| item.document.key.id.clone()))
}

fn list_sql(parent: Option<&str>) -> String {
    let parent_condition = if parent.is_some() { "parent = $4" } else { "$4::TEXT IS NULL" };
    format!(
        "SELECT {COLUMNS} FROM documents WHERE tenant = $1 AND kind = $2 AND id > $3 AND {parent_condition} ORDER BY id LIMIT $5"
    )
}

pub(super) async fn tenants(db: &impl QueryExecutor) -> Result<Vec<TenantId>> {
    let found = db.query(SELECT_TENANTS, &[]).await?;
    found.iter().map(|row| Ok(row.try_get::<_, &str>(0)?.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::tests::{database_with_many_rows, query_plan};

    #[tokio::test]
    async fn nothing_is_found_by_reading_everything() {
        let tenant = TenantId::from_u128(1);
        let (db, owner) = (database_with_many_rows(tenant).await, tenant.to_string());
        let limit = 100_i64;
        for (parent, index) in [(None, "documents_pkey"), (Some("1"), "documents_by_parent")] {
            let plan = query_plan(&db, &list_sql(parent), &[&owner, &"tool", &"", &parent, &limit]).await;
            assert!(plan.contains(&format!(" {index} on documents")) && !plan.contains("Sort"), "{plan}");
        }
        let plan = query_plan(&db, SELECT_TENANTS, &[]).await;
        assert!(plan.contains("Index Only Scan using documents_") && !plan.contains("Seq Scan"), "{plan}");
        assert_eq!(tenants(&*db).await.map_err(Error::from).unwrap(), [tenant]);
    }
}

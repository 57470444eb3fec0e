//! `SQLite` store: one file, one writer thread and one reader thread.

mod audit;
mod calls;
mod database;
mod documents;
mod limits;
mod migrations;
mod snapshot;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use linchpin_hub_core::audit::{ChainHead, Checkpoint, StoredAuditEntry};
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, Batch, CallFilter, CallRecord, DocumentKey, DocumentKind, Page, PageRequest,
    SnapshotItem, Store, StoreChange, StoredDocument,
};
use linchpin_hub_core::{Error, Result, error};
use rusqlite::Connection;
use tokio::sync::mpsc::{Receiver, Sender};

use self::database::Database;
use crate::Durability;
use crate::common::hub_id;

/// Store of the hub in one `SQLite` file.
pub struct Sqlite {
    db: Database,
    /// Id of this hub process; calls of other ids belong to an earlier process.
    hub: Arc<str>,
}

impl Sqlite {
    /// Opens or creates the file, and migrates it to the current schema version.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, Durability::default())
    }

    /// Opens the file like [`Self::open`], with the given durability.
    pub fn open_with(path: &Path, durability: Durability) -> Result<Self> {
        Ok(Self::new(Database::open(path, durability, migrations::migrate)?))
    }

    /// Opens the file like [`Self::open`], and limits its size to `max_bytes`.
    pub fn open_bounded(path: &Path, max_bytes: u64) -> Result<Self> {
        let bound = |db: &mut Connection| {
            migrations::migrate(db)?;
            let page = db.pragma_query_value(None, "page_size", |row| row.get::<_, u64>(0));
            let set = page.and_then(|page| {
                db.pragma_update_and_check(None, "max_page_count", max_bytes.div_ceil(page), |_| Ok(()))
            });
            set.map_err(|error| database_error(&error))
        };
        Ok(Self::new(Database::open(path, Durability::default(), bound)?))
    }

    fn new(db: Database) -> Self {
        Sqlite { db, hub: hub_id().into() }
    }
}

const CODE_UNAVAILABLE: &str = "store_unavailable";
/// Error code for an I/O failure, after which the content of the disk is unknown.
const CODE_STORE_BROKEN: &str = "store_broken";

/// Logs a database error and converts it; neither contains data of the database.
fn database_error(error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, PermissionDenied, ReadOnly, SystemIoFailure,
    };
    let (code, text) = match error.sqlite_error_code() {
        Some(DiskFull) => {
            (CODE_UNAVAILABLE, "the disk is full: nothing can be stored until there is free space")
        }
        Some(DatabaseCorrupt | NotADatabase) => {
            (CODE_UNAVAILABLE, "the database is damaged: restore it from a backup")
        }
        Some(SystemIoFailure) => {
            (CODE_STORE_BROKEN, "the disk failed to read or write: check it, then restart the hub")
        }
        Some(CannotOpen | PermissionDenied | ReadOnly) => (
            CODE_UNAVAILABLE,
            "the database is not writable: make the file, its directory and the disk writable for the user of the hub",
        ),
        _ => (CODE_UNAVAILABLE, "the database operation failed: see the log of the hub"),
    };
    let number = error.sqlite_error().map(|error| error.extended_code);
    tracing::error!(error = number, kind = variant_name(error), "{text}");
    Error::new(error::ErrorKind::Unavailable, code, text)
}

/// Returns the variant name of an `SQLite` error, for logs. The rest of its debug form may contain data of the
/// database.
fn variant_name(error: &rusqlite::Error) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// Returns the error for a change that conflicts with the stored state.
fn conflict(code: &'static str, text: impl Into<String>) -> Error {
    Error::new(error::ErrorKind::Conflict, code, text)
}

fn apply(db: &Connection, hub: &str, tenant: TenantId, batch: Batch) -> Result<()> {
    for change in batch.changes {
        match change {
            StoreChange::Put { document, version } => documents::put(db, tenant, &document, version)?,
            StoreChange::RequireExists(key) => documents::require_exists(db, tenant, &key)?,
            StoreChange::RequireVersions(all) => documents::require_versions(db, tenant, &all)?,
            StoreChange::Delete(key) => documents::delete(db, tenant, &key)?,
            StoreChange::DeleteChildren { kind, parent } => {
                documents::delete_children(db, tenant, kind, &parent)?;
            }
            StoreChange::ConsumeRate { bucket, rate, at } => {
                limits::consume_rate(db, tenant, &bucket, rate, at)?;
            }
            StoreChange::RequireConcurrency { scope, max_calls: max } => {
                limits::require_concurrency(db, tenant, &scope, max)?;
            }
            StoreChange::InsertCall(call) => calls::insert(db, hub, tenant, &call)?,
            StoreChange::StartCall { call, at } => calls::start(db, hub, tenant, call, at)?,
            StoreChange::FinishCall { call, outcome } => calls::finish(db, tenant, call, &outcome)?,
            StoreChange::EditArguments { call, digest, arguments } => {
                calls::edit(db, tenant, call, digest, arguments.as_deref())?;
            }
            StoreChange::InsertApproval(approval) => calls::insert_approval(db, tenant, &approval)?,
            StoreChange::DecideApproval { approval, decision, decided_by: by, at, digest } => {
                calls::decide_approval(db, tenant, approval, decision, &by, at, digest)?;
            }
            StoreChange::ConsumeApproval { approval, digest, at } => {
                calls::consume_approval(db, tenant, approval, digest, at)?;
            }
            StoreChange::PruneCalls { before, max_calls: max } => {
                calls::prune(db, tenant, before, max)?;
                limits::prune_buckets(db, tenant, before)?;
            }
            StoreChange::InsertCheckpoint(checkpoint) => audit::insert_checkpoint(db, tenant, &checkpoint)?,
            StoreChange::RemoveSealedEntries { first, last } => audit::seal(db, tenant, first, last)?,
        }
    }
    audit::append(db, tenant, batch.audit)
}

#[async_trait]
impl Store for Sqlite {
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        let hub = self.hub.clone();
        self.db.write(move |db| apply(db, &hub, tenant, batch)).await
    }

    async fn document(&self, tenant: TenantId, key: &DocumentKey) -> Result<Option<StoredDocument>> {
        let key = key.clone();
        self.db.read(move |db| documents::get(db, tenant, &key)).await
    }

    async fn document_in_any_tenant(&self, key: &DocumentKey) -> Result<Option<(TenantId, StoredDocument)>> {
        let key = key.clone();
        self.db.read(move |db| documents::get_in_any_tenant(db, &key)).await
    }

    async fn document_by_name(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        name: &str,
    ) -> Result<Option<StoredDocument>> {
        let name = name.to_owned();
        self.db.read(move |db| documents::get_by_name(db, tenant, kind, &name)).await
    }

    async fn documents(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
        paging: &PageRequest,
    ) -> Result<Page<StoredDocument>> {
        let (parent, paging) = (parent.map(str::to_owned), paging.clone());
        self.db.read(move |db| documents::list(db, tenant, kind, parent.as_deref(), &paging)).await
    }

    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<CallRecord>> {
        self.db.read(move |db| calls::get(db, tenant, id)).await
    }

    async fn calls(
        &self,
        tenant: TenantId,
        filter: &CallFilter,
        paging: &PageRequest,
    ) -> Result<Page<CallRecord>> {
        let (filter, paging) = (filter.clone(), paging.clone());
        self.db.read(move |db| calls::list(db, tenant, &filter, &paging)).await
    }

    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>> {
        self.db.read(move |db| calls::approval(db, tenant, id)).await
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &PageRequest,
    ) -> Result<Page<Approval>> {
        let (filter, paging) = (filter.clone(), paging.clone());
        self.db.read(move |db| calls::approvals(db, tenant, &filter, &paging)).await
    }

    async fn audit_head(&self, tenant: TenantId) -> Result<ChainHead> {
        self.db.read(move |db| audit::head(db, tenant)).await
    }

    async fn audit_entries(
        &self,
        tenant: TenantId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        self.db.read(move |db| audit::entries(db, tenant, after, limit)).await
    }

    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>> {
        self.db.read(move |db| audit::checkpoint(db, tenant)).await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>> {
        self.db.read(documents::tenants).await
    }

    async fn abandoned_calls(&self, tenant: TenantId) -> Result<Vec<CallRecord>> {
        let hub = self.hub.clone();
        self.db.read(move |db| calls::abandoned_calls(db, &hub, tenant)).await
    }

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        self.db.read(move |db| calls::has_finished_before(db, tenant, before)).await
    }

    async fn export_snapshot(&self, to: Sender<SnapshotItem>) -> Result<()> {
        self.db.read(move |db| snapshot::export(db, &to)).await
    }

    async fn import_snapshot(&self, from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
        self.db.write(move |db| snapshot::import(db, from, count)).await
    }

    async fn wait_for_failure(&self) -> Error {
        self.db.wait_for_disk_failure().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_by_its_kind_without_what_it_is_about() {
        let db = Connection::open_in_memory().unwrap();
        let read = |sql: &str| db.query_row(sql, [], |row| row.get::<_, u64>(0)).unwrap_err();
        assert_eq!(variant_name(&read("SELECT 'secret'")), "InvalidColumnType");
        assert_eq!(variant_name(&read("SELECT -5")), "IntegralValueOutOfRange");
        assert_eq!(variant_name(&read("SELECT 'secret' WHERE 0")), "QueryReturnedNoRows");
        assert_eq!(variant_name(&db.execute("SELECT ?1", [u64::MAX]).unwrap_err()), "ToSqlConversionFailure");
    }
}

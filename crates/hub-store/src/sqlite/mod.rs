//! `SQLite` store: one file, one writer thread and two reader threads.

mod audit;
mod calls;
mod checkpoints;
mod database;
mod documents;
mod errors;
mod file_writer;
mod memory;
mod migrations;
mod snapshot;
mod statements;
mod tenants;
mod write_queue;
mod writer;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use linchpin_hub_core::audit::{ChainHead, Checkpoint, StoredAuditEntry};
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, AuditFilter, AuditStore, Batch, CallFilter, CallRecord, CallStore, DocumentKey,
    DocumentKind, DocumentStore, MaintenanceStore, Page, PageRequest, SnapshotItem, Store, StoredDocument,
};
use linchpin_hub_core::{Error, Result};
use rusqlite::Connection;
use tokio::sync::mpsc::{Receiver, Sender};

use self::database::Database;
use self::errors::database_error;
use self::statements::query_one;
use self::tenants::number;
use crate::Durability;
use crate::common::audit::SELECT_CHECKPOINT;
use crate::common::calls::{SELECT_APPROVAL, SELECT_CALL};
use crate::common::documents::{SELECT, SELECT_BY_NAME};
use crate::common::hub_id;
use crate::common::rows::{read_approval, read_call, read_checkpoint};

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
        Self::new(path, durability, migrations::migrate)
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
        Self::new(path, Durability::default(), bound)
    }

    fn new(
        path: &Path,
        durability: Durability,
        prepare: impl FnOnce(&mut Connection) -> Result<()>,
    ) -> Result<Self> {
        let hub: Arc<str> = hub_id().into();
        Ok(Sqlite { db: Database::open(path, durability, hub.clone(), prepare)?, hub })
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        self.db.commit(tenant, batch).await
    }
}

#[async_trait]
impl DocumentStore for Sqlite {
    async fn document(&self, tenant: TenantId, key: &DocumentKey) -> Result<Option<StoredDocument>> {
        let key = key.clone();
        self.db.read(move |db| documents::get(db, SELECT, number(db, tenant)?, key.kind, &key.id)).await
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
        self.db.read(move |db| documents::get(db, SELECT_BY_NAME, number(db, tenant)?, kind, &name)).await
    }

    async fn documents(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
        paging: &PageRequest,
    ) -> Result<Page<StoredDocument>> {
        let (parent, paging) = (parent.map(str::to_owned), paging.clone());
        self.db
            .read(move |db| documents::list(db, number(db, tenant)?, kind, parent.as_deref(), &paging))
            .await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>> {
        self.db.read(tenants::all).await
    }
}

#[async_trait]
impl CallStore for Sqlite {
    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<CallRecord>> {
        let read = move |db: &Connection| {
            query_one(db, SELECT_CALL, &[number(db, tenant)?.into(), id.into()], |row| read_call(row))
        };
        self.db.read(read).await
    }

    async fn calls(
        &self,
        tenant: TenantId,
        filter: &CallFilter,
        paging: &PageRequest,
    ) -> Result<Page<CallRecord>> {
        let (filter, paging) = (filter.clone(), paging.clone());
        self.db.scan(move |db| calls::list(db, number(db, tenant)?, &filter, &paging)).await
    }

    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>> {
        let read = move |db: &Connection| {
            query_one(db, SELECT_APPROVAL, &[number(db, tenant)?.into(), id.into()], |row| read_approval(row))
        };
        self.db.read(read).await
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &PageRequest,
    ) -> Result<Page<Approval>> {
        let (filter, paging) = (filter.clone(), paging.clone());
        self.db.scan(move |db| calls::approvals(db, number(db, tenant)?, &filter, &paging)).await
    }

    async fn abandoned_calls(&self, tenant: TenantId) -> Result<Vec<CallRecord>> {
        let hub = self.hub.clone();
        self.db.read(move |db| calls::abandoned_calls(db, &hub, number(db, tenant)?)).await
    }

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        self.db.read(move |db| calls::has_finished_before(db, number(db, tenant)?, before)).await
    }
}

#[async_trait]
impl AuditStore for Sqlite {
    async fn audit_head(&self, tenant: TenantId) -> Result<ChainHead> {
        self.db.read(move |db| audit::head(db, number(db, tenant)?, tenant)).await
    }

    async fn audit_entries(
        &self,
        tenant: TenantId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        self.db.scan(move |db| audit::entries(db, number(db, tenant)?, after, limit)).await
    }

    async fn find_audit_entries(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        numbers: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        let filter = filter.clone();
        self.db.scan(move |db| audit::find(db, number(db, tenant)?, &filter, &numbers, limit)).await
    }

    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>> {
        let read = move |db: &Connection| {
            query_one(db, SELECT_CHECKPOINT, &[number(db, tenant)?.into()], |row| {
                read_checkpoint(row, tenant)
            })
        };
        self.db.read(read).await
    }
}

#[async_trait]
impl MaintenanceStore for Sqlite {
    async fn export_snapshot(&self, to: Sender<SnapshotItem>) -> Result<()> {
        self.db.scan(move |db| snapshot::export(db, &to)).await
    }

    async fn import_snapshot(&self, from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
        self.db.run_write(move |db| snapshot::import(db, from, count)).await
    }

    async fn wait_for_failure(&self) -> Error {
        self.db.wait_for_disk_failure().await
    }
}

#[cfg(test)]
mod tests {
    use super::statements::query;
    use super::*;
    use crate::common::value::Value;

    /// Returns the query plan of a statement in an empty database.
    pub(super) fn query_plan(sql: &str, values: &[Value<'_>]) -> String {
        let mut db = Connection::open_in_memory().unwrap();
        db.pragma_update(None, "foreign_keys", true).unwrap();
        migrations::migrate(&mut db).unwrap();
        let steps = query(&db, &format!("EXPLAIN QUERY PLAN {sql}"), values, |row| row.get::<_, String>(3));
        steps.unwrap().join("; ")
    }
}

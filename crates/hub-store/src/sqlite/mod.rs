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
use linchpin_hub_core::audit::{Checkpoint, Head, Row};
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, Batch, Call, CallFilter, Change, Copied, Key, Kind, Page, Paging, Store, Stored,
};
use linchpin_hub_core::{Error, Result, error};
use rusqlite::Connection;
use tokio::sync::mpsc::{Receiver, Sender};

use self::database::Database;
use crate::Durability;
use crate::common::hub_id;

/// Store in one `SQLite` file.
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
        Ok(Self::new(Database::open(path, durability, migrations::bring_up)?))
    }

    /// Opens the file like [`Self::open`], and limits its size to `most` bytes.
    pub fn bounded(path: &Path, most: u64) -> Result<Self> {
        let bound = |db: &mut Connection| {
            migrations::bring_up(db)?;
            let page = db.pragma_query_value(None, "page_size", |row| row.get::<_, u64>(0));
            let set = page.and_then(|page| {
                db.pragma_update_and_check(None, "max_page_count", most.div_ceil(page), |_| Ok(()))
            });
            set.map_err(|error| failed(&error))
        };
        Ok(Self::new(Database::open(path, Durability::default(), bound)?))
    }

    fn new(db: Database) -> Self {
        Sqlite { db, hub: hub_id().into() }
    }
}

const AWAY: &str = "store_unavailable";
/// Error code for an I/O failure, after which the content of the disk is unknown.
const DISK: &str = "store_broken";

/// Logs a database error and converts it; neither contains data of the database.
fn failed(error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, PermissionDenied, ReadOnly, SystemIoFailure,
    };
    let (code, text) = match error.sqlite_error_code() {
        Some(DiskFull) => (AWAY, "the disk is full: nothing can be stored until there is free space"),
        Some(DatabaseCorrupt | NotADatabase) => (AWAY, "the database is damaged: restore it from a backup"),
        Some(SystemIoFailure) => (DISK, "the disk failed to read or write: check it, then restart the hub"),
        Some(CannotOpen | PermissionDenied | ReadOnly) => (
            AWAY,
            "the database is not writable: make the file, its directory and the disk writable for the user of the hub",
        ),
        _ => (AWAY, "the database operation failed: see the log of the hub"),
    };
    let number = error.sqlite_error().map(|error| error.extended_code);
    tracing::error!(error = number, kind = kind(error), "{text}");
    Error::new(error::Kind::Unavailable, code, text)
}

/// Returns the variant name of an error. The rest of its debug form may contain data of the database.
fn kind(error: &rusqlite::Error) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// Returns the error for a change that conflicts with the stored state.
fn conflict(code: &'static str, text: impl Into<String>) -> Error {
    Error::new(error::Kind::Conflict, code, text)
}

fn apply(db: &Connection, hub: &str, tenant: TenantId, batch: Batch) -> Result<()> {
    for change in batch.changes {
        match change {
            Change::Put { document, version } => documents::put(db, tenant, &document, version)?,
            Change::Need(key) => documents::need(db, tenant, &key)?,
            Change::Same(all) => documents::same(db, tenant, &all)?,
            Change::Remove(key) => documents::remove(db, tenant, &key)?,
            Change::RemoveParts { kind, parent } => documents::remove_parts(db, tenant, kind, &parent)?,
            Change::Take { of, rate, at } => limits::take(db, tenant, &of, rate, at)?,
            Change::Room { of, most } => limits::room(db, tenant, &of, most)?,
            Change::Open(call) => calls::open(db, hub, tenant, &call)?,
            Change::Start { call, at } => calls::start(db, hub, tenant, call, at)?,
            Change::Finish { call, outcome } => calls::finish(db, tenant, call, &outcome)?,
            Change::Edit { call, digest, arguments } => {
                calls::edit(db, tenant, call, digest, arguments.as_deref())?;
            }
            Change::Ask(approval) => calls::ask(db, tenant, &approval)?,
            Change::Decide { approval, decision, by, at, digest } => {
                calls::decide(db, tenant, approval, decision, &by, at, digest)?;
            }
            Change::Use { approval, digest, at } => calls::use_up(db, tenant, approval, digest, at)?,
            Change::Forget { before, most } => {
                calls::forget(db, tenant, before, most)?;
                limits::forget(db, tenant, before)?;
            }
            Change::Checkpoint(checkpoint) => audit::keep_checkpoint(db, tenant, &checkpoint)?,
            Change::Seal { first, last } => audit::seal(db, tenant, first, last)?,
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

    async fn document(&self, tenant: TenantId, key: &Key) -> Result<Option<Stored>> {
        let key = key.clone();
        self.db.read(move |db| documents::get(db, tenant, &key)).await
    }

    async fn anywhere(&self, key: &Key) -> Result<Option<(TenantId, Stored)>> {
        let key = key.clone();
        self.db.read(move |db| documents::anywhere(db, &key)).await
    }

    async fn named(&self, tenant: TenantId, kind: Kind, name: &str) -> Result<Option<Stored>> {
        let name = name.to_owned();
        self.db.read(move |db| documents::named(db, tenant, kind, &name)).await
    }

    async fn documents(
        &self,
        tenant: TenantId,
        kind: Kind,
        parent: Option<&str>,
        paging: &Paging,
    ) -> Result<Page<Stored>> {
        let (parent, paging) = (parent.map(str::to_owned), paging.clone());
        self.db.read(move |db| documents::list(db, tenant, kind, parent.as_deref(), &paging)).await
    }

    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<Call>> {
        self.db.read(move |db| calls::get(db, tenant, id)).await
    }

    async fn calls(&self, tenant: TenantId, filter: &CallFilter, paging: &Paging) -> Result<Page<Call>> {
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
        paging: &Paging,
    ) -> Result<Page<Approval>> {
        let (filter, paging) = (filter.clone(), paging.clone());
        self.db.read(move |db| calls::approvals(db, tenant, &filter, &paging)).await
    }

    async fn head(&self, tenant: TenantId) -> Result<Head> {
        self.db.read(move |db| audit::head(db, tenant)).await
    }

    async fn audit(&self, tenant: TenantId, after: u64, limit: usize) -> Result<Vec<Row>> {
        self.db.read(move |db| audit::rows(db, tenant, after, limit)).await
    }

    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>> {
        self.db.read(move |db| audit::checkpoint(db, tenant)).await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>> {
        self.db.read(documents::tenants).await
    }

    async fn abandoned(&self, tenant: TenantId) -> Result<Vec<Call>> {
        let hub = self.hub.clone();
        self.db.read(move |db| calls::abandoned(db, &hub, tenant)).await
    }

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        self.db.read(move |db| calls::has_before(db, tenant, before)).await
    }

    async fn copy_out(&self, to: Sender<Copied>) -> Result<()> {
        self.db.read(move |db| snapshot::out(db, &to)).await
    }

    async fn copy_in(&self, from: Receiver<Copied>, count: u64) -> Result<()> {
        self.db.write(move |db| snapshot::take(db, from, count)).await
    }

    async fn broken(&self) -> Error {
        self.db.broken().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_by_its_kind_without_what_it_is_about() {
        let db = Connection::open_in_memory().unwrap();
        let read = |sql: &str| db.query_row(sql, [], |row| row.get::<_, u64>(0)).unwrap_err();
        assert_eq!(kind(&read("SELECT 'secret'")), "InvalidColumnType");
        assert_eq!(kind(&read("SELECT -5")), "IntegralValueOutOfRange");
        assert_eq!(kind(&read("SELECT 'secret' WHERE 0")), "QueryReturnedNoRows");
        assert_eq!(kind(&db.execute("SELECT ?1", [u64::MAX]).unwrap_err()), "ToSqlConversionFailure");
    }
}

//! Snapshots of the PostgreSQL store: export of the whole database in one consistent read, and import into an empty
//! one.

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{SnapshotItem, SnapshotValue};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_postgres::Row;

use super::audit::{self, ENTRY_COLUMNS};
use super::connection::DbConnection;
use super::statements::execute;
use super::{QueryExecutor as _, StoreFailure};
use crate::common::audit::{CHECKPOINT_COLUMNS, insert_checkpoint};
use crate::common::calls::{APPROVAL_COLUMNS, CALL_COLUMNS};
use crate::common::rows::{
    StoredRow as _, read_approval, read_call, read_checkpoint, read_document, read_entry, read_kind,
};
use crate::common::{
    SELECT_HAS_DATA, calls, documents, snapshot_incomplete, snapshot_receiver_gone, store_not_empty,
};

type Result<T> = std::result::Result<T, StoreFailure>;

/// Number of snapshot rows per fetch, and of audit entries per insert.
const CHUNK_SIZE: usize = 200;
/// SQL statements that begin the transaction of an import and lock the tables of the snapshot: other connections can
/// read; writers wait.
const LOCK_TABLES: &str =
    "BEGIN; LOCK TABLE documents, calls, approvals, audit, checkpoints IN EXCLUSIVE MODE";

/// Exports all rows of all tenants.
pub(super) async fn export(db: &DbConnection, to: &Sender<SnapshotItem>) -> Result<()> {
    db.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let copied = export_tables(db, to).await;
    let _ = db.run("ROLLBACK").await; // the transaction only reads
    copied
}

async fn export_tables(db: &DbConnection, to: &Sender<SnapshotItem>) -> Result<()> {
    let document = |row: &Row, _| Ok(SnapshotValue::Document(read_document(read_kind(row, 6)?, row)?));
    let columns = format!("{}, kind", documents::COLUMNS);
    export_table(db, to, ("documents", &columns, "kind, id"), document).await?;
    let call = |row: &Row, _| Ok(SnapshotValue::Call(Box::new(read_call(row)?)));
    export_table(db, to, ("calls", CALL_COLUMNS, "id"), call).await?;
    let approval = |row: &Row, _| Ok(SnapshotValue::Approval(read_approval(row)?));
    export_table(db, to, ("approvals", APPROVAL_COLUMNS, "id"), approval).await?;
    let entry = |row: &Row, _| Ok(SnapshotValue::Entry(read_entry(row)?));
    export_table(db, to, ("audit", ENTRY_COLUMNS, "number"), entry).await?;
    let checkpoint = |row: &Row, tenant| Ok(SnapshotValue::Checkpoint(read_checkpoint(row, tenant)?));
    export_table(db, to, ("checkpoints", CHECKPOINT_COLUMNS, "number"), checkpoint).await
}

async fn export_table(
    db: &DbConnection,
    to: &Sender<SnapshotItem>,
    (table, columns, order): (&str, &str, &str),
    read: impl Fn(&Row, TenantId) -> Result<SnapshotValue>,
) -> Result<()> {
    let select = format!("SELECT {columns}, tenant FROM {table} ORDER BY tenant, {order}");
    db.run(&format!("DECLARE copied_{table} NO SCROLL CURSOR FOR {select}")).await?;
    let next = format!("FETCH {CHUNK_SIZE} FROM copied_{table}");
    loop {
        let rows = db.query(&next, &[]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in &rows {
            let tenant = TenantId::from_u128(row.id(row.len() - 1)?);
            let value = read(row, tenant)?;
            to.send(SnapshotItem { tenant, value }).await.map_err(|_| snapshot_receiver_gone())?;
        }
    }
}

/// Imports a snapshot of `count` items into the database. The database must be empty.
pub(super) async fn import(db: &DbConnection, from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
    let import = async {
        db.run(LOCK_TABLES).await?;
        import_rows(db, from, count).await?;
        Ok(db.run("COMMIT").await?)
    };
    let result = import.await;
    if result.is_err() {
        let _ = db.run("ROLLBACK").await; // if this fails, the connection is lost, and the transaction with it
    }
    result
}

async fn import_rows(db: &DbConnection, mut from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
    let found = db.query(SELECT_HAS_DATA, &[]).await?;
    if found.first().map(|row| row.try_get::<_, bool>(0)).transpose()? != Some(false) {
        return Err(store_not_empty().into());
    }
    let (mut item_count, mut entries) = (0, Vec::new());
    while let Some(SnapshotItem { tenant, value }) = from.recv().await {
        let statement = match &value {
            SnapshotValue::Document(stored) => Some(documents::insert(tenant.into(), stored)),
            SnapshotValue::Call(call) => Some(calls::insert(tenant.into(), call, None)),
            SnapshotValue::Approval(approval) => Some(calls::insert_approval(tenant.into(), approval)),
            SnapshotValue::Checkpoint(checkpoint) => Some(insert_checkpoint(tenant.into(), checkpoint)),
            SnapshotValue::Entry(entry) => {
                entries.push((tenant, entry.clone()));
                None
            }
        };
        if let Some(statement) = statement {
            execute(db, tenant, &statement).await?;
        }
        item_count += 1;
        if entries.len() >= CHUNK_SIZE {
            audit::insert(db, &std::mem::take(&mut entries)).await?;
        }
    }
    audit::insert(db, &entries).await?;
    if item_count == count { Ok(()) } else { Err(snapshot_incomplete().into()) }
}

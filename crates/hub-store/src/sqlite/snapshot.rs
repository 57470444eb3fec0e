//! Snapshots of the `SQLite` store: export of the whole database in one consistent read, and import into an empty one.

use linchpin_hub_core::Result;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{DocumentKind, SnapshotItem, SnapshotValue};
use rusqlite::{Connection, Row};
use tokio::sync::mpsc::{Receiver, Sender};

use super::calls::{
    APPROVAL_COLUMNS, CALL_COLUMNS, conversion_error, parse_column, read_approval, read_call,
};
use super::{audit, calls, database_error, documents};
use crate::common::{SELECT_HAS_DATA, snapshot_incomplete, snapshot_receiver_gone, store_not_empty};

/// Exports all rows of all tenants.
pub(super) fn export(db: &Connection, to: &Sender<SnapshotItem>) -> Result<()> {
    // One read transaction: all reads see the state at the first row.
    let tx = db.unchecked_transaction().map_err(|error| database_error(&error))?;
    let document = |row: &Row<'_>, _| {
        let kind = DocumentKind::find(&row.get::<_, String>("kind")?)
            .ok_or_else(|| conversion_error(1, "unknown kind"))?;
        Ok(SnapshotValue::Document(documents::read_document(kind, row)?))
    };
    export_table(
        &tx,
        to,
        documents::COLUMNS,
        "kind, tenant FROM documents ORDER BY tenant, kind, id",
        document,
    )?;
    let call = |row: &Row<'_>, _| Ok(SnapshotValue::Call(Box::new(read_call(row)?)));
    export_table(&tx, to, CALL_COLUMNS, "tenant FROM calls ORDER BY tenant, id", call)?;
    let approval = |row: &Row<'_>, _| Ok(SnapshotValue::Approval(read_approval(row)?));
    export_table(&tx, to, APPROVAL_COLUMNS, "tenant FROM approvals ORDER BY tenant, id", approval)?;
    let entry = |row: &Row<'_>, _| Ok(SnapshotValue::Entry(audit::read_entry(row)?));
    export_table(&tx, to, audit::ENTRY_COLUMNS, "tenant FROM audit ORDER BY tenant, number", entry)?;
    let checkpoint =
        |row: &Row<'_>, tenant| Ok(SnapshotValue::Checkpoint(audit::read_checkpoint(row, tenant)?));
    export_table(
        &tx,
        to,
        audit::CHECKPOINT_COLUMNS,
        "tenant FROM checkpoints ORDER BY tenant, number",
        checkpoint,
    )
}

fn export_table(
    db: &Connection,
    to: &Sender<SnapshotItem>,
    columns: &str,
    tenant_from: &str,
    read: impl Fn(&Row<'_>, TenantId) -> rusqlite::Result<SnapshotValue>,
) -> Result<()> {
    let fault = |error: rusqlite::Error| database_error(&error);
    let mut sql = db.prepare(&format!("SELECT {columns}, {tenant_from}")).map_err(fault)?;
    let mut rows = sql.query([]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let tenant: TenantId = parse_column(row, "tenant").map_err(fault)?;
        let value = read(row, tenant).map_err(fault)?;
        to.blocking_send(SnapshotItem { tenant, value }).map_err(|_| snapshot_receiver_gone())?;
    }
    Ok(())
}

/// Imports a snapshot of `count` items into the database. The database must be empty.
pub(super) fn import(db: &Connection, mut from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
    let has_data = db
        .query_row(SELECT_HAS_DATA, [], |row| row.get::<_, bool>(0))
        .map_err(|error| database_error(&error))?;
    if has_data {
        return Err(store_not_empty());
    }
    let mut item_count = 0;
    while let Some(SnapshotItem { tenant, value }) = from.blocking_recv() {
        match value {
            SnapshotValue::Document(stored) => documents::insert(db, tenant, &stored)?,
            SnapshotValue::Call(call) => calls::insert(db, "", tenant, &call)?,
            SnapshotValue::Approval(approval) => calls::insert_approval(db, tenant, &approval)?,
            SnapshotValue::Entry(row) => {
                audit::insert(db, tenant, row).map_err(|error| database_error(&error))?;
            }
            SnapshotValue::Checkpoint(checkpoint) => audit::insert_checkpoint(db, tenant, &checkpoint)?,
        }
        item_count += 1;
    }
    if item_count == count { Ok(()) } else { Err(snapshot_incomplete()) }
}

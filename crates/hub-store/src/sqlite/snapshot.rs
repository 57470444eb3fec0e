//! Snapshots of the `SQLite` store: export of the whole database in one consistent read, and import into an empty one.

use std::collections::HashMap;

use linchpin_hub_core::Result;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{SnapshotItem, SnapshotValue};
use rusqlite::{Connection, Row};
use tokio::sync::mpsc::{Receiver, Sender};

use super::audit::{ENTRY_COLUMNS, INSERT_ENTRY, entry_values};
use super::errors::database_error;
use super::statements::{check, execute, query_one, with_marks};
use super::tenants;
use crate::common::audit::{CHECKPOINT_COLUMNS, insert_checkpoint};
use crate::common::calls::{APPROVAL_COLUMNS, CALL_COLUMNS};
use crate::common::refusal::Refusal;
use crate::common::rows::{
    StoredRow as _, read_approval, read_call, read_checkpoint, read_document, read_entry, read_kind,
};
use crate::common::{
    SELECT_HAS_DATA, Statement, calls, documents, snapshot_incomplete, snapshot_receiver_gone,
    store_not_empty,
};

/// Exports all rows of all tenants.
pub(super) fn export(db: &Connection, to: &Sender<SnapshotItem>) -> Result<()> {
    // One read transaction: all reads see the state at the first row.
    let tx = db.unchecked_transaction().map_err(|error| database_error(&error))?;
    let of_tenant = "tenant = $1";
    let document = |row: &Row<'_>, _| Ok(SnapshotValue::Document(read_document(read_kind(row, 6)?, row)?));
    let columns = format!("{}, kind", documents::COLUMNS);
    export_table(&tx, to, "documents", &columns, (of_tenant, "kind, id"), document)?;
    let call = |row: &Row<'_>, _| Ok(SnapshotValue::Call(Box::new(read_call(row)?)));
    export_table(&tx, to, "calls", CALL_COLUMNS, (of_tenant, "id"), call)?;
    let approval = |row: &Row<'_>, _| Ok(SnapshotValue::Approval(read_approval(row)?));
    export_table(&tx, to, "approvals", APPROVAL_COLUMNS, (of_tenant, "id"), approval)?;
    let entry = |row: &Row<'_>, _| Ok(SnapshotValue::Entry(read_entry(row)?));
    let positions = "position >= $1 << 40 AND position < ($1 + 1) << 40";
    export_table(&tx, to, "audit", ENTRY_COLUMNS, (positions, "position"), entry)?;
    let checkpoint = |row: &Row<'_>, tenant| Ok(SnapshotValue::Checkpoint(read_checkpoint(row, tenant)?));
    export_table(&tx, to, "checkpoints", CHECKPOINT_COLUMNS, (of_tenant, "number"), checkpoint)
}

fn export_table(
    db: &Connection,
    to: &Sender<SnapshotItem>,
    table: &str,
    columns: &str,
    (of_tenant, order): (&str, &str),
    read: impl Fn(&Row<'_>, TenantId) -> rusqlite::Result<SnapshotValue>,
) -> Result<()> {
    let fault = |error: rusqlite::Error| database_error(&error);
    let mut tenants = db.prepare("SELECT number, id FROM tenants ORDER BY id").map_err(fault)?;
    let rows = tenants.query_map([], |row| Ok((row.get::<_, i64>(0)?, TenantId::from_u128(row.id(1)?))));
    let tenants = rows.and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>).map_err(fault)?;
    let sql = format!("SELECT {columns} FROM {table} WHERE {of_tenant} ORDER BY {order}");
    let mut statement = db.prepare(&with_marks(&sql)).map_err(fault)?;
    for (number, tenant) in tenants {
        let mut rows = statement.query([number]).map_err(fault)?;
        while let Some(row) = rows.next().map_err(fault)? {
            let value = read(row, tenant).map_err(fault)?;
            to.blocking_send(SnapshotItem { tenant, value }).map_err(|_| snapshot_receiver_gone())?;
        }
    }
    Ok(())
}

/// Imports a snapshot of `count` items into the database. The database must be empty.
pub(super) fn import(db: &Connection, mut from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
    if query_one(db, SELECT_HAS_DATA, &[], |row| row.get(0))? == Some(true) {
        return Err(store_not_empty());
    }
    let (mut item_count, mut numbers) = (0, HashMap::new());
    while let Some(SnapshotItem { tenant: owner, value }) = from.blocking_recv() {
        let tenant = match numbers.get(&owner) {
            Some(number) => *number,
            None => tenants::number_or_insert(db, owner)?,
        };
        numbers.insert(owner, tenant);
        let statement = match &value {
            SnapshotValue::Document(stored) => documents::insert(tenant.into(), stored),
            SnapshotValue::Call(call) => calls::insert(tenant.into(), call, None),
            SnapshotValue::Approval(approval) => calls::insert_approval(tenant.into(), approval),
            SnapshotValue::Entry(entry) => {
                let values = entry_values(tenant, entry).into();
                Statement { sql: INSERT_ENTRY, values, refusal: Refusal::Never }
            }
            SnapshotValue::Checkpoint(checkpoint) => insert_checkpoint(tenant.into(), checkpoint),
        };
        let changed = execute(db, statement.sql, &statement.values);
        check(db, tenant, changed, &statement.refusal)?;
        item_count += 1;
    }
    if item_count == count { Ok(()) } else { Err(snapshot_incomplete()) }
}

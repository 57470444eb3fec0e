//! Snapshots: export of the whole database in one consistent read, and import into an empty one.

use linchpin_hub_core::Result;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Copied, Kind, What};
use rusqlite::{Connection, Row};
use tokio::sync::mpsc::{Receiver, Sender};

use super::calls::{APPROVAL, CALL, parsed, read_approval, read_call, unreadable};
use super::{audit, calls, documents, failed};
use crate::common::{ANYTHING, gone, incomplete, not_empty};

/// Exports all rows of all tenants.
pub(super) fn out(db: &Connection, to: &Sender<Copied>) -> Result<()> {
    // One read transaction: all reads see the state at the first row.
    let tx = db.unchecked_transaction().map_err(|error| failed(&error))?;
    let document = |row: &Row<'_>, _| {
        let kind = Kind::find(&row.get::<_, String>("kind")?).ok_or_else(|| unreadable(1, "unknown kind"))?;
        Ok(What::Document(documents::stored(kind, row)?))
    };
    each(&tx, to, documents::COLUMNS, "kind, tenant FROM documents ORDER BY tenant, kind, id", document)?;
    let call = |row: &Row<'_>, _| Ok(What::Call(Box::new(read_call(row)?)));
    each(&tx, to, CALL, "tenant FROM calls ORDER BY tenant, id", call)?;
    let approval = |row: &Row<'_>, _| Ok(What::Approval(read_approval(row)?));
    each(&tx, to, APPROVAL, "tenant FROM approvals ORDER BY tenant, id", approval)?;
    let entry = |row: &Row<'_>, _| Ok(What::Entry(audit::read_row(row)?));
    each(&tx, to, audit::ROW, "tenant FROM audit ORDER BY tenant, number", entry)?;
    let checkpoint = |row: &Row<'_>, tenant| Ok(What::Checkpoint(audit::read_checkpoint(row, tenant)?));
    each(&tx, to, audit::CHECKPOINT, "tenant FROM checkpoints ORDER BY tenant, number", checkpoint)
}

fn each(
    db: &Connection,
    to: &Sender<Copied>,
    columns: &str,
    of: &str,
    read: impl Fn(&Row<'_>, TenantId) -> rusqlite::Result<What>,
) -> Result<()> {
    let fault = |error: rusqlite::Error| failed(&error);
    let mut sql = db.prepare(&format!("SELECT {columns}, {of}")).map_err(fault)?;
    let mut rows = sql.query([]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let tenant: TenantId = parsed(row, "tenant").map_err(fault)?;
        let what = read(row, tenant).map_err(fault)?;
        to.blocking_send(Copied { tenant, what }).map_err(|_| gone())?;
    }
    Ok(())
}

/// Imports a snapshot of `count` items. The database must be empty.
pub(super) fn take(db: &Connection, mut from: Receiver<Copied>, count: u64) -> Result<()> {
    let has_any = db.query_row(ANYTHING, [], |row| row.get::<_, bool>(0)).map_err(|error| failed(&error))?;
    if has_any {
        return Err(not_empty());
    }
    let mut taken = 0;
    while let Some(Copied { tenant, what }) = from.blocking_recv() {
        match what {
            What::Document(stored) => documents::insert(db, tenant, &stored)?,
            What::Call(call) => calls::open(db, "", tenant, &call)?,
            What::Approval(approval) => calls::ask(db, tenant, &approval)?,
            What::Entry(row) => audit::insert(db, tenant, row).map_err(|error| failed(&error))?,
            What::Checkpoint(checkpoint) => audit::keep_checkpoint(db, tenant, &checkpoint)?,
        }
        taken += 1;
    }
    if taken == count { Ok(()) } else { Err(incomplete()) }
}

//! Snapshots: export of the whole database in one consistent read, and import into an empty one.

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Copied, Kind, What};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_postgres::Row;

use super::calls::{APPROVAL, CALL, parsed, read_approval, read_call};
use super::connection::Connected;
use super::{Ask as _, Stop, audit, calls, documents, unreadable};
use crate::common::{ANYTHING, gone, incomplete, not_empty};

type Result<T> = std::result::Result<T, Stop>;

/// Rows per fetch, and audit entries per insert.
const AT_ONCE: usize = 200;
/// Other connections can read; writers wait.
const LOCK: &str = "BEGIN; LOCK TABLE documents, calls, approvals, audit, checkpoints IN EXCLUSIVE MODE";

/// Exports all rows of all tenants.
pub(super) async fn out(db: &Connected, to: &Sender<Copied>) -> Result<()> {
    db.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let copied = all(db, to).await;
    let _ = db.run("ROLLBACK").await; // the transaction only reads
    copied
}

async fn all(db: &Connected, to: &Sender<Copied>) -> Result<()> {
    let document = |row: &Row, _| {
        let kind = Kind::find(row.try_get("kind")?).ok_or_else(|| unreadable("unknown kind"))?;
        Ok(What::Document(documents::stored(kind, row)?))
    };
    each(db, to, documents::COLUMNS, ("kind, tenant", "documents", "kind, id"), document).await?;
    let call = |row: &Row, _| Ok(What::Call(Box::new(read_call(row)?)));
    each(db, to, CALL, ("tenant", "calls", "id"), call).await?;
    let approval = |row: &Row, _| Ok(What::Approval(read_approval(row)?));
    each(db, to, APPROVAL, ("tenant", "approvals", "id"), approval).await?;
    let entry = |row: &Row, _| Ok(What::Entry(audit::read_row(row)?));
    each(db, to, audit::ROW, ("tenant", "audit", "number"), entry).await?;
    let checkpoint = |row: &Row, tenant| Ok(What::Checkpoint(audit::read_checkpoint(row, tenant)?));
    each(db, to, audit::CHECKPOINT, ("tenant", "checkpoints", "number"), checkpoint).await
}

async fn each(
    db: &Connected,
    to: &Sender<Copied>,
    columns: &str,
    (more, table, order): (&str, &str, &str),
    read: impl Fn(&Row, TenantId) -> Result<What>,
) -> Result<()> {
    let select = format!("SELECT {columns}, {more} FROM {table} ORDER BY tenant, {order}");
    db.run(&format!("DECLARE copied_{table} NO SCROLL CURSOR FOR {select}")).await?;
    let next = format!("FETCH {AT_ONCE} FROM copied_{table}");
    loop {
        let rows = db.query(&next, &[]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in &rows {
            let tenant = parsed(row, "tenant")?;
            let what = read(row, tenant)?;
            to.send(Copied { tenant, what }).await.map_err(|_| gone())?;
        }
    }
}

/// Imports a snapshot of `count` items. The database must be empty.
pub(super) async fn take(db: &Connected, from: Receiver<Copied>, count: u64) -> Result<()> {
    let taken = async {
        db.run(LOCK).await?;
        rows(db, from, count).await?;
        Ok(db.run("COMMIT").await?)
    };
    let taken = taken.await;
    if taken.is_err() {
        let _ = db.run("ROLLBACK").await; // if this fails, the connection is lost, and the transaction with it
    }
    taken
}

async fn rows(db: &Connected, mut from: Receiver<Copied>, count: u64) -> Result<()> {
    let found = db.query(ANYTHING, &[]).await?;
    if found.first().map(|row| row.try_get::<_, bool>(0)).transpose()? != Some(false) {
        return Err(not_empty().into());
    }
    let (mut taken, mut entries) = (0, Vec::new());
    while let Some(Copied { tenant, what }) = from.recv().await {
        match what {
            What::Document(stored) => documents::insert(db, tenant, &stored).await?,
            What::Call(call) => calls::open(db, None, tenant, &call).await?,
            What::Approval(approval) => calls::ask(db, tenant, &approval).await?,
            What::Entry(row) => entries.push((tenant, row)),
            What::Checkpoint(checkpoint) => audit::keep_checkpoint(db, tenant, &checkpoint).await?,
        }
        taken += 1;
        if entries.len() >= AT_ONCE {
            audit::insert(db, &std::mem::take(&mut entries)).await?;
        }
    }
    audit::insert(db, &entries).await?;
    if taken == count { Ok(()) } else { Err(incomplete().into()) }
}

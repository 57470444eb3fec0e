//! Audit tables of the `SQLite` store: entries are appended and never changed. They are removed only after they were
//! archived in a segment file.

use jiff::Timestamp;
use linchpin_hub_core::Result;
use linchpin_hub_core::audit::{AuditEntry, ChainHead, Checkpoint, StoredAuditEntry};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::MAX_PAGE_SIZE;
use rusqlite::{Connection, OptionalExtension, params};

use super::calls::{read_time, to_millis};
use super::{conflict, database_error};

pub(super) const ENTRY_COLUMNS: &str = "number, at, actor, action, fields, hash";
pub(super) const CHECKPOINT_COLUMNS: &str = "number, at, hash, signature";

/// Finds an entry if its hash matches and a later entry exists: the chain head is never sealed.
const SELECT_SEALABLE: &str = "SELECT 1 FROM audit WHERE tenant = ?1 AND number = ?2 AND hash = ?3
    AND EXISTS (SELECT 1 FROM audit WHERE tenant = ?1 AND number > ?2)";
const DELETE_SEALED: &str = "DELETE FROM audit WHERE tenant = ?1 AND number <= ?2";
/// SQL that deletes the checkpoints of sealed entries, except the last checkpoint.
const DELETE_CHECKPOINTS: &str = "DELETE FROM checkpoints WHERE tenant = ?1 AND number <= ?2
    AND number < (SELECT max(number) FROM checkpoints WHERE tenant = ?1)";

pub(super) fn append(db: &Connection, tenant: TenantId, entries: Vec<AuditEntry>) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut head = head(db, tenant)?;
    let added = entries.into_iter().try_for_each(|entry| insert(db, tenant, head.append(entry)));
    added.map_err(|error| database_error(&error))
}

/// Inserts an audit entry of a backup unchanged.
pub(super) fn insert(db: &Connection, tenant: TenantId, row: StoredAuditEntry) -> rusqlite::Result<()> {
    let sql = "INSERT INTO audit (tenant, number, at, actor, action, fields, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let StoredAuditEntry { number, at, actor, action, fields, hash } = row;
    let values = params![tenant.to_string(), number, to_millis(at), actor, action, fields, hash.bytes()];
    db.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn head(db: &Connection, tenant: TenantId) -> Result<ChainHead> {
    let sql = "SELECT number, hash FROM audit WHERE tenant = ?1 ORDER BY number DESC LIMIT 1";
    let found = db.prepare_cached(sql).and_then(|mut sql| {
        let head = |row: &rusqlite::Row<'_>| {
            Ok(ChainHead { number: row.get(0)?, hash: Digest::from_bytes(row.get(1)?) })
        };
        sql.query_row([tenant.to_string()], head).optional()
    });
    Ok(found.map_err(|error| database_error(&error))?.unwrap_or_else(|| ChainHead::start(tenant)))
}

pub(super) fn read_entry(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredAuditEntry> {
    Ok(StoredAuditEntry {
        number: row.get(0)?,
        at: read_time(row, 1)?.unwrap_or(Timestamp::UNIX_EPOCH),
        actor: row.get(2)?,
        action: row.get(3)?,
        fields: row.get(4)?,
        hash: Digest::from_bytes(row.get(5)?),
    })
}

pub(super) fn entries(
    db: &Connection,
    tenant: TenantId,
    after: u64,
    limit: usize,
) -> Result<Vec<StoredAuditEntry>> {
    let sql = format!(
        "SELECT {ENTRY_COLUMNS} FROM audit WHERE tenant = ?1 AND number > ?2 ORDER BY number LIMIT ?3"
    );
    let found = db.prepare_cached(&sql).and_then(|mut sql| {
        let values = params![tenant.to_string(), after, limit.clamp(1, MAX_PAGE_SIZE)];
        sql.query_map(values, read_entry)?.collect::<rusqlite::Result<Vec<_>>>()
    });
    found.map_err(|error| database_error(&error))
}

pub(super) fn seal(db: &Connection, tenant: TenantId, first: u64, last: ChainHead) -> Result<()> {
    let owner = tenant.to_string();
    let sealed = db.prepare_cached(SELECT_SEALABLE).and_then(|mut sql| {
        let values = params![owner, last.number, last.hash.bytes()];
        if !sql.exists(values)? {
            return Ok(false);
        }
        let deleted = db.prepare_cached(DELETE_SEALED)?.execute(params![owner, last.number])?;
        db.prepare_cached(DELETE_CHECKPOINTS)?.execute(params![owner, last.number])?;
        Ok(deleted as u64 == (last.number + 1).saturating_sub(first))
    });
    let is_sealed = sealed.map_err(|error| database_error(&error))?;
    let meanwhile = || conflict("version_conflict", "the audit was sealed concurrently: read it again");
    is_sealed.then_some(()).ok_or_else(meanwhile)
}

pub(super) fn insert_checkpoint(db: &Connection, tenant: TenantId, checkpoint: &Checkpoint) -> Result<()> {
    let Checkpoint { head, at, signature, .. } = checkpoint;
    let sql =
        "INSERT OR IGNORE INTO checkpoints (tenant, number, at, hash, signature) VALUES (?1, ?2, ?3, ?4, ?5)";
    let inserted = db.prepare_cached(sql).and_then(|mut sql| {
        sql.execute(params![tenant.to_string(), head.number, to_millis(*at), head.hash.bytes(), signature])
    });
    inserted.map(drop).map_err(|error| database_error(&error))
}

pub(super) fn checkpoint(db: &Connection, tenant: TenantId) -> Result<Option<Checkpoint>> {
    let sql = format!(
        "SELECT {CHECKPOINT_COLUMNS} FROM checkpoints WHERE tenant = ?1 ORDER BY number DESC LIMIT 1"
    );
    let read = |row: &rusqlite::Row<'_>| read_checkpoint(row, tenant);
    let found =
        db.prepare_cached(&sql).and_then(|mut sql| sql.query_row([tenant.to_string()], read).optional());
    found.map_err(|error| database_error(&error))
}

pub(super) fn read_checkpoint(row: &rusqlite::Row<'_>, tenant: TenantId) -> rusqlite::Result<Checkpoint> {
    let head = ChainHead { number: row.get(0)?, hash: Digest::from_bytes(row.get(2)?) };
    let at = read_time(row, 1)?.unwrap_or(Timestamp::UNIX_EPOCH);
    Ok(Checkpoint { tenant, head, at, signature: row.get(3)? })
}

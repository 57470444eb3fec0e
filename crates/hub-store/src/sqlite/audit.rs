//! Audit table of the `SQLite` store: entries are appended and never changed, and removed only after they were archived
//! in a segment file. The position of an entry consists of the number of its tenant and its own number.

use std::ops::RangeInclusive;

use linchpin_hub_core::audit::{ChainHead, StoredAuditEntry};
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{AuditFilter, MAX_PAGE_SIZE};
use linchpin_hub_core::{Error, Result};
use rusqlite::Connection;

use super::errors::database_error;
use super::statements::{execute, query, query_one};
use crate::common::audit::{DELETE_CHECKPOINTS, StoredHead};
use crate::common::filter::audit_conditions;
use crate::common::refusal::sealed_concurrently;
use crate::common::rows::{read_entry, read_head};
use crate::common::value::Value;
use crate::common::{to_integer, to_millis};

/// Number of bits of a position that contain the number of the entry.
const NUMBER_BITS: u32 = 40;
/// Columns of an entry; the first is its number.
pub(super) const ENTRY_COLUMNS: &str = "position & 0xffffffffff, at, actor, action, fields, hash, code";

pub(super) const INSERT_ENTRY: &str =
    "INSERT INTO audit (position, at, actor, action, fields, hash, code) VALUES ($1, $2, $3, $4, $5, $6, $7)";
const SELECT_ENTRIES: &str =
    "SELECT position & 0xffffffffff, at, actor, action, fields, hash, code FROM audit
     WHERE position > $1 AND position < $2 ORDER BY position LIMIT $3";
const SELECT_HEAD: &str = "SELECT position & 0xffffffffff, hash FROM audit
     WHERE position > $1 AND position < $2 ORDER BY position DESC LIMIT 1";
const SELECT_STORED_HEAD: &str = "SELECT position & 0xffffffffff, hash, code, code IS NULL AND EXISTS
         (SELECT 1 FROM audit WHERE position > $1 AND position < $2 AND code IS NOT NULL)
     FROM audit WHERE position > $1 AND position < $2 ORDER BY position DESC LIMIT 1";
/// Finds an entry if its hash matches and a later entry exists: the chain head is never sealed.
const SELECT_SEALABLE: &str = "SELECT 1 FROM audit WHERE position = $1 AND hash = $2
     AND EXISTS (SELECT 1 FROM audit WHERE position > $1 AND position < $3)";
const DELETE_SEALED: &str = "DELETE FROM audit WHERE position > $1 AND position <= $2";

/// Returns the position of an entry; with number 0, the position before the first entry of the tenant.
fn position(tenant: i64, number: u64) -> i64 {
    (tenant << NUMBER_BITS) + to_integer(number).min((1 << NUMBER_BITS) - 1)
}

/// Returns the values of the columns of [`INSERT_ENTRY`].
pub(super) fn entry_values(tenant: i64, entry: &StoredAuditEntry) -> [Value<'_>; 7] {
    let StoredAuditEntry { number, at, actor, action, fields, hash, code } = entry;
    [
        position(tenant, *number).into(),
        to_millis(*at).into(),
        actor.into(),
        action.into(),
        fields.into(),
        hash.into(),
        code.as_ref().into(),
    ]
}

/// Returns the chain head of a tenant.
pub(super) fn head(db: &Connection, tenant: i64, owner: TenantId) -> Result<ChainHead> {
    let values = [position(tenant, 0).into(), position(tenant + 1, 0).into()];
    let found = query_one(db, SELECT_HEAD, &values, |row| read_head(row, 0))?;
    Ok(found.unwrap_or_else(|| ChainHead::start(owner)))
}

/// Returns the chain head of a tenant with its code.
pub(super) fn stored_head(db: &Connection, tenant: i64, owner: TenantId) -> Result<StoredHead> {
    let values = [position(tenant, 0).into(), position(tenant + 1, 0).into()];
    let found = query_one(db, SELECT_STORED_HEAD, &values, |row| StoredHead::read(row, 0))?;
    Ok(found.unwrap_or_else(|| StoredHead::start(owner)))
}

/// Lists at most `limit` entries that follow the entry with the number `after`.
pub(super) fn entries(
    db: &Connection,
    tenant: i64,
    after: u64,
    limit: usize,
) -> Result<Vec<StoredAuditEntry>> {
    let limit = to_integer(limit.clamp(1, MAX_PAGE_SIZE) as u64);
    let values = [position(tenant, after).into(), position(tenant + 1, 0).into(), limit.into()];
    query(db, SELECT_ENTRIES, &values, |row| read_entry(row))
}

/// Lists the entries of a range of numbers that match a filter: one scan of that range of the primary key.
pub(super) fn find(
    db: &Connection,
    tenant: i64,
    filter: &AuditFilter,
    numbers: &RangeInclusive<u64>,
    limit: usize,
) -> Result<Vec<StoredAuditEntry>> {
    let limit = to_integer(limit.clamp(1, MAX_PAGE_SIZE) as u64);
    let (first, last) = (position(tenant, *numbers.start()), position(tenant, *numbers.end()));
    let mut values = vec![first.into(), last.into(), limit.into()];
    let conditions = audit_conditions(filter, &mut values);
    let sql = format!(
        "SELECT {ENTRY_COLUMNS} FROM audit WHERE position BETWEEN $1 AND $2{conditions}
         ORDER BY position LIMIT $3"
    );
    query(db, &sql, &values, |row| read_entry(row))
}

/// Removes sealed entries and their checkpoints.
pub(super) fn seal(db: &Connection, tenant: i64, first: u64, last: ChainHead) -> Result<()> {
    let fault = |error: rusqlite::Error| -> Error { database_error(&error) };
    let last_position = position(tenant, last.number);
    let values = [last_position.into(), (&last.hash).into(), position(tenant + 1, 0).into()];
    if query_one(db, SELECT_SEALABLE, &values, |_| Ok(()))?.is_none() {
        return Err(sealed_concurrently());
    }
    let deleted = execute(db, DELETE_SEALED, &[position(tenant, 0).into(), last_position.into()]);
    execute(db, DELETE_CHECKPOINTS, &[tenant.into(), to_integer(last.number).into()]).map_err(fault)?;
    if deleted.map_err(fault)? as u64 == (last.number + 1).saturating_sub(first) {
        Ok(())
    } else {
        Err(sealed_concurrently())
    }
}

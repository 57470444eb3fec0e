//! Audit tables of the PostgreSQL store: entries are appended and never changed. They are removed only after they were
//! archived in a segment file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use linchpin_hub_core::audit::{AuditEntry, ChainHead, StoredAuditEntry};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{AuditFilter, Batch, MAX_PAGE_SIZE};

use super::connection::{DbConnection, Values};
use super::statements::{change, query, query_one};
use super::{QueryExecutor, StoreFailure, unsupported_character};
use crate::common::audit::{DELETE_CHECKPOINTS, StoredHead};
use crate::common::filter::audit_conditions;
use crate::common::refusal::sealed_concurrently;
use crate::common::rows::{read_entry, read_head};
use crate::common::{to_integer, to_millis};

type Result<T> = std::result::Result<T, StoreFailure>;

pub(super) const ENTRY_COLUMNS: &str = "number, at, actor, action, fields, hash, code";

const LOCK_TENANTS: &str = "SELECT pg_advisory_xact_lock(key) FROM unnest($1::BIGINT[]) AS key";
const SELECT_HEADS: &str = "SELECT last.*, CASE WHEN last.code IS NULL
        THEN EXISTS (SELECT 1 FROM audit WHERE audit.tenant = last.tenant AND audit.code IS NOT NULL) ELSE FALSE END
    FROM unnest($1::TEXT[]) AS name, LATERAL (SELECT tenant, number, hash, code FROM audit
                    WHERE tenant = name ORDER BY number DESC LIMIT 1) AS last";

/// Finds an entry if its hash matches and a later entry exists: the chain head is never sealed.
const SELECT_SEALABLE: &str = "SELECT 1 FROM audit WHERE tenant = $1 AND number = $2 AND hash = $3
    AND EXISTS (SELECT 1 FROM audit WHERE tenant = $1 AND number > $2)";
const DELETE_SEALED: &str = "DELETE FROM audit WHERE tenant = $1 AND number <= $2";
/// Audit chain heads of some tenants, locked for the transaction that appends entries. Until the transaction ends,
/// other hubs wait before they change these tenants, so that the chains have no gap and no fork.
pub(super) struct ChainLocks {
    heads: BTreeMap<TenantId, StoredHead>,
    appended: Vec<(TenantId, StoredAuditEntry)>,
}

impl ChainLocks {
    /// Locks the audit chains of these tenants, always in the same order: two hubs that lock the same tenants cannot
    /// deadlock.
    pub(super) async fn acquire(db: &DbConnection, tenants: impl Iterator<Item = TenantId>) -> Result<Self> {
        let mut heads: BTreeMap<_, _> = tenants.map(|tenant| (tenant, StoredHead::start(tenant))).collect();
        let keys: BTreeSet<_> = heads.keys().map(|tenant| lock_key(*tenant)).collect();
        let (keys, names) = (Vec::from_iter(keys), heads.keys().map(TenantId::to_string).collect::<Vec<_>>());
        // Both statements are prepared, so they are pipelined in this order. The second sees the state at its start,
        // when the locks are already held.
        db.prepare_all([LOCK_TENANTS, SELECT_HEADS]).await?;
        let (keys, names): (Values<'_>, Values<'_>) = (&[&keys], &[&names]);
        let (locked, found) =
            tokio::join!(biased; db.execute(LOCK_TENANTS, keys), db.query(SELECT_HEADS, names));
        locked?;
        for row in found? {
            heads.insert(row.try_get::<_, &str>(0)?.parse()?, StoredHead::read(&row, 1)?);
        }
        Ok(ChainLocks { heads, appended: Vec::new() })
    }

    /// Appends the entries of a batch in memory; `insert_appended` inserts all of them before the commit.
    pub(super) fn append(&mut self, tenant: TenantId, batch: &Batch) -> linchpin_hub_core::Result<()> {
        // One statement inserts the entries of all batches, so an entry that it would reject must be found here.
        if !batch.audit.iter().all(is_storable) {
            return Err(unsupported_character());
        }
        let stored = self.heads.entry(tenant).or_insert_with(|| StoredHead::start(tenant));
        if batch.audit.is_empty() {
            return Ok(());
        }
        stored.check(batch)?;
        for entry in &batch.audit {
            self.appended.push((tenant, stored.append(entry.clone(), batch)));
        }
        Ok(())
    }

    /// Inserts the appended audit entries.
    pub(super) async fn insert_appended(self, db: &DbConnection) -> Result<()> {
        insert(db, &self.appended).await
    }
}

/// Returns whether PostgreSQL can store an entry: it rejects U+0000 in text.
pub(super) fn is_storable(entry: &AuditEntry) -> bool {
    !entry.actor.contains('\0')
}

/// Inserts audit entries unchanged: those appended in memory, or those of a backup.
pub(super) async fn insert(db: &DbConnection, all: &[(TenantId, StoredAuditEntry)]) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO audit (tenant, {ENTRY_COLUMNS}) SELECT * FROM
             unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::TEXT[], $5::TEXT[], $6::TEXT[], $7::BYTEA[],
                    $8::BYTEA[])"
    );
    let tenants: Vec<_> = all.iter().map(|(tenant, _)| tenant.to_string()).collect();
    let numbers: Vec<_> = all.iter().map(|(_, row)| to_integer(row.number)).collect();
    let times: Vec<_> = all.iter().map(|(_, row)| to_millis(row.at)).collect();
    let actors: Vec<_> = all.iter().map(|(_, row)| &*row.actor).collect();
    let actions: Vec<_> = all.iter().map(|(_, row)| &*row.action).collect();
    let fields: Vec<_> = all.iter().map(|(_, row)| &*row.fields).collect();
    let hashes: Vec<_> = all.iter().map(|(_, row)| &row.hash.bytes()[..]).collect();
    let codes: Vec<_> = all.iter().map(|(_, row)| row.code.as_ref().map(|code| &code.bytes()[..])).collect();
    db.execute(&sql, &[&tenants, &numbers, &times, &actors, &actions, &fields, &hashes, &codes])
        .await
        .map(drop)
}

/// Returns the key of the PostgreSQL advisory lock of a tenant. Two tenants with the same key only wait for each other
/// needlessly.
fn lock_key(tenant: TenantId) -> i64 {
    let digest = Digest::of("linchpin tenant lock").part(tenant.to_string()).finish();
    i64::from_be_bytes(*digest.bytes().first_chunk().expect("a digest has 32 bytes"))
}

pub(super) async fn head(db: &impl QueryExecutor, tenant: TenantId) -> Result<ChainHead> {
    let sql = "SELECT number, hash FROM audit WHERE tenant = $1 ORDER BY number DESC LIMIT 1";
    let found = query_one(db, sql, &[tenant.into()], |row| read_head(row, 0)).await?;
    Ok(found.unwrap_or_else(|| ChainHead::start(tenant)))
}

pub(super) async fn entries(
    db: &impl QueryExecutor,
    tenant: TenantId,
    after: u64,
    limit: usize,
) -> Result<Vec<StoredAuditEntry>> {
    let sql = format!(
        "SELECT {ENTRY_COLUMNS} FROM audit WHERE tenant = $1 AND number > $2 ORDER BY number LIMIT $3"
    );
    let limit = to_integer(limit.clamp(1, MAX_PAGE_SIZE) as u64);
    query(db, &sql, &[tenant.into(), to_integer(after).into(), limit.into()], read_entry).await
}

/// Lists the entries of a range of numbers that match a filter: one scan of that range of the primary key.
pub(super) async fn find(
    db: &impl QueryExecutor,
    tenant: TenantId,
    filter: &AuditFilter,
    numbers: &RangeInclusive<u64>,
    limit: usize,
) -> Result<Vec<StoredAuditEntry>> {
    let limit = to_integer(limit.clamp(1, MAX_PAGE_SIZE) as u64);
    let (first, last) = (to_integer(*numbers.start()), to_integer(*numbers.end()));
    let mut values = vec![tenant.into(), first.into(), last.into(), limit.into()];
    let conditions = audit_conditions(filter, &mut values);
    let sql = format!(
        "SELECT {ENTRY_COLUMNS} FROM audit WHERE tenant = $1 AND number BETWEEN $2 AND $3{conditions}
         ORDER BY number LIMIT $4"
    );
    query(db, &sql, &values, read_entry).await
}

/// Removes sealed entries and their checkpoints.
pub(super) async fn seal(db: &DbConnection, tenant: TenantId, first: u64, last: ChainHead) -> Result<()> {
    let (owner, number) = (tenant.into(), to_integer(last.number).into());
    let values = [owner, number, (&last.hash).into()];
    let is_sealable = query_one(db, SELECT_SEALABLE, &values, |_| Ok(())).await?.is_some();
    let sealed = &values[..2];
    if is_sealable && change(db, DELETE_SEALED, sealed).await? == (last.number + 1).saturating_sub(first) {
        return change(db, DELETE_CHECKPOINTS, sealed).await.map(drop);
    }
    Err(sealed_concurrently().into())
}

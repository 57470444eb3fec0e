//! Audit tables: entries are appended and never changed.

use std::collections::{BTreeMap, BTreeSet};

use linchpin_hub_core::audit::{Checkpoint, Entry, Head, Row};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::MOST_ON_PAGE;

use super::calls::{digest, time, times};
use super::connection::{Connected, Values};
use super::documents::{number, numbers};
use super::{Ask, Stop, conflict, unkept};

type Result<T> = std::result::Result<T, Stop>;

pub(super) const ROW: &str = "number, at, actor, action, fields, hash";

pub(super) const CHECKPOINT: &str = "number, hash, at, signature";

const LOCK: &str = "SELECT pg_advisory_xact_lock(key) FROM unnest($1::BIGINT[]) AS key";
const ENDS: &str =
    "SELECT last.* FROM unnest($1::TEXT[]) AS name, LATERAL (SELECT tenant, number, hash FROM audit
                    WHERE tenant = name ORDER BY number DESC LIMIT 1) AS last";

/// Finds an entry if its hash matches and a later entry exists: the chain head is never sealed.
const SEALABLE: &str = "SELECT 1 FROM audit WHERE tenant = $1 AND number = $2 AND hash = $3
    AND EXISTS (SELECT 1 FROM audit WHERE tenant = $1 AND number > $2)";
const SEAL: &str = "DELETE FROM audit WHERE tenant = $1 AND number <= $2";
/// The last checkpoint stays, even if it covers a sealed entry.
const CHECKED: &str = "DELETE FROM checkpoints WHERE tenant = $1 AND number <= $2
    AND number < (SELECT max(number) FROM checkpoints WHERE tenant = $1)";

/// Locked chain heads of some tenants. Until the transaction ends, other hubs wait before they change these tenants, so
/// that the chains have no gap and no fork.
pub(super) struct Chains {
    heads: BTreeMap<TenantId, Head>,
    added: Vec<(TenantId, Row)>,
}

impl Chains {
    /// Locks the chains, always in the same order: two hubs that lock the same tenants cannot deadlock.
    pub(super) async fn take(db: &Connected, tenants: impl Iterator<Item = TenantId>) -> Result<Self> {
        let mut heads: BTreeMap<_, _> = tenants.map(|tenant| (tenant, Head::start(tenant))).collect();
        let keys: BTreeSet<_> = heads.keys().map(|tenant| lock(*tenant)).collect();
        let (keys, names) = (Vec::from_iter(keys), heads.keys().map(TenantId::to_string).collect::<Vec<_>>());
        // Both statements are prepared, so they are pipelined in this order. The second sees the state at its start,
        // when the locks are already held.
        db.know([LOCK, ENDS]).await?;
        let (keys, names): (Values<'_>, Values<'_>) = (&[&keys], &[&names]);
        let (locked, found) = tokio::join!(biased; db.execute(LOCK, keys), db.query(ENDS, names));
        locked?;
        for row in found? {
            heads.insert(row.try_get::<_, &str>(0)?.parse()?, read_head(&row, 1)?);
        }
        Ok(Chains { heads, added: Vec::new() })
    }

    /// Appends entries in memory; `keep` inserts all of them before the commit.
    pub(super) fn append(&mut self, tenant: TenantId, entries: &[Entry]) -> linchpin_hub_core::Result<()> {
        // One statement inserts the entries of all batches, so an entry that it would reject must be found here.
        if !entries.iter().all(is_kept) {
            return Err(unkept());
        }
        let head = self.heads.entry(tenant).or_insert_with(|| Head::start(tenant));
        self.added.extend(entries.iter().map(|entry| (tenant, head.append(entry.clone()))));
        Ok(())
    }

    /// Inserts the appended entries.
    pub(super) async fn keep(self, db: &Connected) -> Result<()> {
        insert(db, &self.added).await
    }
}

/// Returns whether PostgreSQL can store an entry: it rejects U+0000 in text.
pub(super) fn is_kept(entry: &Entry) -> bool {
    !entry.actor.contains('\0')
}

/// Inserts entries unchanged.
pub(super) async fn insert(db: &Connected, all: &[(TenantId, Row)]) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO audit (tenant, {ROW}) SELECT * FROM
             unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::TEXT[], $5::TEXT[], $6::TEXT[], $7::BYTEA[])"
    );
    let tenants: Vec<_> = all.iter().map(|(tenant, _)| tenant.to_string()).collect();
    let numbers: Vec<_> = all.iter().map(|(_, row)| number(row.number)).collect();
    let times: Vec<_> = all.iter().map(|(_, row)| time(row.at)).collect();
    let actors: Vec<_> = all.iter().map(|(_, row)| &*row.actor).collect();
    let actions: Vec<_> = all.iter().map(|(_, row)| &*row.action).collect();
    let fields: Vec<_> = all.iter().map(|(_, row)| &*row.fields).collect();
    let hashes: Vec<_> = all.iter().map(|(_, row)| &row.hash.bytes()[..]).collect();
    db.execute(&sql, &[&tenants, &numbers, &times, &actors, &actions, &fields, &hashes]).await.map(drop)
}

/// Returns the advisory lock key of a tenant. Two tenants with the same key only wait for each other needlessly.
fn lock(tenant: TenantId) -> i64 {
    let digest = Digest::of("linchpin tenant lock").part(tenant.to_string()).end();
    i64::from_be_bytes(*digest.bytes().first_chunk().expect("a digest has 32 bytes"))
}

fn read_head(row: &tokio_postgres::Row, column: usize) -> Result<Head> {
    Ok(Head { number: numbers(row, column)?, hash: digest(row, column + 1)? })
}

pub(super) async fn head(db: &impl Ask, tenant: TenantId) -> Result<Head> {
    let sql = "SELECT number, hash FROM audit WHERE tenant = $1 ORDER BY number DESC LIMIT 1";
    let found = db.query(sql, &[&tenant.to_string()]).await?;
    found.first().map_or_else(|| Ok(Head::start(tenant)), |row| read_head(row, 0))
}

pub(super) async fn rows(db: &impl Ask, tenant: TenantId, after: u64, limit: usize) -> Result<Vec<Row>> {
    let sql = format!("SELECT {ROW} FROM audit WHERE tenant = $1 AND number > $2 ORDER BY number LIMIT $3");
    let limit = number(limit.clamp(1, MOST_ON_PAGE) as u64);
    let found = db.query(&sql, &[&tenant.to_string(), &number(after), &limit]).await?;
    found.iter().map(read_row).collect()
}

pub(super) fn read_row(row: &tokio_postgres::Row) -> Result<Row> {
    Ok(Row {
        number: numbers(row, 0)?,
        at: times(row.try_get(1)?)?,
        actor: row.try_get(2)?,
        action: row.try_get(3)?,
        fields: row.try_get(4)?,
        hash: digest(row, 5)?,
    })
}

pub(super) async fn seal(db: &Connected, tenant: TenantId, first: u64, last: Head) -> Result<()> {
    let (owner, upto, hash) = (tenant.to_string(), number(last.number), &last.hash.bytes()[..]);
    let is_sealable = !db.query(SEALABLE, &[&owner, &upto, &hash]).await?.is_empty();
    if is_sealable && db.execute(SEAL, &[&owner, &upto]).await? == (last.number + 1).saturating_sub(first) {
        return db.execute(CHECKED, &[&owner, &upto]).await.map(drop);
    }
    Err(conflict("changed_meanwhile", "the audit was sealed concurrently: read it again"))
}

pub(super) async fn keep_checkpoint(db: &Connected, tenant: TenantId, checkpoint: &Checkpoint) -> Result<()> {
    let Checkpoint { head, at, signature, .. } = checkpoint;
    let sql = "INSERT INTO checkpoints (tenant, number, at, hash, signature) VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT DO NOTHING";
    let (hash, signature) = (&head.hash.bytes()[..], &signature[..]);
    let values: Values<'_> = &[&tenant.to_string(), &number(head.number), &time(*at), &hash, &signature];
    db.execute(sql, values).await.map(drop)
}

pub(super) async fn checkpoint(db: &impl Ask, tenant: TenantId) -> Result<Option<Checkpoint>> {
    let sql = format!("SELECT {CHECKPOINT} FROM checkpoints WHERE tenant = $1 ORDER BY number DESC LIMIT 1");
    let found = db.query(&sql, &[&tenant.to_string()]).await?;
    found.first().map(|row| read_checkpoint(row, tenant)).transpose()
}

pub(super) fn read_checkpoint(row: &tokio_postgres::Row, tenant: TenantId) -> Result<Checkpoint> {
    let (head, at) = (read_head(row, 0)?, times(row.try_get(2)?)?);
    Ok(Checkpoint { tenant, head, at, signature: row.try_get(3)? })
}

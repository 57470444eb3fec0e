//! Rate limits and concurrency limits in the PostgreSQL store, shared by all hubs of the cluster.

use jiff::Timestamp;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::rate_limit::{RateLimit, TokenBucket, rate_limited};
use linchpin_hub_core::store::CountedCalls;

use super::calls::{from_millis, to_millis};
use super::connection::DbConnection;
use super::{QueryExecutor as _, StoreFailure};
use crate::common::limit_exceeded;

type Result<T> = std::result::Result<T, StoreFailure>;

pub(super) async fn consume_rate(
    db: &DbConnection,
    tenant: TenantId,
    key: &str,
    rate: RateLimit,
    at: Timestamp,
) -> Result<()> {
    let owner = tenant.to_string();
    let sql = "SELECT level, at FROM buckets WHERE tenant = $1 AND id = $2";
    let found = db.query(sql, &[&owner, &key]).await?;
    let mut bucket = match found.first() {
        Some(row) => TokenBucket { tokens: row.try_get(0)?, updated: from_millis(row.try_get(1)?)? },
        None => TokenBucket::full(rate, at),
    };
    bucket.take(rate, at).map_err(|wait| rate_limited(key, wait))?;
    let sql = "INSERT INTO buckets (tenant, id, level, at) VALUES ($1, $2, $3, $4)
               ON CONFLICT (tenant, id) DO UPDATE SET level = excluded.level, at = excluded.at";
    db.execute(sql, &[&owner, &key, &bucket.tokens, &to_millis(bucket.updated)]).await.map(drop)
}

pub(super) async fn require_concurrency(
    db: &DbConnection,
    tenant: TenantId,
    scope: &CountedCalls,
    max: u32,
) -> Result<()> {
    let (status, column, value) = match scope {
        CountedCalls::Server(server) => ("running", "server", server.to_string()),
        CountedCalls::Subject(subject) => ("running", "subject", subject.clone()),
        CountedCalls::Pending(subject) => ("pending", "subject", subject.clone()),
    };
    let sql =
        format!("SELECT count(*) FROM calls WHERE tenant = $1 AND status = '{status}' AND {column} = $2");
    let found = db.query(&sql, &[&tenant.to_string(), &value]).await?;
    let count: i64 = found.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
    if count < i64::from(max) { Ok(()) } else { Err(limit_exceeded(scope, max).into()) }
}

/// Deletes the rate-limit buckets that were last used before `before`: they are full again by now.
pub(super) async fn prune_buckets(db: &DbConnection, tenant: TenantId, before: Timestamp) -> Result<()> {
    let sql = "DELETE FROM buckets WHERE tenant = $1 AND at < $2";
    db.execute(sql, &[&tenant.to_string(), &to_millis(before)]).await.map(drop)
}

//! Rate limits and concurrency limits in the PostgreSQL store, shared by all hubs of the cluster.

use jiff::Timestamp;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::rate_limit::{RateLimit, TokenBucket, rate_limited};
use linchpin_hub_core::store::CountedCalls;

use super::StoreFailure;
use super::connection::DbConnection;
use super::statements::{execute, query_one};
use crate::common::limits::{SELECT_BUCKET, save_bucket};
use crate::common::refusal::limit_exceeded;
use crate::common::rows::{StoredRow as _, read_bucket};
use crate::common::value::Value;

type Result<T> = std::result::Result<T, StoreFailure>;

pub(super) async fn consume_rate(
    db: &DbConnection,
    tenant: TenantId,
    key: &str,
    rate: RateLimit,
    at: Timestamp,
) -> Result<()> {
    let found = query_one(db, SELECT_BUCKET, &[tenant.into(), key.into()], read_bucket).await?;
    let mut bucket = found.unwrap_or_else(|| TokenBucket::full(rate, at));
    bucket.take(rate, at).map_err(|wait| rate_limited(key, wait))?;
    execute(db, tenant, &save_bucket(tenant.into(), key, &bucket)).await
}

pub(super) async fn require_concurrency(
    db: &DbConnection,
    tenant: TenantId,
    scope: &CountedCalls,
    max: u32,
) -> Result<()> {
    let (status, column, value): (_, _, Value<'_>) = match scope {
        CountedCalls::Server(server) => ("running", "server", (*server).into()),
        CountedCalls::Subject(subject) => ("running", "subject", subject.into()),
        CountedCalls::Pending(subject) => ("pending", "subject", subject.into()),
    };
    let sql =
        format!("SELECT count(*) FROM calls WHERE tenant = $1 AND status = '{status}' AND {column} = $2");
    let count = query_one(db, &sql, &[tenant.into(), value], |row| row.number(0)).await?;
    if count.unwrap_or_default() < u64::from(max) { Ok(()) } else { Err(limit_exceeded(scope, max).into()) }
}

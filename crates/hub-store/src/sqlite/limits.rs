//! Rate limits and concurrency limits in the `SQLite` store.

use jiff::Timestamp;
use linchpin_hub_core::Result;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::rate_limit::{RateLimit, TokenBucket, rate_limited};
use linchpin_hub_core::store::CountedCalls;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::calls::{read_time, to_millis};
use super::database_error;
use crate::common::limit_exceeded;

pub(super) fn consume_rate(
    db: &Connection,
    tenant: TenantId,
    key: &str,
    rate: RateLimit,
    at: Timestamp,
) -> Result<()> {
    let owner = tenant.to_string();
    let sql = "SELECT level, at FROM buckets WHERE tenant = ?1 AND id = ?2";
    let found = db.prepare_cached(sql).and_then(|mut sql| {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, read_time(row, 1)?.unwrap_or(at)));
        sql.query_row([&*owner, key], read).optional()
    });
    let found = found
        .map_err(|error| database_error(&error))?
        .map(|(left, at)| TokenBucket { tokens: left, updated: at });
    let mut bucket = found.unwrap_or_else(|| TokenBucket::full(rate, at));
    bucket.take(rate, at).map_err(|wait| rate_limited(key, wait))?;
    let sql = "INSERT INTO buckets (tenant, id, level, at) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (tenant, id) DO UPDATE SET level = excluded.level, at = excluded.at";
    let done = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![owner, key, bucket.tokens, to_millis(bucket.updated)]));
    done.map(drop).map_err(|error| database_error(&error))
}

pub(super) fn require_concurrency(
    db: &Connection,
    tenant: TenantId,
    scope: &CountedCalls,
    max: u32,
) -> Result<()> {
    let (status, column, value) = match scope {
        CountedCalls::Server(server) => ("running", "server", server.to_string()),
        CountedCalls::Subject(subject) => ("running", "subject", subject.clone()),
        CountedCalls::Pending(subject) => ("pending", "subject", subject.clone()),
    };
    let sql = format!(
        "SELECT count(*) FROM calls INDEXED BY calls_by_status WHERE tenant = ?1 AND status = '{status}' AND {column} = ?2"
    );
    let count = db
        .prepare_cached(&sql)
        .and_then(|mut sql| sql.query_row([tenant.to_string(), value], |row| row.get::<_, u32>(0)));
    if count.map_err(|error| database_error(&error))? < max {
        Ok(())
    } else {
        Err(limit_exceeded(scope, max))
    }
}

/// Deletes the rate-limit buckets that were last used before `before`: they are full again by now.
pub(super) fn prune_buckets(db: &Connection, tenant: TenantId, before: Timestamp) -> Result<()> {
    let sql = "DELETE FROM buckets WHERE tenant = ?1 AND at < ?2";
    let done = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![tenant.to_string(), to_millis(before)]));
    done.map(drop).map_err(|error| database_error(&error))
}

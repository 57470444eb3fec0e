//! Rate limits and concurrency limits.

use jiff::Timestamp;
use linchpin_hub_core::Result;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::rate_limit::{Bucket, Rate, too_often};
use linchpin_hub_core::store::Room;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::calls::{time, times};
use super::failed;
use crate::common::no_room;

pub(super) fn take(db: &Connection, tenant: TenantId, of: &str, rate: Rate, at: Timestamp) -> Result<()> {
    let owner = tenant.to_string();
    let sql = "SELECT level, at FROM buckets WHERE tenant = ?1 AND id = ?2";
    let found = db.prepare_cached(sql).and_then(|mut sql| {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, times(row, 1)?.unwrap_or(at)));
        sql.query_row([&*owner, of], read).optional()
    });
    let found = found.map_err(|error| failed(&error))?.map(|(left, at)| Bucket { left, at });
    let mut bucket = found.unwrap_or_else(|| Bucket::full(rate, at));
    bucket.take(rate, at).map_err(|wait| too_often(of, wait))?;
    let sql = "INSERT INTO buckets (tenant, id, level, at) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (tenant, id) DO UPDATE SET level = excluded.level, at = excluded.at";
    let done = db
        .prepare_cached(sql)
        .and_then(|mut sql| sql.execute(params![owner, of, bucket.left, time(bucket.at)]));
    done.map(drop).map_err(|error| failed(&error))
}

pub(super) fn room(db: &Connection, tenant: TenantId, of: &Room, most: u32) -> Result<()> {
    let (status, column, value) = match of {
        Room::Server(server) => ("running", "server", server.to_string()),
        Room::Subject(subject) => ("running", "subject", subject.clone()),
        Room::Waiting(subject) => ("pending", "subject", subject.clone()),
    };
    let sql = format!(
        "SELECT count(*) FROM calls INDEXED BY calls_by_status WHERE tenant = ?1 AND status = '{status}' AND {column} = ?2"
    );
    let count = db
        .prepare_cached(&sql)
        .and_then(|mut sql| sql.query_row([tenant.to_string(), value], |row| row.get::<_, u32>(0)));
    if count.map_err(|error| failed(&error))? < most { Ok(()) } else { Err(no_room(of, most)) }
}

/// Deletes the buckets that were last used before `before`: they are full again by now.
pub(super) fn forget(db: &Connection, tenant: TenantId, before: Timestamp) -> Result<()> {
    let sql = "DELETE FROM buckets WHERE tenant = ?1 AND at < ?2";
    let done =
        db.prepare_cached(sql).and_then(|mut sql| sql.execute(params![tenant.to_string(), time(before)]));
    done.map(drop).map_err(|error| failed(&error))
}

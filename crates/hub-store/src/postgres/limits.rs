//! Rate limits and concurrency limits, shared by all hubs of the cluster.

use jiff::Timestamp;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::rate_limit::{Bucket, Rate, too_often};
use linchpin_hub_core::store::Room;

use super::calls::{time, times};
use super::connection::Connected;
use super::{Ask as _, Stop};
use crate::common::no_room;

type Result<T> = std::result::Result<T, Stop>;

pub(super) async fn take(
    db: &Connected,
    tenant: TenantId,
    of: &str,
    rate: Rate,
    at: Timestamp,
) -> Result<()> {
    let owner = tenant.to_string();
    let sql = "SELECT level, at FROM buckets WHERE tenant = $1 AND id = $2";
    let found = db.query(sql, &[&owner, &of]).await?;
    let mut bucket = match found.first() {
        Some(row) => Bucket { left: row.try_get(0)?, at: times(row.try_get(1)?)? },
        None => Bucket::full(rate, at),
    };
    bucket.take(rate, at).map_err(|wait| too_often(of, wait))?;
    let sql = "INSERT INTO buckets (tenant, id, level, at) VALUES ($1, $2, $3, $4)
               ON CONFLICT (tenant, id) DO UPDATE SET level = excluded.level, at = excluded.at";
    db.execute(sql, &[&owner, &of, &bucket.left, &time(bucket.at)]).await.map(drop)
}

pub(super) async fn room(db: &Connected, tenant: TenantId, of: &Room, most: u32) -> Result<()> {
    let (status, column, value) = match of {
        Room::Server(server) => ("running", "server", server.to_string()),
        Room::Subject(subject) => ("running", "subject", subject.clone()),
        Room::Waiting(subject) => ("pending", "subject", subject.clone()),
    };
    let sql =
        format!("SELECT count(*) FROM calls WHERE tenant = $1 AND status = '{status}' AND {column} = $2");
    let found = db.query(&sql, &[&tenant.to_string(), &value]).await?;
    let count: i64 = found.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
    if count < i64::from(most) { Ok(()) } else { Err(no_room(of, most).into()) }
}

/// Deletes the buckets that were last used before `before`: they are full again by now.
pub(super) async fn forget(db: &Connected, tenant: TenantId, before: Timestamp) -> Result<()> {
    let sql = "DELETE FROM buckets WHERE tenant = $1 AND at < $2";
    db.execute(sql, &[&tenant.to_string(), &time(before)]).await.map(drop)
}

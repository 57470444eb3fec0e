//! Cluster membership of a hub that shares the database with peer hubs: heartbeat, messages, and a common clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use linchpin_hub_core::Result;
use linchpin_hub_core::events::{EventLog, NewEvent};
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::platform::Platform;
use linchpin_hub_core::store::Cluster;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use super::cluster_log::{ClusterLogReader, prune};
use super::connection::{DbConnection, ReconnectingConnection};
use super::{QueryExecutor as _, StoreFailure, invalid_data};
use crate::common::hub_id;

/// Interval of the heartbeat, and of reads of the cluster log without a notification.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Timeout of the database work of one heartbeat.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of heartbeats between two deletions of old rows.
const HEARTBEATS_PER_PRUNE: u64 = 60;
/// Change of the clock difference between hub and database, in milliseconds, that is ignored.
const CLOCK_TOLERANCE_MS: i64 = 20;
/// Change of the clock difference between hub and database, in milliseconds, above which a warning is logged.
const CLOCK_WARNING_MS: i64 = 2_000;
/// Maximum duration in milliseconds of a heartbeat query that is used to compare the clocks.
const MAX_CLOCK_QUERY_MS: i64 = 500;

/// SQL statement of a heartbeat: updates the time at which this hub was last seen. A hub that missed 3 seconds counts
/// as new: after an outage of the database, the peers have time to send their heartbeats before this hub considers them
/// gone.
const UPSERT_HEARTBEAT: &str = "INSERT INTO hubs (id, since, seen) VALUES ($1, clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET seen = excluded.seen,
        since = CASE WHEN hubs.seen < excluded.seen - INTERVAL '3 seconds' THEN excluded.seen ELSE hubs.since END
    RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT";
const DELETE_OLD_HUBS: &str = "DELETE FROM hubs WHERE seen < now() - INTERVAL '1 hour'";

/// SQL condition: the call was running at a hub that is gone, as seen by the hub `$2`. A hub whose own heartbeat is new
/// or late considers no listed peer gone.
pub(super) const ABANDONED_CONDITION: &str =
    "status = 'running' AND (hub IS NULL OR hub IS DISTINCT FROM $2) AND NOT EXISTS (
    SELECT 1 FROM hubs WHERE hubs.id = calls.hub AND (hubs.seen > now() - INTERVAL '10 seconds'
        OR (SELECT own.since > now() - INTERVAL '10 seconds' OR own.seen < now() - INTERVAL '3 seconds'
            FROM hubs AS own WHERE own.id = $2)))";

/// This hub as a member of the cluster: its id, its peers' messages, and the common clock.
pub(super) struct ClusterMember {
    pub(super) hub: String,
    pub(super) shared: Cluster,
    platform: Arc<dyn Platform>,
    /// Offset of the database clock from the clock of this hub in milliseconds.
    clock_offset_ms: AtomicI64,
}

impl ClusterMember {
    pub(super) async fn new(
        db: &DbConnection,
        platform: Arc<dyn Platform>,
    ) -> Result<(Arc<Self>, ClusterLogReader, mpsc::Receiver<(TenantId, NewEvent)>)> {
        let (events, receiver) = EventLog::clustered();
        let found = db.query("SELECT id FROM line", &[]).await?;
        let cluster_id = found
            .first()
            .ok_or_else(|| invalid_data("empty table `line`"))?
            .try_get(0)
            .map_err(StoreFailure::from)?;
        let (hub, shared) = (hub_id(), Cluster::new(events, cluster_id));
        let mut reader = ClusterLogReader::start(db, &hub, &shared).await?;
        reader.read(db, &shared).await?;
        let member = ClusterMember { hub, shared, platform, clock_offset_ms: AtomicI64::new(0) };
        member.heartbeat(db).await?;
        Ok((Arc::new(member), reader, receiver))
    }

    /// Returns the offset of the database clock from the local clock.
    pub(super) fn clock_offset(&self) -> SignedDuration {
        SignedDuration::from_millis(self.clock_offset_ms.load(Ordering::Relaxed))
    }

    /// Records in the database that this hub is alive, and compares the database clock with the local clock.
    async fn heartbeat(&self, db: &DbConnection) -> Result<(), StoreFailure> {
        let before = self.platform.now().as_millisecond();
        let found = db.query(UPSERT_HEARTBEAT, &[&self.hub]).await?;
        let database_time: i64 = found
            .first()
            .ok_or_else(|| invalid_data("the database returned no row for a heartbeat"))?
            .try_get(0)?;
        let after = self.platform.now().as_millisecond();
        if after - before > MAX_CLOCK_QUERY_MS {
            return Ok(()); // too slow to compare the clocks
        }
        let local_time = before.midpoint(after);
        let (offset, previous_offset) =
            (database_time - local_time, self.clock_offset_ms.load(Ordering::Relaxed));
        if (offset - previous_offset).abs() > CLOCK_TOLERANCE_MS {
            self.clock_offset_ms.store(offset, Ordering::Relaxed);
            if (offset - previous_offset).abs() > CLOCK_WARNING_MS {
                tracing::warn!(
                    milliseconds = offset,
                    "local clock differs from the database clock; using the database clock"
                );
            }
        }
        Ok(())
    }

    /// Sends heartbeats and reads the cluster log until the task is dropped.
    pub(super) async fn run(
        self: Arc<Self>,
        link: ReconnectingConnection,
        mut reader: ClusterLogReader,
        wakeup: Arc<Notify>,
    ) {
        let (mut last_heartbeat, mut count) = (Instant::now(), 0_u64);
        loop {
            let _ = timeout(HEARTBEAT, wakeup.notified()).await; // or the interval has elapsed
            let Ok(db) = link.get().await else {
                self.shared.notify(None);
                continue;
            };
            let work = async {
                if last_heartbeat.elapsed() >= HEARTBEAT {
                    last_heartbeat = Instant::now();
                    count += 1;
                    self.heartbeat(&db).await?;
                    if count.is_multiple_of(HEARTBEATS_PER_PRUNE) {
                        prune(&db).await?;
                        db.execute(DELETE_OLD_HUBS, &[]).await?;
                    }
                }
                reader.read(&db, &self.shared).await
            };
            let done = timeout(HEARTBEAT_TIMEOUT, work).await;
            if matches!(done, Ok(Ok(()))) {
                continue;
            }
            // Changes of peer hubs may have been missed: invalidate all caches.
            self.shared.notify(None);
            match done {
                Ok(Err(stop)) if !stop.is_connection_lost() => {
                    tracing::error!(error = %linchpin_hub_core::Error::from(stop), "failed to read the cluster log; retrying");
                }
                _ => link.discard(&db).await,
            }
        }
    }
}

//! A hub that shares the database with others: they know that it is there, hear what it does, and go by the same clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use linchpin_hub_core::Result;
use linchpin_hub_core::events::{Events, Told};
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::Shared;
use linchpin_hub_core::world::World;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use super::link::{Connected, Link};
use super::news::{Reader, prune};
use super::{Ask as _, Stop, unreadable};
use crate::common::hub_id;

/// How often a hub shows that it is there, and looks for news that nobody has told it of.
const BEAT: Duration = Duration::from_secs(1);
/// How long everything of one beat may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Every so many beats.
const PRUNE: u64 = 60;
/// Clocks that differ by less are the same, in milliseconds; by more than the second, somebody should know.
const NEAR: i64 = 20;
const FAR: i64 = 2_000;
/// What took longer says nothing of the clock.
const SLOW: i64 = 500;

/// Whoever was away for a moment counts as new: others that were away, too, have time to come back before anybody says
/// that they are gone.
const SHOW: &str = "INSERT INTO hubs (id, since, seen) VALUES ($1, clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET seen = excluded.seen,
        since = CASE WHEN hubs.seen < excluded.seen - INTERVAL '3 seconds' THEN excluded.seen ELSE hubs.since END
    RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT";
const FORGET: &str = "DELETE FROM hubs WHERE seen < now() - INTERVAL '1 hour'";

/// Which calls are of a hub that is gone, for the hub `$2`. Whoever was away, or is about to find out that it was, says so of
/// nobody.
pub(super) const IS_ABANDONED: &str =
    "status = 'running' AND (hub IS NULL OR hub IS DISTINCT FROM $2) AND NOT EXISTS (
    SELECT 1 FROM hubs WHERE hubs.id = calls.hub AND (hubs.seen > now() - INTERVAL '10 seconds'
        OR (SELECT own.since > now() - INTERVAL '10 seconds' OR own.seen < now() - INTERVAL '3 seconds'
            FROM hubs AS own WHERE own.id = $2)))";

/// A hub among others.
pub(super) struct Joined {
    pub(super) hub: String,
    pub(super) shared: Shared,
    world: Arc<dyn World>,
    /// How far the clock of the database is ahead, in milliseconds.
    ahead: AtomicI64,
}

impl Joined {
    pub(super) async fn new(
        db: &Connected,
        world: Arc<dyn World>,
    ) -> Result<(Arc<Self>, Reader, mpsc::Receiver<(TenantId, Told)>)> {
        let (events, told) = Events::shared();
        let found = db.query("SELECT id FROM line", &[]).await?;
        let line = found.first().ok_or_else(|| unreadable("no line"))?.try_get(0).map_err(Stop::from)?;
        let (hub, shared) = (hub_id(), Shared::new(events, line));
        let mut reader = Reader::begin(db, &hub, &shared).await?;
        reader.read(db, &shared).await?;
        let joined = Joined { hub, shared, world, ahead: AtomicI64::new(0) };
        joined.show(db).await?;
        Ok((Arc::new(joined), reader, told))
    }

    /// How far the clock of the database is ahead of this machine's.
    pub(super) fn ahead(&self) -> SignedDuration {
        SignedDuration::from_millis(self.ahead.load(Ordering::Relaxed))
    }

    /// Shows that the hub is there, and looks at the clock.
    async fn show(&self, db: &Connected) -> Result<(), Stop> {
        let before = self.world.now().as_millisecond();
        let found = db.query(SHOW, &[&self.hub]).await?;
        let there: i64 = found.first().ok_or_else(|| unreadable("no hub"))?.try_get(0)?;
        let after = self.world.now().as_millisecond();
        if after - before > SLOW {
            return Ok(()); // nobody knows when it was said
        }
        let here = before.midpoint(after);
        let (ahead, known) = (there - here, self.ahead.load(Ordering::Relaxed));
        if (ahead - known).abs() > NEAR {
            self.ahead.store(ahead, Ordering::Relaxed);
            if (ahead - known).abs() > FAR {
                tracing::warn!(
                    milliseconds = ahead,
                    "the clock of this machine is not that of the database, which counts"
                );
            }
        }
        Ok(())
    }

    /// Goes on for as long as the hub does.
    pub(super) async fn live(self: Arc<Self>, link: Link, mut reader: Reader, bell: Arc<Notify>) {
        let (mut beat, mut count) = (Instant::now(), 0_u64);
        loop {
            let _ = timeout(BEAT, bell.notified()).await; // or it is time
            let Ok(db) = link.get().await else {
                self.shared.changed(None);
                continue;
            };
            let work = async {
                if beat.elapsed() >= BEAT {
                    beat = Instant::now();
                    count += 1;
                    self.show(&db).await?;
                    if count.is_multiple_of(PRUNE) {
                        prune(&db).await?;
                        db.execute(FORGET, &[]).await?;
                    }
                }
                reader.read(&db, &self.shared).await
            };
            let done = timeout(PATIENCE, work).await;
            if matches!(done, Ok(Ok(()))) {
                continue;
            }
            // Nobody knows what others do meanwhile.
            self.shared.changed(None);
            match done {
                Ok(Err(stop)) if !stop.is_lost() => {
                    tracing::error!(error = %linchpin_hub_core::Error::from(stop), "what other hubs do cannot be read now");
                }
                _ => link.forget(&db).await,
            }
        }
    }
}

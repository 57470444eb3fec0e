//! Connections to one database: one writer and a few readers. Batches are committed in groups, as in the `SQLite`
//! store; writes of several hubs are serialized per tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::platform::World;
use linchpin_hub_core::store::Batch;
use linchpin_hub_core::{Error, Result, error};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::cluster::Joined;
use super::cluster_log::LISTEN;
use super::connection::{Connected, Link, Values, way};
use super::writer::{Write, Writer};
use super::{Ask, Stop, away, migrations};
use crate::Durability;

/// Queue length of the writer; senders wait while the queue is full.
const QUEUE: usize = 1_024;
/// Number of connections for reads.
const READERS: usize = 4;
/// Timeout of a query.
const PATIENCE: Duration = Duration::from_secs(15);

/// Database with its connections.
pub(super) struct Database {
    writing: mpsc::Sender<Write>,
    readers: Vec<Link>,
    /// Round-robin counter of the readers.
    turn: AtomicUsize,
    /// Writer task.
    task: JoinSet<()>,
    /// Cluster task: sends heartbeats and reads the messages of peer hubs.
    _life: JoinSet<()>,
    pub(super) joined: Option<Arc<Joined>>,
    /// Connection for snapshots, which take long.
    copies: Link,
}

impl Database {
    /// Opens the database. With `joins`, the hub is a member of a cluster, and its clock is compared to the database
    /// clock.
    pub(super) async fn open(
        url: &str,
        durability: Durability,
        joins: Option<Arc<dyn World>>,
    ) -> Result<Self> {
        let way = way(url)?;
        let synchronous = match durability {
            Durability::Process => "off",
            Durability::Power => "on",
        };
        // A hub that hangs in a transaction must not block the others without limit.
        let greeting = format!(
            "SET synchronous_commit = {synchronous}; SET lock_timeout = '10s';
             SET idle_in_transaction_session_timeout = '10s'; SET default_transaction_isolation = 'read committed'"
        );
        let link = Link::new(way.clone(), greeting);
        migrations::bring_up(&*link.get().await?).await?;
        let only_reads = || Link::new(way.clone(), "SET default_transaction_read_only = on".to_owned());
        let readers = std::iter::repeat_with(only_reads).take(READERS).collect();
        let (mut task, mut life) = (JoinSet::new(), JoinSet::new());
        let (mut joined, mut told) = (None, None);
        if let Some(world) = joins {
            let ears = Link::new(way.clone(), LISTEN.to_owned());
            let (others, reader, events) = Joined::new(&*ears.get().await?, world).await?;
            let bell = ears.bell();
            life.spawn(others.clone().live(ears, reader, bell));
            (joined, told) = (Some(others), Some(events));
        }
        let (writing, writes) = mpsc::channel(QUEUE);
        task.spawn(Writer::new(link, joined.clone(), told).write_all(writes));
        let copies = Link::new(way, "SET lock_timeout = '10s'".to_owned());
        Ok(Database { writing, readers, turn: AtomicUsize::new(0), task, _life: life, joined, copies })
    }

    /// Returns the connection for snapshots.
    pub(super) async fn copies(&self) -> Result<Arc<Connected>> {
        self.copies.get().await
    }

    /// Commits a batch, or nothing of it.
    pub(super) async fn write(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        let (done, result) = oneshot::channel();
        self.writing.send(Write { tenant, batch, done }).await.map_err(|_| over())?;
        result.await.map_err(|_| over())?
    }
}

/// The writer commits the queued batches, sees that the queue is closed, and ends.
impl Drop for Database {
    fn drop(&mut self) {
        self.task.detach_all();
    }
}

/// Queries one of the readers. If the connection was lost, the query is repeated once: it has no side effects.
impl Ask for Database {
    async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Stop> {
        let link = &self.readers[self.turn.fetch_add(1, Ordering::Relaxed) % READERS];
        let mut is_first = true;
        loop {
            let db = link.get().await?;
            match timeout(PATIENCE, db.query(sql, values)).await {
                Ok(Err(stop)) if is_first && stop.is_lost() => {
                    link.forget(&db).await;
                    is_first = false;
                }
                Ok(answered) => return answered,
                Err(_) => {
                    link.forget(&db).await;
                    return Err(away("no response within the timeout").into());
                }
            }
        }
    }
}

fn over() -> Error {
    Error::new(error::Kind::Unavailable, "store_closed", "the hub is shutting down")
}

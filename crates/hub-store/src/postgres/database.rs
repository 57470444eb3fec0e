//! The connections to one database: one that writes and a few that read. What is written together is made sure of
//! together, as in the other store, and other hubs on the same database wait for their turn tenant by tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::Batch;
use linchpin_hub_core::world::World;
use linchpin_hub_core::{Error, Result, error};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::joined::Joined;
use super::link::{Connected, Link, Values, way};
use super::news::LISTEN;
use super::writer::{Write, Writer};
use super::{Ask, Stop, away, schema};
use crate::Durability;

/// How many wait for the writer before others wait for their turn to wait.
const QUEUE: usize = 1_024;
/// How many connections read.
const READERS: usize = 4;
/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// One database.
pub(super) struct Database {
    writing: mpsc::Sender<Write>,
    readers: Vec<Link>,
    /// Whose turn it is to read.
    turn: AtomicUsize,
    /// Writes.
    task: JoinSet<()>,
    /// Shows the other hubs that this one is there, and hears of them.
    _life: JoinSet<()>,
    pub(super) joined: Option<Arc<Joined>>,
    /// For what takes long.
    copies: Link,
}

impl Database {
    /// One that is shared with other hubs, if there is a clock to compare.
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
        // Whoever stands still in the middle of something does not keep the others waiting for ever.
        let greeting = format!(
            "SET synchronous_commit = {synchronous}; SET lock_timeout = '10s';
             SET idle_in_transaction_session_timeout = '10s'; SET default_transaction_isolation = 'read committed'"
        );
        let link = Link::new(way.clone(), greeting);
        schema::bring_up(&*link.get().await?).await?;
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

    /// A connection for what takes long.
    pub(super) async fn copies(&self) -> Result<Arc<Connected>> {
        self.copies.get().await
    }

    /// Does all of a batch, or nothing of it.
    pub(super) async fn write(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        let (done, result) = oneshot::channel();
        self.writing.send(Write { tenant, batch, done }).await.map_err(|_| over())?;
        result.await.map_err(|_| over())?
    }
}

/// What was taken is done; then the writer sees that there is nothing more, and ends.
impl Drop for Database {
    fn drop(&mut self) {
        self.task.detach_all();
    }
}

/// Asks one of those that read. A question does no harm when it is asked twice.
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
                    return Err(away("it does not answer").into());
                }
            }
        }
    }
}

fn over() -> Error {
    Error::new(error::Kind::Unavailable, "store_closed", "the hub is ending")
}

//! Connections to one PostgreSQL database: one writer and a few readers. Batches are committed in groups, as in the
//! `SQLite` store; writes of several hubs are serialized per tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin_hub_core::Result;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::platform::Platform;
use linchpin_hub_core::store::Batch;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::cluster::ClusterMember;
use super::cluster_log::LISTEN;
use super::connection::{DbConnection, ReconnectingConnection, Values, parse_url};
use super::writer::{WriteRequest, Writer};
use super::{QueryExecutor, StoreFailure, migrations, unreachable_error};
use crate::Durability;
use crate::common::store_closed;

/// Queue length of the database writer; senders wait while the queue is full.
const QUEUE_LEN: usize = 1_024;
/// Number of database connections for reads.
const READER_COUNT: usize = 4;
/// Timeout of one SQL query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(15);

/// PostgreSQL database of a store, with its connections for writes, reads and snapshots.
pub(super) struct Database {
    write_queue: mpsc::Sender<WriteRequest>,
    readers: Vec<ReconnectingConnection>,
    /// Round-robin counter that selects the database connection for the next read.
    next_reader: AtomicUsize,
    /// Task that executes all database writes.
    writer_task: JoinSet<()>,
    /// Cluster task: sends heartbeats and reads the messages of peer hubs.
    _cluster_task: JoinSet<()>,
    pub(super) cluster: Option<Arc<ClusterMember>>,
    /// Database connection for snapshots, which take long.
    snapshots: ReconnectingConnection,
}

impl Database {
    /// Opens the PostgreSQL database of the hub. With `cluster_platform`, the hub is a member of a cluster, and its
    /// clock is compared to the database clock.
    pub(super) async fn open(
        url: &str,
        durability: Durability,
        cluster_platform: Option<Arc<dyn Platform>>,
    ) -> Result<Self> {
        let options = parse_url(url)?;
        let synchronous = match durability {
            Durability::Process => "off",
            Durability::Power => "on",
        };
        // A hub that hangs in a transaction must not block the others without limit.
        let session_setup = format!(
            "SET synchronous_commit = {synchronous}; SET lock_timeout = '10s';
             SET idle_in_transaction_session_timeout = '10s'; SET default_transaction_isolation = 'read committed'"
        );
        let link = ReconnectingConnection::new(options.clone(), session_setup);
        migrations::migrate(&*link.get().await?).await?;
        let new_reader = || {
            ReconnectingConnection::new(options.clone(), "SET default_transaction_read_only = on".to_owned())
        };
        let readers = std::iter::repeat_with(new_reader).take(READER_COUNT).collect();
        let (mut writer_task, mut cluster_task) = (JoinSet::new(), JoinSet::new());
        let (mut member, mut event_receiver) = (None, None);
        if let Some(platform) = cluster_platform {
            let listener = ReconnectingConnection::new(options.clone(), LISTEN.to_owned());
            let (joined, reader, events) = ClusterMember::new(&*listener.get().await?, platform).await?;
            let wakeup = listener.wakeup();
            cluster_task.spawn(joined.clone().run(listener, reader, wakeup));
            (member, event_receiver) = (Some(joined), Some(events));
        }
        let (write_queue, writes) = mpsc::channel(QUEUE_LEN);
        writer_task.spawn(Writer::new(link, member.clone(), event_receiver).run(writes));
        let snapshots = ReconnectingConnection::new(options, "SET lock_timeout = '10s'".to_owned());
        Ok(Database {
            write_queue,
            readers,
            next_reader: AtomicUsize::new(0),
            writer_task,
            _cluster_task: cluster_task,
            cluster: member,
            snapshots,
        })
    }

    /// Returns the database connection that is reserved for backup snapshots.
    pub(super) async fn snapshot_connection(&self) -> Result<Arc<DbConnection>> {
        self.snapshots.get().await
    }

    /// Commits a batch, or nothing of it.
    pub(super) async fn write(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        let (done, result) = oneshot::channel();
        self.write_queue
            .send(WriteRequest { tenant, batch, outcome: done })
            .await
            .map_err(|_| store_closed())?;
        result.await.map_err(|_| store_closed())?
    }
}

/// The writer commits the queued batches, sees that the queue is closed, and ends.
impl Drop for Database {
    fn drop(&mut self) {
        self.writer_task.detach_all();
    }
}

/// Queries one of the readers. If the connection was lost, the query is repeated once: it has no side effects.
impl QueryExecutor for Database {
    async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, StoreFailure> {
        let link = &self.readers[self.next_reader.fetch_add(1, Ordering::Relaxed) % READER_COUNT];
        let mut is_first = true;
        loop {
            let db = link.get().await?;
            match timeout(QUERY_TIMEOUT, db.query(sql, values)).await {
                Ok(Err(stop)) if is_first && stop.is_connection_lost() => {
                    link.discard(&db).await;
                    is_first = false;
                }
                Ok(result) => return result,
                Err(_) => {
                    link.discard(&db).await;
                    return Err(unreachable_error("the database did not respond in time").into());
                }
            }
        }
    }
}

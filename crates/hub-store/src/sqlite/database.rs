//! Threads of one `SQLite` database file: a writer, a reader for lookups, and one for lists, exports and checkpoints,
//! which take longer and must not delay lookups.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::Batch;
use linchpin_hub_core::{Error, Result, error};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot, watch};

use super::checkpoints::Checkpoints;
use super::errors::database_error;
use super::file_writer::{BUSY_TIMEOUT, FileWriter};
use super::write_queue::{Write, WriteQueue};
use crate::Durability;
use crate::common::store_closed;

/// Queue length of a reader thread; senders wait while the queue is full.
const QUEUE_LEN: usize = 1_024;

pub(super) type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// Disk failure after which nothing is written any more.
pub(super) type DiskFailure = Arc<watch::Sender<Option<Error>>>;

/// Reader thread with its queue.
struct Reader {
    queue: Option<mpsc::Sender<ReadJob>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(name: &str, db: Connection) -> Result<Self> {
        db.pragma_update(None, "query_only", true).map_err(|error| database_error(&error))?;
        let (queue, mut jobs) = mpsc::channel::<ReadJob>(QUEUE_LEN);
        let thread = spawn_thread(name, move || {
            while let Some(job) = jobs.blocking_recv() {
                job(&db);
            }
        })?;
        Ok(Reader { queue: Some(queue), thread: Some(thread) })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = oneshot::channel();
        let job: ReadJob = Box::new(move |db| {
            let _ = done.send(work(db)); // the caller may have dropped its future
        });
        let queue = self.queue.as_ref().ok_or_else(store_closed)?;
        queue.send(job).await.map_err(|_| store_closed())?;
        result.await.map_err(|_| store_closed())?
    }
}

/// Queued jobs are run before the thread ends.
impl Drop for Reader {
    fn drop(&mut self) {
        self.queue = None;
        let _ = self.thread.take().map(JoinHandle::join); // a panic has already been printed
    }
}

/// `SQLite` database file, with its writer thread and reader threads. The threads end one after the other, in this
/// order: the last connection to close merges and removes the journal, and of two that close at the same time neither
/// is the last.
pub(super) struct Database {
    lookups: Reader,
    scans: Reader,
    writer: WriterThread,
    /// Channel with the disk failure after which nothing is written any more.
    disk_failure: watch::Receiver<Option<Error>>,
}

/// Writer thread with its queue.
struct WriterThread {
    queue: Arc<WriteQueue>,
    thread: Option<JoinHandle<()>>,
}

/// Queued batches are committed before the thread ends.
impl Drop for WriterThread {
    fn drop(&mut self) {
        self.queue.close();
        let _ = self.thread.take().map(JoinHandle::join); // a panic has already been printed
    }
}

impl Database {
    /// Opens the file. `hub` is the id of this hub process.
    pub(super) fn open(
        path: &Path,
        durability: Durability,
        hub: Arc<str>,
        prepare: impl FnOnce(&mut Connection) -> Result<()>,
    ) -> Result<Self> {
        // `NORMAL`: the journal survives a crash of the process. Only `FULL` survives power loss.
        let synchronous = match durability {
            Durability::Process => "NORMAL",
            Durability::Power => "FULL",
        };
        let connect = || {
            let connect = || -> rusqlite::Result<Connection> {
                let db = Connection::open(path)?;
                db.busy_timeout(BUSY_TIMEOUT)?;
                db.pragma_update(None, "journal_mode", "WAL")?;
                db.pragma_update(None, "synchronous", synchronous)?;
                db.pragma_update(None, "foreign_keys", true)?;
                // Query planner stability: a statement has one plan, whatever its values.
                db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
                db.set_prepared_statement_cache_capacity(64);
                Ok(db)
            };
            connect().map_err(|error| database_error(&error))
        };
        if is_truncated(path) {
            let damaged = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(database_error(&rusqlite::Error::SqliteFailure(damaged, None)));
        }
        let mut first = connect()?;
        prepare(&mut first)?;
        let lookups = Reader::start("store-reader", connect()?)?;
        let scans = Reader::start("store-scanner", connect()?)?;
        let (failure_sender, disk_failure) = watch::channel(None);
        let failure: DiskFailure = Arc::new(failure_sender);
        let scan_queue = scans.queue.as_ref().ok_or_else(store_closed)?.downgrade();
        let checkpoints = Checkpoints::new(&mut first, scan_queue, failure.clone())
            .map_err(|error| database_error(&error))?;
        let queue = Arc::new(WriteQueue::new(FileWriter::new(first, hub, checkpoints, failure), durability));
        let thread = spawn_thread("store-writer", {
            let queue = queue.clone();
            move || queue.run_thread()
        })?;
        let writer = WriterThread { queue, thread: Some(thread) };
        Ok(Database { lookups, scans, writer, disk_failure })
    }

    /// Runs a short read on the reader thread.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.lookups.run(work).await
    }

    /// Runs a read that may take long.
    pub(super) async fn scan<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.scans.run(work).await
    }

    /// Commits a batch, or nothing of it.
    pub(super) async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        self.writer.queue.write(Write::Batch(tenant, batch)).await
    }

    /// Runs a job on the writer thread in a transaction of its own, and waits for its commit.
    pub(super) async fn run_write(
        &self,
        job: impl FnOnce(&Connection) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.writer.queue.write(Write::Job(Box::new(job))).await
    }

    /// Waits for a disk failure, after which nothing is written any more.
    pub(super) async fn wait_for_disk_failure(&self) -> Error {
        let mut receiver = self.disk_failure.clone();
        let failure = receiver.wait_for(Option::is_some).await;
        failure.ok().and_then(|error| error.clone()).unwrap_or_else(store_closed)
    }
}

/// Returns whether the file is shorter than its header says; `SQLite` would only notice when it reads a missing page.
/// With a non-empty journal this is valid: the journal contains the rest.
fn is_truncated(path: &Path) -> bool {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-wal");
    if std::fs::metadata(journal).is_ok_and(|journal| journal.len() > 0) {
        return false;
    }
    let mut head = [0; 32];
    let Ok(mut file) = File::open(path) else { return false };
    if file.read_exact(&mut head).is_err() {
        return false; // a new file, or not a database: SQLite decides
    }
    let page = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([head[28], head[29], head[30], head[31]]);
    file.metadata().is_ok_and(|found| found.len() < u64::from(pages) * page)
}

fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        Error::new(
            error::ErrorKind::Unavailable,
            "store_unavailable",
            format!("a thread of the store cannot be started: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_written_after_the_disk_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::open(&folder.path().join("hub.db"), Durability::Process, "hub".into(), |_| Ok(()))
            .unwrap();
        let create_table = |name| {
            move |db: &Connection| {
                db.execute_batch(&format!("CREATE TABLE {name} (x)")).map_err(|error| database_error(&error))
            }
        };
        let fails = |code| {
            let fault = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            move |_: &Connection| Err(database_error(&fault))
        };
        // A full disk is not permanent.
        assert_eq!(
            db.run_write(fails(rusqlite::ffi::SQLITE_FULL)).await.unwrap_err().code(),
            "store_unavailable"
        );
        db.run_write(create_table("one")).await.unwrap();
        let error = db.run_write(fails(rusqlite::ffi::SQLITE_IOERR_FSYNC)).await.unwrap_err();
        assert_eq!((db.wait_for_disk_failure().await, error.code()), (error.clone(), "store_broken"));
        assert_eq!(db.run_write(create_table("two")).await.unwrap_err(), error);
        let tables = db.read(|db| {
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, u64>(0))
                .map_err(|error| database_error(&error))
        });
        assert_eq!(tables.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn the_machine_is_waited_for_when_that_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        for (durability, expected) in [(Durability::Process, 1), (Durability::Power, 2)] {
            let db =
                Database::open(&folder.path().join("hub.db"), durability, "hub".into(), |_| Ok(())).unwrap();
            let level = db.read(|db| {
                db.pragma_query_value(None, "synchronous", |row| row.get::<_, u8>(0))
                    .map_err(|error| database_error(&error))
            });
            assert_eq!(level.await.unwrap(), expected);
        }
    }
}

//! Writer and reader threads of one `SQLite` database file. Batches are committed in groups: while one group is written
//! to the disk, the next one queues, so many concurrent writers cost little more than one.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use linchpin_hub_core::{Error, Result, error};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot, watch};

use super::{CODE_STORE_BROKEN, database_error};
use crate::Durability;

/// Queue length per database thread; senders wait while the queue is full.
const QUEUE_LEN: usize = 1_024;
/// Maximum number of batches per commit.
const MAX_GROUP_SIZE: usize = 64;
/// Maximum time to wait for a lock of the database file held by another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

type WriteJob = Box<dyn FnOnce(&Connection) -> Result<()> + Send>;

/// Write job for the `SQLite` writer thread, with the sender of its outcome, which is sent after the commit.
struct WriteRequest {
    job: WriteJob,
    outcome: oneshot::Sender<Result<()>>,
}

/// `SQLite` database file, with its writer thread and reader thread.
pub(super) struct Database {
    write_queue: Option<mpsc::Sender<WriteRequest>>,
    read_queue: Option<mpsc::Sender<ReadJob>>,
    writer: Option<JoinHandle<()>>,
    reader: Option<JoinHandle<()>>,
    /// Channel with the disk failure after which nothing is written any more.
    disk_failure: watch::Receiver<Option<Error>>,
}

impl Database {
    pub(super) fn open(
        path: &Path,
        durability: Durability,
        prepare: impl FnOnce(&mut Connection) -> Result<()>,
    ) -> Result<Self> {
        // `NORMAL`: the journal survives a crash of the process. Only `FULL` survives power loss.
        let synchronous = match durability {
            Durability::Process => "NORMAL",
            Durability::Power => "FULL",
        };
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
        if is_truncated(path) {
            let damaged = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(database_error(&rusqlite::Error::SqliteFailure(damaged, None)));
        }
        let mut first = connect().map_err(|error| database_error(&error))?;
        prepare(&mut first)?;
        let reader = connect().map_err(|error| database_error(&error))?;
        reader.pragma_update(None, "query_only", true).map_err(|error| database_error(&error))?;
        let ((write_queue, writes), (read_queue, reads)) =
            (mpsc::channel(QUEUE_LEN), mpsc::channel(QUEUE_LEN));
        let (failure_sender, disk_failure) = watch::channel(None);
        Ok(Database {
            write_queue: Some(write_queue),
            read_queue: Some(read_queue),
            writer: Some(spawn_thread("store-writer", move || run_writer(&first, writes, &failure_sender))?),
            reader: Some(spawn_thread("store-reader", move || run_reader(&reader, reads))?),
            disk_failure,
        })
    }

    /// Runs a database read on the reader thread.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = oneshot::channel();
        let job: ReadJob = Box::new(move |db| {
            let _ = done.send(work(db)); // the caller may have dropped its future
        });
        let reading = self.read_queue.as_ref().ok_or_else(store_closed)?;
        reading.send(job).await.map_err(|_| store_closed())?;
        result.await.map_err(|_| store_closed())?
    }

    /// Runs a database write on the writer thread, and waits for its commit; all of it is committed, or nothing.
    pub(super) async fn write(
        &self,
        work: impl FnOnce(&Connection) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (done, result) = oneshot::channel();
        let writing = self.write_queue.as_ref().ok_or_else(store_closed)?;
        writing
            .send(WriteRequest { job: Box::new(work), outcome: done })
            .await
            .map_err(|_| store_closed())?;
        result.await.map_err(|_| store_closed())?
    }

    /// Waits for a disk failure, after which nothing is written any more.
    pub(super) async fn wait_for_disk_failure(&self) -> Error {
        let mut receiver = self.disk_failure.clone();
        let failure = receiver.wait_for(Option::is_some).await;
        failure.ok().and_then(|error| error.clone()).unwrap_or_else(store_closed)
    }
}

/// Queued jobs are run before the threads end. The threads end one after the other: the last connection to close merges
/// and removes the journal, and of two that close at the same time neither is the last.
impl Drop for Database {
    fn drop(&mut self) {
        self.read_queue = None;
        let _ = self.reader.take().map(JoinHandle::join); // a panic has already been printed
        self.write_queue = None;
        let _ = self.writer.take().map(JoinHandle::join);
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

fn store_closed() -> Error {
    Error::new(error::ErrorKind::Unavailable, "store_closed", "the hub is shutting down")
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

fn run_reader(db: &Connection, mut reads: mpsc::Receiver<ReadJob>) {
    while let Some(job) = reads.blocking_recv() {
        job(db);
    }
}

/// Executes write requests on the writer thread, several per transaction, until all senders are gone. After a disk
/// failure the content of the disk is unknown, so later writes fail at once.
fn run_writer(
    db: &Connection,
    mut writes: mpsc::Receiver<WriteRequest>,
    disk_failure: &watch::Sender<Option<Error>>,
) {
    let mut group = Vec::with_capacity(MAX_GROUP_SIZE);
    while writes.blocking_recv_many(&mut group, MAX_GROUP_SIZE) > 0 {
        let (jobs, senders): (Vec<_>, Vec<_>) =
            group.drain(..).map(|write| (write.job, write.outcome)).unzip();
        let before = disk_failure.borrow().clone();
        let outcomes = before.map_or_else(|| write_group(db, jobs), Err);
        if let Err(error) = &outcomes
            && error.code() == CODE_STORE_BROKEN
        {
            disk_failure.send_replace(Some(error.clone()));
        }
        for (index, sender) in senders.into_iter().enumerate() {
            let outcome = outcomes.as_ref().map_err(Clone::clone).and_then(|all| all[index].clone());
            let _ = sender.send(outcome); // the caller may have dropped its future
        }
    }
}

/// Runs a group of write jobs in one transaction. A job that fails is rolled back alone.
fn write_group(db: &Connection, group: Vec<WriteJob>) -> Result<Vec<Result<()>>> {
    let fault = |error: rusqlite::Error| database_error(&error);
    let tx = WriteTransaction::new(db).map_err(fault)?;
    let mut outcomes = Vec::with_capacity(group.len());
    for work in group {
        tx.run("SAVEPOINT part").map_err(fault)?;
        let outcome = work(tx.0);
        // SQLite has rolled back the whole group, or the disk has failed.
        if tx.0.is_autocommit() || outcome.as_ref().is_err_and(|error| error.code() == CODE_STORE_BROKEN) {
            return outcome.and(Err(store_closed())).map(|()| outcomes);
        }
        if outcome.is_err() {
            tx.run("ROLLBACK TO part").map_err(fault)?;
        }
        tx.run("RELEASE part").map_err(fault)?;
        outcomes.push(outcome);
    }
    tx.run("COMMIT").map_err(fault)?;
    Ok(outcomes)
}

/// `SQLite` transaction that is rolled back on drop unless it was committed. Its statements are cached, unlike those of
/// `rusqlite::Transaction`: preparing them costs more than the work itself.
struct WriteTransaction<'a>(&'a Connection);

impl<'a> WriteTransaction<'a> {
    fn new(db: &'a Connection) -> rusqlite::Result<Self> {
        let transaction = WriteTransaction(db);
        transaction.run("BEGIN IMMEDIATE")?;
        Ok(transaction)
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.0.prepare_cached(sql)?.execute([]).map(drop)
    }
}

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = self.run("ROLLBACK")
        {
            database_error(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_written_after_the_disk_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::open(&folder.path().join("hub.db"), Durability::Process, |_| Ok(())).unwrap();
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
            db.write(fails(rusqlite::ffi::SQLITE_FULL)).await.unwrap_err().code(),
            "store_unavailable"
        );
        db.write(create_table("one")).await.unwrap();
        let error = db.write(fails(rusqlite::ffi::SQLITE_IOERR_FSYNC)).await.unwrap_err();
        assert_eq!((db.wait_for_disk_failure().await, error.code()), (error.clone(), CODE_STORE_BROKEN));
        assert_eq!(db.write(create_table("two")).await.unwrap_err(), error);
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
            let db = Database::open(&folder.path().join("hub.db"), durability, |_| Ok(())).unwrap();
            let level = db.read(|db| {
                db.pragma_query_value(None, "synchronous", |row| row.get::<_, u8>(0))
                    .map_err(|error| database_error(&error))
            });
            assert_eq!(level.await.unwrap(), expected);
        }
    }
}

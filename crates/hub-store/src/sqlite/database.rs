//! The threads of one database file. What is written together is made sure of together: while one group of batches is
//! on its way to the disk the next gathers, so that many writers cost little more than one.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use linchpin_hub_core::{Error, Result, error};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot, watch};

use super::{DISK, failed};
use crate::Durability;

/// How many wait for a thread before others wait for their turn to wait.
const QUEUE: usize = 1_024;
/// How many batches are made sure of at once.
const GROUP: usize = 64;
/// How long another process may hold the file.
const PATIENCE: Duration = Duration::from_secs(5);

type Read = Box<dyn FnOnce(&Connection) + Send>;

type Work = Box<dyn FnOnce(&Connection) -> Result<()> + Send>;

/// Some work, and who waits until it is sure.
struct Write {
    work: Work,
    done: oneshot::Sender<Result<()>>,
}

/// One database file.
pub(super) struct Database {
    writing: Option<mpsc::Sender<Write>>,
    reading: Option<mpsc::Sender<Read>>,
    writer: Option<JoinHandle<()>>,
    reader: Option<JoinHandle<()>>,
    /// Why nothing is written any more.
    broken: watch::Receiver<Option<Error>>,
}

impl Database {
    pub(super) fn open(
        path: &Path,
        durability: Durability,
        prepare: impl FnOnce(&mut Connection) -> Result<()>,
    ) -> Result<Self> {
        // What is in the journal survives the end of the process; only the end of the machine asks for more.
        let synchronous = match durability {
            Durability::Process => "NORMAL",
            Durability::Power => "FULL",
        };
        let connect = || -> rusqlite::Result<Connection> {
            let db = Connection::open(path)?;
            db.busy_timeout(PATIENCE)?;
            db.pragma_update(None, "journal_mode", "WAL")?;
            db.pragma_update(None, "synchronous", synchronous)?;
            db.pragma_update(None, "foreign_keys", true)?;
            // A statement is planned once, whatever values it gets.
            db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            db.set_prepared_statement_cache_capacity(64);
            Ok(db)
        };
        if is_cut_off(path) {
            let damaged = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(failed(&rusqlite::Error::SqliteFailure(damaged, None)));
        }
        let mut first = connect().map_err(|error| failed(&error))?;
        prepare(&mut first)?;
        let reader = connect().map_err(|error| failed(&error))?;
        reader.pragma_update(None, "query_only", true).map_err(|error| failed(&error))?;
        let ((writing, writes), (reading, reads)) = (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
        let (breaks, broken) = watch::channel(None);
        Ok(Database {
            writing: Some(writing),
            reading: Some(reading),
            writer: Some(start("store-writer", move || write_all(&first, writes, &breaks))?),
            reader: Some(start("store-reader", move || read_all(&reader, reads))?),
            broken,
        })
    }

    /// Reads something.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = oneshot::channel();
        let job: Read = Box::new(move |db| {
            let _ = done.send(work(db)); // whoever asked may have gone
        });
        let reading = self.reading.as_ref().ok_or_else(over)?;
        reading.send(job).await.map_err(|_| over())?;
        result.await.map_err(|_| over())?
    }

    /// Does all of some work, or nothing of it.
    pub(super) async fn write(
        &self,
        work: impl FnOnce(&Connection) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (done, result) = oneshot::channel();
        let writing = self.writing.as_ref().ok_or_else(over)?;
        writing.send(Write { work: Box::new(work), done }).await.map_err(|_| over())?;
        result.await.map_err(|_| over())?
    }

    /// Waits until nothing is written any more.
    pub(super) async fn broken(&self) -> Error {
        let mut broken = self.broken.clone();
        let broken = broken.wait_for(Option::is_some).await;
        broken.ok().and_then(|error| error.clone()).unwrap_or_else(over)
    }
}

/// What was taken is done before the threads end. They end one after the other: the last connection takes in the journal
/// and removes it, and of two that close at once neither is the last.
impl Drop for Database {
    fn drop(&mut self) {
        self.reading = None;
        let _ = self.reader.take().map(JoinHandle::join); // what made it panic has been said
        self.writing = None;
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

/// Whether a file is shorter than it says itself, which the database would find out only when it gets there. While
/// there is a journal it may be: the rest is in there.
fn is_cut_off(path: &Path) -> bool {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-wal");
    if std::fs::metadata(journal).is_ok_and(|journal| journal.len() > 0) {
        return false;
    }
    let mut head = [0; 32];
    let Ok(mut file) = File::open(path) else { return false };
    if file.read_exact(&mut head).is_err() {
        return false; // a new one, or none of ours: the database says so
    }
    let page = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([head[28], head[29], head[30], head[31]]);
    file.metadata().is_ok_and(|found| found.len() < u64::from(pages) * page)
}

fn over() -> Error {
    Error::new(error::Kind::Unavailable, "store_closed", "the hub is ending")
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        Error::new(
            error::Kind::Unavailable,
            "store_unavailable",
            format!("no thread can be started: {error}"),
        )
    })
}

fn read_all(db: &Connection, mut reads: mpsc::Receiver<Read>) {
    while let Some(job) = reads.blocking_recv() {
        job(db);
    }
}

/// Writes until the disk fails. After that nobody knows what is there, and what is asked then is not tried.
fn write_all(db: &Connection, mut writes: mpsc::Receiver<Write>, broken: &watch::Sender<Option<Error>>) {
    let mut group = Vec::with_capacity(GROUP);
    while writes.blocking_recv_many(&mut group, GROUP) > 0 {
        let (work, waiting): (Vec<_>, Vec<_>) = group.drain(..).map(|write| (write.work, write.done)).unzip();
        let before = broken.borrow().clone();
        let outcomes = before.map_or_else(|| write_group(db, work), Err);
        if let Err(error) = &outcomes
            && error.code() == DISK
        {
            broken.send_replace(Some(error.clone()));
        }
        for (index, done) in waiting.into_iter().enumerate() {
            let outcome = outcomes.as_ref().map_err(Clone::clone).and_then(|all| all[index].clone());
            let _ = done.send(outcome); // whoever asked may have gone
        }
    }
}

/// Does all work of a group. What cannot be done is undone alone.
fn write_group(db: &Connection, group: Vec<Work>) -> Result<Vec<Result<()>>> {
    let fault = |error: rusqlite::Error| failed(&error);
    let tx = Begun::new(db).map_err(fault)?;
    let mut outcomes = Vec::with_capacity(group.len());
    for work in group {
        tx.run("SAVEPOINT part").map_err(fault)?;
        let outcome = work(tx.0);
        // The database has undone the whole group, or cannot be believed any more.
        if tx.0.is_autocommit() || outcome.as_ref().is_err_and(|error| error.code() == DISK) {
            return outcome.and(Err(over())).map(|()| outcomes);
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

/// A transaction that is undone unless it is committed. Its statements are kept, which `rusqlite`'s own are not: they cost
/// more than the work itself.
struct Begun<'a>(&'a Connection);

impl<'a> Begun<'a> {
    fn new(db: &'a Connection) -> rusqlite::Result<Self> {
        let begun = Begun(db);
        begun.run("BEGIN IMMEDIATE")?;
        Ok(begun)
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.0.prepare_cached(sql)?.execute([]).map(drop)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = self.run("ROLLBACK")
        {
            failed(&error);
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
        let make = |name| {
            move |db: &Connection| {
                db.execute_batch(&format!("CREATE TABLE {name} (x)")).map_err(|error| failed(&error))
            }
        };
        let fails = |code| {
            let fault = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            move |_: &Connection| Err(failed(&fault))
        };
        // There may be room again.
        assert_eq!(
            db.write(fails(rusqlite::ffi::SQLITE_FULL)).await.unwrap_err().code(),
            "store_unavailable"
        );
        db.write(make("one")).await.unwrap();
        let error = db.write(fails(rusqlite::ffi::SQLITE_IOERR_FSYNC)).await.unwrap_err();
        assert_eq!((db.broken().await, error.code()), (error.clone(), DISK));
        assert_eq!(db.write(make("two")).await.unwrap_err(), error);
        let tables = db.read(|db| {
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, u64>(0))
                .map_err(|error| failed(&error))
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
                    .map_err(|error| failed(&error))
            });
            assert_eq!(level.await.unwrap(), expected);
        }
    }
}

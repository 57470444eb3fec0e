//! Writer of one `SQLite` file: commits groups of requests on its connection, and stops after a disk failure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linchpin_hub_core::Result;
use rusqlite::Connection;

use super::checkpoints::Checkpoints;
use super::database::DiskFailure;
use super::errors::is_disk_failure;
use super::memory::Memory;
use super::write_queue::{Write, WriteRequest};
use super::writer::{BEGIN, Writer};

/// Maximum time to wait for a lock of the database file held by another process.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Duration of a commit from which the disk counts as slow.
const SLOW_COMMIT: Duration = Duration::from_millis(10);
/// Time after a slow commit during which only the writer thread commits, and no task.
const SLOW_PERIOD: Duration = Duration::from_secs(1);

/// Connection that writes the file, with what it knows of the content.
pub(super) struct FileWriter {
    db: Connection,
    /// Id of this hub process.
    hub: Arc<str>,
    memory: Memory,
    checkpoints: Checkpoints,
    /// Whether the next checkpoint must run before further commits.
    is_checkpoint_due: bool,
    disk_failure: DiskFailure,
    /// End of the period in which only the writer thread commits.
    slow_until: Option<Instant>,
}

/// Outcome of the attempt of a task to commit a group.
pub(super) enum Attempt {
    /// The group was committed, or has failed: its senders know.
    Done,
    /// The commit may have to wait: the writer thread must do it.
    NotNow(Vec<WriteRequest>),
}

impl FileWriter {
    pub(super) fn new(
        db: Connection,
        hub: Arc<str>,
        checkpoints: Checkpoints,
        disk_failure: DiskFailure,
    ) -> Self {
        FileWriter {
            db,
            hub,
            memory: Memory::default(),
            checkpoints,
            is_checkpoint_due: false,
            disk_failure,
            slow_until: None,
        }
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.db
    }

    /// Commits a group of batches, unless that may wait for another process or a slow disk.
    pub(super) fn try_commit(&mut self, group: Vec<WriteRequest>) -> Attempt {
        if group.is_empty() {
            return Attempt::Done;
        }
        let start = Instant::now();
        if self.is_checkpoint_due || self.slow_until.is_some_and(|end| start < end) || !self.try_begin() {
            return Attempt::NotNow(group);
        }
        self.commit_begun(group);
        let end = Instant::now();
        self.slow_until = (end - start >= SLOW_COMMIT).then(|| end + SLOW_PERIOD);
        Attempt::Done
    }

    /// Begins a transaction. Returns `false` if another process is writing. Other errors are left to the commit.
    fn try_begin(&mut self) -> bool {
        self.roll_back_unfinished();
        if self.disk_failure.borrow().is_some() {
            return true;
        }
        let begun =
            self.db.busy_timeout(Duration::ZERO).and_then(|()| self.db.prepare_cached(BEGIN)?.execute([]));
        let is_busy =
            begun.is_err_and(|error| error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy));
        let is_restored = self.db.busy_timeout(BUSY_TIMEOUT).is_ok();
        !is_busy && is_restored
    }

    /// Rolls back a transaction that a panic has left unfinished.
    fn roll_back_unfinished(&mut self) {
        if !self.db.is_autocommit() {
            self.memory = Memory::default();
            let _ = self.db.execute_batch("ROLLBACK"); // if it fails, the next transaction fails as well
        }
    }

    /// Commits a group of requests: its batches in one transaction, its jobs in one each. May wait for the disk.
    pub(super) fn commit(&mut self, group: Vec<WriteRequest>) {
        self.roll_back_unfinished();
        if std::mem::take(&mut self.is_checkpoint_due) {
            self.checkpoints.run(&self.db);
        }
        self.commit_begun(group);
    }

    /// Commits a group of requests; the transaction of its batches may have begun.
    fn commit_begun(&mut self, group: Vec<WriteRequest>) {
        let (mut batches, mut senders, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
        for WriteRequest { write, outcome, .. } in group {
            match write {
                Write::Batch(tenant, batch) => {
                    batches.push((tenant, batch));
                    senders.push(outcome);
                }
                Write::Job(job) => jobs.push((job, outcome)),
            }
        }
        if !batches.is_empty() {
            let outcomes = self.transact(|writer| writer.commit(&mut batches));
            let outcomes = outcomes.unwrap_or_else(|error| vec![Err(error); senders.len()]);
            for (sender, outcome) in senders.into_iter().zip(outcomes) {
                let _ = sender.send(outcome); // the caller may have dropped its future
            }
        }
        for (job, sender) in jobs {
            let done = self.transact(|writer| writer.run(job));
            let _ = sender.send(done); // the caller may have dropped its future
        }
        self.is_checkpoint_due = self.checkpoints.after_commit();
    }

    /// Runs work with the writer. After a disk failure the content of the disk is unknown, so later writes fail at once.
    fn transact<T>(&mut self, work: impl FnOnce(&mut Writer<'_>) -> Result<T>) -> Result<T> {
        if let Some(error) = self.disk_failure.borrow().clone() {
            return Err(error);
        }
        let done = work(&mut Writer::new(&self.db, self.hub.clone(), &mut self.memory));
        if let Err(error) = &done
            && is_disk_failure(error)
        {
            self.disk_failure.send_replace(Some(error.clone()));
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, watch};

    use super::*;

    #[test]
    fn tasks_do_not_commit_while_the_disk_is_slow_or_a_checkpoint_is_due() {
        let mut db = Connection::open_in_memory().unwrap();
        super::super::migrations::migrate(&mut db).unwrap();
        let (jobs, failure) = (mpsc::channel(1).0, Arc::new(watch::channel(None).0));
        let checkpoints = Checkpoints::new(&mut db, jobs.downgrade(), failure.clone()).unwrap();
        let mut writer = FileWriter::new(db, "hub".into(), checkpoints, failure);
        let attempt = |writer: &mut FileWriter| {
            let (request, outcome) = WriteRequest::of_empty_batch();
            let is_done = matches!(writer.try_commit(vec![request]), Attempt::Done);
            (is_done, outcome)
        };
        assert!(attempt(&mut writer).0);
        writer.slow_until = Some(Instant::now() + SLOW_PERIOD);
        assert!(!attempt(&mut writer).0);
        writer.slow_until = None;
        writer.is_checkpoint_due = true;
        assert!(!attempt(&mut writer).0);
        writer.commit(Vec::new());
        let (is_done, mut outcome) = attempt(&mut writer);
        assert!(is_done && outcome.try_recv().unwrap().is_ok());
    }
}

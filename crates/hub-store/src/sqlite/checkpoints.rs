//! Checkpoints of the write-ahead log: they move it into the database file outside the writer thread, since they wait for
//! the disk.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};
use tokio::sync::mpsc::WeakSender;

use super::database::{DiskFailure, ReadJob};
use super::errors::{database_error, is_disk_failure};

/// Number of pages that are added to the log between two checkpoints.
const INTERVAL: usize = 4_000;
/// Number of pages in the log above which the writer itself runs the checkpoints. Only then is the log certain to be
/// empty after one, since the writer adds nothing meanwhile.
const MAX_PAGES: usize = 16_000;

/// Schedule of the checkpoints of one database.
pub(super) struct Checkpoints {
    /// Number of pages in the log after the last commit.
    pages: Arc<AtomicUsize>,
    previous_pages: usize,
    /// Number of pages at which the next checkpoint is due.
    next: usize,
    /// Queue of the thread that runs the checkpoints.
    queue: WeakSender<ReadJob>,
    disk_failure: DiskFailure,
}

impl Checkpoints {
    /// Replaces the automatic checkpoints of a connection, which its commits would wait for.
    pub(super) fn new(
        db: &mut Connection,
        queue: WeakSender<ReadJob>,
        disk_failure: DiskFailure,
    ) -> rusqlite::Result<Self> {
        let pages: Arc<AtomicUsize> = Arc::default();
        let counter = pages.clone();
        db.wal_hook(Some(move |_: &mut Wal, pages: c_int| {
            counter.store(usize::try_from(pages).unwrap_or_default(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Checkpoints { pages, previous_pages: 0, next: INTERVAL, queue, disk_failure })
    }

    /// Starts a checkpoint outside the writer if one is due. Returns whether the writer must run one itself.
    pub(super) fn after_commit(&mut self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.previous_pages {
            self.next = INTERVAL; // the log was empty and starts again
        }
        self.previous_pages = pages;
        if pages < self.next {
            return false;
        }
        self.next = pages + INTERVAL;
        if pages >= MAX_PAGES {
            return true;
        }
        if let Some(queue) = self.queue.upgrade() {
            let disk_failure = self.disk_failure.clone();
            let job: ReadJob = Box::new(move |db| checkpoint(db, &disk_failure));
            let _ = queue.try_send(job); // if the queue is full, the next checkpoint does more
        }
        false
    }

    /// Runs a checkpoint on the connection of the writer.
    pub(super) fn run(&self, db: &Connection) {
        checkpoint(db, &self.disk_failure);
    }
}

/// Moves the log into the database file, as far as no reader needs it.
fn checkpoint(db: &Connection, disk_failure: &DiskFailure) {
    let Err(error) = db.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE) else { return };
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) {
        return; // another process runs one
    }
    let error = database_error(&error);
    if is_disk_failure(&error) {
        disk_failure.send_replace(Some(error));
    }
}

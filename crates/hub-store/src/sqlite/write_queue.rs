//! Queue of the write requests of one `SQLite` file. A small batch is committed by the task that queues it, together with
//! all that wait: no thread has to wake up for it. Everything else is committed by the writer thread, which may wait for
//! the disk or for another process.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use linchpin_hub_core::Result;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Batch, StoreChange};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::file_writer::{Attempt, FileWriter};
use crate::Durability;
use crate::common::store_closed;

/// Maximum number of queued requests; senders wait while the queue is full.
const MAX_REQUESTS: usize = 1_024;
/// Maximum number of batches per commit.
const MAX_GROUP_SIZE: usize = 64;
/// Maximum number of groups that a task commits before the thread takes over.
const MAX_GROUPS_PER_TASK: usize = 4;
/// Maximum number of changes and audit entries of a small batch.
const MAX_SMALL_CHANGES: usize = 16;
/// Maximum size of the encrypted parts of a small batch, in bytes.
const MAX_SMALL_BYTES: usize = 64 << 10;

pub(super) type WriteJob = Box<dyn FnOnce(&Connection) -> Result<()> + Send>;

/// Change of the file.
pub(super) enum Write {
    /// Batch that is committed together with others.
    Batch(TenantId, Batch),
    /// Job that runs in a transaction of its own.
    Job(WriteJob),
}

/// Queued change, with the sender of its outcome, which is sent after the commit.
pub(super) struct WriteRequest {
    pub(super) write: Write,
    pub(super) outcome: oneshot::Sender<Result<()>>,
    /// Whether a task may commit it.
    is_small: bool,
    /// Place in the queue.
    _permit: OwnedSemaphorePermit,
}

#[cfg(test)]
impl WriteRequest {
    /// Creates a request without changes, and the receiver of its outcome.
    pub(super) fn of_empty_batch() -> (Self, oneshot::Receiver<Result<()>>) {
        let (outcome, receiver) = oneshot::channel();
        let write = Write::Batch(TenantId::from_u128(1), Batch::new());
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        (WriteRequest { write, outcome, is_small: true, _permit: permit }, receiver)
    }
}

/// Number of times that a task lets the others run before it commits. Each time, the responses of servers that have
/// arrived meanwhile become batches. With one call in flight this costs a microsecond.
const YIELDS: usize = 4;

/// Queue with the writer of its file.
pub(super) struct WriteQueue {
    requests: Mutex<VecDeque<WriteRequest>>,
    places: Arc<Semaphore>,
    writer: Mutex<FileWriter>,
    thread: Mutex<ThreadSignal>,
    thread_signal: Condvar,
    /// Whether tasks may commit: not if each commit waits for the disk.
    allows_tasks: bool,
}

/// What the writer thread is asked to do.
#[derive(Default)]
struct ThreadSignal {
    has_work: bool,
    is_closed: bool,
}

impl WriteQueue {
    pub(super) fn new(writer: FileWriter, durability: Durability) -> Self {
        WriteQueue {
            requests: Mutex::default(),
            places: Arc::new(Semaphore::new(MAX_REQUESTS)),
            writer: Mutex::new(writer),
            thread: Mutex::default(),
            thread_signal: Condvar::new(),
            allows_tasks: durability == Durability::Process,
        }
    }

    /// Queues a change, and waits for its commit.
    pub(super) async fn write(&self, write: Write) -> Result<()> {
        let is_small = self.allows_tasks && matches!(&write, Write::Batch(_, batch) if is_small(batch));
        let place = self.places.clone().acquire_owned().await.map_err(|_| store_closed())?;
        let (outcome, mut result) = oneshot::channel();
        let request = WriteRequest { write, outcome, is_small, _permit: place };
        lock(&self.requests).push_back(request);
        if is_small {
            // If the caller drops this future here, the thread commits the batch.
            let unattended = WakeOnDrop(Some(self));
            // Other tasks that are ready queue their batches first, so that one commit stores them all.
            // A task whose batch was committed meanwhile waits as well: then the next groups are as large as this one.
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
            unattended.disarm();
            if let Ok(outcome) = result.try_recv() {
                return outcome;
            }
            self.commit_from_task();
        } else {
            self.wake_thread();
        }
        result.await.map_err(|_| store_closed())?
    }

    /// Commits the small batches at the front of the queue, unless another task or the thread is committing: that one
    /// looks at the queue again when it is done.
    fn commit_from_task(&self) {
        for _ in 0..MAX_GROUPS_PER_TASK {
            let mut writer = match self.writer.try_lock() {
                Ok(writer) => writer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let group = self.take_group(|request| request.is_small);
            if let Attempt::NotNow(group) = writer.try_commit(group) {
                let mut requests = lock(&self.requests);
                group.into_iter().rev().for_each(|request| requests.push_front(request));
                drop(requests);
                break;
            }
            drop(writer);
            match lock(&self.requests).front() {
                None => return,
                Some(request) if !request.is_small => break,
                Some(_) => {}
            }
        }
        self.wake_thread();
    }

    /// Commits queued requests until the queue is closed and empty. Runs on the writer thread.
    pub(super) fn run_thread(&self) {
        loop {
            let mut signal = lock(&self.thread);
            while !signal.has_work && !signal.is_closed {
                signal = self.thread_signal.wait(signal).unwrap_or_else(PoisonError::into_inner);
            }
            signal.has_work = false;
            let is_closed = signal.is_closed;
            drop(signal);
            // The queue is read again after each unlock of the writer: a task that finds it locked relies on that.
            loop {
                let mut writer = lock(&self.writer);
                let group = self.take_group(|_| true);
                writer.commit(group);
                drop(writer);
                if lock(&self.requests).is_empty() {
                    break;
                }
            }
            if is_closed {
                return;
            }
        }
    }

    /// Ends the thread after it has committed what is queued.
    pub(super) fn close(&self) {
        self.places.close();
        lock(&self.thread).is_closed = true;
        self.thread_signal.notify_one();
    }

    fn take_group(&self, is_accepted: impl Fn(&WriteRequest) -> bool) -> Vec<WriteRequest> {
        let mut requests = lock(&self.requests);
        let count = requests.iter().take(MAX_GROUP_SIZE).take_while(|request| is_accepted(request)).count();
        requests.drain(..count).collect()
    }

    fn wake_thread(&self) {
        lock(&self.thread).has_work = true;
        self.thread_signal.notify_one();
    }
}

/// Wakes the writer thread when it is dropped, unless it was disarmed.
struct WakeOnDrop<'a>(Option<&'a WriteQueue>);

impl WakeOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.0 {
            queue.wake_thread();
        }
    }
}

/// Returns whether a batch is committed in less time than a thread needs to wake up.
fn is_small(batch: &Batch) -> bool {
    let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    let size = |change: &StoreChange| match change {
        StoreChange::Put { .. }
        | StoreChange::DeleteChildren { .. }
        | StoreChange::PruneCalls { .. }
        | StoreChange::RemoveSealedEntries { .. } => None,
        StoreChange::InsertCall(call) => Some(length(&call.arguments)),
        StoreChange::FinishCall { outcome, .. } => Some(length(&outcome.result) + length(&outcome.error)),
        StoreChange::EditArguments { arguments, .. } => Some(length(arguments)),
        _ => Some(0),
    };
    batch.changes.len() + batch.audit.len() <= MAX_SMALL_CHANGES
        && batch.changes.iter().map(size).sum::<Option<usize>>().is_some_and(|bytes| bytes <= MAX_SMALL_BYTES)
}

/// Locks a mutex. After a panic the writer rolls its transaction back, and the queue is intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::task::{Context, Waker};

    use jiff::Timestamp;
    use linchpin_hub_core::audit::AuditEntry;
    use tokio::sync::{mpsc, watch};

    use super::super::checkpoints::Checkpoints;
    use super::super::migrations::migrate;
    use super::*;

    /// Returns a queue whose writer thread does not run.
    fn queue_without_thread(path: &Path) -> WriteQueue {
        let mut db = Connection::open(path).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        migrate(&mut db).unwrap();
        let (jobs, failure) = (mpsc::channel(1).0, Arc::new(watch::channel(None).0));
        let checkpoints = Checkpoints::new(&mut db, jobs.downgrade(), failure.clone()).unwrap();
        WriteQueue::new(FileWriter::new(db, "hub".into(), checkpoints, failure), Durability::Process)
    }

    fn batch_of(entries: usize) -> Write {
        let entry = AuditEntry::new(Timestamp::UNIX_EPOCH, "hub", "test.entry");
        let batch = Batch { audit: vec![entry; entries], ..Batch::new() };
        Write::Batch(TenantId::from_u128(1), batch)
    }

    fn count(path: &Path, table: &str) -> u64 {
        let db = Connection::open(path).unwrap();
        db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }

    /// Polls a write, which must not end, once before and once after it has yielded.
    fn poll_pending(write: &mut (impl Future<Output = Result<()>> + Unpin)) {
        for _ in 0..2 {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(std::pin::Pin::new(&mut *write).poll(&mut cx).is_pending());
        }
    }

    #[tokio::test]
    async fn small_batches_are_committed_without_the_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.db");
        let queue = queue_without_thread(&path);
        let (one, two) = tokio::join!(queue.write(batch_of(1)), queue.write(batch_of(2)));
        assert_eq!((one, two, count(&path, "audit")), (Ok(()), Ok(()), 3));
    }

    #[tokio::test]
    async fn what_may_wait_is_committed_by_the_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.db");
        let queue = queue_without_thread(&path);
        let mut large = Box::pin(queue.write(batch_of(MAX_SMALL_CHANGES + 1)));
        poll_pending(&mut large);
        // A small batch waits behind a large one.
        let mut second = Box::pin(queue.write(batch_of(1)));
        poll_pending(&mut second);
        queue.close();
        queue.run_thread();
        assert_eq!((large.await, second.await), (Ok(()), Ok(())));

        let queue = queue_without_thread(&path);
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut third = Box::pin(queue.write(batch_of(1)));
        poll_pending(&mut third);
        other.execute_batch("COMMIT").unwrap();
        queue.close();
        queue.run_thread();
        assert_eq!((third.await, count(&path, "audit")), (Ok(()), 19));
    }

    #[tokio::test]
    async fn a_batch_whose_task_is_gone_is_committed_by_the_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.db");
        let queue = queue_without_thread(&path);
        let mut write = Box::pin(queue.write(batch_of(1)));
        assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(!lock(&queue.thread).has_work);
        drop(write);
        assert!(lock(&queue.thread).has_work);
        queue.close();
        queue.run_thread();
        assert_eq!(count(&path, "audit"), 1);
    }

    #[tokio::test]
    async fn a_transaction_that_a_panic_left_is_rolled_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.db");
        let queue = queue_without_thread(&path);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let writer = lock(&queue.writer);
                writer.connection().execute_batch("BEGIN IMMEDIATE; CREATE TABLE unfinished (x)").unwrap();
                panic!("the writer fails in a transaction");
            });
            panics.join().unwrap_err();
        });
        queue.write(batch_of(1)).await.unwrap();
        let tables = "sqlite_schema WHERE name = 'unfinished'";
        assert_eq!((count(&path, "audit"), count(&path, tables)), (1, 0));
    }
}

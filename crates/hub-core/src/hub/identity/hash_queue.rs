//! Queue of password hashes: bounded, and shared between the sources of logins, so that none of them fills it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use crate::error::{self, Error, Result};
use crate::id::UserId;
use crate::lock::lock;

/// Maximum number of password hashes computed at once; each takes 64 MiB.
const MAX_RUNNING: usize = 2;
/// Maximum number of waiting and running password hashes of one client network without a session or token.
const MAX_PER_SOURCE: usize = 8;
/// Maximum number of waiting and running password hashes of all clients without a session or token.
const MAX_ALL_SOURCES: usize = 32;
/// Maximum number of waiting and running password hashes of one logged-in user, or one whose password the operator
/// sets.
const MAX_PER_USER: usize = 2;
/// Maximum number of waiting and running password hashes of all logged-in users and users whose password
/// the operator sets, together.
const MAX_ALL_USERS: usize = 16;
/// Retry delay that is reported to clients that found the hash queue full.
const BUSY_RETRY: Duration = Duration::from_secs(2);

/// User or client address on whose behalf a password is hashed; each has a limited share of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum QueueOwner {
    /// Logged-in user, or user whose password the operator sets.
    User(UserId),
    /// Address of a client that has not authenticated yet.
    Source(Option<IpAddr>),
}

impl QueueOwner {
    fn is_source(self) -> bool {
        matches!(self, QueueOwner::Source(_))
    }
}

/// Queue of password hashes to compute, for logins and password changes.
pub(in crate::hub) struct HashQueue {
    permits: Arc<Semaphore>,
    state: Arc<Mutex<HashQueueState>>,
}

#[derive(Default)]
struct HashQueueState {
    last: u64,
    /// Waiting and running password hashes, in order of arrival.
    entries: Vec<QueueEntry>,
}

struct QueueEntry {
    number: u64,
    owner: QueueOwner,
    is_running: bool,
    evicted: Arc<Notify>,
}

impl HashQueueState {
    fn count(&self, is_counted: impl Fn(QueueOwner) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_counted(entry.owner)).count()
    }

    /// Removes the newest waiting entry of the client address that has the most entries, to make room. Returns `false`
    /// if no source has a waiting place beside another one.
    fn evict(&mut self) -> bool {
        let owner_count = |entry: &QueueEntry| self.count(|owner| owner == entry.owner);
        let waiting = self.entries.iter().enumerate();
        let waiting = waiting.filter(|(_, entry)| entry.owner.is_source() && !entry.is_running);
        let newest =
            waiting.max_by_key(|(_, entry)| owner_count(entry)).filter(|(_, entry)| owner_count(entry) > 1);
        let Some((at, _)) = newest else { return false };
        self.entries.remove(at).evicted.notify_one();
        true
    }
}

/// Place of a password hash in the queue. Released on drop.
pub(in crate::hub) struct QueueTicket {
    state: Arc<Mutex<HashQueueState>>,
    number: u64,
    evicted: Arc<Notify>,
}

impl QueueTicket {
    /// Marks this place in the queue of password hashes as running. Returns `false` if another source has taken it
    /// over.
    fn start(&self) -> bool {
        let mut state = lock(&self.state);
        let own_entry = state.entries.iter_mut().find(|entry| entry.number == self.number);
        own_entry.map(|entry| entry.is_running = true).is_some()
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        lock(&self.state).entries.retain(|entry| entry.number != self.number);
    }
}

fn queue_full_error() -> Error {
    let text = format!("too many concurrent logins: try again in {} s", BUSY_RETRY.as_secs());
    Error::new(error::ErrorKind::Unavailable, "sign_in_busy", text).with_retry_after(BUSY_RETRY)
}

impl HashQueue {
    pub(in crate::hub) fn new() -> Self {
        HashQueue { permits: Arc::new(Semaphore::new(MAX_RUNNING)), state: Arc::default() }
    }

    /// Takes a place in the queue for password hashing, or fails at once. If the queue is full, a source without a
    /// place takes over a waiting place of the source that has the most.
    pub(in crate::hub) fn enqueue(&self, owner: QueueOwner) -> Result<QueueTicket> {
        let mut state = lock(&self.state);
        let all_count = state.count(|other| other.is_source() == owner.is_source());
        let own_count = state.count(|other| other == owner);
        let (max, max_own) = match owner {
            QueueOwner::Source(_) => (MAX_ALL_SOURCES, MAX_PER_SOURCE),
            QueueOwner::User(_) => (MAX_ALL_USERS, MAX_PER_USER),
        };
        let has_capacity = all_count < max || (own_count == 0 && owner.is_source() && state.evict());
        if !has_capacity || own_count >= max_own {
            return Err(queue_full_error());
        }
        state.last += 1;
        let (number, evicted) = (state.last, Arc::<Notify>::default());
        state.entries.push(QueueEntry { number, owner, is_running: false, evicted: evicted.clone() });
        Ok(QueueTicket { state: self.state.clone(), number, evicted })
    }

    /// Runs password hashing on a blocking thread, in order of arrival. Work that has started finishes and holds its
    /// place, even if the caller is dropped.
    pub(in crate::hub) async fn run<T: Send + 'static>(
        &self,
        ticket: QueueTicket,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = tokio::select! {
            biased;
            () = ticket.evicted.notified() => return Err(queue_full_error()),
            permit = self.permits.clone().acquire_owned() => permit.map_err(|_| Error::shutting_down())?,
        };
        if !ticket.start() {
            return Err(queue_full_error());
        }
        let work = tokio::task::spawn_blocking(move || {
            let result = work();
            drop((permit, ticket));
            result
        });
        work.await.map_err(|_| Error::shutting_down())?
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    fn source(number: u8) -> QueueOwner {
        QueueOwner::Source(Some(IpAddr::from([10, 0, 0, number])))
    }

    fn take(queue: &HashQueue, owner: QueueOwner) -> Vec<QueueTicket> {
        std::iter::from_fn(|| queue.enqueue(owner).ok()).collect()
    }

    #[tokio::test]
    async fn two_hashes_run_at_once_and_a_caller_that_leaves_makes_no_room() {
        let queue = HashQueue::new();
        let (release, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let (wait, (started, mut starts)) = (Arc::new(Mutex::new(wait)), tokio::sync::mpsc::channel(9));
        let work = || {
            let (wait, started) = (wait.clone(), started.clone());
            move || {
                started.blocking_send(()).unwrap();
                lock(&wait).recv().unwrap();
                Ok(())
            }
        };
        let ticket = || queue.enqueue(QueueOwner::Source(None)).unwrap();
        let both_runs = async { tokio::join!(queue.run(ticket(), work()), queue.run(ticket(), work())) };
        tokio::select! {
            _ = both_runs => panic!("both wait for the test"),
            () = async { starts.recv().await.unwrap(); starts.recv().await.unwrap() } => {}
        }
        // Their callers were dropped, and they still run.
        assert_eq!(queue.permits.available_permits(), 0);
        let third = queue.run(ticket(), || Ok(3));
        let mut third = std::pin::pin!(third);
        tokio::select! {
            biased;
            _ = &mut third => panic!("no hash may run beside two others"),
            () = std::future::ready(()) => {}
        }
        release.send(()).unwrap();
        assert_eq!(timeout(Duration::from_secs(30), third).await.unwrap(), Ok(3));
        release.send(()).unwrap();
    }

    #[test]
    fn the_queue_is_bounded_and_each_lane_has_a_part_of_it() {
        let queue = HashQueue::new();
        let first = take(&queue, source(1));
        assert_eq!(first.len(), MAX_PER_SOURCE);
        let error = queue.enqueue(source(1)).err().unwrap();
        assert_eq!((error.kind(), error.code()), (error::ErrorKind::Unavailable, "sign_in_busy"));
        assert_eq!(error.retry_after(), Some(BUSY_RETRY));
        let others: Vec<_> = (2..100).flat_map(|number| take(&queue, source(number))).collect();
        assert_eq!(lock(&queue.state).entries.len(), MAX_ALL_SOURCES);
        let user = QueueOwner::User(UserId::from_u128(1));
        assert_eq!(take(&queue, user).len(), MAX_PER_USER, "logged-in users have their own places");
        drop((first, others));
        assert!(lock(&queue.state).entries.is_empty());
    }

    #[tokio::test]
    async fn a_source_without_a_place_takes_one_over() {
        let queue = HashQueue::new();
        let mut source_tickets: Vec<_> = (1..=4).map(|number| take(&queue, source(number))).collect();
        assert_eq!(source_tickets.iter().map(Vec::len).sum::<usize>(), MAX_ALL_SOURCES);
        let running =
            source_tickets[3].drain(..2).inspect(|ticket| assert!(ticket.start())).collect::<Vec<_>>();
        let late = queue.enqueue(source(5)).unwrap();
        assert_eq!(queue.enqueue(source(5)).err().unwrap().code(), "sign_in_busy", "it has one already");
        let evicted = source_tickets[3].pop().unwrap();
        assert_eq!(queue.run(evicted, || Ok(())).await.unwrap_err().code(), "sign_in_busy");
        assert_eq!(queue.run(late, || Ok(5)).await, Ok(5));
        drop((source_tickets, running));
        let single: Vec<_> = (1..=32).map(|number| queue.enqueue(source(number)).unwrap()).collect();
        assert_eq!(queue.enqueue(source(33)).err().unwrap().code(), "sign_in_busy", "each has one place");
        drop(single);
    }
}

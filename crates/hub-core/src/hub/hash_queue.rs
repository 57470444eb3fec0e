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
/// Maximum of waiting and running hashes of one client network without a session or token.
const MAX_OF_SOURCE: usize = 8;
/// Maximum of waiting and running hashes of all clients without a session or token.
const MAX_OF_SOURCES: usize = 32;
/// Maximum of waiting and running hashes of one logged-in user, or one whose password the operator sets.
const MAX_OF_USER: usize = 2;
/// Maximum of waiting and running hashes of all these users.
const MAX_OF_USERS: usize = 16;
/// Retry delay for clients that found the queue full.
const BUSY_RETRY: Duration = Duration::from_secs(2);

/// Owner of a share of the password hash queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Logged-in user, or user whose password the operator sets.
    User(UserId),
    /// Client address without credentials.
    Source(Option<IpAddr>),
}

impl Lane {
    fn is_source(self) -> bool {
        matches!(self, Lane::Source(_))
    }
}

/// Queue of password hashes to compute, for logins and password changes.
pub(super) struct HashQueue {
    permits: Arc<Semaphore>,
    places: Arc<Mutex<HashQueueState>>,
}

#[derive(Default)]
struct HashQueueState {
    last: u64,
    /// Waiting and running hashes, in order of arrival.
    all: Vec<QueueEntry>,
}

struct QueueEntry {
    number: u64,
    lane: Lane,
    is_running: bool,
    evicted: Arc<Notify>,
}

impl HashQueueState {
    fn count(&self, fits: impl Fn(Lane) -> bool) -> usize {
        self.all.iter().filter(|entry| fits(entry.lane)).count()
    }

    /// Removes the newest waiting place of the source that has the most places. Returns `false` if no source has a waiting
    /// place beside another one.
    fn evict(&mut self) -> bool {
        let of = |entry: &QueueEntry| self.count(|lane| lane == entry.lane);
        let waiting = self.all.iter().enumerate();
        let waiting = waiting.filter(|(_, entry)| entry.lane.is_source() && !entry.is_running);
        let newest = waiting.max_by_key(|(_, entry)| of(entry)).filter(|(_, entry)| of(entry) > 1);
        let Some((at, _)) = newest else { return false };
        self.all.remove(at).evicted.notify_one();
        true
    }
}

/// Place in the queue. Released on drop.
pub(super) struct QueuePlace {
    places: Arc<Mutex<HashQueueState>>,
    number: u64,
    evicted: Arc<Notify>,
}

impl QueuePlace {
    /// Marks the place as running. Returns `false` if another source has taken it over.
    fn start(&self) -> bool {
        let mut places = lock(&self.places);
        let own = places.all.iter_mut().find(|entry| entry.number == self.number);
        own.map(|entry| entry.is_running = true).is_some()
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        lock(&self.places).all.retain(|entry| entry.number != self.number);
    }
}

fn busy() -> Error {
    let text = format!("too many concurrent logins: try again in {} s", BUSY_RETRY.as_secs());
    Error::new(error::ErrorKind::Unavailable, "sign_in_busy", text).with_retry_after(BUSY_RETRY)
}

impl HashQueue {
    pub(super) fn new() -> Self {
        HashQueue { permits: Arc::new(Semaphore::new(MAX_RUNNING)), places: Arc::default() }
    }

    /// Takes a place, or fails at once. If the queue is full, a source without a place takes over a waiting place of
    /// the source that has the most.
    pub(super) fn enqueue(&self, lane: Lane) -> Result<QueuePlace> {
        let mut places = lock(&self.places);
        let all = places.count(|other| other.is_source() == lane.is_source());
        let own = places.count(|other| other == lane);
        let (max, max_own) = match lane {
            Lane::Source(_) => (MAX_OF_SOURCES, MAX_OF_SOURCE),
            Lane::User(_) => (MAX_OF_USERS, MAX_OF_USER),
        };
        let has_room = all < max || (own == 0 && lane.is_source() && places.evict());
        if !has_room || own >= max_own {
            return Err(busy());
        }
        places.last += 1;
        let (number, evicted) = (places.last, Arc::<Notify>::default());
        places.all.push(QueueEntry { number, lane, is_running: false, evicted: evicted.clone() });
        Ok(QueuePlace { places: self.places.clone(), number, evicted })
    }

    /// Runs the work on a blocking thread, in order of arrival. Work that has started finishes and holds its place,
    /// even if the caller is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        place: QueuePlace,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = tokio::select! {
            biased;
            () = place.evicted.notified() => return Err(busy()),
            turn = self.permits.clone().acquire_owned() => turn.map_err(|_| Error::shutting_down())?,
        };
        if !place.start() {
            return Err(busy());
        }
        let work = tokio::task::spawn_blocking(move || {
            let result = work();
            drop((turn, place));
            result
        });
        work.await.map_err(|_| Error::shutting_down())?
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    fn source(number: u8) -> Lane {
        Lane::Source(Some(IpAddr::from([10, 0, 0, number])))
    }

    fn take(queue: &HashQueue, lane: Lane) -> Vec<QueuePlace> {
        std::iter::from_fn(|| queue.enqueue(lane).ok()).collect()
    }

    #[tokio::test]
    async fn two_hashes_run_at_once_and_a_caller_that_leaves_makes_no_room() {
        let queue = HashQueue::new();
        let (go, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let (wait, (started, mut starts)) = (Arc::new(Mutex::new(wait)), tokio::sync::mpsc::channel(9));
        let work = || {
            let (wait, started) = (wait.clone(), started.clone());
            move || {
                started.blocking_send(()).unwrap();
                lock(&wait).recv().unwrap();
                Ok(())
            }
        };
        let place = || queue.enqueue(Lane::Source(None)).unwrap();
        let both = async { tokio::join!(queue.run(place(), work()), queue.run(place(), work())) };
        tokio::select! {
            _ = both => panic!("both wait for the test"),
            () = async { starts.recv().await.unwrap(); starts.recv().await.unwrap() } => {}
        }
        // Their callers were dropped, and they still run.
        assert_eq!(queue.permits.available_permits(), 0);
        let third = queue.run(place(), || Ok(3));
        let mut third = std::pin::pin!(third);
        tokio::select! {
            biased;
            _ = &mut third => panic!("no hash may run beside two others"),
            () = std::future::ready(()) => {}
        }
        go.send(()).unwrap();
        assert_eq!(timeout(Duration::from_secs(30), third).await.unwrap(), Ok(3));
        go.send(()).unwrap();
    }

    #[test]
    fn the_queue_is_bounded_and_each_lane_has_a_part_of_it() {
        let queue = HashQueue::new();
        let first = take(&queue, source(1));
        assert_eq!(first.len(), MAX_OF_SOURCE);
        let error = queue.enqueue(source(1)).err().unwrap();
        assert_eq!((error.kind(), error.code()), (error::ErrorKind::Unavailable, "sign_in_busy"));
        assert_eq!(error.retry_after(), Some(BUSY_RETRY));
        let others: Vec<_> = (2..100).flat_map(|number| take(&queue, source(number))).collect();
        assert_eq!(lock(&queue.places).all.len(), MAX_OF_SOURCES);
        let user = Lane::User(UserId::fixed(1));
        assert_eq!(take(&queue, user).len(), MAX_OF_USER, "logged-in users have their own places");
        drop((first, others));
        assert!(lock(&queue.places).all.is_empty());
    }

    #[tokio::test]
    async fn a_source_without_a_place_takes_one_over() {
        let queue = HashQueue::new();
        let mut flood: Vec<_> = (1..=4).map(|number| take(&queue, source(number))).collect();
        assert_eq!(flood.iter().map(Vec::len).sum::<usize>(), MAX_OF_SOURCES);
        let running = flood[3].drain(..2).inspect(|place| assert!(place.start())).collect::<Vec<_>>();
        let late = queue.enqueue(source(5)).unwrap();
        assert_eq!(queue.enqueue(source(5)).err().unwrap().code(), "sign_in_busy", "it has one already");
        let evicted = flood[3].pop().unwrap();
        assert_eq!(queue.run(evicted, || Ok(())).await.unwrap_err().code(), "sign_in_busy");
        assert_eq!(queue.run(late, || Ok(5)).await, Ok(5));
        drop((flood, running));
        let single: Vec<_> = (1..=32).map(|number| queue.enqueue(source(number)).unwrap()).collect();
        assert_eq!(queue.enqueue(source(33)).err().unwrap().code(), "sign_in_busy", "each has one place");
        drop(single);
    }
}

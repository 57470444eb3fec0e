//! Looks after the time of all connections of a listener, with one clock: who is silent, slow to ask or slow to read
//! is cut. A connection costs no timer, and a request only a few writes to memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::listener::client_network;
use super::options::Connections;
use crate::sync::lock;

/// How often the connections are looked at.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// Nothing of a first request has come.
const NEW: u8 = 0;
/// Part of the head of a request has come.
const HEAD: u8 = 1;
/// A request is being served.
const BUSY: u8 = 2;
/// The last request is done.
const IDLE: u8 = 3;

/// A connection is dropped at once.
const LATE: u8 = 1;
/// A connection is dropped unless it has a request by now.
const UNUSED: u8 = 2;

/// One connection, as its watcher sees it.
pub(super) struct Watched {
    clock: Arc<AtomicU64>,
    phase: AtomicU8,
    since: AtomicU64,
    /// Since when nothing could be written; zero while it can.
    stalled: AtomicU64,
    /// Network of the client.
    network: IpAddr,
    /// Told to end: by now if it is late, in good order if the server ends.
    pub(super) end: Notify,
    is_late: AtomicU8,
    /// Whether it was asked to make room for another.
    is_leaving: AtomicBool,
}

impl Watched {
    fn enter(&self, phase: u8) {
        self.since.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// A request has come.
    pub(super) fn begin(&self) {
        self.enter(BUSY);
    }

    /// It is answered.
    pub(super) fn done(&self) {
        self.enter(IDLE);
    }

    fn saw_bytes(&self) {
        if matches!(self.phase.load(Ordering::Relaxed), NEW | IDLE) {
            self.enter(HEAD);
        }
    }

    fn wrote<T>(&self, result: &Poll<T>) {
        match result {
            Poll::Ready(_) => self.stalled.store(0, Ordering::Relaxed),
            Poll::Pending if self.stalled.load(Ordering::Relaxed) == 0 => {
                self.stalled.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Poll::Pending => {}
        }
    }

    fn is_over(&self, now: u64, bounds: &Connections) -> bool {
        let passed = |since: u64, limit: Duration| Duration::from_millis(now.saturating_sub(since)) > limit;
        let stalled = self.stalled.load(Ordering::Relaxed);
        let since = self.since.load(Ordering::Relaxed);
        let late = match self.phase.load(Ordering::Relaxed) {
            NEW => passed(since, bounds.first_byte),
            HEAD => passed(since, bounds.head),
            IDLE => passed(since, bounds.idle),
            _ => false,
        };
        late || (stalled != 0 && passed(stalled, bounds.write))
    }
}

/// A connection that sends a head for longer than this may be closed to make room for another, in milliseconds.
const SLOW_HEAD: u64 = 1_000;

impl Watched {
    /// Whether it may be closed to make room for another, and how readily: the longer it does nothing.
    fn idle_since(&self) -> Option<u64> {
        let since = self.since.load(Ordering::Relaxed);
        let is_slow = || self.clock.load(Ordering::Relaxed).saturating_sub(since) > SLOW_HEAD;
        match self.phase.load(Ordering::Relaxed) {
            NEW | IDLE => Some(since),
            HEAD if is_slow() => Some(since),
            _ => None,
        }
    }

    /// Whether it is dropped when it is told to end. One that was to make room and has a request by now is not.
    pub(super) fn is_dropped(&self) -> bool {
        match self.is_late.load(Ordering::Acquire) {
            LATE => true,
            UNUSED => self.phase.load(Ordering::Relaxed) != BUSY,
            _ => false,
        }
    }

    /// Closes it to make room. After a request it is closed gracefully: the next one may just be arriving.
    fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        if self.phase.load(Ordering::Relaxed) != IDLE {
            self.is_late.store(UNUSED, Ordering::Release);
        }
        self.end.notify_one();
    }
}

/// All connections of a listener.
pub(super) struct Watch {
    bounds: Connections,
    clock: Arc<AtomicU64>,
    begun: Instant,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    connections: HashMap<u64, Arc<Watched>>,
    next: u64,
    by_network: HashMap<IpAddr, usize>,
    /// Number of connections with `is_leaving`: asked to make room, and neither closed nor found busy since.
    leaving: usize,
    /// Whether no connection was idle when one was looked for since the last tick.
    is_busy: bool,
}

/// A connection that is watched, until this is dropped.
pub(super) struct Guest {
    watch: Arc<Watch>,
    number: u64,
    pub(super) watched: Arc<Watched>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut known = lock(&self.watch.known);
        known.connections.remove(&self.number);
        if self.watched.is_leaving.load(Ordering::Relaxed) {
            known.leaving -= 1;
        }
        if let Some(count) = known.by_network.get_mut(&self.watched.network) {
            *count -= 1;
            if *count == 0 {
                known.by_network.remove(&self.watched.network);
            }
        }
        if known.connections.is_empty() {
            known.connections.shrink_to_fit();
        }
    }
}

impl Watch {
    pub(super) fn new(bounds: Connections) -> Arc<Self> {
        // Not from zero, which means that nothing has stalled.
        let clock = Arc::new(AtomicU64::new(1));
        Arc::new(Watch { bounds, clock, begun: Instant::now(), known: Mutex::default() })
    }

    /// Admits a connection. If there are too many, idle ones are closed for it; `None` if there are none.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Guest> {
        let network = client_network(address);
        let mut known = lock(&self.known);
        let of_one = known.by_network.get(&network).copied().unwrap_or_default();
        let is_full = known.connections.len() - known.leaving >= self.bounds.most;
        if of_one >= self.bounds.most_of_one_address || (is_full && !self.make_room(&mut known)) {
            return None;
        }
        let watched = Arc::new(Watched {
            clock: self.clock.clone(),
            phase: AtomicU8::new(NEW),
            since: AtomicU64::new(self.clock.load(Ordering::Relaxed)),
            stalled: AtomicU64::new(0),
            network,
            end: Notify::new(),
            is_late: AtomicU8::new(0),
            is_leaving: AtomicBool::new(false),
        });
        let number = known.next;
        known.next += 1;
        known.connections.insert(number, watched.clone());
        *known.by_network.entry(network).or_default() += 1;
        Some(Guest { watch: self.clone(), number, watched })
    }

    /// Closes idle and slow connections, first those of the network that has the most. Several at once: looking for them takes time.
    fn make_room(&self, known: &mut Known) -> bool {
        // Those that were asked to leave still have their descriptors.
        let most = (self.bounds.most / 16).max(1).saturating_sub(known.leaving);
        if known.is_busy || most == 0 {
            return false;
        }
        let of_one = |each: &Watched| known.by_network.get(&each.network).copied().unwrap_or_default();
        let idle = |(number, each): (&u64, &Arc<Watched>)| {
            let since = each.idle_since().filter(|_| !each.is_leaving.load(Ordering::Relaxed))?;
            Some(((Reverse(of_one(each)), since, *number), each.clone()))
        };
        let mut idle: Vec<_> = known.connections.iter().filter_map(idle).collect();
        idle.sort_unstable_by_key(|(order, _)| *order);
        idle.truncate(most);
        for (_, connection) in &idle {
            connection.leave();
        }
        known.leaving += idle.len();
        known.is_busy = idle.is_empty();
        !idle.is_empty()
    }

    /// Looks at all connections.
    pub(super) fn tick(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.clock.store(now, Ordering::Relaxed);
        let late: Vec<_> = {
            let mut known = lock(&self.known);
            known.is_busy = false;
            known.connections.values().filter(|each| each.is_over(now, &self.bounds)).cloned().collect()
        };
        for connection in late {
            connection.is_late.store(LATE, Ordering::Release);
            connection.end.notify_one();
        }
    }

    /// Asks all connections to end once they are done. Those that have not asked for anything end now.
    pub(super) fn end_all(&self) {
        for connection in lock(&self.known).connections.values() {
            if connection.phase.load(Ordering::Relaxed) == NEW {
                connection.is_late.store(LATE, Ordering::Release);
            }
            connection.end.notify_one();
        }
    }
}

/// A socket whose reads and writes are noticed.
pub(super) struct WatchedIo {
    pub(super) stream: TcpStream,
    pub(super) watched: Arc<Watched>,
}

impl AsyncRead for WatchedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.watched.saw_bytes();
        }
        result
    }
}

impl AsyncWrite for WatchedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watched.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(most: usize) -> Arc<Watch> {
        Watch::new(Connections { most, ..Connections::default() })
    }

    fn admit(watch: &Arc<Watch>, address: &str) -> Option<Guest> {
        watch.admit(address.parse().unwrap())
    }

    #[test]
    fn the_network_with_the_most_connections_makes_room_first() {
        let watch = watch(16);
        let first = admit(&watch, "192.0.2.1").unwrap();
        let many: Vec<_> = (0..15).map(|host| admit(&watch, &format!("2001:db8::{host}")).unwrap()).collect();
        assert!(admit(&watch, "192.0.2.2").is_some());
        assert!(many[0].watched.is_leaving.load(Ordering::Relaxed));
        assert!(!first.watched.is_leaving.load(Ordering::Relaxed));
    }
}

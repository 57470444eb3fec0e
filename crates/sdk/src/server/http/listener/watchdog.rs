//! Timeouts of all connections of a listener, driven by one timer: connections that are silent, or slow to send or
//! read, are closed. A connection needs no timer of its own, and a request costs only a few atomic writes.

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

use super::client_network;
use crate::lock::lock;
use crate::server::http::options::ConnectionLimits;

/// Interval at which the watchdog checks the client connections for timeouts.
pub(in crate::server::http) const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// Phase of a connection: nothing of the first request has arrived.
const PHASE_NEW: u8 = 0;
/// Phase of a connection: part of the head of a request has arrived.
const PHASE_HEAD: u8 = 1;
/// Phase of a connection: a request is being served.
const PHASE_BUSY: u8 = 2;
/// Phase of a connection: the last request is complete, and the next one has not begun.
const PHASE_IDLE: u8 = 3;
/// Phase of a connection: the body of a request arrives too slowly.
const PHASE_SLOW_BODY: u8 = 4;

/// Close mode of a connection: close it at once.
const CLOSE_NOW: u8 = 1;
/// Close mode of a connection: close it unless it has a request by now.
const CLOSE_IF_UNUSED: u8 = 2;

/// Activity of one HTTP connection, from which the watchdog sees whether it has timed out or may be closed
/// to make room for another one.
pub(in crate::server::http) struct ConnectionActivity {
    clock: Arc<AtomicU64>,
    phase: AtomicU8,
    phase_since: AtomicU64,
    /// Time since which writes to the client are blocked; zero if they are not.
    write_blocked_since: AtomicU64,
    /// Network of the client, for the limit of connections per network.
    network: IpAddr,
    /// Signal to end the connection: at once if it has timed out, gracefully at shutdown.
    pub(in crate::server::http) end: Notify,
    close_mode: AtomicU8,
    /// Whether the connection was chosen to make room for another one.
    is_evicted: AtomicBool,
}

impl ConnectionActivity {
    fn set_phase(&self, phase: u8) {
        self.phase_since.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Records that the connection has started a request.
    pub(in crate::server::http) fn start_request(&self) {
        self.set_phase(PHASE_BUSY);
    }

    /// Records that the connection has finished a request.
    pub(in crate::server::http) fn finish_request(&self) {
        self.set_phase(PHASE_IDLE);
    }

    /// Marks whether the body of the current request arrives too slowly. While it does, the connection may be closed to
    /// make room for another.
    fn set_slow_body(&self, is_slow: bool) {
        let (from, to) = if is_slow { (PHASE_BUSY, PHASE_SLOW_BODY) } else { (PHASE_SLOW_BODY, PHASE_BUSY) };
        if self.phase.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.phase_since.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn on_read(&self) {
        if matches!(self.phase.load(Ordering::Relaxed), PHASE_NEW | PHASE_IDLE) {
            self.set_phase(PHASE_HEAD);
        }
    }

    fn on_write<T>(&self, result: &Poll<T>) {
        match result {
            Poll::Ready(_) => self.write_blocked_since.store(0, Ordering::Relaxed),
            Poll::Pending if self.write_blocked_since.load(Ordering::Relaxed) == 0 => {
                self.write_blocked_since.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Poll::Pending => {}
        }
    }

    fn has_timed_out(&self, now: u64, bounds: &ConnectionLimits) -> bool {
        let has_elapsed =
            |since: u64, limit: Duration| Duration::from_millis(now.saturating_sub(since)) > limit;
        let stalled = self.write_blocked_since.load(Ordering::Relaxed);
        let since = self.phase_since.load(Ordering::Relaxed);
        let is_timed_out = match self.phase.load(Ordering::Relaxed) {
            PHASE_NEW => has_elapsed(since, bounds.first_byte),
            PHASE_HEAD => has_elapsed(since, bounds.head),
            PHASE_IDLE => has_elapsed(since, bounds.idle),
            _ => false,
        };
        is_timed_out || (stalled != 0 && has_elapsed(stalled, bounds.write))
    }
}

/// How long a connection may send a head, or not read a response, before it may be closed to make room for another, in
/// milliseconds.
const SLOW_AFTER_MS: u64 = 1_000;

impl ConnectionActivity {
    /// Returns when the connection became idle or slow; `None` if it must not be closed to make room. The longest idle
    /// is closed first.
    pub(in crate::server::http) fn idle_since(&self) -> Option<u64> {
        let slow = |since| {
            (self.clock.load(Ordering::Relaxed).saturating_sub(since) > SLOW_AFTER_MS).then_some(since)
        };
        let (since, stalled) =
            (self.phase_since.load(Ordering::Relaxed), self.write_blocked_since.load(Ordering::Relaxed));
        match self.phase.load(Ordering::Relaxed) {
            _ if stalled != 0 => slow(stalled),
            PHASE_NEW | PHASE_IDLE | PHASE_SLOW_BODY => Some(since),
            PHASE_HEAD => slow(since),
            _ => None,
        }
    }

    /// Returns whether the connection is dropped at once when it is woken to end, rather than closed gracefully. One
    /// that was chosen to make room and has a request by now is not.
    pub(in crate::server::http) fn should_drop(&self) -> bool {
        match self.close_mode.load(Ordering::Acquire) {
            CLOSE_NOW => true,
            CLOSE_IF_UNUSED => self.phase.load(Ordering::Relaxed) != PHASE_BUSY,
            _ => false,
        }
    }

    /// Closes this connection so that a new one can be accepted. An idle one is closed gracefully, since its next
    /// request may be arriving, unless the client does not read the response.
    fn close_to_make_room(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
        if self.write_blocked_since.load(Ordering::Relaxed) != 0 {
            self.close_mode.store(CLOSE_NOW, Ordering::Release);
        } else if self.phase.load(Ordering::Relaxed) != PHASE_IDLE {
            self.close_mode.store(CLOSE_IF_UNUSED, Ordering::Release);
        }
        self.end.notify_one();
    }
}

/// Watchdog of all connections of a listener: admits, times out and closes them.
pub(in crate::server::http) struct ConnectionWatchdog {
    limits: ConnectionLimits,
    clock: Arc<AtomicU64>,
    clock_start: Instant,
    connections: Mutex<TrackedConnections>,
}

#[derive(Default)]
struct TrackedConnections {
    connections: HashMap<u64, Arc<ConnectionActivity>>,
    next: u64,
    by_network: HashMap<IpAddr, usize>,
    /// Number of connections with `is_evicted`: chosen to make room, and neither closed nor found busy since.
    evicted_count: usize,
    /// Whether a search for an idle connection to close has failed since the last tick.
    no_idle_found: bool,
}

impl TrackedConnections {
    /// Stops counting connections as evicted that have become busy. Their request arrived before they were closed and
    /// may run for hours.
    fn release_busy(&mut self) {
        if self.evicted_count == 0 {
            return;
        }
        for activity in self.connections.values() {
            if activity.phase.load(Ordering::Relaxed) == PHASE_BUSY
                && activity.is_evicted.swap(false, Ordering::Relaxed)
            {
                self.evicted_count -= 1;
            }
        }
    }
}

/// Permit of an admitted connection; dropping it releases the slot.
pub(in crate::server::http) struct ConnectionPermit {
    watch: Arc<ConnectionWatchdog>,
    number: u64,
    pub(in crate::server::http) activity: Arc<ConnectionActivity>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut tracked = lock(&self.watch.connections);
        tracked.connections.remove(&self.number);
        if self.activity.is_evicted.load(Ordering::Relaxed) {
            tracked.evicted_count -= 1;
        }
        if let Some(count) = tracked.by_network.get_mut(&self.activity.network) {
            *count -= 1;
            if *count == 0 {
                tracked.by_network.remove(&self.activity.network);
            }
        }
        if tracked.connections.is_empty() {
            tracked.connections.shrink_to_fit();
        }
    }
}

impl ConnectionWatchdog {
    pub(in crate::server::http) fn new(bounds: ConnectionLimits) -> Arc<Self> {
        // Start at one: zero means that no write is blocked.
        let clock = Arc::new(AtomicU64::new(1));
        Arc::new(ConnectionWatchdog {
            limits: bounds,
            clock,
            clock_start: Instant::now(),
            connections: Mutex::default(),
        })
    }

    /// Admits a connection, if the limits allow one more from this address. At the limit, closes idle connections for
    /// it; `None` if there are none.
    pub(in crate::server::http) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let network = client_network(address);
        let mut tracked = lock(&self.connections);
        let network_connections = tracked.by_network.get(&network).copied().unwrap_or_default();
        let is_full = tracked.connections.len() - tracked.evicted_count >= self.limits.max;
        if network_connections >= self.limits.max_per_address || (is_full && !self.make_room(&mut tracked)) {
            return None;
        }
        let watched = Arc::new(ConnectionActivity {
            clock: self.clock.clone(),
            phase: AtomicU8::new(PHASE_NEW),
            phase_since: AtomicU64::new(self.clock.load(Ordering::Relaxed)),
            write_blocked_since: AtomicU64::new(0),
            network,
            end: Notify::new(),
            close_mode: AtomicU8::new(0),
            is_evicted: AtomicBool::new(false),
        });
        let number = tracked.next;
        tracked.next += 1;
        tracked.connections.insert(number, watched.clone());
        *tracked.by_network.entry(network).or_default() += 1;
        Some(ConnectionPermit { watch: self.clone(), number, activity: watched })
    }

    /// Closes idle and slow connections, first those of the network with the most. Several at once, because the search
    /// takes time.
    fn make_room(&self, tracked: &mut TrackedConnections) -> bool {
        // Evicted connections still hold their file descriptors.
        let max = (self.limits.max / 16).max(1).saturating_sub(tracked.evicted_count);
        if tracked.no_idle_found || max == 0 {
            return false;
        }
        let network_connections = |activity: &ConnectionActivity| {
            tracked.by_network.get(&activity.network).copied().unwrap_or_default()
        };
        let idle = |(number, activity): (&u64, &Arc<ConnectionActivity>)| {
            let since = activity.idle_since().filter(|_| !activity.is_evicted.load(Ordering::Relaxed))?;
            Some(((Reverse(network_connections(activity)), since, *number), activity.clone()))
        };
        let mut idle: Vec<_> = tracked.connections.iter().filter_map(idle).collect();
        idle.sort_unstable_by_key(|(order, _)| *order);
        idle.truncate(max);
        for (_, connection) in &idle {
            connection.close_to_make_room();
        }
        tracked.evicted_count += idle.len();
        tracked.no_idle_found = idle.is_empty();
        !idle.is_empty()
    }

    /// Closes connections that have timed out.
    pub(in crate::server::http) fn tick(&self) {
        let now = u64::try_from(self.clock_start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.clock.store(now, Ordering::Relaxed);
        let timed_out: Vec<_> = {
            let mut tracked = lock(&self.connections);
            tracked.no_idle_found = false;
            tracked.release_busy();
            tracked
                .connections
                .values()
                .filter(|activity| activity.has_timed_out(now, &self.limits))
                .cloned()
                .collect()
        };
        for connection in timed_out {
            connection.close_mode.store(CLOSE_NOW, Ordering::Release);
            connection.end.notify_one();
        }
    }

    /// Asks all connections to end once their request is done. Connections without a request end now.
    pub(in crate::server::http) fn shut_down(&self) {
        for connection in lock(&self.connections).connections.values() {
            if connection.phase.load(Ordering::Relaxed) == PHASE_NEW {
                connection.close_mode.store(CLOSE_NOW, Ordering::Release);
            }
            connection.end.notify_one();
        }
    }
}

/// Handle through which the reader of a request body reports to its connection that the body arrives slowly. Services
/// other than the endpoint find it among the request extensions.
#[derive(Clone)]
pub(in crate::server::http) struct BodyRateHandle(pub(in crate::server::http) Arc<ConnectionActivity>);

/// Report of how fast a request body arrives, to the connection of the request if it is known. Dropping it resets the
/// report.
pub(in crate::server::http) struct BodyRateReport<'a>(pub(in crate::server::http) Option<&'a BodyRateHandle>);

impl BodyRateReport<'_> {
    pub(in crate::server::http) fn report(&self, is_slow: bool) {
        if let Some(BodyRateHandle(watched)) = self.0 {
            watched.set_slow_body(is_slow);
        }
    }
}

impl Drop for BodyRateReport<'_> {
    fn drop(&mut self) {
        self.report(false);
    }
}

/// Socket that records its reads and writes for the watchdog.
pub(in crate::server::http) struct MonitoredIo {
    pub(in crate::server::http) stream: TcpStream,
    pub(in crate::server::http) activity: Arc<ConnectionActivity>,
}

impl AsyncRead for MonitoredIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.on_read();
        }
        result
    }
}

impl AsyncWrite for MonitoredIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.activity.on_write(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.activity.on_write(&result);
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

    fn watch(max: usize) -> Arc<ConnectionWatchdog> {
        ConnectionWatchdog::new(ConnectionLimits { max, ..ConnectionLimits::default() })
    }

    fn admit(watch: &Arc<ConnectionWatchdog>, address: &str) -> Option<ConnectionPermit> {
        watch.admit(address.parse().unwrap())
    }

    /// Fills the listener with busy connections.
    fn busy(watch: &Arc<ConnectionWatchdog>) -> Vec<ConnectionPermit> {
        let admit = |_| {
            let permit = admit(watch, "192.0.2.1").unwrap();
            permit.activity.start_request();
            permit
        };
        (0..watch.limits.max).map(admit).collect()
    }

    #[test]
    fn a_leaving_connection_with_a_new_request_counts_as_busy() {
        let watch = watch(16);
        let permits = busy(&watch);
        permits[0].activity.finish_request();
        let next = admit(&watch, "192.0.2.2").unwrap();
        next.activity.start_request();
        permits[0].activity.start_request(); // before it is closed
        watch.tick();
        assert_eq!(lock(&watch.connections).evicted_count, 0);
        assert!(admit(&watch, "192.0.2.2").is_none());
        permits[1].activity.finish_request();
        watch.tick();
        assert!(admit(&watch, "192.0.2.2").is_some(), "an idle connection makes room");
        drop(permits);
        assert_eq!(lock(&watch.connections).evicted_count, 0);
    }

    #[test]
    fn a_slow_body_makes_room_and_a_complete_one_does_not() {
        let watch = watch(16);
        let permits = busy(&watch);
        let handle = BodyRateHandle(permits[3].activity.clone());
        let rate_report = BodyRateReport(Some(&handle));
        rate_report.report(true);
        drop(rate_report);
        assert!(admit(&watch, "192.0.2.2").is_none());
        watch.tick();
        BodyRateReport(Some(&handle)).report(false);
        assert!(admit(&watch, "192.0.2.2").is_none());
        watch.tick();
        let rate_report = BodyRateReport(Some(&handle));
        rate_report.report(true);
        assert!(admit(&watch, "192.0.2.2").is_some());
        assert!(permits[3].activity.should_drop());
    }

    #[test]
    fn a_client_that_does_not_read_makes_room() {
        let watch = watch(16);
        let permits = busy(&watch);
        permits[5].activity.on_write(&Poll::<()>::Pending);
        permits[6].activity.on_write(&Poll::<()>::Pending);
        permits[6].activity.finish_request(); // what is left of its response is still being sent
        assert!(admit(&watch, "192.0.2.2").is_none());
        watch.clock.fetch_add(SLOW_AFTER_MS + 1, Ordering::Relaxed);
        lock(&watch.connections).no_idle_found = false;
        assert!(admit(&watch, "192.0.2.2").is_some());
        assert!(permits[5].activity.should_drop());
        drop(permits);
        let permits = busy(&watch);
        permits[6].activity.on_write(&Poll::<()>::Pending);
        permits[6].activity.finish_request();
        watch.clock.fetch_add(SLOW_AFTER_MS + 1, Ordering::Relaxed);
        assert!(admit(&watch, "192.0.2.2").is_some());
        assert!(permits[6].activity.should_drop());
    }

    #[test]
    fn the_network_with_the_most_connections_makes_room_first() {
        let watch = watch(16);
        let first = admit(&watch, "192.0.2.1").unwrap();
        let many: Vec<_> = (0..15).map(|host| admit(&watch, &format!("2001:db8::{host}")).unwrap()).collect();
        assert!(admit(&watch, "192.0.2.2").is_some());
        assert!(many[0].activity.is_evicted.load(Ordering::Relaxed));
        assert!(!first.activity.is_evicted.load(Ordering::Relaxed));
    }
}

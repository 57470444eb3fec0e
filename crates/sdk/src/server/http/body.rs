//! HTTP bodies: bounded reading of request bodies, and response bodies.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::EXPECT;
use ::http::request::Parts;
use bytes::{Buf, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use super::listener::watchdog::{BodyRateHandle, BodyRateReport};
use super::listener::{ConnectionAddresses, RequestOrigin, client_network};
use super::options::DEFAULT_BODY_TIMEOUT;
use super::streams::body::StreamBody;
use crate::lock::lock;

/// Body of an HTTP response of the server.
#[derive(Debug, Default)]
pub struct Body(BodyKind);

#[derive(Debug, Default)]
enum BodyKind {
    #[default]
    Empty,
    Full(Bytes),
    Stream(Box<StreamBody>),
}

impl Body {
    pub(super) fn stream(stream: StreamBody) -> Self {
        Body(BodyKind::Stream(Box::new(stream)))
    }

    /// Sets the time at which the body of an SSE stream ends; other bodies ignore it.
    pub(super) fn end_at(&mut self, end: Instant) {
        if let BodyKind::Stream(stream) = &mut self.0 {
            stream.end_at(end);
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body(BodyKind::Full(bytes.into()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            BodyKind::Empty => Poll::Ready(None),
            BodyKind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = BodyKind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            BodyKind::Stream(stream) => {
                stream.poll(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, BodyKind::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Empty => SizeHint::with_exact(0),
            BodyKind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Stream(_) => SizeHint::default(),
        }
    }
}

/// Reason why the body of an HTTP request could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyReadError {
    /// The request body is larger than the limit.
    TooLarge,
    /// The request body was not received in time.
    TooSlow,
    /// The request body is incomplete, or does not match its headers.
    Incomplete,
    /// The memory budget of request bodies is exhausted by other bodies.
    BudgetExceeded,
}

/// Reader of request bodies, with limits on the size and time of each body and on the total size. One sender cannot use
/// up the total.
pub struct BodyReader(BodyBudget);

impl BodyReader {
    /// Creates a reader for at most `max_bytes` bytes of bodies that are being received or in use. One sender may use
    /// at most as many bytes as are left for all others, so half of them if no other sender is active.
    pub fn new(max_bytes: usize) -> Self {
        BodyReader(BodyBudget::new(max_bytes))
    }

    /// Reads the body of a request, of at most `max_bytes` bytes. The sender is the client address that a
    /// [`Listener`](super::Listener) adds to the request.
    ///
    /// A body has 10 s, plus 1 s for every 16 KiB received; at most 10 s of unused time accumulate. The budget is
    /// released when the returned body is dropped.
    pub async fn read<B>(
        &self,
        parts: &Parts,
        body: B,
        max_bytes: usize,
    ) -> Result<ReadBody<'_>, BodyReadError>
    where
        B: HttpBody<Data: Buf>,
    {
        read(
            BodySource { parts, origin: None, subject: None },
            body,
            max_bytes,
            &self.0,
            DEFAULT_BODY_TIMEOUT,
        )
        .await
    }

    /// Like [`Self::read`], for an authenticated sender.
    pub async fn read_from<B>(
        &self,
        subject: impl Into<Arc<str>>,
        parts: &Parts,
        body: B,
        max_bytes: usize,
    ) -> Result<ReadBody<'_>, BodyReadError>
    where
        B: HttpBody<Data: Buf>,
    {
        let subject = subject.into();
        read(
            BodySource { parts, origin: None, subject: Some(&subject) },
            body,
            max_bytes,
            &self.0,
            DEFAULT_BODY_TIMEOUT,
        )
        .await
    }
}

/// Sender whose request bodies share a part of the memory budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    /// Unknown sender, for example behind a server that does not provide the address: bounded by the total budget only.
    Unknown,
    /// Network of a client that has not authenticated, to which the memory of the body is charged.
    Address(IpAddr),
    /// An authenticated subject, to which the memory of the body is charged.
    Subject(Arc<str>),
}

/// Head, connection and subject of an HTTP request, by which its body is charged to a sender. The sender is looked up
/// only for bodies that need budget: most are small and arrive with their head.
#[derive(Clone, Copy)]
pub(super) struct BodySource<'a> {
    pub(super) parts: &'a Parts,
    /// Connection that the request arrived on. Default: the one among the extensions.
    pub(super) origin: Option<&'a RequestOrigin>,
    /// Authenticated subject of the request.
    pub(super) subject: Option<&'a Arc<str>>,
}

impl BodySource<'_> {
    fn sender(&self) -> Sender {
        if let Some(subject) = self.subject {
            return Sender::Subject(subject.clone());
        }
        let addresses = self.origin.map(|origin| &origin.addresses).or_else(|| self.parts.extensions.get());
        let network = |addresses: &ConnectionAddresses| client_network(addresses.peer.ip());
        addresses.map(network).map_or(Sender::Unknown, Sender::Address)
    }

    fn rate_report(&self) -> BodyRateReport<'_> {
        let watch = self.origin.map(|origin| &origin.watch);
        BodyRateReport(watch.or_else(|| self.parts.extensions.get::<BodyRateHandle>()))
    }
}

/// Memory budget for all HTTP request bodies that are being received or in use. Without it, many clients that stall
/// before the end of a body, or call a slow tool, could use up all memory.
pub(super) struct BodyBudget {
    max_bytes: usize,
    usage: Mutex<BudgetUsage>,
}

#[derive(Default)]
struct BudgetUsage {
    total: usize,
    by_sender: HashMap<Sender, usize>,
}

impl BodyBudget {
    pub(super) fn new(max_bytes: usize) -> Self {
        BodyBudget { max_bytes, usage: Mutex::default() }
    }
}

/// Memory budget that one request body has reserved. Released on drop.
struct BudgetReservation<'a> {
    budget: &'a BodyBudget,
    /// Sender of the body; `Unknown` while nothing is reserved.
    sender: Sender,
    bytes: usize,
}

impl BudgetReservation<'_> {
    /// Reserves budget for more body bytes, if at least as much stays free for other senders as this sender uses.
    fn reserve(&mut self, source: BodySource<'_>, bytes: usize) -> Result<(), BodyReadError> {
        if self.bytes == 0 {
            self.sender = source.sender();
        }
        let mut usage = lock(&self.budget.usage);
        let left =
            self.budget.max_bytes.checked_sub(usage.total + bytes).ok_or(BodyReadError::BudgetExceeded)?;
        if self.sender != Sender::Unknown {
            let sender_bytes = usage.by_sender.get(&self.sender).copied().unwrap_or_default() + bytes;
            if sender_bytes > left {
                return Err(BodyReadError::BudgetExceeded);
            }
            usage.by_sender.insert(self.sender.clone(), sender_bytes);
        }
        usage.total += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for BudgetReservation<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut usage = lock(&self.budget.usage);
        usage.total -= self.bytes;
        if let Some(sender_bytes) = usage.by_sender.get_mut(&self.sender) {
            *sender_bytes -= self.bytes;
            if *sender_bytes == 0 {
                usage.by_sender.remove(&self.sender);
            }
        }
    }
}

/// Received body of an HTTP request, with the part of the memory budget that it occupies.
pub struct ReadBody<'a> {
    /// Bytes of the request body.
    pub bytes: Bytes,
    _reservation: BudgetReservation<'a>,
}

/// Largest body that reserves nothing of the shared memory budget if it arrives in one piece. Most do, and a shared
/// counter would be written for each. The default of 16,384 connections times this size is not more than the budget.
const MAX_UNRESERVED_BYTES: usize = 16 << 10;

/// An oversized body is read and discarded up to this multiple of the limit: a client that is cut off while writing
/// would not read the error response.
const OVERSIZE_FACTOR: usize = 4;

/// Bytes that earn a body one second: a slow sender can finish, but a trickle does not prolong the deadline.
const BYTES_PER_SECOND: u32 = 16 << 10;
/// Interval at which it is checked how much of a request body has arrived.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum body timeout, so that it can be added to an instant.
const MAX_BODY_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// Reads a body of at most `max_bytes` bytes. A body that is not available at once has `timeout` to arrive, plus the
/// time earned by received bytes. An oversized body that the client sends only after `100 Continue` is not requested.
pub(super) async fn read<'a, B>(
    source: BodySource<'_>,
    body: B,
    max_bytes: usize,
    budget: &'a BodyBudget,
    timeout: Duration,
) -> Result<ReadBody<'a>, BodyReadError>
where
    B: HttpBody<Data: Buf>,
{
    let length = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let received = &AtomicUsize::new(0);
    let mut reading = std::pin::pin!(async move {
        let (mut body, max_discarded) = (std::pin::pin!(body), max_bytes.saturating_mul(OVERSIZE_FACTOR));
        if length <= max_bytes {
            let reservation = BudgetReservation { budget, sender: Sender::Unknown, bytes: 0 };
            let read = collect(source, body.as_mut(), max_bytes, reservation, received).await;
            if !matches!(read, Err(BodyReadError::TooLarge)) {
                return read;
            }
        }
        if length <= max_bytes || (length <= max_discarded && !source.parts.headers.contains_key(EXPECT)) {
            discard(body, max_discarded).await;
        }
        Err(BodyReadError::TooLarge)
    });
    let first = std::future::poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
    match first {
        Poll::Ready(read) => read,
        Poll::Pending => with_deadline(reading, timeout, received, source.rate_report()).await,
    }
}

/// Reads a request body under a deadline that received bytes extend, to at most `timeout` from now: a sender that
/// stalls after a fast start is cut off as soon as one that never started. Each second with fewer than
/// `BYTES_PER_SECOND` bytes is reported as slow.
async fn with_deadline<T>(
    mut reading: Pin<&mut impl Future<Output = Result<T, BodyReadError>>>,
    timeout: Duration,
    received: &AtomicUsize,
    rate_report: BodyRateReport<'_>,
) -> Result<T, BodyReadError> {
    let timeout = timeout.min(MAX_BODY_TIMEOUT); // so that it can be added to an instant
    let (mut now, mut counted) = (Instant::now(), received.load(Ordering::Relaxed));
    let mut deadline = now + timeout;
    while now < deadline {
        if let Ok(read) = tokio::time::timeout_at(deadline.min(now + CHECK_INTERVAL), reading.as_mut()).await
        {
            return read;
        }
        let all = received.load(Ordering::Relaxed);
        let received_bytes = u32::try_from(all - counted).unwrap_or(u32::MAX);
        (now, counted) = (Instant::now(), all);
        rate_report.report(received_bytes < BYTES_PER_SECOND);
        deadline = (deadline + Duration::from_secs(1).saturating_mul(received_bytes) / BYTES_PER_SECOND)
            .min(now + timeout);
    }
    Err(BodyReadError::TooSlow)
}

/// Reads and discards up to `max_bytes` bytes of a request body.
async fn discard<B: HttpBody<Data: Buf>>(mut body: Pin<&mut B>, max_bytes: usize) {
    let mut skipped = 0;
    while skipped <= max_bytes
        && let Some(Ok(frame)) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await
    {
        skipped += frame.data_ref().map_or(1, Buf::remaining);
    }
}

/// Reads a request body of at most `max_bytes` bytes, and counts the received bytes in `received`.
async fn collect<'a, B>(
    source: BodySource<'_>,
    mut body: Pin<&mut B>,
    max_bytes: usize,
    mut reservation: BudgetReservation<'a>,
    received: &AtomicUsize,
) -> Result<ReadBody<'a>, BodyReadError>
where
    B: HttpBody<Data: Buf>,
{
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(mut data) = frame.map_err(|_| BodyReadError::Incomplete)?.into_data() else { continue };
        if data.remaining() > max_bytes - (first.len() + all.len()).min(max_bytes) {
            return Err(BodyReadError::TooLarge);
        }
        received.store(first.len() + all.len() + data.remaining(), Ordering::Relaxed);
        // Most bodies arrive in one piece, which is not copied.
        if first.is_empty() && all.is_empty() {
            first = data.copy_to_bytes(data.remaining());
            if first.len() > MAX_UNRESERVED_BYTES || !body.is_end_stream() {
                reservation.reserve(source, first.len())?;
            }
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        reservation.reserve(source, data.remaining())?;
        while data.has_remaining() {
            let chunk = data.chunk();
            all.extend_from_slice(chunk);
            let count = chunk.len();
            data.advance(count);
        }
    }
    Ok(ReadBody { bytes: if all.is_empty() { first } else { all.into() }, _reservation: reservation })
}

#[cfg(test)]
mod tests {
    use super::super::options::{ConnectionLimits, EndpointOptions};
    use super::*;
    use crate::server::http::listener::watchdog::ConnectionWatchdog;

    const LONG_TIMEOUT: Duration = Duration::from_mins(1);

    fn parts() -> Parts {
        ::http::Request::new(()).into_parts().0
    }

    fn unknown(parts: &Parts) -> BodySource<'_> {
        BodySource { parts, origin: None, subject: None }
    }

    /// Body in pieces that arrive at once or one per second. It never ends if it `hangs`.
    struct Pieces {
        bytes: usize,
        left: usize,
        hangs: bool,
        seconds: Option<tokio::time::Interval>,
    }

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return if self.hangs { Poll::Pending } else { Poll::Ready(None) };
            }
            if let Some(seconds) = &mut self.seconds {
                std::task::ready!(seconds.poll_tick(cx));
            }
            self.left -= 1;
            Poll::Ready(Some(Ok(Frame::data(vec![b' '; self.bytes].into()))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dribblers_are_cut_and_slow_senders_are_not() {
        let (budget, timeout) = (BodyBudget::new(usize::MAX), EndpointOptions::default().body_timeout);
        for (bytes, left, read_after, expected) in [
            (1, 100, 10, Err(BodyReadError::TooSlow)),
            (1_000, 100, 10, Err(BodyReadError::TooSlow)),
            (8 << 10, 100, 19, Err(BodyReadError::TooSlow)),
            (17 << 10, 100, 100, Ok((100 * 17) << 10)),
            (1, 9, 9, Ok(9)),
        ] {
            let started = Instant::now();
            let second = Duration::from_secs(1);
            let seconds = Some(tokio::time::interval_at(started + second, second));
            let body = Pieces { bytes, left, hangs: false, seconds };
            let read = read(unknown(&parts()), body, 4 << 20, &budget, timeout).await;
            assert_eq!((size(read), started.elapsed().as_secs()), (expected, read_after));
        }
    }

    fn size(read: Result<ReadBody<'_>, BodyReadError>) -> Result<usize, BodyReadError> {
        read.map(|body| body.bytes.len())
    }

    #[tokio::test(start_paused = true)]
    async fn all_bodies_together_are_bounded() {
        let budget = BodyBudget::new(100);
        let parts = parts();
        let body = |left, hangs| {
            let body = Pieces { bytes: 10, left, hangs, seconds: None };
            read(unknown(&parts), body, 1_000, &budget, LONG_TIMEOUT)
        };
        assert_eq!(size(body(10, false).await), Ok(100));
        assert_eq!(size(body(11, false).await), Err(BodyReadError::BudgetExceeded));
        {
            let mut stuck = std::pin::pin!(body(6, true));
            let polled = std::future::poll_fn(|cx| Poll::Ready(stuck.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            assert_eq!(size(body(5, false).await), Err(BodyReadError::BudgetExceeded));
            assert_eq!(size(body(4, false).await), Ok(40));
            assert_eq!(size(stuck.await), Err(BodyReadError::TooSlow));
        }
        let kept = body(7, false).await;
        assert_eq!(
            size(body(4, false).await),
            Err(BodyReadError::BudgetExceeded),
            "bytes in use are reserved"
        );
        assert_eq!(size(body(3, false).await), Ok(30));
        drop(kept);
        assert_eq!(size(body(10, false).await), Ok(100));
        assert_eq!(lock(&budget.usage).total, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_was_earned_is_not_saved_up() {
        let (budget, timeout) = (BodyBudget::new(usize::MAX), EndpointOptions::default().body_timeout);
        let started = Instant::now();
        let body = Pieces { bytes: 4 << 20, left: 1, hangs: true, seconds: None };
        let read = read(unknown(&parts()), body, 8 << 20, &budget, timeout).await;
        assert_eq!((size(read), started.elapsed()), (Err(BodyReadError::TooSlow), timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_makes_room_while_its_body_is_slow() {
        let (watch, budget) =
            (ConnectionWatchdog::new(ConnectionLimits::default()), BodyBudget::new(usize::MAX));
        let second = Duration::from_secs(1);
        for (bytes, left, hangs, is_slow) in
            [(1, 0, true, true), (1, 5, false, true), (8 << 10, 5, false, true), (17 << 10, 5, false, false)]
        {
            let permit = watch.admit([192, 0, 2, 1].into()).unwrap();
            permit.activity.start_request();
            let mut parts = parts();
            parts.extensions.insert(BodyRateHandle(permit.activity.clone()));
            let seconds = Some(tokio::time::interval_at(Instant::now() + second / 2, second));
            let body = Pieces { bytes, left, hangs, seconds };
            let mut reading =
                std::pin::pin!(read(unknown(&parts), body, 4 << 20, &budget, DEFAULT_BODY_TIMEOUT));
            assert!(tokio::time::timeout(second * 3 / 4, reading.as_mut()).await.is_err());
            assert_eq!(permit.activity.idle_since(), None, "{bytes} bytes in the first second");
            assert!(tokio::time::timeout(second, reading.as_mut()).await.is_err());
            assert_eq!(permit.activity.idle_since().is_some(), is_slow, "{bytes} bytes each second");
            assert_eq!(reading.await.is_err(), hangs);
            assert_eq!(permit.activity.idle_since(), None, "the request is being served");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_sender_leaves_as_much_as_it_takes() {
        let (budget, parts) = (BodyBudget::new(64), parts());
        let subjects = ["a", "b", "c", "d"].map(Arc::<str>::from);
        let body = |sender: &str, left| {
            let body = Pieces { bytes: 4, left, hangs: false, seconds: None };
            let subject = subjects.iter().find(|subject| ***subject == *sender);
            read(BodySource { parts: &parts, origin: None, subject }, body, 1_000, &budget, LONG_TIMEOUT)
        };
        let mut bodies = Vec::new();
        for (sender, share) in [("a", 8), ("b", 4), ("c", 2)] {
            assert_eq!(size(body(sender, share + 1).await), Err(BodyReadError::BudgetExceeded), "{sender}");
            for _ in 0..share {
                bodies.push(body(sender, 1).await.ok().unwrap());
            }
            assert_eq!(size(body(sender, 1).await), Err(BodyReadError::BudgetExceeded), "{sender}");
        }
        assert_eq!(size(body("d", 1).await), Ok(4), "others still have budget");
        drop(bodies);
        assert_eq!(size(body("a", 8).await), Ok(32));
        assert!(lock(&budget.usage).by_sender.is_empty());
    }

    #[test]
    fn an_anonymous_sender_is_an_address() {
        let sender = |peer: &str| {
            let mut parts = parts();
            parts.extensions.insert(ConnectionAddresses { peer: peer.parse().unwrap(), local: None });
            unknown(&parts).sender()
        };
        assert_eq!(sender("192.0.2.1:1"), sender("[::ffff:192.0.2.1]:2"));
        assert_eq!(sender("[2001:db8::1]:1"), sender("[2001:db8::2]:1"));
        assert_ne!(sender("[2001:db8::1]:1"), sender("[2001:db8:0:1::1]:1"));
        assert_eq!(unknown(&parts()).sender(), Sender::Unknown);
    }
}

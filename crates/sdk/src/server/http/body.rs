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

use super::listener::watchdog::{BodyPace, BodyWatch};
use super::listener::{Addresses, Origin, client_network};
use super::options::BODY_TIMEOUT;
use super::streams::body::StreamBody;
use crate::lock::lock;

/// Body of a response.
#[derive(Debug, Default)]
pub struct Body(Kind);

#[derive(Debug, Default)]
enum Kind {
    #[default]
    Empty,
    Full(Bytes),
    Stream(Box<StreamBody>),
}

impl Body {
    pub(super) fn stream(stream: StreamBody) -> Self {
        Body(Kind::Stream(Box::new(stream)))
    }

    /// Sets the time at which a stream ends; other bodies ignore it.
    pub(super) fn end_at(&mut self, end: Instant) {
        if let Kind::Stream(stream) = &mut self.0 {
            stream.end_at(end);
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body(Kind::Full(bytes.into()))
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
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Stream(stream) => stream.poll(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

/// Reason why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The body is larger than the limit.
    TooLarge,
    /// The body was not received in time.
    TooSlow,
    /// The body is incomplete, or does not match its headers.
    Broken,
    /// Too many bytes of other bodies are being received or in use.
    NoRoom,
}

/// Reader of request bodies, with limits on the size and time of each body and on the total size. One sender cannot use
/// up the total.
pub struct Bodies(Budget);

impl Bodies {
    /// Creates a reader for at most `most` bytes of bodies that are being received or in use. One sender may use at
    /// most as many bytes as are left for all others, so half of them if no other sender is active.
    pub fn new(most: usize) -> Self {
        Bodies(Budget::new(most))
    }

    /// Reads the body of a request, of at most `most` bytes. The sender is the client address that a
    /// [`Listener`](super::Listener) adds to the request.
    ///
    /// A body has 10 s, plus 1 s for every 16 KiB received; at most 10 s of unused time accumulate. The budget is
    /// released when the returned body is dropped.
    pub async fn read<B>(&self, parts: &Parts, body: B, most: usize) -> Result<Whole<'_>, Unread>
    where
        B: HttpBody<Data: Buf>,
    {
        read(Source { parts, origin: None, subject: None }, body, most, &self.0, BODY_TIMEOUT).await
    }

    /// Like [`Self::read`], for an authenticated sender.
    pub async fn read_of<B>(
        &self,
        subject: impl Into<Arc<str>>,
        parts: &Parts,
        body: B,
        most: usize,
    ) -> Result<Whole<'_>, Unread>
    where
        B: HttpBody<Data: Buf>,
    {
        let subject = subject.into();
        read(Source { parts, origin: None, subject: Some(&subject) }, body, most, &self.0, BODY_TIMEOUT).await
    }
}

/// Sender whose bodies share a part of the budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    /// Unknown, for example behind a server that does not provide the address: bounded by the total budget only.
    Unknown,
    /// Network of a client.
    Address(IpAddr),
    /// An authenticated subject.
    Subject(Arc<str>),
}

/// Origin of a body. The sender is looked up only for bodies that need budget: most are small and arrive with their
/// head.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) parts: &'a Parts,
    /// Connection of the request. Default: the one among the extensions.
    pub(super) origin: Option<&'a Origin>,
    /// Authenticated subject of the request.
    pub(super) subject: Option<&'a Arc<str>>,
}

impl Source<'_> {
    fn sender(&self) -> Sender {
        if let Some(subject) = self.subject {
            return Sender::Subject(subject.clone());
        }
        let addresses = self.origin.map(|origin| &origin.addresses).or_else(|| self.parts.extensions.get());
        let network = |addresses: &Addresses| client_network(addresses.peer.ip());
        addresses.map(network).map_or(Sender::Unknown, Sender::Address)
    }

    fn pace(&self) -> BodyPace<'_> {
        let watch = self.origin.map(|origin| &origin.watch);
        BodyPace(watch.or_else(|| self.parts.extensions.get::<BodyWatch>()))
    }
}

/// Budget for the bytes of all bodies that are being received or in use. Without it, many clients that stall before the
/// end of a body, or call a slow tool, could use up all memory.
pub(super) struct Budget {
    most: usize,
    held: Mutex<Holdings>,
}

#[derive(Default)]
struct Holdings {
    all: usize,
    by_sender: HashMap<Sender, usize>,
}

impl Budget {
    pub(super) fn new(most: usize) -> Self {
        Budget { most, held: Mutex::default() }
    }
}

/// Reservation of one body.
struct Held<'a> {
    budget: &'a Budget,
    /// `Unknown` while nothing is reserved.
    sender: Sender,
    bytes: usize,
}

impl Held<'_> {
    /// Reserves more bytes, if afterwards at least as much is left for others as the sender holds.
    fn grow(&mut self, source: Source<'_>, bytes: usize) -> Result<(), Unread> {
        if self.bytes == 0 {
            self.sender = source.sender();
        }
        let mut held = lock(&self.budget.held);
        let left = self.budget.most.checked_sub(held.all + bytes).ok_or(Unread::NoRoom)?;
        if self.sender != Sender::Unknown {
            let own = held.by_sender.get(&self.sender).copied().unwrap_or_default() + bytes;
            if own > left {
                return Err(Unread::NoRoom);
            }
            held.by_sender.insert(self.sender.clone(), own);
        }
        held.all += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = lock(&self.budget.held);
        held.all -= self.bytes;
        if let Some(own) = held.by_sender.get_mut(&self.sender) {
            *own -= self.bytes;
            if *own == 0 {
                held.by_sender.remove(&self.sender);
            }
        }
    }
}

/// Received body with its reservation.
pub struct Whole<'a> {
    /// The content.
    pub bytes: Bytes,
    _held: Held<'a>,
}

/// Bodies up to this size reserve nothing if they arrive in one piece. Most do, and a shared counter would be written
/// for each. The default of 16,384 connections times this size is not more than the budget.
const SMALL: usize = 16 << 10;

/// An oversized body is read and discarded up to this multiple of the limit: a client that is cut off while writing
/// would not read the error response.
const SKIPPED: usize = 4;

/// Bytes that earn a body one second: a slow sender can finish, but a trickle does not prolong the deadline.
const PACE: u32 = 16 << 10;
/// Interval of checking how much has arrived.
const CHECK: Duration = Duration::from_secs(1);

/// Upper bound of the timeout, so that it can be added to an instant.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Reads a body of at most `cap` bytes. A body that is not available at once has `patience` to arrive, plus the time
/// earned by received bytes. An oversized body that the client sends only after `100 Continue` is not requested.
pub(super) async fn read<'a, B>(
    source: Source<'_>,
    body: B,
    cap: usize,
    budget: &'a Budget,
    patience: Duration,
) -> Result<Whole<'a>, Unread>
where
    B: HttpBody<Data: Buf>,
{
    let length = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let come = &AtomicUsize::new(0);
    let mut reading = std::pin::pin!(async move {
        let (mut body, most) = (std::pin::pin!(body), cap.saturating_mul(SKIPPED));
        if length <= cap {
            let held = Held { budget, sender: Sender::Unknown, bytes: 0 };
            let read = collect(source, body.as_mut(), cap, held, come).await;
            if !matches!(read, Err(Unread::TooLarge)) {
                return read;
            }
        }
        if length <= cap || (length <= most && !source.parts.headers.contains_key(EXPECT)) {
            skip(body, most).await;
        }
        Err(Unread::TooLarge)
    });
    let first = std::future::poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
    match first {
        Poll::Ready(read) => read,
        Poll::Pending => in_time(reading, patience, come, source.pace()).await,
    }
}

/// Waits for `reading` until its deadline. Received bytes extend the deadline, to at most `patience` from now: a sender
/// that stalls after a fast start is cut off as soon as one that never started. A second in which less than a second is
/// earned is reported as slow.
async fn in_time<T>(
    mut reading: Pin<&mut impl Future<Output = Result<T, Unread>>>,
    patience: Duration,
    come: &AtomicUsize,
    pace: BodyPace<'_>,
) -> Result<T, Unread> {
    let patience = patience.min(FOREVER); // so that it can be added to an instant
    let (mut now, mut counted) = (Instant::now(), come.load(Ordering::Relaxed));
    let mut deadline = now + patience;
    while now < deadline {
        if let Ok(read) = tokio::time::timeout_at(deadline.min(now + CHECK), reading.as_mut()).await {
            return read;
        }
        let all = come.load(Ordering::Relaxed);
        let arrived = u32::try_from(all - counted).unwrap_or(u32::MAX);
        (now, counted) = (Instant::now(), all);
        pace.report(arrived < PACE);
        deadline = (deadline + Duration::from_secs(1).saturating_mul(arrived) / PACE).min(now + patience);
    }
    Err(Unread::TooSlow)
}

/// Reads and discards up to `most` bytes.
async fn skip<B: HttpBody<Data: Buf>>(mut body: Pin<&mut B>, most: usize) {
    let mut skipped = 0;
    while skipped <= most
        && let Some(Ok(frame)) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await
    {
        skipped += frame.data_ref().map_or(1, Buf::remaining);
    }
}

/// Reads up to `cap` bytes and counts the received bytes in `come`.
async fn collect<'a, B>(
    source: Source<'_>,
    mut body: Pin<&mut B>,
    cap: usize,
    mut held: Held<'a>,
    come: &AtomicUsize,
) -> Result<Whole<'a>, Unread>
where
    B: HttpBody<Data: Buf>,
{
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(mut data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        if data.remaining() > cap - (first.len() + all.len()).min(cap) {
            return Err(Unread::TooLarge);
        }
        come.store(first.len() + all.len() + data.remaining(), Ordering::Relaxed);
        // Most bodies arrive in one piece, which is not copied.
        if first.is_empty() && all.is_empty() {
            first = data.copy_to_bytes(data.remaining());
            if first.len() > SMALL || !body.is_end_stream() {
                held.grow(source, first.len())?;
            }
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        held.grow(source, data.remaining())?;
        while data.has_remaining() {
            let chunk = data.chunk();
            all.extend_from_slice(chunk);
            let count = chunk.len();
            data.advance(count);
        }
    }
    Ok(Whole { bytes: if all.is_empty() { first } else { all.into() }, _held: held })
}

#[cfg(test)]
mod tests {
    use super::super::options::{Connections, Options};
    use super::*;
    use crate::server::http::listener::watchdog::Watch;

    const LONG: Duration = Duration::from_mins(1);

    fn parts() -> Parts {
        ::http::Request::new(()).into_parts().0
    }

    fn unknown(parts: &Parts) -> Source<'_> {
        Source { parts, origin: None, subject: None }
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
        let (budget, patience) = (Budget::new(usize::MAX), Options::default().body_timeout);
        for (bytes, left, read_after, expected) in [
            (1, 100, 10, Err(Unread::TooSlow)),
            (1_000, 100, 10, Err(Unread::TooSlow)),
            (8 << 10, 100, 19, Err(Unread::TooSlow)),
            (17 << 10, 100, 100, Ok((100 * 17) << 10)),
            (1, 9, 9, Ok(9)),
        ] {
            let begun = Instant::now();
            let second = Duration::from_secs(1);
            let seconds = Some(tokio::time::interval_at(begun + second, second));
            let body = Pieces { bytes, left, hangs: false, seconds };
            let read = read(unknown(&parts()), body, 4 << 20, &budget, patience).await;
            assert_eq!((size(read), begun.elapsed().as_secs()), (expected, read_after));
        }
    }

    fn size(read: Result<Whole<'_>, Unread>) -> Result<usize, Unread> {
        read.map(|body| body.bytes.len())
    }

    #[tokio::test(start_paused = true)]
    async fn all_bodies_together_are_bounded() {
        let budget = Budget::new(100);
        let parts = parts();
        let body = |left, hangs| {
            let body = Pieces { bytes: 10, left, hangs, seconds: None };
            read(unknown(&parts), body, 1_000, &budget, LONG)
        };
        assert_eq!(size(body(10, false).await), Ok(100));
        assert_eq!(size(body(11, false).await), Err(Unread::NoRoom));
        {
            let mut stuck = std::pin::pin!(body(6, true));
            let polled = std::future::poll_fn(|cx| Poll::Ready(stuck.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            assert_eq!(size(body(5, false).await), Err(Unread::NoRoom));
            assert_eq!(size(body(4, false).await), Ok(40));
            assert_eq!(size(stuck.await), Err(Unread::TooSlow));
        }
        let kept = body(7, false).await;
        assert_eq!(size(body(4, false).await), Err(Unread::NoRoom), "bytes in use are reserved");
        assert_eq!(size(body(3, false).await), Ok(30));
        drop(kept);
        assert_eq!(size(body(10, false).await), Ok(100));
        assert_eq!(lock(&budget.held).all, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_was_earned_is_not_saved_up() {
        let (budget, patience) = (Budget::new(usize::MAX), Options::default().body_timeout);
        let begun = Instant::now();
        let body = Pieces { bytes: 4 << 20, left: 1, hangs: true, seconds: None };
        let read = read(unknown(&parts()), body, 8 << 20, &budget, patience).await;
        assert_eq!((size(read), begun.elapsed()), (Err(Unread::TooSlow), patience));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_makes_room_while_its_body_is_slow() {
        let (watch, budget) = (Watch::new(Connections::default()), Budget::new(usize::MAX));
        let second = Duration::from_secs(1);
        for (bytes, left, hangs, is_slow) in
            [(1, 0, true, true), (1, 5, false, true), (8 << 10, 5, false, true), (17 << 10, 5, false, false)]
        {
            let guest = watch.admit([192, 0, 2, 1].into()).unwrap();
            guest.watched.begin();
            let mut parts = parts();
            parts.extensions.insert(BodyWatch(guest.watched.clone()));
            let seconds = Some(tokio::time::interval_at(Instant::now() + second / 2, second));
            let body = Pieces { bytes, left, hangs, seconds };
            let mut reading = std::pin::pin!(read(unknown(&parts), body, 4 << 20, &budget, BODY_TIMEOUT));
            assert!(tokio::time::timeout(second * 3 / 4, reading.as_mut()).await.is_err());
            assert_eq!(guest.watched.idle_since(), None, "{bytes} bytes in the first second");
            assert!(tokio::time::timeout(second, reading.as_mut()).await.is_err());
            assert_eq!(guest.watched.idle_since().is_some(), is_slow, "{bytes} bytes each second");
            assert_eq!(reading.await.is_err(), hangs);
            assert_eq!(guest.watched.idle_since(), None, "the request is being served");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_sender_leaves_as_much_as_it_takes() {
        let (budget, parts) = (Budget::new(64), parts());
        let subjects = ["a", "b", "c", "d"].map(Arc::<str>::from);
        let body = |sender: &str, left| {
            let body = Pieces { bytes: 4, left, hangs: false, seconds: None };
            let subject = subjects.iter().find(|subject| ***subject == *sender);
            read(Source { parts: &parts, origin: None, subject }, body, 1_000, &budget, LONG)
        };
        let mut held = Vec::new();
        for (sender, share) in [("a", 8), ("b", 4), ("c", 2)] {
            assert_eq!(size(body(sender, share + 1).await), Err(Unread::NoRoom), "{sender}");
            for _ in 0..share {
                held.push(body(sender, 1).await.ok().unwrap());
            }
            assert_eq!(size(body(sender, 1).await), Err(Unread::NoRoom), "{sender}");
        }
        assert_eq!(size(body("d", 1).await), Ok(4), "others still have budget");
        drop(held);
        assert_eq!(size(body("a", 8).await), Ok(32));
        assert!(lock(&budget.held).by_sender.is_empty());
    }

    #[test]
    fn an_anonymous_sender_is_an_address() {
        let sender = |peer: &str| {
            let mut parts = parts();
            parts.extensions.insert(Addresses { peer: peer.parse().unwrap(), local: None });
            unknown(&parts).sender()
        };
        assert_eq!(sender("192.0.2.1:1"), sender("[::ffff:192.0.2.1]:2"));
        assert_eq!(sender("[2001:db8::1]:1"), sender("[2001:db8::2]:1"));
        assert_ne!(sender("[2001:db8::1]:1"), sender("[2001:db8:0:1::1]:1"));
        assert_eq!(unknown(&parts()).sender(), Sender::Unknown);
    }
}

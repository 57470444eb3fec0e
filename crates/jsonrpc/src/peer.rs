//! Outgoing requests: ids, correlation of responses, timeouts and the end of the connection.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::envelope::ResponsePayload;
use crate::pause::{PauseClock, TimeoutPause};
use crate::{ErrorObject, Id, Outbox, write};

/// Reason why an outgoing JSON-RPC request has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum CallError {
    /// The peer responded with an error.
    Rejected(ErrorObject),
    /// No response arrived within this time; the request was abandoned.
    TimedOut(Duration),
    /// The connection was closed, for the contained reason, before the request was sent.
    Closed(Arc<str>),
    /// The connection was closed, for the contained reason, while the request was in flight.
    Lost(Arc<str>),
    /// The number of pending requests has reached this limit.
    TooManyPending(usize),
    /// The response is not valid JSON-RPC 2.0.
    Malformed(String),
    /// The transport failed for this request or its response; other requests are not affected.
    Transport {
        /// Machine-readable error code.
        code: &'static str,
        /// HTTP status of the response, if the transport uses HTTP.
        status: Option<u16>,
        /// Description of the error.
        message: Arc<str>,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Rejected(error) => error.fmt(f),
            CallError::TimedOut(after) => write!(f, "no response within {:?}", round_for_display(*after)),
            CallError::Closed(reason) => write!(f, "the connection is closed: {reason}"),
            CallError::Lost(reason) => {
                write!(f, "the connection closed before the response arrived: {reason}")
            }
            CallError::TooManyPending(limit) => write!(f, "too many pending requests (limit: {limit})"),
            CallError::Malformed(detail) => write!(f, "the response is malformed: {detail}"),
            CallError::Transport { code, message, .. } => write!(f, "{message} ({code})"),
        }
    }
}

/// Rounds a measured time down for display: to tenths of a second, below one second to milliseconds.
fn round_for_display(time: Duration) -> Duration {
    let unit = if time < Duration::from_secs(1) { 1 } else { 100 };
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis / unit * unit)
}

impl std::error::Error for CallError {}

/// Outcome of an outgoing request: the JSON text of its `result`, or the error.
type CallResult = Result<String, CallError>;

/// Sender of JSON-RPC requests and notifications on one connection, which matches the responses to the requests.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<PeerShared>,
    outbox: Arc<Outbox>,
}

struct PeerShared {
    pending: Mutex<PendingRequests>,
    limit: usize,
    pauses: Arc<PauseClock>,
    /// Signal to the timekeeper: a deadline is earlier than its next check, or the last peer was dropped.
    timekeeper_wake: Arc<Notify>,
    /// Whether JSON-RPC ids are sent as strings.
    string_ids: bool,
    /// Called when a request is abandoned (timeout or drop) with the outbox it was sent through, its id and the reason,
    /// so that the peer can be notified.
    on_abandon: OnAbandon,
}

type OnAbandon = Box<dyn Fn(&Outbox, &Id<'_>, &str) + Send + Sync>;

#[derive(Default)]
struct PendingRequests {
    last_number: i64,
    /// Pending requests by number. Numbers are ascending, so an ordered map stays small and needs no hashing.
    waiters: BTreeMap<i64, Waiter>,
    /// Time at which the timekeeper next checks for requests that have timed out. `None` if it waits to be woken.
    next_check: Option<Instant>,
    closed: Option<Arc<str>>,
}

struct Waiter {
    state: WaiterState,
    /// Outbox through which the request was sent.
    outbox: Arc<Outbox>,
    /// Buffer that the response of this request is written to. The caller's thread allocates and frees it: allocators
    /// are slow at freeing memory that another thread, here the reader, has allocated.
    buffer: String,
    sent: Instant,
    /// Time at which the request fails if no response has arrived. `None` for streams.
    deadline: Option<Instant>,
    timeout: ResponseTimeout,
    /// Time at which the peer last reported progress.
    last_progress: Option<Instant>,
}

enum WaiterState {
    /// The request has no response yet. Holds the waker of the caller once the call has been polled.
    Pending(Option<Waker>),
    /// The response, which the caller has not taken yet.
    Ready(CallResult),
}

impl Waiter {
    /// Stores the response for the caller that waits for it. Returns whether it is the first one, and the waker of the
    /// caller.
    fn resolve(&mut self, make_result: impl FnOnce(String) -> CallResult) -> (bool, Option<Waker>) {
        let WaiterState::Pending(waker) = &mut self.state else { return (false, None) };
        let waker = waker.take();
        self.state = WaiterState::Ready(make_result(std::mem::take(&mut self.buffer)));
        (true, waker)
    }

    fn is_pending(&self) -> bool {
        matches!(self.state, WaiterState::Pending(_))
    }

    /// Returns the later deadline of a request after reported progress, or while timeouts are paused.
    fn extension(&self, now: Instant, paused: bool) -> Option<Instant> {
        if paused && now < self.sent + MAX_PAUSED_AGE {
            return now.checked_add(self.timeout.timeout);
        }
        // An overflow of the clock means that there is no limit.
        let latest = self.sent.checked_add(self.timeout.extend_to?);
        let extended = self.last_progress?.checked_add(self.timeout.timeout)?;
        let extended = latest.map_or(extended, |latest| extended.min(latest));
        (extended > now).then_some(extended)
    }
}

/// Initial capacity of the response buffer; sufficient for most responses.
const RESPONSE_CAPACITY: usize = 512;
/// Age of a request up to which pauses extend its deadline.
const MAX_PAUSED_AGE: Duration = Duration::from_hours(1);

/// How long a JSON-RPC request waits for its response, and how far progress may extend that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseTimeout {
    /// Time that a response may take after the request, or after the last reported progress if `extend_to` is set.
    /// [`Duration::MAX`] disables the timeout, as for a stream whose response arrives at its end.
    pub timeout: Duration,
    /// Maximum total time to which signs of progress ([`Peer::record_progress`]) may extend the timeout. `None`: no
    /// extension.
    pub extend_to: Option<Duration>,
}

impl From<Duration> for ResponseTimeout {
    fn from(timeout: Duration) -> Self {
        ResponseTimeout { timeout, extend_to: None }
    }
}

impl PeerShared {
    fn id(&self, number: i64) -> Id<'static> {
        if self.string_ids { Id::String(number.to_string().into()) } else { Id::Number(number) }
    }

    /// Returns the request number that a JSON-RPC id stands for.
    fn number(&self, id: &Id<'_>) -> Option<i64> {
        match id {
            Id::Number(number) if !self.string_ids => Some(*number),
            Id::String(text) if self.string_ids => text.parse().ok(),
            _ => None,
        }
    }

    fn lock_pending(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a response to the pending request with this number. Returns `false` if no such request is pending.
    fn resolve(&self, id: i64, make_result: impl FnOnce(String) -> CallResult) -> bool {
        let resolved = self.lock_pending().waiters.get_mut(&id).map(|waiter| waiter.resolve(make_result));
        let (is_first, waker) = resolved.unwrap_or_default();
        if let Some(waker) = waker {
            waker.wake();
        }
        is_first
    }

    /// Fails the pending requests selected by `predicate`.
    fn fail_matching(&self, error: &CallError, predicate: impl Fn(&Waiter) -> bool) {
        let mut pending = self.lock_pending();
        let open = pending.waiters.values_mut().filter(|waiter| predicate(waiter));
        let wakers: Vec<_> = open.filter_map(|waiter| waiter.resolve(|_| Err(error.clone())).1).collect();
        drop(pending);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes the response to a request, if it has arrived. Otherwise registers the caller's waker.
    fn take_response(&self, id: i64, cx: &Context<'_>) -> Option<CallResult> {
        let mut pending = self.lock_pending();
        match pending.waiters.get_mut(&id).map(|waiter| &mut waiter.state) {
            Some(WaiterState::Pending(Some(waker))) => waker.clone_from(cx.waker()),
            Some(WaiterState::Pending(waker)) => *waker = Some(cx.waker().clone()),
            Some(WaiterState::Ready(_)) => {
                let waiter = pending.waiters.remove(&id);
                return waiter.and_then(|waiter| match waiter.state {
                    WaiterState::Ready(result) => Some(result),
                    WaiterState::Pending(_) => None,
                });
            }
            None => return Some(Err(CallError::Lost("the response was already taken".into()))),
        }
        None
    }

    /// Abandons requests whose deadline has passed. Returns the time of the next check.
    fn abandon_expired(&self) -> Option<Instant> {
        let (now, paused) = (Instant::now(), self.pauses.is_paused());
        let (mut timed_out, mut next) = (Vec::new(), None::<Instant>);
        let mut pending = self.lock_pending();
        for (id, waiter) in pending.waiters.iter_mut().filter(|(_, waiter)| waiter.is_pending()) {
            let Some(deadline) = waiter.deadline else { continue };
            if deadline <= now {
                let Some(extended) = waiter.extension(now, paused) else {
                    let elapsed = now - waiter.sent;
                    let waker = waiter.resolve(|_| Err(CallError::TimedOut(elapsed))).1;
                    timed_out.push((*id, waiter.outbox.clone(), waker));
                    continue;
                };
                waiter.deadline = Some(extended);
            }
            next = next.into_iter().chain(waiter.deadline).min();
        }
        pending.next_check = next;
        drop(pending);
        for (id, outbox, waker) in timed_out {
            (self.on_abandon)(&outbox, &self.id(id), "timed out");
            waker.into_iter().for_each(Waker::wake);
        }
        next
    }
}

impl Drop for PeerShared {
    fn drop(&mut self) {
        self.timekeeper_wake.notify_one();
    }
}

impl Peer {
    /// Creates a peer that sends through `outbox` and may have at most `limit` pending requests.
    pub fn new(
        outbox: Arc<Outbox>,
        limit: usize,
        abandon: impl Fn(&Outbox, &Id<'_>, &str) + Send + Sync + 'static,
    ) -> Self {
        Self::with_ids(outbox, limit, false, abandon)
    }

    /// Creates a peer like [`Self::new`], with a choice of the form of its request ids. With `text_ids`, request ids
    /// are sent as strings.
    pub fn with_ids(
        outbox: Arc<Outbox>,
        limit: usize,
        text_ids: bool,
        abandon: impl Fn(&Outbox, &Id<'_>, &str) + Send + Sync + 'static,
    ) -> Self {
        let (pending, pauses, earlier) = (Mutex::default(), Arc::default(), Arc::default());
        let abandon = Box::new(abandon);
        let shared = Arc::new(PeerShared {
            pending,
            limit,
            pauses,
            timekeeper_wake: earlier,
            string_ids: text_ids,
            on_abandon: abandon,
        });
        Self { shared, outbox }
    }

    /// Returns a handle to this peer that sends through another outbox.
    #[must_use]
    pub fn with_outbox(&self, outbox: Arc<Outbox>) -> Self {
        Self { shared: self.shared.clone(), outbox }
    }

    /// Enforces request timeouts until all handles to the peer are dropped. Requests never time out unless this future
    /// is polled: a single timer for all requests costs less than one for each.
    pub fn enforce_timeouts(&self) -> impl Future<Output = ()> + Send + use<> {
        let (shared, earlier) = (Arc::downgrade(&self.shared), self.shared.timekeeper_wake.clone());
        async move {
            while let Some(next) = shared.upgrade().map(|shared| shared.abandon_expired()) {
                let woken = earlier.notified();
                match next {
                    // In both cases all deadlines are checked again.
                    Some(next) => drop(tokio::time::timeout_at(next, woken).await),
                    None => woken.await,
                }
            }
        }
    }

    /// Sends a JSON-RPC request and returns a future for its response. Await the returned [`Call`] for the response, or
    /// drop it to abandon the request. `params` is called with the number of the request, which is also its id.
    pub fn request(
        &self,
        method: &str,
        timeout: impl Into<ResponseTimeout>,
        params: impl FnOnce(i64, &mut Vec<u8>),
    ) -> Result<Call, CallError> {
        let (timeout, sent, buffer) =
            (timeout.into(), Instant::now(), String::with_capacity(RESPONSE_CAPACITY));
        let deadline = sent.checked_add(timeout.timeout).filter(|_| timeout.timeout != Duration::MAX);
        let (id, is_earlier) = {
            let mut pending = self.shared.lock_pending();
            if let Some(reason) = &pending.closed {
                return Err(CallError::Closed(reason.clone()));
            }
            if pending.waiters.len() >= self.shared.limit {
                return Err(CallError::TooManyPending(self.shared.limit));
            }
            pending.last_number += 1;
            let id = pending.last_number;
            let (state, outbox) = (WaiterState::Pending(None), self.outbox.clone());
            pending
                .waiters
                .insert(id, Waiter { state, outbox, buffer, sent, deadline, timeout, last_progress: None });
            let is_earlier =
                deadline.is_some_and(|deadline| pending.next_check.is_none_or(|next| deadline < next));
            if is_earlier {
                pending.next_check = deadline;
            }
            (id, is_earlier)
        };
        if is_earlier {
            self.shared.timekeeper_wake.notify_one();
        }
        self.outbox.send(|out| write::request(&self.shared.id(id), method, out, |out| params(id, out)));
        Ok(Call { id, is_finished: false, shared: self.shared.clone() })
    }

    /// Pauses all request timeouts until the returned guard is dropped, because the peer is waiting for this side.
    pub fn pause_timeouts(&self) -> TimeoutPause {
        self.shared.pauses.start()
    }

    /// Reports whether the timeouts of pending requests are paused.
    pub fn has_paused_timeouts(&self) -> bool {
        self.shared.pauses.is_paused()
    }

    /// Returns for how long request timeouts were paused in total.
    pub fn paused_time(&self) -> Duration {
        self.shared.pauses.total()
    }

    /// Records that progress on a request was reported, which extends its timeout if [`ResponseTimeout::extend_to`] is
    /// set.
    pub fn record_progress(&self, id: i64) {
        if let Some(waiter) = self.shared.lock_pending().waiters.get_mut(&id) {
            waiter.last_progress = Some(Instant::now());
        }
    }

    /// Sends a JSON-RPC notification to the peer.
    pub fn notify(&self, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.send(|out| write::notification(method, out, params));
    }

    /// Resolves the waiting request with its response. Returns `false` if no request is waiting for it.
    pub fn accept_response(&self, id: Option<&Id<'_>>, reply: ResponsePayload<'_>) -> bool {
        let Some(id) = id.and_then(|id| self.shared.number(id)) else { return false };
        self.shared.resolve(id, |mut buffer| match reply {
            ResponsePayload::Result(text) => {
                buffer.push_str(text);
                Ok(buffer)
            }
            ResponsePayload::Error(text) => Err(match serde_json::from_str(text) {
                Ok(error) => CallError::Rejected(error),
                Err(error) => CallError::Malformed(error.to_string()),
            }),
        })
    }

    /// Fails a request whose response cannot be read.
    pub fn fail(&self, id: &Id<'_>, error: CallError) {
        let Some(id) = self.shared.number(id) else { return };
        self.shared.resolve(id, |_| Err(error)); // the caller may have dropped the call already
    }

    /// Returns the number of the request with this JSON-RPC id, if this peer uses ids of this form.
    pub fn number(&self, id: &Id<'_>) -> Option<i64> {
        self.shared.number(id)
    }

    /// Reports whether a request is waiting for its response.
    pub fn is_pending(&self, id: &Id<'_>) -> bool {
        let Some(id) = self.shared.number(id) else { return false };
        self.shared.lock_pending().waiters.get(&id).is_some_and(Waiter::is_pending)
    }

    /// Fails the pending request if there is exactly one, not counting streams.
    pub fn fail_single_pending(&self, error: CallError) {
        let single_id = {
            let pending = self.shared.lock_pending();
            let mut open =
                pending.waiters.iter().filter(|(_, waiter)| waiter.is_pending() && waiter.deadline.is_some());
            open.next().map(|(id, _)| *id).filter(|_| open.next().is_none())
        };
        if let Some(id) = single_id {
            self.shared.resolve(id, |_| Err(error));
        }
    }

    /// Fails all pending requests except streams. Later requests are sent normally.
    pub fn fail_all(&self, error: &CallError) {
        self.shared.fail_matching(error, |waiter| waiter.deadline.is_some());
    }

    /// Closes the peer: all pending requests and all later requests fail.
    pub fn close(&self, reason: &str) {
        let reason: Arc<str> = reason.into();
        self.shared.lock_pending().closed.get_or_insert_with(|| reason.clone());
        self.shared.fail_matching(&CallError::Lost(reason), |_| true);
    }
}

/// JSON-RPC request in flight. Await it for the response; drop it to abandon the request.
pub struct Call {
    id: i64,
    is_finished: bool,
    shared: Arc<PeerShared>,
}

impl Call {
    /// Returns the JSON-RPC id of the request.
    pub fn id(&self) -> Id<'static> {
        self.shared.id(self.id)
    }

    /// Returns the number that identifies the request, which its JSON-RPC id is made of.
    pub fn number(&self) -> i64 {
        self.id
    }
}

impl Future for Call {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        match self.shared.take_response(self.id, cx) {
            Some(result) => {
                self.is_finished = true;
                Poll::Ready(result)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let waiter = self.shared.lock_pending().waiters.remove(&self.id);
        // Still pending: no caller will read the response.
        if let Some(waiter) = waiter.filter(Waiter::is_pending) {
            (self.shared.on_abandon)(&waiter.outbox, &self.shared.id(self.id), "no longer needed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn peer(limit: usize) -> (Peer, Arc<Outbox>) {
        let outbox = Arc::new(Outbox::new(1 << 20, || ()));
        let abandon = |abandoned: &Outbox, id: &Id<'_>, reason: &str| {
            let line = format!("abandoned {id}: {reason}");
            abandoned.append(|out| out.extend_from_slice(line.as_bytes()));
        };
        (Peer::new(outbox.clone(), limit, abandon), outbox)
    }

    /// Runs `work` together with the timekeeper.
    async fn with_timekeeper<T>(peer: &Peer, work: impl Future<Output = T>) -> T {
        tokio::select! { result = work => result, () = peer.enforce_timeouts() => unreachable!() }
    }

    fn take_sent(outbox: &Outbox) -> String {
        let mut lines = Vec::new();
        outbox.take(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn measured_times_are_rounded() {
        for (time, shown) in [
            (Duration::from_nanos(60_000_820_251), "60s"),
            (Duration::from_micros(1_567_890), "1.5s"),
            (Duration::from_micros(250_900), "250ms"),
        ] {
            assert_eq!(CallError::TimedOut(time).to_string(), format!("no response within {shown}"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_find_their_requests_in_any_order() {
        let (peer, outbox) = peer(8);
        let first = peer.request("a", SECOND, |_, _| ()).unwrap();
        let second = peer.request("b", SECOND, |_, _| ()).unwrap();
        assert_eq!(
            take_sent(&outbox),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"b\"}\n"
        );
        assert!(peer.accept_response(Some(&second.id()), ResponsePayload::Result("2")));
        assert!(
            peer.accept_response(Some(&first.id()), ResponsePayload::Error(r#"{"code":5,"message":"no"}"#))
        );
        assert!(
            !peer.accept_response(Some(&first.id()), ResponsePayload::Result("1")),
            "a second response has no pending request"
        );
        assert!(!peer.accept_response(None, ResponsePayload::Result("1")));
        assert_eq!(second.await.unwrap(), "2");
        assert_eq!(first.await.unwrap_err().to_string(), "no (code 5)");
        assert_eq!(take_sent(&outbox), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_takes_too_long_or_is_dropped_is_given_up() {
        let (peer, outbox) = peer(8);
        let slow = peer.request("slow", SECOND, |_, _| ()).unwrap();
        take_sent(&outbox);
        assert_eq!(with_timekeeper(&peer, slow).await, Err(CallError::TimedOut(SECOND)));
        assert_eq!(take_sent(&outbox), "abandoned 1: timed out\n");
        drop(peer.request("dropped", SECOND, |_, _| ()).unwrap());
        assert!(take_sent(&outbox).ends_with("abandoned 2: no longer needed\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_extend_the_time_up_to_a_cap() {
        let (peer, _outbox) = peer(8);
        let started = Instant::now();
        let timeout = ResponseTimeout { timeout: SECOND, extend_to: Some(SECOND * 3) };
        let call = peer.request("busy", timeout, |_, _| ()).unwrap();
        let id = call.number();
        let keep_alive = async {
            loop {
                tokio::time::sleep(SECOND / 2).await;
                peer.record_progress(id);
            }
        };
        let call = with_timekeeper(&peer, call);
        let result = tokio::select! { result = call => result, () = keep_alive => unreachable!() };
        assert_eq!(result, Err(CallError::TimedOut(SECOND * 3)));
        assert_eq!(started.elapsed(), SECOND * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_have_all_the_time_there_is() {
        let (peer, _outbox) = peer(8);
        let timeout = ResponseTimeout { timeout: SECOND, extend_to: Some(Duration::MAX) };
        let call = peer.request("busy", timeout, |_, _| ()).unwrap();
        let id = call.number();
        let respond = async {
            tokio::time::sleep(SECOND / 2).await;
            peer.record_progress(id);
            tokio::time::sleep(SECOND * 3 / 4).await;
            assert!(peer.accept_response(Some(&Id::Number(id)), ResponsePayload::Result("0")));
        };
        assert_eq!(with_timekeeper(&peer, async { tokio::join!(call, respond).0 }).await, Ok("0".into()));
        let patient = peer.request("slow", Duration::MAX, |_, _| ()).unwrap();
        assert!(peer.accept_response(Some(&patient.id()), ResponsePayload::Result("1")));
        assert_eq!(patient.await, Ok("1".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_the_other_side_waits_for_us() {
        let (peer, _outbox) = peer(8);
        let started = Instant::now();
        let call = peer.request("asks", SECOND, |_, _| ()).unwrap();
        let paused = peer.pause_timeouts();
        let user = async {
            tokio::time::sleep(SECOND * 100).await;
            drop(paused);
            std::future::pending::<()>().await;
        };
        let result = with_timekeeper(&peer, async {
            tokio::select! { result = call => result, () = user => unreachable!() }
        });
        assert!(matches!(result.await, Err(CallError::TimedOut(_))));
        assert!(
            started.elapsed() >= SECOND * 100 && started.elapsed() <= SECOND * 101,
            "{:?}",
            started.elapsed()
        );
        let paused_call = peer.request("asks", SECOND, |_, _| ()).unwrap();
        assert_eq!(peer.paused_time(), SECOND * 100);
        let (started, _paused) = (Instant::now(), peer.pause_timeouts());
        assert!(with_timekeeper(&peer, paused_call).await.is_err(), "a pause is limited");
        assert!(started.elapsed() <= MAX_PAUSED_AGE + SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_time_is_kept_beside_long_ones_and_streams_stay() {
        let (peer, _outbox) = peer(8);
        let long = peer.request("long", SECOND * 100, |_, _| ()).unwrap();
        let stream = peer.request("stream", Duration::MAX, |_, _| ()).unwrap();
        let started = Instant::now();
        let short = async {
            tokio::time::sleep(SECOND).await;
            peer.request("short", SECOND, |_, _| ()).unwrap().await
        };
        assert!(with_timekeeper(&peer, short).await.is_err());
        assert_eq!(started.elapsed(), SECOND * 2);
        peer.fail_all(&CallError::Malformed("x".into()));
        assert_eq!(long.await, Err(CallError::Malformed("x".into())));
        peer.close("over");
        assert_eq!(stream.await, Err(CallError::Lost("over".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn ids_can_be_strings() {
        let outbox = Arc::new(Outbox::new(1 << 20, || ()));
        let peer = Peer::with_ids(outbox.clone(), 8, true, |_, _, _| ());
        let call = peer.request("a", SECOND, |_, _| ()).unwrap();
        assert_eq!(take_sent(&outbox), "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"method\":\"a\"}\n");
        assert!(!peer.accept_response(Some(&Id::Number(1)), ResponsePayload::Result("0")));
        assert!(peer.accept_response(Some(&Id::String("1".into())), ResponsePayload::Result("0")));
        assert_eq!(call.await, Ok("0".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_peer_fails_everything_at_once_and_limits_hold() {
        let (peer, _outbox) = peer(2);
        let calls =
            [peer.request("a", SECOND, |_, _| ()).unwrap(), peer.request("b", SECOND, |_, _| ()).unwrap()];
        assert_eq!(peer.request("c", SECOND, |_, _| ()).err(), Some(CallError::TooManyPending(2)));
        peer.close("it exited");
        for call in calls {
            assert_eq!(call.await, Err(CallError::Lost("it exited".into())));
        }
        assert_eq!(peer.request("d", SECOND, |_, _| ()).err(), Some(CallError::Closed("it exited".into())));
    }
}

//! Our own requests to the other side: ids, waiting, timeouts, and the end of the peer.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::envelope::Reply;
use crate::{ErrorObject, Id, Outbox, write};

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum CallError {
    /// The other side answered with an error.
    Rejected(ErrorObject),
    /// No answer came in time; the request was given up.
    TimedOut(Duration),
    /// The connection had ended before the request; the text says why.
    Closed(Arc<str>),
    /// The connection ended while the request was under way; the text says why.
    Lost(Arc<str>),
    /// Too many requests are waiting already.
    TooMany(usize),
    /// The answer is not what JSON-RPC 2.0 allows.
    Malformed(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Rejected(error) => error.fmt(f),
            CallError::TimedOut(after) => write!(f, "no answer within {after:?}"),
            CallError::Closed(reason) => write!(f, "the connection is closed: {reason}"),
            CallError::Lost(reason) => write!(f, "the connection ended before the answer came: {reason}"),
            CallError::TooMany(limit) => write!(f, "{limit} requests are waiting for answers already"),
            CallError::Malformed(what) => write!(f, "the answer is malformed: {what}"),
        }
    }
}

impl std::error::Error for CallError {}

/// The answer to a request: the text of its `result`.
type Answer = Result<Box<str>, CallError>;

/// One side's view of the other: sends requests and notifications, matches answers.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

struct Shared {
    outbox: Arc<Outbox>,
    waiting: Mutex<Waiting>,
    limit: usize,
    /// How many have stopped the time.
    paused: AtomicUsize,
    /// Whether ids go out as strings.
    text_ids: bool,
    /// Called when a request is given up (timeout or drop) with its id and the reason, to tell the other side.
    abandon: Abandon,
}

type Abandon = Box<dyn Fn(&Id<'_>, &str) + Send + Sync>;

#[derive(Default)]
struct Waiting {
    next: i64,
    calls: HashMap<i64, Waiter>,
    closed: Option<Arc<str>>,
}

struct Waiter {
    answer: oneshot::Sender<Answer>,
    /// When the other side last showed that it works on the request.
    alive: Option<Instant>,
}

/// How long to wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// This long, from the request or from the last sign of life if such extend it.
    pub timeout: Duration,
    /// Signs of life ([`Peer::touch`]) extend the time, up to this long in all.
    pub extend_to: Option<Duration>,
}

impl From<Duration> for Patience {
    fn from(timeout: Duration) -> Self {
        Patience { timeout, extend_to: None }
    }
}

impl Shared {
    fn id(&self, number: i64) -> Id<'static> {
        if self.text_ids { Id::String(number.to_string().into()) } else { Id::Number(number) }
    }

    /// The number of a request of ours, from the id that an answer repeats.
    fn number(&self, id: &Id<'_>) -> Option<i64> {
        match id {
            Id::Number(number) if !self.text_ids => Some(*number),
            Id::String(text) if self.text_ids => text.parse().ok(),
            _ => None,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// A peer that is written to through `outbox` and may owe us at most `limit` answers.
    pub fn new(
        outbox: Arc<Outbox>,
        limit: usize,
        abandon: impl Fn(&Id<'_>, &str) + Send + Sync + 'static,
    ) -> Self {
        Self::with_ids(outbox, limit, false, abandon)
    }

    /// As [`Self::new`]; with `text_ids` the ids of requests are strings.
    pub fn with_ids(
        outbox: Arc<Outbox>,
        limit: usize,
        text_ids: bool,
        abandon: impl Fn(&Id<'_>, &str) + Send + Sync + 'static,
    ) -> Self {
        let abandon = Box::new(abandon);
        let (waiting, paused) = (Mutex::default(), AtomicUsize::new(0));
        Self { shared: Arc::new(Shared { outbox, waiting, limit, paused, text_ids, abandon }) }
    }

    /// Sends a request. The future that comes back is the answer; dropping it gives the request up. `params` is
    /// given the number of the request, which is its id, too.
    pub fn request(
        &self,
        method: &str,
        patience: impl Into<Patience>,
        params: impl FnOnce(i64, &mut Vec<u8>),
    ) -> Result<Call, CallError> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut waiting = self.shared.waiting();
            if let Some(reason) = &waiting.closed {
                return Err(CallError::Closed(reason.clone()));
            }
            if waiting.calls.len() >= self.shared.limit {
                return Err(CallError::TooMany(self.shared.limit));
            }
            waiting.next += 1;
            let id = waiting.next;
            waiting.calls.insert(id, Waiter { answer: sender, alive: None });
            id
        };
        self.shared
            .outbox
            .send(|out| write::request(&self.shared.id(id), method, out, |out| params(id, out)));
        let patience = patience.into();
        let sent = Instant::now();
        let deadline = Box::pin(tokio::time::sleep(patience.timeout));
        Ok(Call { id, answer, deadline, sent, patience, shared: self.shared.clone() })
    }

    /// Until the value that comes back is dropped no request runs out of time: the other side waits for us.
    pub fn pause(&self) -> Paused {
        self.shared.paused.fetch_add(1, Ordering::Relaxed);
        Paused(self.shared.clone())
    }

    /// Notes that the other side works on a request.
    pub fn touch(&self, id: i64) {
        if let Some(waiter) = self.shared.waiting().calls.get_mut(&id) {
            waiter.alive = Some(Instant::now());
        }
    }

    /// Sends a notification.
    pub fn notify(&self, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
        self.shared.outbox.send(|out| write::notification(method, out, params));
    }

    /// Takes in an answer; `false` when nobody waits for it.
    pub fn answer(&self, id: Option<&Id<'_>>, reply: Reply<'_>) -> bool {
        let Some(id) = id.and_then(|id| self.shared.number(id)) else { return false };
        let Some(waiter) = self.shared.waiting().calls.remove(&id) else { return false };
        let answer = match reply {
            Reply::Result(text) => Ok(text.into()),
            Reply::Error(text) => Err(match serde_json::from_str(text) {
                Ok(error) => CallError::Rejected(error),
                Err(error) => CallError::Malformed(error.to_string()),
            }),
        };
        waiter.answer.send(answer).is_ok()
    }

    /// Fails one request, whose answer cannot be read.
    pub fn fail(&self, id: &Id<'_>, error: CallError) {
        let Some(id) = self.shared.number(id) else { return };
        let waiter = self.shared.waiting().calls.remove(&id);
        // The one who waited may have left in the meantime.
        let _ = waiter.map(|waiter| waiter.answer.send(Err(error)));
    }

    /// Fails everything that waits; later requests are sent as before.
    pub fn fail_all(&self, error: &CallError) {
        let calls = std::mem::take(&mut self.shared.waiting().calls);
        for waiter in calls.into_values() {
            // The one who waited may have left in the meantime.
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }

    /// The other side is gone: everything that waits fails now, and so does every later request.
    pub fn close(&self, reason: &str) {
        let reason: Arc<str> = reason.into();
        self.shared.waiting().closed.get_or_insert_with(|| reason.clone());
        self.fail_all(&CallError::Lost(reason));
    }
}

/// Time that stands still.
pub struct Paused(Arc<Shared>);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.paused.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request on its way. Await it for the answer; drop it to give it up.
pub struct Call {
    id: i64,
    answer: oneshot::Receiver<Answer>,
    deadline: Pin<Box<tokio::time::Sleep>>,
    sent: Instant,
    patience: Patience,
    shared: Arc<Shared>,
}

impl Call {
    /// The id it went out with.
    pub fn id(&self) -> Id<'static> {
        self.shared.id(self.id)
    }

    /// The number of the request.
    pub fn number(&self) -> i64 {
        self.id
    }

    /// The later deadline that the last sign of life gives, if it does.
    fn extension(&self) -> Option<Instant> {
        if self.shared.paused.load(Ordering::Relaxed) > 0 {
            return Some(Instant::now() + self.patience.timeout);
        }
        let most = self.sent + self.patience.extend_to?;
        let alive = self.shared.waiting().calls.get(&self.id)?.alive?;
        let later = (alive + self.patience.timeout).min(most);
        (later > self.deadline.deadline()).then_some(later)
    }
}

impl Future for Call {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) {
            return Poll::Ready(
                answer.unwrap_or_else(|_| Err(CallError::Lost("the connection was dropped".into()))),
            );
        }
        loop {
            ready!(self.deadline.as_mut().poll(cx));
            let Some(later) = self.extension() else {
                return Poll::Ready(Err(CallError::TimedOut(self.sent.elapsed())));
            };
            self.deadline.as_mut().reset(later);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Still waiting: nobody will read the answer any more.
        if self.shared.waiting().calls.remove(&self.id).is_some() {
            let reason = if self.deadline.is_elapsed() { "timed out" } else { "no longer needed" };
            (self.shared.abandon)(&self.shared.id(self.id), reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn peer(limit: usize) -> (Peer, Arc<Outbox>) {
        let outbox = Arc::new(Outbox::new(1 << 20, || ()));
        let abandoned = outbox.clone();
        let abandon = move |id: &Id<'_>, reason: &str| {
            let line = format!("gave up {id}: {reason}");
            abandoned.append(|out| out.extend_from_slice(line.as_bytes()));
        };
        (Peer::new(outbox.clone(), limit, abandon), outbox)
    }

    fn sent(outbox: &Outbox) -> String {
        let mut lines = Vec::new();
        outbox.take(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn answers_find_their_requests_in_any_order() {
        let (peer, outbox) = peer(8);
        let first = peer.request("a", SECOND, |_, _| ()).unwrap();
        let second = peer.request("b", SECOND, |_, _| ()).unwrap();
        assert_eq!(
            sent(&outbox),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"b\"}\n"
        );
        assert!(peer.answer(Some(&second.id()), Reply::Result("2")));
        assert!(peer.answer(Some(&first.id()), Reply::Error(r#"{"code":5,"message":"no"}"#)));
        assert!(!peer.answer(Some(&first.id()), Reply::Result("1")), "a second answer is nobody's");
        assert!(!peer.answer(None, Reply::Result("1")));
        assert_eq!(second.await.unwrap(), "2".into());
        assert_eq!(first.await.unwrap_err().to_string(), "no (code 5)");
        assert_eq!(sent(&outbox), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_takes_too_long_or_is_dropped_is_given_up() {
        let (peer, outbox) = peer(8);
        let slow = peer.request("slow", SECOND, |_, _| ()).unwrap();
        sent(&outbox);
        assert_eq!(slow.await, Err(CallError::TimedOut(SECOND)));
        assert_eq!(sent(&outbox), "gave up 1: timed out\n");
        drop(peer.request("dropped", SECOND, |_, _| ()).unwrap());
        assert!(sent(&outbox).ends_with("gave up 2: no longer needed\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_extend_the_time_up_to_a_cap() {
        let (peer, _outbox) = peer(8);
        let begun = Instant::now();
        let patience = Patience { timeout: SECOND, extend_to: Some(SECOND * 3) };
        let call = peer.request("busy", patience, |_, _| ()).unwrap();
        let id = call.number();
        let keep_alive = async {
            loop {
                tokio::time::sleep(SECOND / 2).await;
                peer.touch(id);
            }
        };
        let answer = tokio::select! { answer = call => answer, () = keep_alive => unreachable!() };
        assert_eq!(answer, Err(CallError::TimedOut(SECOND * 3)));
        assert_eq!(begun.elapsed(), SECOND * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn ids_can_be_strings() {
        let outbox = Arc::new(Outbox::new(1 << 20, || ()));
        let peer = Peer::with_ids(outbox.clone(), 8, true, |_, _| ());
        let call = peer.request("a", SECOND, |_, _| ()).unwrap();
        assert_eq!(sent(&outbox), "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"method\":\"a\"}\n");
        assert!(!peer.answer(Some(&Id::Number(1)), Reply::Result("0")));
        assert!(peer.answer(Some(&Id::String("1".into())), Reply::Result("0")));
        assert_eq!(call.await, Ok("0".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_peer_fails_everything_at_once_and_limits_hold() {
        let (peer, _outbox) = peer(2);
        let calls =
            [peer.request("a", SECOND, |_, _| ()).unwrap(), peer.request("b", SECOND, |_, _| ()).unwrap()];
        assert_eq!(peer.request("c", SECOND, |_, _| ()).err(), Some(CallError::TooMany(2)));
        peer.close("it exited");
        for call in calls {
            assert_eq!(call.await, Err(CallError::Lost("it exited".into())));
        }
        assert_eq!(peer.request("d", SECOND, |_, _| ()).err(), Some(CallError::Closed("it exited".into())));
    }
}

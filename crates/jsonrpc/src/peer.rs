//! Our own requests to the other side: ids, waiting, timeouts, and the end of the peer.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::envelope::Reply;
use crate::{ErrorObject, Id, Outbox, write};

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum CallError {
    /// The other side answered with an error.
    Rejected(ErrorObject),
    /// No answer came in time; the request was given up.
    TimedOut(Duration),
    /// The connection ended; the text says why.
    Closed(Arc<str>),
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
    /// Called when a request is given up (timeout or drop) with its id and the reason, to tell the other side.
    abandon: Abandon,
}

type Abandon = Box<dyn Fn(&Id<'_>, &str) + Send + Sync>;

#[derive(Default)]
struct Waiting {
    next: i64,
    calls: HashMap<i64, oneshot::Sender<Answer>>,
    closed: Option<Arc<str>>,
}

impl Shared {
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
        let abandon = Box::new(abandon);
        Self { shared: Arc::new(Shared { outbox, waiting: Mutex::default(), limit, abandon }) }
    }

    /// Sends a request. The future that comes back is the answer; dropping it gives the request up.
    pub fn request(
        &self,
        method: &str,
        timeout: Duration,
        params: impl FnOnce(&mut Vec<u8>),
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
            waiting.calls.insert(id, sender);
            id
        };
        self.shared.outbox.send(|out| write::request(&Id::Number(id), method, out, params));
        let deadline = Box::pin(tokio::time::sleep(timeout));
        Ok(Call { id, answer, deadline, timeout, shared: self.shared.clone() })
    }

    /// Sends a notification.
    pub fn notify(&self, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
        self.shared.outbox.send(|out| write::notification(method, out, params));
    }

    /// Takes in an answer; `false` when nobody waits for it.
    pub fn answer(&self, id: Option<&Id<'_>>, reply: Reply<'_>) -> bool {
        let Some(Id::Number(id)) = id else { return false };
        let Some(sender) = self.shared.waiting().calls.remove(id) else { return false };
        let answer = match reply {
            Reply::Result(text) => Ok(text.into()),
            Reply::Error(text) => Err(match serde_json::from_str(text) {
                Ok(error) => CallError::Rejected(error),
                Err(error) => CallError::Malformed(error.to_string()),
            }),
        };
        sender.send(answer).is_ok()
    }

    /// Fails one request, whose answer cannot be read.
    pub fn fail(&self, id: &Id<'_>, error: CallError) {
        let Id::Number(id) = id else { return };
        let sender = self.shared.waiting().calls.remove(id);
        // The one who waited may have left in the meantime.
        let _ = sender.map(|sender| sender.send(Err(error)));
    }

    /// The other side is gone: everything that waits fails now, and so does every later request.
    pub fn close(&self, reason: &str) {
        let reason: Arc<str> = reason.into();
        let calls = {
            let mut waiting = self.shared.waiting();
            waiting.closed.get_or_insert_with(|| reason.clone());
            std::mem::take(&mut waiting.calls)
        };
        for sender in calls.into_values() {
            // The one who waited may have left in the meantime.
            let _ = sender.send(Err(CallError::Closed(reason.clone())));
        }
    }
}

/// A request on its way. Await it for the answer; drop it to give it up.
pub struct Call {
    id: i64,
    answer: oneshot::Receiver<Answer>,
    deadline: Pin<Box<tokio::time::Sleep>>,
    timeout: Duration,
    shared: Arc<Shared>,
}

impl Call {
    /// The id it went out with.
    pub fn id(&self) -> Id<'static> {
        Id::Number(self.id)
    }
}

impl Future for Call {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) {
            return Poll::Ready(
                answer.unwrap_or_else(|_| Err(CallError::Closed("the connection was dropped".into()))),
            );
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(CallError::TimedOut(self.timeout)))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Still waiting: nobody will read the answer any more.
        if self.shared.waiting().calls.remove(&self.id).is_some() {
            let reason = if self.deadline.is_elapsed() { "timed out" } else { "no longer needed" };
            (self.shared.abandon)(&Id::Number(self.id), reason);
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
        let first = peer.request("a", SECOND, |_| ()).unwrap();
        let second = peer.request("b", SECOND, |_| ()).unwrap();
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
        let slow = peer.request("slow", SECOND, |_| ()).unwrap();
        sent(&outbox);
        assert_eq!(slow.await, Err(CallError::TimedOut(SECOND)));
        assert_eq!(sent(&outbox), "gave up 1: timed out\n");
        drop(peer.request("dropped", SECOND, |_| ()).unwrap());
        assert!(sent(&outbox).ends_with("gave up 2: no longer needed\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_peer_fails_everything_at_once_and_limits_hold() {
        let (peer, _outbox) = peer(2);
        let calls = [peer.request("a", SECOND, |_| ()).unwrap(), peer.request("b", SECOND, |_| ()).unwrap()];
        assert_eq!(peer.request("c", SECOND, |_| ()).err(), Some(CallError::TooMany(2)));
        peer.close("it exited");
        for call in calls {
            assert_eq!(call.await, Err(CallError::Closed("it exited".into())));
        }
        assert_eq!(peer.request("d", SECOND, |_| ()).err(), Some(CallError::Closed("it exited".into())));
    }
}

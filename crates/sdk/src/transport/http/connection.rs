//! Client side of an HTTP connection: takes outgoing messages and dispatches each one.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Id};
use linchpin_protocol::{Era, Method};
use tokio::runtime::Handle;

use super::message::{self, Outgoing, Request};
use super::options::Http;
use super::send_queue::Lane;
use super::state::{Greeting, State, Way};
use super::tool_headers::Mirrors;
use crate::egress::Target;
use crate::http::header_names;
use crate::lock::lock;
use crate::server::{start, start_abortable};
use crate::transport::{Carrier, Direction, Line, Wire};

/// Timeout for delivering the last messages, and for ending the session.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) struct Link {
    pub(super) wire: Wire,
    pub(super) http: Http,
    /// URL of the server.
    pub(super) target: Target,
    /// The same as text, for the headers provider.
    pub(super) url: Arc<str>,
    pub(super) runtime: Handle,
    pub(super) state: Mutex<State>,
    /// Held while a new session replaces a lost one.
    pub(super) renewing: Arc<tokio::sync::Mutex<()>>,
    pub(super) lane: Lane,
    pub(super) mirrors: Mirrors,
    /// Held while outgoing messages are taken, so that they stay in order.
    turn: Mutex<()>,
}

impl Link {
    pub(super) fn open(http: Http, target: Target, wire: Wire) -> Arc<Self> {
        let state = Mutex::new(State::new(&http.headers));
        let link = Arc::new(Link {
            wire,
            url: target.to_string().into(),
            http,
            target,
            runtime: Handle::current(),
            state,
            renewing: Arc::default(),
            lane: Lane::default(),
            mirrors: Mirrors::default(),
            turn: Mutex::new(()),
        });
        let carrier: Weak<Link> = Arc::downgrade(&link);
        link.wire.carried_by(carrier.clone() as Weak<dyn Carrier>);
        link.wire.on_outgoing(move || carrier.upgrade().into_iter().for_each(|link| link.take_all()));
        link
    }

    /// Takes outgoing messages, unless the send queue is full.
    pub(super) fn take_all(self: &Arc<Self>) {
        while self.wire.has_outgoing() && !self.lane.is_full() {
            let _turn = match self.turn.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let mut lines = Vec::new();
            self.wire.take(&mut lines);
            let lines = Bytes::from(lines);
            let mut from = 0;
            while let Some(length) = memchr::memchr(b'\n', &lines[from..]) {
                self.take(lines.slice(from..from + length));
                from += length + 1;
            }
        }
    }

    fn take(self: &Arc<Self>, line: Bytes) {
        if line.is_empty() {
            return;
        }
        self.tell(Direction::Sent, &line);
        let agreed = self.wire.revision();
        let outgoing = message::read(&line, agreed, &mut lock(&self.state), &self.mirrors);
        match outgoing {
            Outgoing::Request(request) => self.begin(*request),
            // In the stateless era, closing the stream of a request cancels it.
            Outgoing::Cancel(id) if agreed.is_some_and(|agreed| agreed.era() == Era::Stateless) => {
                self.abort(&id);
            }
            Outgoing::Cancel(id) => self.lane.push(self, line, Some(Method::Cancelled), Some(id)),
            Outgoing::Other { method } => self.lane.push(self, line, method, None),
            Outgoing::Unfit(Some(id), error) => self.wire.fail(&id, error),
            Outgoing::Unfit(None, error) => {
                tracing::warn!(server = self.wire.server_label(), %error, "invalid message not sent");
            }
        }
    }

    /// Sends a request on its own task.
    fn begin(self: &Arc<Self>, request: Request) {
        let id = request.id.clone();
        {
            let mut state = lock(&self.state);
            if state.is_over {
                return;
            }
            if request.is(Method::Initialize) {
                state.greeting = Some(Greeting { id: id.clone(), line: request.line.clone() });
            }
            state.under_way.insert(id.clone(), None);
        }
        let mut done = Done { link: self.clone(), id: id.clone(), is_over: false };
        let task = start_abortable(&self.runtime, async move {
            // Boxed: the runtime moves a task several times before it runs, and this future is large.
            let answered = Box::pin(done.link.exchange(&request)).await;
            if let Err(error) = answered {
                done.link.failed(&request, error);
            }
            done.finish();
        });
        match lock(&self.state).under_way.get_mut(&id) {
            Some(under_way) => *under_way = Some(task),
            None => task.abort(), // already finished or cancelled
        }
    }

    fn failed(&self, request: &Request, error: CallError) {
        self.diagnose(|| format!("{} failed: {error}", request.method));
        self.wire.fail(&request.id, error);
    }

    /// Aborts a request.
    pub(super) fn abort(&self, id: &Id<'_>) {
        let task = lock(&self.state).under_way.remove(&id.clone().into_owned());
        if let Some(Some(task)) = task {
            task.abort();
        }
    }

    /// Returns whether the connection is closed.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Closes the connection and aborts all tasks.
    pub(super) fn end(&self, reason: &str) {
        let (tasks, others) = {
            let mut state = lock(&self.state);
            state.is_over = true;
            (std::mem::take(&mut state.under_way), [state.listening.take(), state.renewal.take()])
        };
        tasks.into_values().chain(others).flatten().for_each(|task| task.abort());
        self.wire.ended(reason);
    }

    /// Reports a message to the message callback.
    pub(super) fn tell(&self, direction: Direction, message: &[u8]) {
        if let Some(told) = &self.http.on_message {
            let text = String::from_utf8_lossy(message);
            let text = self.without_secrets(&text);
            crate::client::guarded(|| told(direction, &text));
        }
    }

    /// Reports a line to the diagnostic callback.
    pub(super) fn diagnose(&self, line: impl FnOnce() -> String) {
        if let Some(told) = &self.http.on_diagnostic {
            let line = line().replace(['\r', '\n'], " ");
            let line = self.without_secrets(&line);
            crate::client::guarded(|| told(&line));
        }
    }

    /// Redacts the session id in a text.
    pub(super) fn without_secrets<'a>(&self, text: &'a str) -> Cow<'a, str> {
        lock(&self.state).without_secrets(text)
    }

    /// Ends the session, if there is one.
    async fn end_session(self: Arc<Self>) {
        let session = {
            let state = lock(&self.state);
            state.session().filter(|_| matches!(state.way, Way::Streamable)).cloned()
        };
        if let Some(session) = session {
            self.give_back(session).await;
        }
    }

    /// Requests the server to end a session.
    pub(super) async fn give_back(self: Arc<Self>, session: HeaderValue) {
        let mut headers = lock(&self.state).headers_now(self.wire.revision());
        headers.insert(header_names::SESSION_ID, session);
        headers.remove(CONTENT_TYPE);
        // The server may refuse to end the session, or be unreachable.
        let ended =
            tokio::time::timeout(LAST_WORDS, self.send(::http::Method::DELETE, &headers, Bytes::new()));
        if let Ok(Err(error)) = ended.await {
            self.diagnose(|| format!("failed to end the session: {error}"));
        }
    }
}

/// Removes a request from the requests in flight when it finishes or is dropped.
struct Done {
    link: Arc<Link>,
    id: Id<'static>,
    is_over: bool,
}

impl Done {
    fn finish(&mut self) {
        self.is_over = true;
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        let was_wanted = lock(&self.link.state).under_way.remove(&self.id).is_some();
        if was_wanted && !self.is_over {
            self.link
                .wire
                .fail(&self.id, CallError::Lost("the runtime of the connection has shut down".into()));
        }
    }
}

/// Handle of the client to the connection.
pub(super) struct HttpLine(Arc<Link>);

impl HttpLine {
    pub(super) fn new(link: Arc<Link>) -> Self {
        HttpLine(link)
    }
}

impl Line for HttpLine {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if self.0.is_over() {
                return;
            }
            let _ = tokio::time::timeout(LAST_WORDS, self.0.lane.idle()).await;
            self.0.end("closed by the client");
            self.0.clone().end_session().await;
        })
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.0.lane.idle())
    }
}

impl Drop for HttpLine {
    fn drop(&mut self) {
        if !self.0.is_over() {
            self.0.end("closed by the client");
            start(&self.0.runtime, self.0.clone().end_session());
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Receiver;

    struct Nobody;

    impl Receiver for Nobody {
        fn receive(&self, _: &[u8]) -> bool {
            true
        }
        fn too_long(&self) {}
        fn ended(&self, _: &str) {}
    }

    /// The future is allocated and moved for every request.
    #[tokio::test]
    async fn the_work_of_one_request_stays_small() {
        let outbox = Arc::new(linchpin_jsonrpc::Outbox::unattended(1));
        let wire = Wire::new(Arc::new(Nobody), outbox, 1);
        let target = Target::typed("http://127.0.0.1:1/").unwrap();
        let link = Link::open(Http::new("http://127.0.0.1:1/"), target, wire);
        let request = Request {
            id: Id::Number(1),
            method: Cow::Borrowed("x"),
            line: Bytes::new(),
            headers: ::http::HeaderMap::new(),
            era: Era::Session,
            session: None,
        };
        let size = size_of_val(&link.exchange(&request));
        assert!(size <= 3 << 10, "{size} bytes");
    }
}

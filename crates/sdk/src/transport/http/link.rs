//! One connection: messages are taken as they are written, and each goes its way.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Id};
use linchpin_protocol::{Era, Method};
use tokio::runtime::Handle;

use super::lane::Lane;
use super::message::{self, Outgoing, Request};
use super::mirrors::Mirrors;
use super::options::Http;
use super::state::{Greeting, State, Way};
use crate::egress::Target;
use crate::http::names;
use crate::server::{start, start_abortable};
use crate::sync::lock;
use crate::transport::{Carrier, Direction, Line, Wire};

/// How long the server has to take what was sent last, and to end a session.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) struct Link {
    pub(super) wire: Wire,
    pub(super) http: Http,
    /// Where the server is.
    pub(super) target: Target,
    /// The same, for whoever is asked for headers.
    pub(super) url: Arc<str>,
    pub(super) runtime: Handle,
    pub(super) state: Mutex<State>,
    /// Held while a session is opened in place of a lost one.
    pub(super) renewing: Arc<tokio::sync::Mutex<()>>,
    pub(super) lane: Lane,
    pub(super) mirrors: Mirrors,
    /// Held while messages are taken, so that they stay in order.
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

    /// Takes what is to be sent, unless so much waits already that it should wait as well.
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
            // Where each request stands alone, to close its stream is to give it up.
            Outgoing::Cancel(id) if agreed.is_some_and(|agreed| agreed.era() == Era::Stateless) => {
                self.abort(&id);
            }
            Outgoing::Cancel(id) => self.lane.push(self, line, Some(Method::Cancelled), Some(id)),
            Outgoing::Other { method } => self.lane.push(self, line, method, None),
            Outgoing::Unfit(Some(id), error) => self.wire.fail(&id, error),
            Outgoing::Unfit(None, error) => {
                tracing::warn!(server = self.wire.server_label(), %error, "a message was not sent");
            }
        }
    }

    /// Sends a request, on a task of its own.
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
            // The runtime moves a task several times before it runs, and this is large.
            let answered = Box::pin(done.link.exchange(&request)).await;
            if let Err(error) = answered {
                done.link.failed(&request, error);
            }
            done.finish();
        });
        match lock(&self.state).under_way.get_mut(&id) {
            Some(under_way) => *under_way = Some(task),
            None => task.abort(), // it is over, or was given up meanwhile
        }
    }

    fn failed(&self, request: &Request, error: CallError) {
        self.diagnose(|| format!("{} failed: {error}", request.method));
        self.wire.fail(&request.id, error);
    }

    /// Gives up a request.
    pub(super) fn abort(&self, id: &Id<'_>) {
        let task = lock(&self.state).under_way.remove(&id.clone().into_owned());
        if let Some(Some(task)) = task {
            task.abort();
        }
    }

    /// Whether the connection was closed.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Ends everything that goes on.
    pub(super) fn end(&self, reason: &str) {
        let (tasks, others) = {
            let mut state = lock(&self.state);
            state.is_over = true;
            (std::mem::take(&mut state.under_way), [state.listening.take(), state.renewal.take()])
        };
        tasks.into_values().chain(others).flatten().for_each(|task| task.abort());
        self.wire.ended(reason);
    }

    /// Tells whoever listens to messages.
    pub(super) fn tell(&self, direction: Direction, message: &[u8]) {
        if let Some(told) = &self.http.on_message {
            let text = String::from_utf8_lossy(message);
            let text = self.without_secrets(&text);
            crate::client::guarded(|| told(direction, &text));
        }
    }

    /// Tells whoever wants to know what happens.
    pub(super) fn diagnose(&self, line: impl FnOnce() -> String) {
        if let Some(told) = &self.http.on_diagnostic {
            let line = line().replace(['\r', '\n'], " ");
            let line = self.without_secrets(&line);
            crate::client::guarded(|| told(&line));
        }
    }

    /// A text without the session's id.
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

    /// Tells the server that a session is not needed.
    pub(super) async fn give_back(self: Arc<Self>, session: HeaderValue) {
        let mut headers = lock(&self.state).headers_now(self.wire.revision());
        headers.insert(names::SESSION_ID, session);
        headers.remove(CONTENT_TYPE);
        // A server may keep it, or be gone.
        let ended =
            tokio::time::timeout(LAST_WORDS, self.send(::http::Method::DELETE, &headers, Bytes::new()));
        if let Ok(Err(error)) = ended.await {
            self.diagnose(|| format!("the session could not be ended: {error}"));
        }
    }
}

/// Notes that a request is no longer under way, however it ends.
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
            self.link.wire.fail(&self.id, CallError::Lost("the runtime of the connection has ended".into()));
        }
    }
}

/// The client's hold on a connection.
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
            self.0.end("it was closed");
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
            self.0.end("it was closed");
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

    /// It is allocated for every request, and copied.
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

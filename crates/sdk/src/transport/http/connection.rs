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

use super::message::{self, OutgoingMessage, OutgoingRequest};
use super::options::HttpTransport;
use super::send_queue::SendQueue;
use super::state::{HttpMode, HttpState, InitializeMessage};
use super::tool_headers::ToolHeaderMap;
use crate::egress::Target;
use crate::http::header_names;
use crate::lock::lock;
use crate::server::{spawn, spawn_abortable};
use crate::transport::{Direction, PerRequestTransport, TransportHandle, Wire};

/// Timeout for delivering the last messages, and for ending the session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct HttpConnection {
    pub(super) wire: Wire,
    pub(super) http: HttpTransport,
    /// URL of the server.
    pub(super) target: Target,
    /// URL of the server as text, which the headers provider receives.
    pub(super) url: Arc<str>,
    pub(super) runtime: Handle,
    pub(super) state: Mutex<HttpState>,
    /// Lock held while a new session replaces a lost one.
    pub(super) renewing: Arc<tokio::sync::Mutex<()>>,
    pub(super) send_queue: SendQueue,
    pub(super) tool_headers: ToolHeaderMap,
    /// Lock held while outgoing messages are taken, so that they stay in order.
    outgoing_lock: Mutex<()>,
}

impl HttpConnection {
    pub(super) fn open(http: HttpTransport, target: Target, wire: Wire) -> Arc<Self> {
        let state = Mutex::new(HttpState::new(&http.headers));
        let link = Arc::new(HttpConnection {
            wire,
            url: target.to_string().into(),
            http,
            target,
            runtime: Handle::current(),
            state,
            renewing: Arc::default(),
            send_queue: SendQueue::default(),
            tool_headers: ToolHeaderMap::default(),
            outgoing_lock: Mutex::new(()),
        });
        let transport: Weak<HttpConnection> = Arc::downgrade(&link);
        link.wire.set_per_request(transport.clone() as Weak<dyn PerRequestTransport>);
        link.wire
            .on_outgoing(move || transport.upgrade().into_iter().for_each(|link| link.dispatch_outgoing()));
        link
    }

    /// Sends the outgoing messages of the client over HTTP, unless the send queue is full.
    pub(super) fn dispatch_outgoing(self: &Arc<Self>) {
        while self.wire.has_outgoing() && !self.send_queue.is_full() {
            let _turn = match self.outgoing_lock.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let mut lines = Vec::new();
            self.wire.take_outgoing(&mut lines);
            let lines = Bytes::from(lines);
            let mut from = 0;
            while let Some(length) = memchr::memchr(b'\n', &lines[from..]) {
                self.dispatch(lines.slice(from..from + length));
                from += length + 1;
            }
        }
    }

    fn dispatch(self: &Arc<Self>, line: Bytes) {
        if line.is_empty() {
            return;
        }
        self.report_message(Direction::Sent, &line);
        let revision = self.wire.revision();
        let outgoing = message::classify(&line, revision, &mut lock(&self.state), &self.tool_headers);
        match outgoing {
            OutgoingMessage::Request(request) => self.start_request(*request),
            // In the stateless era, closing the stream of a request cancels it.
            OutgoingMessage::Cancel(id)
                if revision.is_some_and(|revision| revision.era() == Era::Stateless) =>
            {
                self.abort(&id);
            }
            OutgoingMessage::Cancel(id) => {
                self.send_queue.push(self, line, Some(Method::Cancelled), Some(id));
            }
            OutgoingMessage::Other { method } => self.send_queue.push(self, line, method, None),
            OutgoingMessage::Invalid(Some(id), error) => self.wire.fail(&id, error),
            OutgoingMessage::Invalid(None, error) => {
                tracing::warn!(server = self.wire.server_label(), %error, "message to the server not sent: it is invalid");
            }
        }
    }

    /// Sends a JSON-RPC request over HTTP in its own task.
    fn start_request(self: &Arc<Self>, request: OutgoingRequest) {
        let id = request.id.clone();
        {
            let mut state = lock(&self.state);
            if state.is_closed {
                return;
            }
            if request.is_method(Method::Initialize) {
                state.initialize = Some(InitializeMessage { id: id.clone(), line: request.line.clone() });
            }
            state.in_flight.insert(id.clone(), None);
        }
        let mut done = InFlightGuard { connection: self.clone(), id: id.clone(), is_finished: false };
        let task = spawn_abortable(&self.runtime, async move {
            // Boxed: the runtime moves a task several times before it runs, and this future is large.
            let outcome = Box::pin(done.connection.exchange(&request)).await;
            if let Err(error) = outcome {
                done.connection.fail_request(&request, error);
            }
            done.mark_finished();
        });
        match lock(&self.state).in_flight.get_mut(&id) {
            Some(slot) => *slot = Some(task),
            None => task.abort(), // already finished or cancelled
        }
    }

    fn fail_request(&self, request: &OutgoingRequest, error: CallError) {
        self.report_diagnostic(|| format!("{} failed: {error}", request.method));
        self.wire.fail(&request.id, error);
    }

    /// Aborts the HTTP exchange of the request with this id, if it is in flight.
    pub(super) fn abort(&self, id: &Id<'_>) {
        let task = lock(&self.state).in_flight.remove(&id.clone().into_owned());
        if let Some(Some(task)) = task {
            task.abort();
        }
    }

    /// Returns whether the HTTP connection to the server is closed.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    /// Closes the connection and aborts all tasks.
    pub(super) fn close(&self, reason: &str) {
        let (tasks, others) = {
            let mut state = lock(&self.state);
            state.is_closed = true;
            (std::mem::take(&mut state.in_flight), [state.listen_task.take(), state.renewal_task.take()])
        };
        tasks.into_values().chain(others).flatten().for_each(|task| task.abort());
        self.wire.report_closed(reason);
    }

    /// Passes a sent or received message to the message callback.
    pub(super) fn report_message(&self, direction: Direction, message: &[u8]) {
        if let Some(callback) = &self.http.on_message {
            let text = String::from_utf8_lossy(message);
            let text = self.redact(&text);
            crate::client::catch_hook_panic(|| callback(direction, &text));
        }
    }

    /// Passes a line about the HTTP connection, with secrets redacted, to the diagnostic callback.
    pub(super) fn report_diagnostic(&self, line: impl FnOnce() -> String) {
        if let Some(callback) = &self.http.on_diagnostic {
            let line = line().replace(['\r', '\n'], " ");
            let line = self.redact(&line);
            crate::client::catch_hook_panic(|| callback(&line));
        }
    }

    /// Redacts the session id in a text.
    pub(super) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        lock(&self.state).redact(text)
    }

    /// Ends the MCP session at the server with a DELETE request, if there is one.
    async fn end_session(self: Arc<Self>) {
        let session = {
            let state = lock(&self.state);
            state.session().filter(|_| matches!(state.mode, HttpMode::Streamable)).cloned()
        };
        if let Some(session) = session {
            self.delete_session(session).await;
        }
    }

    /// Requests the server to end a session.
    pub(super) async fn delete_session(self: Arc<Self>, session: HeaderValue) {
        let mut headers = lock(&self.state).current_headers(self.wire.revision());
        headers.insert(header_names::SESSION_ID, session);
        headers.remove(CONTENT_TYPE);
        // The server may refuse to end the session, or be unreachable.
        let deletion =
            tokio::time::timeout(CLOSE_TIMEOUT, self.send(::http::Method::DELETE, &headers, Bytes::new()));
        if let Ok(Err(error)) = deletion.await {
            self.report_diagnostic(|| format!("failed to end the session: {error}"));
        }
    }
}

/// Guard that removes a request from the table of requests in flight when it finishes or is dropped.
struct InFlightGuard {
    connection: Arc<HttpConnection>,
    id: Id<'static>,
    is_finished: bool,
}

impl InFlightGuard {
    fn mark_finished(&mut self) {
        self.is_finished = true;
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let was_in_flight = lock(&self.connection.state).in_flight.remove(&self.id).is_some();
        if was_in_flight && !self.is_finished {
            self.connection
                .wire
                .fail(&self.id, CallError::Lost("the runtime of the connection has shut down".into()));
        }
    }
}

/// Handle with which the client closes its HTTP connection.
pub(super) struct HttpHandle(Arc<HttpConnection>);

impl HttpHandle {
    pub(super) fn new(link: Arc<HttpConnection>) -> Self {
        HttpHandle(link)
    }
}

impl TransportHandle for HttpHandle {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if self.0.is_closed() {
                return;
            }
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.0.send_queue.wait_until_empty()).await;
            self.0.close("the client closed the connection");
            self.0.clone().end_session().await;
        })
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.0.send_queue.wait_until_empty())
    }
}

impl Drop for HttpHandle {
    fn drop(&mut self) {
        if !self.0.is_closed() {
            self.0.close("the client closed the connection");
            spawn(&self.0.runtime, self.0.clone().end_session());
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Receiver;

    struct NoReceiver;

    impl Receiver for NoReceiver {
        fn receive(&self, _: &[u8], _: Option<&Id<'_>>) -> bool {
            true
        }
        fn too_long(&self) {}
        fn on_closed(&self, _: &str) {}
    }

    /// The future is allocated and moved for every request.
    #[tokio::test]
    async fn the_work_of_one_request_stays_small() {
        let outbox = Arc::new(linchpin_jsonrpc::Outbox::without_callback(1));
        let wire = Wire::new(Arc::new(NoReceiver), outbox, 1);
        let target = Target::configured("http://127.0.0.1:1/").unwrap();
        let link = HttpConnection::open(HttpTransport::new("http://127.0.0.1:1/"), target, wire);
        let request = OutgoingRequest {
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

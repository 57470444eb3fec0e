//! Connection of one client: receives messages, holds the session, sends responses and notifications.

mod admit;
mod client_state;
mod drive;
#[cfg(feature = "http-server")]
mod http;
#[cfg(not(feature = "http-server"))]
#[path = "connection/no_http.rs"]
mod http;
mod notifications;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use linchpin_jsonrpc::write::{self, UnknownId};
use linchpin_jsonrpc::{
    ErrorObject, Id, Message, Outbox, Params, ParseError, ParseErrorKind, Peer, code, parse,
};
use linchpin_protocol::model::RequestMeta;
use linchpin_protocol::version::Feature;
use linchpin_protocol::wire::{error_object, stateless_era};
use linchpin_protocol::{Error as ProtocolError, Revision};

use self::admit::Admitted;
pub(crate) use self::drive::Invocation;
use super::input::rounds::RoundGuard;
use super::request::cancellation::Cancel;
use super::request::context::ClientInfo;
use super::request::dispatch;
use super::request::result::UnencodedResult;
use super::request::scope::RequestScope;
use super::request::work::{RequestOutcome, start_catching_panics};
use super::session::Session;
use super::subscriptions::SubscriptionStreams;
use super::{BoxFuture, Service};
use crate::lock::lock;
pub(crate) use client_state::ClientState;

/// Connection of a client: its outboxes, and the state shared by all its requests. A request over Streamable HTTP and a
/// batch have their own view of it.
pub(crate) struct Connection {
    caller: Arc<ClientState>,
    /// Outbox of notifications to the client.
    outbox: Arc<Outbox>,
    /// Outbox of responses: the outbox of notifications, unless responses are collected for a batch.
    responses: Arc<Outbox>,
    reply_channel: ReplyChannel,
    /// HTTP request that is being served.
    #[cfg(feature = "http-server")]
    http: Option<Arc<::http::request::Parts>>,
    /// Resumable stream that carries the messages of the request, if it has become one.
    #[cfg(feature = "http-server")]
    stream: OnceLock<std::sync::Weak<super::http::SessionStream>>,
    /// Code of the error response to the request; zero if there was none.
    failure: AtomicI64,
    /// Whether the request was rejected before its handler ran.
    is_rejected: AtomicBool,
    /// All scopes that the request requires, if its sender lacks any of them.
    insufficient_scopes: OnceLock<Vec<String>>,
}

/// What a connection to a client can carry: any messages, those of one request, one response, or one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyChannel {
    /// Lasting channel: messages of any number of requests, and messages that belong to none.
    Lasting,
    /// Channel of one response: no session, no notifications.
    OneShot,
    /// Channel of one request: its messages, of which the response is the last.
    Request,
    /// Responses of one JSON-RPC batch, which are sent together.
    Batch,
}

/// How long cancelled requests may take to end when the server shuts down.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
const NO_REVISION: u8 = u8::MAX;
/// Reason for [`Connection::finish`] when the input of a stream transport has ended.
pub(crate) const INPUT_ENDED: &str = "the client has ended its input";
static UNKNOWN_CLIENT: LazyLock<Arc<ClientInfo>> = LazyLock::new(Arc::default);

impl Connection {
    pub(crate) fn new(service: Service, outbox: Arc<Outbox>, reply_channel: ReplyChannel) -> Arc<Self> {
        let caller = Arc::new(ClientState::new(service, outbox.clone()));
        Arc::new(Self::with_state(caller, outbox, reply_channel))
    }

    fn with_state(caller: Arc<ClientState>, outbox: Arc<Outbox>, reply_channel: ReplyChannel) -> Self {
        Connection {
            caller,
            responses: outbox.clone(),
            outbox,
            reply_channel,
            #[cfg(feature = "http-server")]
            http: None,
            #[cfg(feature = "http-server")]
            stream: OnceLock::new(),
            failure: AtomicI64::new(0),
            is_rejected: AtomicBool::new(false),
            insufficient_scopes: OnceLock::new(),
        }
    }

    /// Returns a connection that shares the client state and collects the responses of a JSON-RPC batch.
    pub(super) fn batch_part(&self, batch_outbox: Arc<Outbox>) -> Arc<Self> {
        let part = Self::with_state(self.caller.clone(), self.outbox.clone(), ReplyChannel::Batch);
        Arc::new(Connection { responses: batch_outbox, ..part.with_http_of(self) })
    }

    pub(crate) fn service(&self) -> &Service {
        &self.caller.service
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.caller.session.get()
    }

    pub(crate) fn name(&self) -> &str {
        self.caller.name.get_or_init(super::random_id)
    }

    /// Returns the peer that sends server requests to the client on the stream of this request.
    pub(crate) fn peer(&self) -> Peer {
        self.caller.peer().with_outbox(self.outgoing().clone())
    }

    /// Returns the outbox for messages to the client: the shared one once the response was sent or its stream was cut.
    fn outgoing(&self) -> &Arc<Outbox> {
        let is_response_finished = matches!(self.reply_channel, ReplyChannel::Request | ReplyChannel::Batch)
            && self.outbox.is_finished();
        if is_response_finished { &self.caller.outbox } else { &self.outbox }
    }

    /// Returns whether the outbox is full because the client does not read.
    pub(crate) fn is_full(&self) -> bool {
        self.outgoing().is_full()
    }

    /// Returns whether this connection can deliver only one response to the client, and no other messages.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.reply_channel == ReplyChannel::OneShot
    }

    pub(crate) fn streams(&self) -> &SubscriptionStreams {
        &self.caller.streams
    }

    /// Returns whether a request on this connection may stay open as a stream of notifications: not if the connection
    /// carries only one response, nor in a batch, whose responses are sent together.
    pub(crate) fn has_streams(&self) -> bool {
        matches!(self.reply_channel, ReplyChannel::Lasting | ReplyChannel::Request)
    }

    /// Returns whether this is the connection of one batch.
    pub(super) fn is_batch(&self) -> bool {
        self.reply_channel == ReplyChannel::Batch
    }

    pub(super) fn responses(&self) -> &Arc<Outbox> {
        &self.responses
    }

    /// Subscribes the client to notifications of changed lists.
    pub(crate) fn subscribe_to_changes(&self) {
        self.caller.subscribe_to_changes();
    }

    /// Sends the response of a request that did not finish immediately: its result, or `input_required`.
    pub(super) fn send_response(&self, message: impl FnOnce(&mut Vec<u8>)) {
        if self.reply_channel == ReplyChannel::Request {
            self.responses.send_last(message);
        } else {
            self.responses.send(message);
        }
    }

    /// Handles one received message of the client. Immediate responses are in the outbox afterwards; a returned future
    /// is the remaining work and must be driven.
    pub(crate) fn receive(self: &Arc<Self>, line: &[u8]) -> Option<BoxFuture<()>> {
        match parse(line, self.caller.service.settings().limits) {
            Ok(message) => self.handle_message(&message),
            Err(_) if line.iter().all(u8::is_ascii_whitespace) => None,
            Err(error) => {
                self.reject_malformed(&error);
                None
            }
        }
    }

    /// Handles a parsed message like [`Self::receive`].
    pub(crate) fn handle_message(self: &Arc<Self>, message: &Message<'_>) -> Option<BoxFuture<()>> {
        match message {
            Message::Request { id, method, params } => self.request(id, method, params),
            Message::Notification { method, params } => self.notification(method, params),
            Message::Response { id, reply } => {
                if !self.caller.deliver_response(id.as_ref(), *reply) {
                    tracing::debug!(?id, "ignored a response without a matching request");
                }
                None
            }
            Message::Batch(messages) => self.batch(messages),
        }
    }

    /// Responds to a message that exceeds the maximum size.
    pub(crate) fn reject_oversized(&self, max_len: usize) {
        let message = format!("the message exceeds the maximum size of {max_len} bytes and was skipped");
        let error = ErrorObject { code: code::INVALID_REQUEST, message, data: None };
        self.responses.append(|out| write::error(None, self.unknown_id(), &error, out));
    }

    pub(crate) fn reject_malformed(&self, error: &ParseError) {
        if error.kind == ParseErrorKind::Params && error.id.is_none() {
            tracing::debug!(%error, "malformed notification");
            return; // a notification has no response
        }
        // The id in a response is one of ours: the client would take this error for the response to its own request.
        let id = error.id.as_ref().filter(|_| !error.is_response);
        let object = ErrorObject { code: error.code(), message: error.to_string(), data: None };
        self.record_failure(object.code);
        self.responses.append(|out| write::error(id, self.unknown_id(), &object, out));
    }

    /// Returns how to identify a request that could not be parsed: newer revisions omit the id, JSON-RPC uses `null`.
    pub(super) fn unknown_id(&self) -> UnknownId {
        let last = Revision::ALL.get(usize::from(self.caller.last_revision.load(Ordering::Relaxed)));
        match last {
            Some(revision) if revision.has(Feature::AnonymousErrors) => UnknownId::Absent,
            _ => UnknownId::Null,
        }
    }

    fn request(self: &Arc<Self>, id: &Id<'_>, method: &str, params: &Params<'_>) -> Option<BoxFuture<()>> {
        let started = self.caller.service.settings().instrument.as_ref().map(|_| Instant::now());
        let (meta, admitted) = match stateless_era::request_meta(params) {
            Ok(meta) => {
                let admitted = self.admit(id, method, params, meta.as_ref());
                let admitted =
                    admitted.and_then(|admitted| self.check_scopes(method, params).map(|()| admitted));
                (meta, admitted)
            }
            Err(error) => (None, Err(error)),
        };
        let (revision, client) = match admitted {
            Ok(Admitted::Request(revision, client)) => (revision, client),
            Ok(Admitted::SessionOpened(revision, result)) => {
                let outcome = RequestOutcome::from(Ok(UnencodedResult::Body(result)));
                return self.respond(id, method, None, started, revision, &outcome);
            }
            Err(error) => {
                self.is_rejected.store(true, Ordering::Relaxed);
                let revision = self.session().map_or(Revision::LATEST_SESSION, Session::revision);
                return self.respond(
                    id,
                    method,
                    None,
                    started,
                    revision,
                    &RequestOutcome::from(Err(error.into())),
                );
            }
        };
        let (client, meta) = (&client, meta.as_ref());
        let retry = RetryRequest { id, method, params, revision, client, meta, started };
        if let Ok(resumed) = self.resume(&retry) {
            return resumed;
        }
        let scope = RequestScope::new(self, (id, method, params), revision, client, meta);
        self.start(&scope, params, started, None)
    }

    /// Starts the handler of a request and responds if it finishes immediately.
    pub(super) fn start(
        self: &Arc<Self>,
        scope: &RequestScope<'_>,
        params: &Params<'_>,
        started: Option<Instant>,
        round: Option<RoundGuard>,
    ) -> Option<BoxFuture<()>> {
        let mut work = start_catching_panics(|| dispatch::start_layered(scope, params));
        match work.try_finish() {
            Poll::Ready(outcome) => {
                let _ = scope.cancel.get().is_none_or(|cancel| cancel.claim_response());
                let outcome = self.finish_round(outcome, scope.revision, scope.tool(), round);
                self.respond(scope.id, scope.method, scope.target(), started, scope.revision, &outcome)
            }
            Poll::Pending => {
                let call = Invocation::new(scope, work, self.binding(scope, params));
                self.pending(scope.id.clone().into_owned(), call, started, round)
            }
        }
    }

    /// Responds with `input_required` if the call waits for input; otherwise returns the future that runs it.
    pub(super) fn pending(
        self: &Arc<Self>,
        id: Id<'static>,
        call: Invocation,
        started: Option<Instant>,
        round: Option<RoundGuard>,
    ) -> Option<BoxFuture<()>> {
        if !call.needs_input() {
            return match self.insert_in_flight(&id, &call.method, &call.cancel) {
                Ok(entry) => Some(self.clone().drive(id, entry, call, started, round)),
                Err(error) => {
                    let outcome = RequestOutcome::from(Err(error.into()));
                    self.respond(&id, &call.method, call.target(), started, call.revision, &outcome)
                }
            };
        }
        let (revision, _) = (call.revision, call.cancel.claim_response());
        let outcome = self.request_input(call, started, round);
        self.responses.append(|out| self.write_response(&id, revision, &outcome, out));
        None
    }

    /// Writes the response of a request to its outbox.
    pub(super) fn respond(
        &self,
        id: &Id<'_>,
        method: &str,
        target: Option<&str>,
        started: Option<Instant>,
        revision: Revision,
        outcome: &RequestOutcome,
    ) -> Option<BoxFuture<()>> {
        self.caller.service.observe(method, target, started, revision, outcome);
        self.responses.append(|out| self.write_response(id, revision, outcome, out));
        None
    }

    pub(super) fn write_response(
        &self,
        id: &Id<'_>,
        revision: Revision,
        outcome: &RequestOutcome,
        out: &mut Vec<u8>,
    ) {
        match &outcome.result {
            Ok(result) => {
                write::result(id, out, |out| result.encode(revision, self.caller.service.identity(), out));
            }
            Err(error) => {
                if let ProtocolError::InsufficientScope { required } = error {
                    let _ = self.insufficient_scopes.set(required.clone());
                }
                let object = error_object(error, revision);
                self.record_failure(object.code);
                write::error(Some(id), UnknownId::Null, &object, out);
            }
        }
    }

    /// Records the JSON-RPC code of an error response, from which the HTTP status is derived.
    pub(super) fn record_failure(&self, code: i64) {
        self.failure.store(code, Ordering::Release);
    }

    /// Counts `work` as active on this connection until it ends, so that [`Self::finish`] waits for it.
    pub(crate) fn track(self: &Arc<Self>, work: BoxFuture<()>) -> impl Future<Output = ()> + Send + use<> {
        self.caller.active.fetch_add(1, Ordering::AcqRel);
        let active = ActiveWorkGuard(self.caller.clone());
        async move {
            work.await;
            drop(active);
        }
    }

    /// Ends the connection for this reason, such as [`INPUT_ENDED`]: closes streams gracefully and responds to every accepted request.
    pub(crate) async fn finish(&self, reason: &str, timeout: Duration) {
        self.caller.close_peer(reason);
        self.caller.streams.close();
        if tokio::time::timeout(timeout, self.idle()).await.is_err() {
            let remaining: Vec<_> = lock(&self.caller.in_flight).drain().collect();
            let error = ProtocolError::Internal("the server is shutting down".into());
            let object = error_object(&error, Revision::LATEST);
            for (id, pending) in remaining {
                pending.cancel.cancel_with(|| {
                    pending.responses.append(|out| write::error(Some(&id), UnknownId::Null, &object, out));
                });
            }
            // Cancelling all requests of a batch ends the batch, which then sends the responses it has.
            let _ = tokio::time::timeout(CANCEL_GRACE, self.idle()).await;
        }
    }

    async fn idle(&self) {
        loop {
            let mut notified = std::pin::pin!(self.caller.idle.notified());
            notified.as_mut().enable();
            if self.caller.active.load(Ordering::Acquire) == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Cancels all requests of a client that has disconnected.
    pub(crate) fn abandon(&self) {
        self.outbox.close();
        self.caller.close_peer("the client has disconnected");
        for pending in lock(&self.caller.in_flight).values() {
            pending.cancel.cancel();
        }
    }
}

/// Returned for a request that resumes no call, since it carries no request state: it starts a new call.
pub(crate) struct NotARetry;

/// Request that continues a call with input responses and its request state.
pub(crate) struct RetryRequest<'a> {
    pub(crate) id: &'a Id<'a>,
    pub(crate) method: &'a str,
    pub(crate) params: &'a Params<'a>,
    pub(crate) revision: Revision,
    pub(crate) client: &'a Arc<ClientInfo>,
    pub(crate) meta: Option<&'a RequestMeta>,
    pub(crate) started: Option<Instant>,
}

/// Entry in the table of requests in flight: the cancellation of the request, and the outbox of its response.
struct PendingRequest {
    cancel: Arc<Cancel>,
    /// Outbox that receives the response of the request.
    responses: Arc<Outbox>,
}

/// Guard that counts a request as active work of its client until it is dropped.
struct ActiveWorkGuard(Arc<ClientState>);

impl Drop for ActiveWorkGuard {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

//! One client's line into a server: takes messages, keeps the session, sends answers and notifications.

mod admit;
mod caller;
mod drive;
#[cfg(feature = "http-server")]
mod http;
#[cfg(not(feature = "http-server"))]
#[path = "connection/no_http.rs"]
mod http;
mod notices;

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
pub(crate) use self::caller::Caller;
pub(crate) use self::drive::Invocation;
use super::answer::Answer;
use super::cancel::Cancel;
use super::context::Client;
use super::request::{Outcome, begin_caught};
use super::rounds::Round;
use super::scope::Scope;
use super::session::Session;
use super::subscriptions::Streams;
use super::{BoxFuture, Service, dispatch};
use crate::sync::lock;

/// A client's connection, as one request sees it: where its answer goes, and what it shares with the others.
pub(crate) struct Connection {
    caller: Arc<Caller>,
    /// Where notifications go.
    outbox: Arc<Outbox>,
    /// Where answers go: the same, unless they are collected for a batch.
    answers: Arc<Outbox>,
    reach: Reach,
    /// The HTTP request that is being served.
    #[cfg(feature = "http-server")]
    http: Option<Arc<::http::request::Parts>>,
    /// The code of the error that was answered, or zero.
    failure: AtomicI64,
    /// Whether the request was refused before anything was done.
    refused: AtomicBool,
    /// The scopes that the request turned out to need and its sender lacks.
    lacking: OnceLock<Vec<String>>,
}

/// What a connection can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Messages of many requests, and of none.
    Lasting,
    /// One answer: no session, no notifications.
    OneShot,
    /// What belongs to one request; the answer is the last of it.
    Request,
    /// Answers of one batch, which leave together.
    Batch,
}

/// How long cancelled work may take to end when the server shuts down.
const LAST_WORD: Duration = Duration::from_secs(1);
const NO_REVISION: u8 = u8::MAX;
static NOBODY: LazyLock<Arc<Client>> = LazyLock::new(Arc::default);

impl Connection {
    pub(crate) fn new(service: Service, outbox: Arc<Outbox>, reach: Reach) -> Arc<Self> {
        let caller = Arc::new(Caller::new(service, outbox.clone()));
        Arc::new(Self::of(caller, outbox, reach))
    }

    fn of(caller: Arc<Caller>, outbox: Arc<Outbox>, reach: Reach) -> Self {
        Connection {
            caller,
            answers: outbox.clone(),
            outbox,
            reach,
            #[cfg(feature = "http-server")]
            http: None,
            failure: AtomicI64::new(0),
            refused: AtomicBool::new(false),
            lacking: OnceLock::new(),
        }
    }

    /// The same client's connection, with another place for the answers of a batch.
    pub(super) fn batch_part(&self, answers: Arc<Outbox>) -> Arc<Self> {
        let part = Self::of(self.caller.clone(), self.outbox.clone(), Reach::Batch);
        Arc::new(Connection { answers, ..part.with_http_of(self) })
    }

    pub(crate) fn service(&self) -> &Service {
        &self.caller.service
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.caller.session.get()
    }

    pub(crate) fn name(&self) -> &str {
        self.caller.name.get_or_init(super::unguessable)
    }

    /// The client, to be asked in the way that belongs to the request.
    pub(crate) fn peer(&self) -> Peer {
        self.caller.peer().through(self.way().clone())
    }

    /// Where messages to the client go: once the request is answered or its way is cut, the way that belongs to none.
    fn way(&self) -> &Arc<Outbox> {
        let over = matches!(self.reach, Reach::Request | Reach::Batch) && self.outbox.is_over();
        if over { &self.caller.outbox } else { &self.outbox }
    }

    /// Whether the client has not read what it was sent before.
    pub(crate) fn is_full(&self) -> bool {
        self.way().is_full()
    }

    /// Whether there is no way back to the client but the one answer.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.reach == Reach::OneShot
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.caller.streams
    }

    /// Whether a request may stay open: not where all answers leave together.
    pub(crate) fn has_streams(&self) -> bool {
        matches!(self.reach, Reach::Lasting | Reach::Request)
    }

    /// Whether this stands for one batch.
    pub(super) fn is_part(&self) -> bool {
        self.reach == Reach::Batch
    }

    pub(super) fn answers(&self) -> &Arc<Outbox> {
        &self.answers
    }

    /// From now on the client is told of changes.
    pub(crate) fn watch(&self) {
        self.caller.watch();
    }

    /// Sends an answer that was waited for.
    pub(super) fn send_answer(&self, message: impl FnOnce(&mut Vec<u8>)) {
        if self.reach == Reach::Request { self.answers.conclude(message) } else { self.answers.send(message) }
    }

    /// Takes one message. What it gives at once is in the outbox afterwards; the future that may come back is
    /// the rest, and must be driven.
    pub(crate) fn receive(self: &Arc<Self>, line: &[u8]) -> Option<BoxFuture<()>> {
        match parse(line, self.caller.service.settings().limits) {
            Ok(message) => self.take(&message),
            Err(_) if line.iter().all(u8::is_ascii_whitespace) => None,
            Err(error) => {
                self.refuse(&error);
                None
            }
        }
    }

    /// As [`Self::receive`], of a message that was read already.
    pub(crate) fn take(self: &Arc<Self>, message: &Message<'_>) -> Option<BoxFuture<()>> {
        match message {
            Message::Request { id, method, params } => self.request(id, method, params),
            Message::Notification { method, params } => self.notification(method, params),
            Message::Response { id, reply } => {
                if !self.caller.answer(id.as_ref(), *reply) {
                    tracing::debug!(?id, "an answer that nobody waits for");
                }
                None
            }
            Message::Batch(messages) => self.batch(messages),
        }
    }

    /// Answers a line that is too long to be read.
    pub(crate) fn too_long(&self, cap: usize) {
        let message =
            format!("the message is longer than the {cap} bytes that this server reads; it was skipped");
        let error = ErrorObject { code: code::INVALID_REQUEST, message, data: None };
        self.answers.append(|out| write::error(None, self.unknown_id(), &error, out));
    }

    pub(crate) fn refuse(&self, error: &ParseError) {
        if error.kind == ParseErrorKind::Params && error.id.is_none() {
            tracing::debug!(%error, "a notification was not understood");
            return; // notifications are not answered
        }
        // The id of an answer is one of ours: the client would take this for the answer to its own request.
        let id = error.id.as_ref().filter(|_| !error.is_response);
        let object = ErrorObject { code: error.code(), message: error.to_string(), data: None };
        self.note_failure(object.code);
        self.answers.append(|out| write::error(id, self.unknown_id(), &object, out));
    }

    /// How to name a request that could not be read: newer revisions leave the id out, JSON-RPC says `null`.
    pub(super) fn unknown_id(&self) -> UnknownId {
        let last = Revision::ALL.get(usize::from(self.caller.last.load(Ordering::Relaxed)));
        match last {
            Some(revision) if revision.has(Feature::AnonymousErrors) => UnknownId::Absent,
            _ => UnknownId::Null,
        }
    }

    fn request(self: &Arc<Self>, id: &Id<'_>, method: &str, params: &Params<'_>) -> Option<BoxFuture<()>> {
        let begun = self.caller.service.settings().instrument.as_ref().map(|_| Instant::now());
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
            Ok(Admitted::Opened(revision, result)) => {
                let outcome = Outcome::from(Ok(Answer::Body(result)));
                return self.settle(id, method, None, begun, revision, &outcome);
            }
            Err(error) => {
                self.refused.store(true, Ordering::Relaxed);
                let revision = self.session().map_or(Revision::LATEST_SESSION, Session::revision);
                return self.settle(id, method, None, begun, revision, &Outcome::from(Err(error.into())));
            }
        };
        let (client, meta) = (&client, meta.as_ref());
        let retry = Retry { id, method, params, revision, client, meta, begun };
        if let Ok(resumed) = self.resume(&retry) {
            return resumed;
        }
        let scope = Scope::new(self, (id, method, params), revision, client, meta);
        self.begin(&scope, params, begun, None)
    }

    /// Begins the work behind a request, and answers if it is done at once.
    pub(super) fn begin(
        self: &Arc<Self>,
        scope: &Scope<'_>,
        params: &Params<'_>,
        begun: Option<Instant>,
        round: Option<Round>,
    ) -> Option<BoxFuture<()>> {
        let mut work = begin_caught(|| dispatch::begin_layered(scope, params));
        match work.try_finish() {
            Poll::Ready(outcome) => {
                let _ = scope.cancel.get().is_none_or(|cancel| cancel.answer());
                let outcome = self.round_done(outcome, scope.revision, scope.tool(), round);
                self.settle(scope.id, scope.method, scope.target(), begun, scope.revision, &outcome)
            }
            Poll::Pending => {
                let call = Invocation::new(scope, work, self.binding(scope, params));
                self.pending(scope.id.clone().into_owned(), call, begun, round)
            }
        }
    }

    /// Answers a call that waits with its questions, or drives it.
    pub(super) fn pending(
        self: &Arc<Self>,
        id: Id<'static>,
        call: Invocation,
        begun: Option<Instant>,
        round: Option<Round>,
    ) -> Option<BoxFuture<()>> {
        if !call.asks() {
            return match self.enter(&id, &call.method, &call.cancel) {
                Ok(entry) => Some(self.clone().drive(id, entry, call, begun, round)),
                Err(error) => {
                    let outcome = Outcome::from(Err(error.into()));
                    self.settle(&id, &call.method, call.target(), begun, call.revision, &outcome)
                }
            };
        }
        let (revision, _) = (call.revision, call.cancel.answer());
        let outcome = self.ask_round(call, begun, round);
        self.answers.append(|out| self.write_answer(&id, revision, &outcome, out));
        None
    }

    /// Answers at once.
    pub(super) fn settle(
        &self,
        id: &Id<'_>,
        method: &str,
        target: Option<&str>,
        begun: Option<Instant>,
        revision: Revision,
        outcome: &Outcome,
    ) -> Option<BoxFuture<()>> {
        self.caller.service.observe(method, target, begun, revision, outcome);
        self.answers.append(|out| self.write_answer(id, revision, outcome, out));
        None
    }

    pub(super) fn write_answer(&self, id: &Id<'_>, revision: Revision, outcome: &Outcome, out: &mut Vec<u8>) {
        match &outcome.answer {
            Ok(answer) => {
                write::result(id, out, |out| answer.encode(revision, self.caller.service.identity(), out));
            }
            Err(error) => {
                if let ProtocolError::InsufficientScope { required } = error {
                    let _ = self.lacking.set(required.clone());
                }
                let object = error_object(error, revision);
                self.note_failure(object.code);
                write::error(Some(id), UnknownId::Null, &object, out);
            }
        }
    }

    /// Notes the code of an error that is answered.
    pub(super) fn note_failure(&self, code: i64) {
        self.failure.store(code, Ordering::Release);
    }

    /// Counts `work` as this connection's until it is done, so that [`Self::finish`] waits for it.
    pub(crate) fn tracked(self: &Arc<Self>, work: BoxFuture<()>) -> impl Future<Output = ()> + Send + use<> {
        self.caller.active.fetch_add(1, Ordering::AcqRel);
        let active = Active(self.caller.clone());
        async move {
            work.await;
            drop(active);
        }
    }

    /// No more input will come: streams end in good order, and every request that was accepted is answered.
    pub(crate) async fn finish(&self, timeout: Duration) {
        self.caller.close_peer("the client has ended its input");
        self.caller.streams.close();
        if tokio::time::timeout(timeout, self.idle()).await.is_err() {
            let left: Vec<_> = lock(&self.caller.in_flight).drain().collect();
            let error = ProtocolError::Internal("the server is shutting down".into());
            let object = error_object(&error, Revision::LATEST);
            for (id, pending) in left {
                pending.cancel.cancel_with(|| {
                    pending.answers.append(|out| write::error(Some(&id), UnknownId::Null, &object, out));
                });
            }
            // A batch ends now that all its requests have ended, and sends what it has.
            let _ = tokio::time::timeout(LAST_WORD, self.idle()).await;
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

    /// The client is gone: nothing it asked for is of use any more.
    pub(crate) fn abandon(&self) {
        self.outbox.close();
        self.caller.close_peer("the client is gone");
        for pending in lock(&self.caller.in_flight).values() {
            pending.cancel.cancel();
        }
    }
}

/// The request brings no state: it is a new call.
pub(crate) struct Fresh;

/// A request that brings answers.
pub(crate) struct Retry<'a> {
    pub(crate) id: &'a Id<'a>,
    pub(crate) method: &'a str,
    pub(crate) params: &'a Params<'a>,
    pub(crate) revision: Revision,
    pub(crate) client: &'a Arc<Client>,
    pub(crate) meta: Option<&'a RequestMeta>,
    pub(crate) begun: Option<Instant>,
}

/// A request that is being worked on.
struct Pending {
    cancel: Arc<Cancel>,
    /// Where its answer goes.
    answers: Arc<Outbox>,
}

/// Work that is being driven.
struct Active(Arc<Caller>);

impl Drop for Active {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

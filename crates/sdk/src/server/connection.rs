//! One client's line into a server: takes messages, keeps the session, sends answers and notifications.

mod admit;
mod drive;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::task::{self, Poll, Waker};
use std::time::{Duration, Instant};

use linchpin_jsonrpc::write::{self, UnknownId};
use linchpin_jsonrpc::{
    ErrorObject, Id, Message, Outbox, Params, ParseError, ParseErrorKind, Peer, code, parse,
};
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{CancelledParams, RequestMeta, ResourceUpdatedParams};
use linchpin_protocol::version::Feature;
use linchpin_protocol::wire::{self, Invalid, error_object, stateless_era};
use linchpin_protocol::{Error as ProtocolError, Method, Revision};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::admit::Admitted;
pub(crate) use self::drive::Invocation;
use super::answer::Answer;
use super::background::start;
use super::cancel::Cancel;
use super::catalog::Kind;
use super::context::Client;
use super::request::{Outcome, begin_caught, caught, run_caught};
use super::rounds::Round;
use super::scope::Scope;
use super::session::Session;
use super::subscriptions::{Streams, changed};
use super::{BoxFuture, Service, dispatch};
use crate::sync::lock;

/// A client's connection.
pub(crate) struct Connection {
    service: Service,
    /// Where notifications go.
    outbox: Arc<Outbox>,
    /// Where answers go: the same, unless they are collected for a batch.
    answers: Arc<Outbox>,
    peer: Peer,
    /// Serves one message and is gone: no session, no notifications.
    one_shot: bool,
    /// Tells connections apart, where one is asked which tasks are its own.
    name: OnceLock<String>,
    session: OnceLock<Session>,
    streams: Streams,
    /// Requests that are being worked on, to give them up.
    in_flight: Arc<Mutex<HashMap<Id<'static>, Pending>>>,
    /// How much work is being driven.
    active: AtomicUsize,
    idle: Notify,
    /// Changed lists that the client will be told of when there is room, a bit for each kind.
    behind: AtomicU8,
    /// The revision of the last message that had one, to shape errors about messages that have none.
    last: AtomicU8,
}

/// How long cancelled work may take to end when the server shuts down.
const LAST_WORD: Duration = Duration::from_secs(1);
const NO_REVISION: u8 = u8::MAX;
static NOBODY: LazyLock<Arc<Client>> = LazyLock::new(Arc::default);

impl Connection {
    pub(crate) fn new(service: Service, outbox: Arc<Outbox>, one_shot: bool) -> Arc<Self> {
        let limit = service.settings().max_in_flight;
        let connection = Arc::new(Connection {
            peer: Peer::new(outbox.clone(), limit, withdraw(outbox.clone())),
            service,
            answers: outbox.clone(),
            outbox,
            one_shot,
            name: OnceLock::new(),
            session: OnceLock::new(),
            streams: Streams::default(),
            in_flight: Arc::default(),
            active: AtomicUsize::new(0),
            idle: Notify::new(),
            behind: AtomicU8::new(0),
            last: AtomicU8::new(NO_REVISION),
        });
        if !one_shot {
            connection.service.live().watch(&connection);
        }
        connection
    }

    /// The same client's connection, with another place for the answers of a batch.
    pub(super) fn part(&self, answers: Arc<Outbox>) -> Arc<Self> {
        Arc::new(Connection {
            service: self.service.clone(),
            outbox: self.outbox.clone(),
            answers,
            peer: self.peer.clone(),
            one_shot: self.one_shot,
            name: self.name().to_owned().into(),
            session: self.session.clone(),
            streams: Streams::default(),
            in_flight: self.in_flight.clone(),
            active: AtomicUsize::new(0),
            idle: Notify::new(),
            behind: AtomicU8::new(0),
            last: AtomicU8::new(self.last.load(Ordering::Relaxed)),
        })
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.get()
    }

    pub(crate) fn name(&self) -> &str {
        self.name.get_or_init(super::unguessable)
    }

    /// The client, to be asked.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether there is no way back to the client but the one answer.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.one_shot
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Whether a request may stay open: not where all answers leave together.
    pub(crate) fn has_streams(&self) -> bool {
        !self.one_shot && !self.is_part()
    }

    /// Whether this stands for one batch.
    pub(super) fn is_part(&self) -> bool {
        !Arc::ptr_eq(&self.outbox, &self.answers)
    }

    pub(super) fn answers(&self) -> &Arc<Outbox> {
        &self.answers
    }

    /// Takes one message. What it gives at once is in the outbox afterwards; the future that may come back is
    /// the rest, and must be driven.
    pub(crate) fn receive(self: &Arc<Self>, line: &[u8]) -> Option<BoxFuture<()>> {
        match parse(line, self.service.settings().limits) {
            Ok(Message::Request { id, method, params }) => self.request(&id, &method, &params),
            Ok(Message::Notification { method, params }) => self.notification(&method, &params),
            Ok(Message::Response { id, reply }) => {
                if !self.peer.answer(id.as_ref(), reply) {
                    tracing::debug!(?id, "an answer that nobody waits for");
                }
                None
            }
            Ok(Message::Batch(messages)) => self.batch(&messages),
            Err(_) if line.iter().all(u8::is_ascii_whitespace) => None,
            Err(error) => {
                self.refuse(&error);
                None
            }
        }
    }

    /// Answers a line that is too long to be read.
    pub(crate) fn too_long(&self, cap: usize) {
        let message =
            format!("the message is longer than the {cap} bytes that this server reads; it was skipped");
        let error = ErrorObject { code: code::INVALID_REQUEST, message, data: None };
        self.answers.append(|out| write::error(None, self.unknown_id(), &error, out));
    }

    fn refuse(&self, error: &ParseError) {
        if error.kind == ParseErrorKind::Params && error.id.is_none() {
            tracing::debug!(%error, "a notification was not understood");
            return; // notifications are not answered
        }
        // The id of an answer is one of ours: the client would take this for the answer to its own request.
        let id = error.id.as_ref().filter(|_| !error.is_response);
        let object = ErrorObject { code: error.code(), message: error.to_string(), data: None };
        self.answers.append(|out| write::error(id, self.unknown_id(), &object, out));
    }

    /// How to name a request that could not be read: newer revisions leave the id out, JSON-RPC says `null`.
    pub(super) fn unknown_id(&self) -> UnknownId {
        let last = Revision::ALL.get(usize::from(self.last.load(Ordering::Relaxed)));
        match last {
            Some(revision) if revision.has(Feature::AnonymousErrors) => UnknownId::Absent,
            _ => UnknownId::Null,
        }
    }

    fn request(self: &Arc<Self>, id: &Id<'_>, method: &str, params: &Params<'_>) -> Option<BoxFuture<()>> {
        let begun = self.service.settings().instrument.as_ref().map(|_| Instant::now());
        let (meta, admitted) = match stateless_era::request_meta(params) {
            Ok(meta) => {
                let admitted = self.admit(id, method, params, meta.as_ref());
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
                let outcome = self.round_done(outcome, scope.revision, round);
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
            return Some(self.clone().drive(id, call, begun, round));
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
        self.service.observe(method, target, begun, revision, outcome);
        self.answers.append(|out| self.write_answer(id, revision, outcome, out));
        None
    }

    pub(super) fn write_answer(&self, id: &Id<'_>, revision: Revision, outcome: &Outcome, out: &mut Vec<u8>) {
        match &outcome.answer {
            Ok(answer) => {
                write::result(id, out, |out| answer.encode(revision, self.service.identity(), out));
            }
            Err(error) => write::error(Some(id), UnknownId::Null, &error_object(error, revision), out),
        }
    }

    fn notification(self: &Arc<Self>, method: &str, params: &Params<'_>) -> Option<BoxFuture<()>> {
        let known = Method::find(method);
        match known {
            Some(Method::Initialized) => self.session().into_iter().for_each(Session::set_initialized),
            Some(Method::Cancelled) => self.cancel(params),
            _ => {}
        }
        let method = known.map_or(method, |known| known.name());
        let handler = self.service.settings().notifications.get(method)?;
        let meta = stateless_era::request_meta(params).ok().flatten();
        let revision = self.session().map_or(Revision::LATEST, Session::revision);
        let client = self.session().map_or(&*NOBODY, Session::client).clone();
        let id = Id::Number(0);
        let scope = Scope::new(self, (&id, method, params), revision, &client, meta.as_ref());
        match caught(|| handler.call(params.text().unwrap_or("{}"), &scope)) {
            Ok(Ok(work)) => {
                let (service, method) = (self.service.clone(), method.to_owned());
                let mut work: BoxFuture<()> = Box::pin(async move {
                    if let Err(panicked) = run_caught(work).await {
                        service.report(&panicked, &method, None);
                    }
                });
                let done = work.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_ready();
                if !done && self.active.load(Ordering::Acquire) >= self.service.settings().max_in_flight {
                    tracing::warn!("a notification was dropped: too much is being worked on");
                    return None;
                }
                (!done).then_some(work)
            }
            Ok(Err(Invalid { path, reason })) => {
                tracing::warn!(method, path, reason, "a notification was not understood");
                None
            }
            Err(panicked) => {
                self.service.report(&panicked, method, None);
                None
            }
        }
    }

    fn cancel(&self, params: &Params<'_>) {
        // A notice that is malformed, late or about nothing known is to be ignored.
        let Ok(params) = wire::decode::<CancelledParams>(params.text().unwrap_or("{}")) else { return };
        let Some(id) = params.request_id else { return };
        if let Some(pending) = lock(&self.in_flight).get(&id) {
            tracing::debug!(%id, reason = params.reason, "a request was cancelled");
            pending.cancel.cancel();
        }
    }

    /// Sends a notification, unless the client reads too slowly or cannot take any.
    pub(crate) fn notify(&self, message: impl FnOnce(&mut Vec<u8>)) {
        if !self.one_shot && !self.outbox.offer(message) {
            tracing::debug!("a notification was left out: the client reads too slowly or is gone");
        }
    }

    /// Tells the client that a list has changed. One that reads slowly is told when there is room: if it missed
    /// this it would keep an old list for ever.
    pub(crate) fn list_changed(self: &Arc<Self>, kind: Kind, runtime: Option<&Handle>) {
        let Some(runtime) = runtime.filter(|_| self.outbox.is_full()) else { return self.tell_changed(kind) };
        let bit = 1 << kind as u8;
        if self.behind.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            let connection = self.clone();
            start(runtime, async move {
                connection.outbox.room().await;
                connection.behind.fetch_and(!bit, Ordering::AcqRel);
                connection.tell_changed(kind);
            });
        }
    }

    fn tell_changed(&self, kind: Kind) {
        if self.session().is_some_and(Session::is_initialized) {
            self.notify(|out| write::notification(changed(kind).name(), out, |_| ()));
        }
        self.streams.list_changed(kind, |message| self.notify(message));
    }

    pub(crate) fn resource_updated(&self, uri: &str) {
        if let Some(session) = self.session()
            && session.is_subscribed(uri)
        {
            let params = ResourceUpdatedParams { uri: uri.to_owned(), meta: None };
            let revision = session.revision();
            self.notify(|out| {
                let encode = |out: &mut Vec<u8>| params.encode(&mut Encoder { out, revision });
                write::notification(Method::ResourceUpdated.name(), out, encode);
            });
        }
        self.streams.resource_updated(uri, |message| self.notify(message));
    }

    /// Counts `work` as this connection's until it is done, so that [`Self::finish`] waits for it.
    pub(crate) fn tracked(self: &Arc<Self>, work: BoxFuture<()>) -> impl Future<Output = ()> + Send + use<> {
        self.active.fetch_add(1, Ordering::AcqRel);
        let active = Active(self.clone());
        async move {
            work.await;
            drop(active);
        }
    }

    /// No more input will come: streams end in good order, and every request that was accepted is answered.
    pub(crate) async fn finish(&self, timeout: Duration) {
        self.peer.close("the client has ended its input");
        self.streams.close();
        if tokio::time::timeout(timeout, self.idle()).await.is_err() {
            let left: Vec<_> = lock(&self.in_flight).drain().collect();
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
            let mut notified = std::pin::pin!(self.idle.notified());
            notified.as_mut().enable();
            if self.active.load(Ordering::Acquire) == 0 {
                return;
            }
            notified.await;
        }
    }

    /// The client is gone: nothing it asked for is of use any more.
    pub(crate) fn abandon(&self) {
        self.outbox.close();
        self.peer.close("the client is gone");
        for pending in lock(&self.in_flight).values() {
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

/// Tells the client that a question is no longer asked.
fn withdraw(outbox: Arc<Outbox>) -> impl Fn(&Id<'_>, &str) + Send + Sync {
    move |id, reason| {
        let (request_id, reason) = (Some(id.clone().into_owned()), Some(reason.to_owned()));
        let params = CancelledParams { request_id, reason, meta: None };
        outbox.send(|out| {
            // Questions are asked only in sessions, and all of those write this in the same way.
            let to =
                |out: &mut Vec<u8>| params.encode(&mut Encoder { out, revision: Revision::LATEST_SESSION });
            write::notification(Method::Cancelled.name(), out, to);
        });
    }
}

/// A request that is being worked on.
struct Pending {
    cancel: Arc<Cancel>,
    /// Where its answer goes.
    answers: Arc<Outbox>,
}

/// Work that is being driven.
struct Active(Arc<Connection>);

impl Drop for Active {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

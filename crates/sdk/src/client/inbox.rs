//! Messages from the server: answers find their requests, questions find their handlers, the rest is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use linchpin_jsonrpc::write::{self, UnknownId};
use linchpin_jsonrpc::{self as jsonrpc, CallError, Id, Limits, Message, Params, parse};
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{
    CancelledParams, EmptyResult, LogParams, ProgressParams, ResourceUpdatedParams, key,
};
use linchpin_protocol::wire::{self, error_object};
use linchpin_protocol::{Era, Error as ProtocolError, Method, Revision};
use serde_json::Value;
use tokio::sync::Notify;

use super::core::Core;
use super::handlers::{Answerer, Changed};
use crate::question::{Question, Reply};
use crate::server::{BoxFuture, Progress, caught_future, start};
use crate::sync::lock;
use crate::transport::{Carrier, Receiver};
use crate::{Error, ErrorKind};

/// What a message may hold: lists of large servers hold much.
const LIMITS: Limits = Limits { depth: 128, keys: 100_000, values: 2_000_000 };
/// Questions of one server that may be open at a time.
const MAX_ANSWERING: usize = 64;

pub(crate) struct Inbox(pub(crate) Arc<Core>);

impl Receiver for Inbox {
    fn receive(&self, message: &[u8]) -> bool {
        let parsed = parse(message, LIMITS);
        let is_opening = self.0.agreed.get().is_none();
        if parsed.is_ok() && is_opening {
            self.0.stray.message();
        }
        match parsed {
            // The server could not read a request, and does not know which: the only one that waits, if it is one.
            Ok(Message::Response { id: None, reply: jsonrpc::Reply::Error(text) }) => {
                let error = serde_json::from_str(text).map(CallError::Rejected);
                self.0.peer.fail_only(error.unwrap_or_else(|error| CallError::Malformed(error.to_string())));
            }
            Ok(Message::Response { id, reply }) => {
                if !self.0.peer.answer(id.as_ref(), reply) {
                    tracing::debug!(?id, "an answer that nobody waits for");
                }
            }
            Ok(Message::Notification { method, params }) => self.notification(&method, &params),
            Ok(Message::Request { id, method, params }) => self.request(&id, &method, &params),
            Ok(Message::Batch(messages)) => {
                // One level: a batch holds messages, not other batches.
                let elements = messages.iter().filter(|message| !message.trim_start().starts_with('['));
                elements.for_each(|message| {
                    self.receive(message.as_bytes());
                });
            }
            Err(_) if message.iter().all(u8::is_ascii_whitespace) => return false,
            Err(error) => {
                let id = error.id.clone().filter(|_| error.is_response).or_else(|| guess_id(message));
                let is_stray = is_opening && id.is_none() && self.0.carrier().is_none();
                if !is_stray || self.0.stray.line(message) {
                    let server = self.0.server_label();
                    tracing::warn!(server, %error, "the server sent an invalid message");
                }
                // A transport that carries each request by itself knows which one this was.
                if let Some(id) = id.filter(|_| self.0.carrier().is_none()) {
                    self.0.peer.fail(&id, CallError::Malformed(error.to_string()));
                }
                return false;
            }
        }
        true
    }

    fn pause(&self) -> Box<dyn Send> {
        Box::new(self.0.peer.pause())
    }

    fn too_long(&self) {
        let limit = self.0.settings.max_message;
        // It may have been any answer, and nobody should wait for one that was skipped.
        let reason = format!(
            "the server sent a message of more than {limit} bytes, which was skipped and may have been it"
        );
        self.0.peer.fail_all(&CallError::Lost(reason.into()));
    }

    fn ended(&self, reason: &str) {
        self.0.end(reason);
    }

    fn revision(&self) -> Option<Revision> {
        self.0.agreed.get().map(|agreed| agreed.revision)
    }

    #[cfg(feature = "http-client")]
    fn server_label(&self) -> &str {
        self.0.server_label()
    }

    fn fail(&self, id: &Id<'_>, error: CallError) {
        self.0.peer.fail(id, error);
    }

    fn is_waiting(&self, id: &Id<'_>) -> bool {
        self.0.peer.is_waiting(id)
    }

    fn renewed(&self) {
        start(&self.0.runtime, super::session::restore(self.0.clone()));
    }

    fn carried_by(&self, carrier: Weak<dyn Carrier>) {
        let _ = self.0.carrier.set(carrier);
    }
}

impl Inbox {
    fn notification(&self, method: &str, params: &Params<'_>) {
        let text = params.text().unwrap_or("{}");
        match Method::find(method) {
            Some(Method::Progress) => self.progress(text),
            Some(Method::Cancelled) => self.cancelled(text),
            Some(Method::Log) => {
                if let (Some(log), Ok(params)) = (&self.0.handlers.log, wire::decode::<LogParams>(text)) {
                    guarded(|| log(params));
                }
            }
            Some(Method::ToolsChanged) => self.changed(Changed::Tools),
            Some(Method::ResourcesChanged) => self.changed(Changed::Resources),
            Some(Method::PromptsChanged) => self.changed(Changed::Prompts),
            Some(Method::ResourceUpdated) => {
                if let Ok(params) = wire::decode::<ResourceUpdatedParams>(text) {
                    self.updated(params.uri);
                }
            }
            Some(Method::ListenAcknowledged) => self.acknowledged(params),
            _ => {}
        }
        if let Some(told) = &self.0.handlers.notification {
            guarded(|| told(method, serde_json::from_str(text).unwrap_or_default()));
        }
    }

    /// A resource has changed.
    pub(super) fn updated(&self, uri: String) {
        self.0.cache.forget_resource(&uri);
        if let Some(told) = &self.0.handlers.resource_updated {
            guarded(|| told(uri));
        }
    }

    /// A list has changed.
    pub(super) fn changed(&self, list: Changed) {
        match list {
            Changed::Tools => {
                self.0.outputs.forget();
                self.0.cache.forget(Method::ListTools);
            }
            Changed::Prompts => self.0.cache.forget(Method::ListPrompts),
            Changed::Resources => {
                self.0.cache.forget(Method::ListResources);
                self.0.cache.forget(Method::ListResourceTemplates);
            }
        }
        if let Some(told) = &self.0.handlers.list_changed {
            guarded(|| told(list));
        }
        if let Some(told) = self.0.changed.get() {
            guarded(|| told(list));
        }
    }

    fn progress(&self, text: &str) {
        let Ok(params) = wire::decode::<ProgressParams>(text) else { return };
        let Id::Number(number) = params.progress_token else { return };
        self.0.peer.touch(number);
        let hook = lock(&self.0.progress).get(&number).cloned();
        if let Some(hook) = hook {
            guarded(|| hook(Progress::new(params.progress, params.total, params.message)));
        }
    }

    fn cancelled(&self, text: &str) {
        let Ok(CancelledParams { request_id: Some(id), .. }) = wire::decode(text) else { return };
        if let Some(answering) = lock(&self.0.answering).get(&id) {
            answering.notify_one();
        }
    }

    fn acknowledged(&self, params: &Params<'_>) {
        let meta = params.find("_meta").and_then(|meta| Params::parse(meta, Limits::default()).ok());
        let id = meta.and_then(|meta| meta.find(key::SUBSCRIPTION_ID).map(str::to_owned));
        let number = id.and_then(|id| id.trim_matches('"').parse().ok());
        if let Some(waiting) = number.and_then(|number: i64| lock(&self.0.acknowledged).remove(&number)) {
            waiting.notify_one();
        }
    }

    fn request(&self, id: &Id<'_>, method: &str, params: &Params<'_>) {
        let core = &self.0;
        let agreed = core.agreed.get().map(|agreed| agreed.revision);
        if agreed.is_some_and(|revision| revision.era() == Era::Stateless) {
            let server = core.server_label();
            tracing::warn!(server, method, "the server sent a request, which this revision does not have");
            return;
        }
        if core.outbox.is_full() {
            // Answers to somebody who asks and asks and does not read would fill the memory.
            core.outbox.close();
            return core.end("the server asks without reading the answers");
        }
        if method == Method::Ping.name() {
            return core.answer(id, Ok(&EmptyResult::new()));
        }
        let Some(revision) = agreed else {
            let error = ProtocolError::InvalidRequest(format!("{method} comes before the session is open"));
            return core.answer::<Reply>(id, Err(&error));
        };
        if Method::find(method).is_some_and(|method| !method.is_in(revision)) {
            // Some servers ask what the revision does not have; it has no form for an answer either.
            return core.answer::<Reply>(id, Err(&ProtocolError::MethodNotFound(method.to_owned())));
        }
        let question = match Question::decode(method, params.text().unwrap_or("{}")) {
            Ok(question) => question,
            Err(error) => return core.answer::<Reply>(id, Err(&error)),
        };
        let id = id.clone().into_owned();
        let cancelled = Arc::new(Notify::new());
        {
            let mut answering = lock(&core.answering);
            if answering.len() >= MAX_ANSWERING || answering.contains_key(&id) {
                let error =
                    ProtocolError::Internal(format!("{} questions are open already", answering.len()));
                drop(answering);
                return core.answer::<Reply>(&id, Err(&error));
            }
            answering.insert(id.clone(), cancelled.clone());
        }
        let core = core.clone();
        let task = related_task(params);
        start(&core.runtime.clone(), async move {
            let _paused = core.peer.pause(); // the time of those who answer is not the server's
            // One that panics is answered, too, and does not stay open.
            let answer = caught_future(core.clone().reply(question));
            let answer = tokio::select! {
                biased; // a question that was withdrawn is not answered
                () = cancelled.notified() => None,
                answer = answer => Some(answer),
            };
            lock(&core.answering).remove(&id);
            match answer {
                Some(Ok(mut reply)) => {
                    if let Some(task) = task {
                        reply.relate(task);
                    }
                    core.answer(&id, Ok(&reply));
                }
                Some(Err(error)) => core.answer::<Reply>(&id, Err(&for_server(&error))),
                None => {}
            }
        });
    }
}

impl Core {
    /// Answers a question that did not come with a result: the only call under way that answers questions
    /// itself, or the client's handlers.
    fn reply(self: Arc<Self>, question: Question) -> BoxFuture<crate::Result<Reply>> {
        let askers: Vec<_> = {
            let mut askers = lock(&self.askers);
            askers.retain(|asker| asker.strong_count() > 0);
            askers.iter().filter_map(Weak::upgrade).collect()
        };
        match &askers[..] {
            [] => self.handlers.answer(question),
            [only] => only.answer(question),
            several => {
                let text = "calls are under way, and this question does not say which it belongs to";
                let error =
                    Error::rpc(linchpin_protocol::code::INTERNAL_ERROR, format!("{} {text}", several.len()));
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }

    fn answer<T: Encode>(&self, id: &Id<'_>, answer: Result<&T, &ProtocolError>) {
        // Only sessions have requests of the server; one may be on its way to be opened.
        let revision = self.agreed.get().map_or(Revision::LATEST_SESSION, |agreed| agreed.revision);
        self.outbox.send(|out| match answer {
            Ok(result) => {
                write::result(id, out, |out| result.encode(&mut Encoder { out, revision }));
            }
            Err(error) => write::error(Some(id), UnknownId::Null, &error_object(error, revision), out),
        });
    }
}

/// The request that a message which cannot be read seems to answer: nobody should wait for it.
fn guess_id(message: &[u8]) -> Option<Id<'static>> {
    let text = std::str::from_utf8(message).ok()?.trim_start();
    let has = |member: &str| text.contains(member);
    let answers = has("\"jsonrpc\"") && !has("\"method\"") && (has("\"result\"") || has("\"error\""));
    if !answers || !text.starts_with('{') {
        return None;
    }
    // A member of the message itself, not of something in it.
    let count = |at: usize, brace: char| text[..at].matches(brace).count();
    let depth = |at: usize| count(at, '{').saturating_sub(count(at, '}'));
    let (at, name) = text.match_indices("\"id\":").find(|(at, _)| depth(*at) == 1)?;
    let rest = text[at + name.len()..].trim_start();
    let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok().map(Id::Number)
}

/// The task that a question belongs to: its answer must say so too.
fn related_task(params: &Params<'_>) -> Option<Value> {
    let meta = Params::parse(params.find("_meta")?, LIMITS).ok()?;
    serde_json::from_str(meta.find(key::RELATED_TASK)?).ok()
}

/// An error of a handler, as the server may see it.
pub(crate) fn for_server(error: &Error) -> ProtocolError {
    match error.kind() {
        ErrorKind::Protocol(error) => error.clone(),
        ErrorKind::Tool(text) => ProtocolError::Internal(text.clone()),
        ErrorKind::Foreign(_) | ErrorKind::Setup(_) => {
            tracing::error!(?error, "a handler of the client failed");
            ProtocolError::Internal("Internal error".into())
        }
    }
}

/// A hook that panics must not end the connection.
pub(crate) fn guarded(hook: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(hook)).is_err() {
        tracing::error!("a hook of the client panicked");
    }
}

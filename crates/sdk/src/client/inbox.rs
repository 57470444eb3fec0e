//! Dispatch of messages from the server: responses to pending requests, requests and notifications to handlers.

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

use super::active_calls::{Attribution, OpenRequest, Origin};
use super::core::ClientCore;
use super::handlers::{CallLog, ListChanged, ServerRequestHandler};
use crate::lock::lock;
use crate::server::{BoxFuture, Progress, run_catching_panics, spawn};
use crate::server_request::{ClientResult, ServerRequest};
use crate::transport::{PerRequestTransport, Receiver};
use crate::{Error, ErrorKind};

/// Limits of the JSON in one received message. They are high, since lists of large servers are long.
const MESSAGE_LIMITS: Limits = Limits { depth: 128, keys: 100_000, values: 2_000_000 };
/// Maximum number of server requests handled at the same time.
const MAX_OPEN_SERVER_REQUESTS: usize = 64;

pub(crate) struct Inbox(pub(crate) Arc<ClientCore>);

impl Receiver for Inbox {
    fn receive(&self, message: &[u8], request: Option<&Id<'_>>) -> bool {
        let parsed = parse(message, MESSAGE_LIMITS);
        let is_opening = self.0.negotiated.get().is_none();
        if parsed.is_ok() && is_opening {
            self.0.stray.record_message();
        }
        match parsed {
            // The server could not read a request and does not know its id. If only one request is pending, that one
            // fails.
            Ok(Message::Response { id: None, reply: jsonrpc::ResponsePayload::Error(text) }) => {
                let error = serde_json::from_str(text).map(CallError::Rejected);
                self.0.peer.fail_single_pending(
                    error.unwrap_or_else(|error| CallError::Malformed(error.to_string())),
                );
            }
            Ok(Message::Response { id, reply }) => {
                if !self.0.peer.accept_response(id.as_ref(), reply) {
                    tracing::debug!(?id, "ignored a response without a matching request");
                }
            }
            Ok(Message::Notification { method, params }) => self.on_notification(&method, &params, request),
            Ok(Message::Request { id, method, params }) => self.on_request(&id, &method, &params, request),
            Ok(Message::Batch(messages)) => {
                // A batch must not contain other batches.
                let elements = messages.iter().filter(|message| !message.trim_start().starts_with('['));
                elements.for_each(|message| {
                    self.receive(message.as_bytes(), request);
                });
            }
            Err(_) if message.iter().all(u8::is_ascii_whitespace) => return false,
            Err(error) => {
                let id = error.id.clone().filter(|_| error.is_response).or_else(|| guess_id(message));
                let is_stray = is_opening && id.is_none() && self.0.per_request_transport().is_none();
                if !is_stray || self.0.stray.record_line(message) {
                    let server = self.0.server_label();
                    tracing::warn!(server, %error, "ignored an invalid message of the server");
                }
                // A per-request transport already knows the request of an invalid message.
                if let Some(id) = id.filter(|_| self.0.per_request_transport().is_none()) {
                    self.0.peer.fail(&id, CallError::Malformed(error.to_string()));
                }
                return false;
            }
        }
        true
    }

    fn pause_timeouts(&self) -> Box<dyn Send> {
        Box::new(self.0.peer.pause_timeouts())
    }

    fn too_long(&self) {
        let limit = self.0.settings.max_message_bytes;
        // It may have been the response to any request: fail all, rather than wait for a skipped message.
        let reason = format!(
            "skipped a message of the server larger than {limit} bytes, which may have been the response"
        );
        self.0.peer.fail_all(&CallError::Lost(reason.into()));
    }

    fn on_closed(&self, reason: &str) {
        self.0.close(reason);
    }

    fn revision(&self) -> Option<Revision> {
        self.0.negotiated.get().map(|negotiated| negotiated.revision)
    }

    #[cfg(feature = "http-client")]
    fn server_label(&self) -> &str {
        self.0.server_label()
    }

    fn fail(&self, id: &Id<'_>, error: CallError) {
        self.0.peer.fail(id, error);
    }

    fn is_waiting(&self, id: &Id<'_>) -> bool {
        self.0.peer.is_pending(id)
    }

    fn session_renewed(&self) {
        spawn(&self.0.runtime, super::session_restore::restore(self.0.clone()));
    }

    fn set_per_request(&self, transport: Weak<dyn PerRequestTransport>) {
        let _ = self.0.per_request.set(transport);
    }
}

impl Inbox {
    fn on_notification(&self, method: &str, params: &Params<'_>, request: Option<&Id<'_>>) {
        let text = params.text().unwrap_or("{}");
        match Method::find(method) {
            Some(Method::Progress) => self.on_progress(text),
            Some(Method::Cancelled) => self.on_cancelled(text),
            Some(Method::Log) => {
                let task = related_task(params);
                self.on_log(text, self.origin(request, task.as_ref()));
            }
            Some(Method::ToolsChanged) => self.on_list_changed(ListChanged::Tools),
            Some(Method::ResourcesChanged) => self.on_list_changed(ListChanged::Resources),
            Some(Method::PromptsChanged) => self.on_list_changed(ListChanged::Prompts),
            Some(Method::ResourceUpdated) => {
                if let Ok(params) = wire::decode::<ResourceUpdatedParams>(text) {
                    self.on_resource_updated(params.uri);
                }
            }
            Some(Method::ListenAcknowledged) => self.on_acknowledged(params),
            _ => {}
        }
        if let Some(callback) = &self.0.handlers.notification {
            catch_hook_panic(|| callback(method, serde_json::from_str(text).unwrap_or_default()));
        }
    }

    /// Handles the notification of an updated resource.
    pub(super) fn on_resource_updated(&self, uri: String) {
        self.0.cache.invalidate_resource(&uri);
        if let Some(callback) = &self.0.handlers.resource_updated {
            catch_hook_panic(|| callback(uri));
        }
    }

    /// Handles the notification of a changed list.
    pub(super) fn on_list_changed(&self, list: ListChanged) {
        match list {
            ListChanged::Tools => {
                self.0.output_schemas.clear();
                self.0.cache.invalidate(Method::ListTools);
            }
            ListChanged::Prompts => self.0.cache.invalidate(Method::ListPrompts),
            ListChanged::Resources => {
                self.0.cache.invalidate(Method::ListResources);
                self.0.cache.invalidate(Method::ListResourceTemplates);
            }
        }
        if let Some(callback) = &self.0.handlers.list_changed {
            catch_hook_panic(|| callback(list));
        }
        if let Some(callback) = self.0.on_list_changed.get() {
            catch_hook_panic(|| callback(list));
        }
    }

    fn on_progress(&self, text: &str) {
        let Ok(params) = wire::decode::<ProgressParams>(text) else { return };
        let Id::Number(number) = params.progress_token else { return };
        self.0.peer.record_progress(number);
        let hook = lock(&self.0.progress_hooks).get(&number).cloned();
        if let Some(hook) = hook {
            catch_hook_panic(|| {
                (hook.callback)(Progress::new(params.progress, params.total, params.message));
            });
        }
    }

    fn on_log(&self, text: &str, origin: Origin<'_>) {
        let (calls, is_attributed) = lock(&self.0.active_calls).log_receivers(origin);
        let client = self.0.handlers.log.as_ref();
        if calls.is_empty() && client.is_none() {
            return;
        }
        let Ok(params) = wire::decode::<LogParams>(text) else { return };
        for call in calls {
            call.on_log(CallLog { params: params.clone(), is_attributed });
        }
        if let Some(callback) = client {
            catch_hook_panic(|| callback(params));
        }
    }

    fn on_cancelled(&self, text: &str) {
        let Ok(CancelledParams { request_id: Some(id), .. }) = wire::decode(text) else { return };
        if let Some(server_requests) = lock(&self.0.server_requests).get(&id) {
            server_requests.notify_one();
        }
    }

    fn on_acknowledged(&self, params: &Params<'_>) {
        let meta = params.find("_meta").and_then(|meta| Params::parse(meta, Limits::default()).ok());
        let id = meta.and_then(|meta| meta.find(key::SUBSCRIPTION_ID).map(str::to_owned));
        let number = id.and_then(|id| id.trim_matches('"').parse().ok());
        if let Some(waiter) = number.and_then(|number: i64| lock(&self.0.ack_waiters).remove(&number)) {
            waiter.notify_one();
        }
    }

    /// Returns what a message says about the call that it belongs to.
    fn origin<'a>(&self, request: Option<&Id<'_>>, task: Option<&'a Value>) -> Origin<'a> {
        let request = request.and_then(|id| self.0.peer.number(id));
        Origin { request, task: task.and_then(task_id) }
    }

    fn on_request(&self, id: &Id<'_>, method: &str, params: &Params<'_>, request: Option<&Id<'_>>) {
        let core = &self.0;
        let revision = core.negotiated.get().map(|negotiated| negotiated.revision);
        if revision.is_some_and(|revision| revision.era() == Era::Stateless) {
            let server = core.server_label();
            tracing::warn!(
                server,
                method,
                "ignored a request of the server: this revision has no server requests"
            );
            return;
        }
        if core.outbox.is_full() {
            // Responses for a server that sends requests without reading would fill the memory.
            core.outbox.close();
            return core.close("the server sends requests without reading the responses");
        }
        if method == Method::Ping.name() {
            return core.respond(id, Ok(&EmptyResult::new()));
        }
        let Some(revision) = revision else {
            let error =
                ProtocolError::InvalidRequest(format!("{method} was sent before the session is open"));
            return core.respond::<ClientResult>(id, Err(&error));
        };
        if Method::find(method).is_some_and(|method| !method.exists_in(revision)) {
            // Some servers send requests that the revision does not have, and for which it has no response format.
            return core.respond::<ClientResult>(id, Err(&ProtocolError::MethodNotFound(method.to_owned())));
        }
        let question = match ServerRequest::decode(method, params.text().unwrap_or("{}")) {
            Ok(question) => question,
            Err(error) => return core.respond::<ClientResult>(id, Err(&error)),
        };
        let id = id.clone().into_owned();
        let cancelled = Arc::new(Notify::new());
        {
            let mut server_requests = lock(&core.server_requests);
            if server_requests.len() >= MAX_OPEN_SERVER_REQUESTS || server_requests.contains_key(&id) {
                let error = ProtocolError::Internal(format!(
                    "too many open server requests: {}",
                    server_requests.len()
                ));
                drop(server_requests);
                return core.respond::<ClientResult>(&id, Err(&error));
            }
            server_requests.insert(id.clone(), cancelled.clone());
        }
        let core = core.clone();
        let task = related_task(params);
        let origin = self.origin(request, task.as_ref());
        let (attribution, request) = (core.attribute_request(origin, true), origin.request);
        spawn(&core.runtime.clone(), async move {
            let _paused = core.peer.pause_timeouts(); // handler time does not count against the server
            let attribution = match attribution {
                Attribution::UnknownTask => {
                    let origin = Origin { request, task: task.as_ref().and_then(task_id) };
                    core.attribute_task_request(origin).await
                }
                attribution => attribution,
            };
            let (work, open_request) = core.handle_server_request(question, attribution);
            // A panicking handler also produces a response and frees its entry.
            let outcome = run_catching_panics(work);
            let call_ended = async {
                match &open_request {
                    Some(open_request) => open_request.call_ended.notified().await,
                    None => std::future::pending().await,
                }
            };
            let outcome = tokio::select! {
                biased; // do not respond to a cancelled request
                () = cancelled.notified() => None,
                () = call_ended => Some(Err(internal_error("the call that this request belongs to has ended"))),
                outcome = outcome => Some(outcome),
            };
            drop(open_request);
            lock(&core.server_requests).remove(&id);
            match outcome {
                Some(Ok(mut reply)) => {
                    if let Some(task) = task {
                        reply.set_related_task(task);
                    }
                    core.respond(&id, Ok(&reply));
                }
                Some(Err(error)) => core.respond::<ClientResult>(&id, Err(&to_protocol_error(&error))),
                None => {}
            }
        });
    }
}

impl ClientCore {
    /// Handles a server request that is not part of a result: with the handler of the call that it belongs to, or with
    /// the client's handlers.
    fn handle_server_request(
        &self,
        question: ServerRequest,
        attribution: Attribution,
    ) -> (BoxFuture<crate::Result<ClientResult>>, Option<OpenRequest>) {
        match attribution {
            Attribution::Call(handler, open_request) => {
                let work = match self.handlers.undeclared(&question) {
                    Some(error) => Box::pin(std::future::ready(Err(error))),
                    None => handler.handle(question, None),
                };
                (work, Some(open_request))
            }
            Attribution::Connection | Attribution::UnknownTask => {
                (self.handlers.handle(question, None), None)
            }
            Attribution::Ambiguous(calls) => {
                let text = format!(
                    "{calls} calls are in flight, and this request does not name the call it belongs to"
                );
                (Box::pin(std::future::ready(Err(internal_error(&text)))), None)
            }
        }
    }

    fn respond<T: Encode>(&self, id: &Id<'_>, outcome: Result<&T, &ProtocolError>) {
        // Only sessions have server requests, possibly before the negotiation has finished.
        let revision =
            self.negotiated.get().map_or(Revision::LATEST_SESSION, |negotiated| negotiated.revision);
        self.outbox.send(|out| match outcome {
            Ok(result) => {
                write::result(id, out, |out| result.encode(&mut Encoder { out, revision }));
            }
            Err(error) => write::error(Some(id), UnknownId::Null, &error_object(error, revision), out),
        });
    }
}

fn internal_error(text: &str) -> Error {
    Error::rpc(linchpin_protocol::code::INTERNAL_ERROR, text)
}

/// Guesses the id of the request that an unreadable message responds to, so that this request fails at once.
fn guess_id(message: &[u8]) -> Option<Id<'static>> {
    let text = std::str::from_utf8(message).ok()?.trim_start();
    let contains_member = |member: &str| text.contains(member);
    let is_response = contains_member("\"jsonrpc\"")
        && !contains_member("\"method\"")
        && (contains_member("\"result\"") || contains_member("\"error\""));
    if !is_response || !text.starts_with('{') {
        return None;
    }
    // Only a member of the message itself, not of a nested object.
    let count = |at: usize, brace: char| text[..at].matches(brace).count();
    let depth = |at: usize| count(at, '{').saturating_sub(count(at, '}'));
    let (at, name) = text.match_indices("\"id\":").find(|(at, _)| depth(*at) == 1)?;
    let rest = text[at + name.len()..].trim_start();
    let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok().map(Id::Number)
}

/// Returns the related task in the `_meta` of a server request; the result must repeat it.
fn related_task(params: &Params<'_>) -> Option<Value> {
    let meta = Params::parse(params.find("_meta")?, MESSAGE_LIMITS).ok()?;
    serde_json::from_str(meta.find(key::RELATED_TASK)?).ok()
}

fn task_id(related_task: &Value) -> Option<&str> {
    related_task["taskId"].as_str()
}

/// Converts a handler error into the form that the server may see.
pub(crate) fn to_protocol_error(error: &Error) -> ProtocolError {
    match error.kind() {
        ErrorKind::Protocol(error) => error.clone(),
        ErrorKind::Tool(text) => ProtocolError::Internal(text.clone()),
        ErrorKind::Other(_) | ErrorKind::Setup(_) => {
            tracing::error!(?error, "client handler of a server request failed");
            ProtocolError::Internal("Internal error".into())
        }
    }
}

/// Runs a hook and catches a panic in it, which must not close the connection.
pub(crate) fn catch_hook_panic(hook: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(hook)).is_err() {
        tracing::error!("callback of the application panicked");
    }
}

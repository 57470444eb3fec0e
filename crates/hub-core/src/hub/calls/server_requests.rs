//! Open server requests of running calls: elicitation, sampling and roots that wait for a reply of the caller. They are
//! in memory, at the hub that runs the call. The content of a reply is neither stored nor logged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use linchpin::client::{ClientResult, ServerRequest};
use linchpin::encode::to_value;
use linchpin::model::{CreateMessageResult, ElicitMode, ElicitResult, ListRootsResult};
use linchpin::schema::Schema;
use linchpin::{Revision, code};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::actor::{Actor, Subject};
use crate::audit::AuditEntry;
use crate::error::{Error, ErrorKind, Result};
use crate::hub::calls::Calls;
use crate::hub::event_payloads;
use crate::id::{CallId, ServerRequestId, TenantId};
use crate::lock::lock;
use crate::secrets::redact::Redactor;
use crate::store::Batch;

/// Maximum number of validation errors reported for one reply.
const MAX_FAULTS: usize = 20;

/// Kind of a server request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServerRequestKind {
    /// Elicitation of a form.
    Form,
    /// Elicitation that sends the user to a URL.
    Url,
    /// Request to the model of the caller.
    Sampling,
    /// Request for the roots of the caller.
    Roots,
}

impl ServerRequestKind {
    /// Returns the kind of a server request.
    pub(in crate::hub) fn of(request: &ServerRequest) -> Self {
        match request {
            ServerRequest::Elicit(params) if params.mode == Some(ElicitMode::Url) => ServerRequestKind::Url,
            ServerRequest::Elicit(_) => ServerRequestKind::Form,
            ServerRequest::Sample(_) => ServerRequestKind::Sampling,
            ServerRequest::Roots => ServerRequestKind::Roots,
        }
    }

    /// Returns the name of the kind, as in the audit.
    pub fn name(self) -> &'static str {
        match self {
            ServerRequestKind::Form => "form",
            ServerRequestKind::Url => "url",
            ServerRequestKind::Sampling => "sampling",
            ServerRequestKind::Roots => "roots",
        }
    }
}

/// Open server request as shown to the caller, with secrets redacted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ServerRequestView {
    /// Id of the server request.
    #[schemars(with = "String")]
    pub id: ServerRequestId,
    /// Id of the call that the server request belongs to.
    #[schemars(with = "String")]
    pub call: CallId,
    /// Kind of the server request.
    pub kind: ServerRequestKind,
    /// Message of an elicitation to the user.
    pub message: Option<String>,
    /// Schema of the form, a flat object, which the content of the reply must match.
    pub schema: Option<Value>,
    /// URL that the user is to open.
    pub url: Option<String>,
    /// Parameters of a sampling request.
    pub params: Option<Value>,
    /// Time at which the server sent the request.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time at which the call ends at the latest, and the request with it.
    #[schemars(with = "String")]
    pub expires: Timestamp,
}

impl ServerRequestView {
    /// Creates the view of a server request, with secrets redacted.
    pub(super) fn new(
        (id, call): (ServerRequestId, CallId),
        request: &ServerRequest,
        redactor: &Redactor,
        (created, expires): (Timestamp, Timestamp),
    ) -> Self {
        let text = |text: &String| redactor.redact_text(text.clone());
        let (mut message, mut schema, mut url, mut params) = (None, None, None, None);
        match request {
            ServerRequest::Elicit(elicit) => {
                message = Some(text(&elicit.message));
                schema = form_schema(request).map(|schema| redactor.redact(schema));
                url = elicit.url.as_ref().map(text);
            }
            ServerRequest::Sample(sample) => {
                params = Some(redactor.redact(to_value(&**sample, Revision::LATEST)));
            }
            ServerRequest::Roots => {}
        }
        let kind = ServerRequestKind::of(request);
        ServerRequestView { id, call, kind, message, schema, url, params, created, expires }
    }
}

/// Reply to a server request.
#[derive(Clone)]
pub enum ServerReply {
    /// The request is accepted: with the content of the form, the message of the model or the roots; without content
    /// for a URL.
    Accept(Option<Value>),
    /// The user refuses the request.
    Decline,
    /// The user made no choice.
    Cancel,
}

impl ServerReply {
    fn action(&self) -> (&'static str, &'static str) {
        match self {
            ServerReply::Accept(_) => ("accept", "server_request.accepted"),
            ServerReply::Decline => ("decline", "server_request.declined"),
            ServerReply::Cancel => ("cancel", "server_request.cancelled"),
        }
    }

    /// Returns the result for the server. Fails if the content of the reply does not fit the request.
    fn into_result(self, request: &ServerRequest) -> Result<linchpin::Result<ClientResult>> {
        let content = match self {
            ServerReply::Accept(content) => content,
            ServerReply::Decline => return Ok(request.decline()),
            ServerReply::Cancel => return Ok(request.cancel()),
        };
        Ok(Ok(match request {
            ServerRequest::Elicit(_) if ServerRequestKind::of(request) == ServerRequestKind::Url => {
                if content.is_some() {
                    return Err(Error::invalid("content", "must be absent: the server request is for a URL"));
                }
                ClientResult::Elicit(ElicitResult::accept(Value::Null))
            }
            ServerRequest::Elicit(_) => {
                let content = content.filter(Value::is_object).ok_or_else(|| {
                    Error::invalid("content", "must be an object with the fields of the form")
                })?;
                check_form(request, &content)?;
                ClientResult::Elicit(ElicitResult::accept(content))
            }
            ServerRequest::Sample(_) => {
                ClientResult::Sample(Box::new(decode::<CreateMessageResult>(content)?))
            }
            ServerRequest::Roots => ClientResult::Roots(decode::<ListRootsResult>(content)?),
        }))
    }
}

/// Returns the schema of the form of an elicitation.
fn form_schema(request: &ServerRequest) -> Option<Value> {
    let ServerRequest::Elicit(params) = request else { return None };
    Some(to_value(params.requested_schema.as_ref()?, Revision::LATEST))
}

/// Validates the content of a reply against the schema of the form.
fn check_form(request: &ServerRequest, content: &Value) -> Result<()> {
    let Some(schema) = form_schema(request) else { return Ok(()) };
    let schema = Schema::compile(&schema).map_err(|fault| {
        Error::invalid("content", format!("the form of the server is invalid, so decline it: {fault}"))
    })?;
    let faults = schema.errors(content, MAX_FAULTS);
    if faults.is_empty() {
        return Ok(());
    }
    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    Err(Error::invalid("content", format!("does not match the form: {}", faults.join("; "))))
}

fn decode<T: DeserializeOwned>(content: Option<Value>) -> Result<T> {
    let content = content.ok_or_else(|| Error::invalid("content", "must be set to accept this request"))?;
    serde_json::from_value(content)
        .map_err(|error| Error::invalid("content", format!("is not the result of this request: {error}")))
}

/// Server request that waits for a reply.
struct OpenServerRequest {
    /// Caller of the call.
    subject: Subject,
    request: ServerRequest,
    view: ServerRequestView,
    reply: oneshot::Sender<linchpin::Result<ClientResult>>,
}

/// Open server requests of the calls that this hub runs.
#[derive(Default)]
pub(in crate::hub) struct OpenServerRequests(Mutex<HashMap<(TenantId, ServerRequestId), OpenServerRequest>>);

impl OpenServerRequest {
    fn is_visible_to(&self, actor: Actor) -> bool {
        actor.agent().is_none() || self.subject == actor.subject()
    }
}

/// Guard of an open server request. If it is dropped before the reply, the call has ended or the server has withdrawn
/// the request.
struct OpenServerRequestGuard {
    calls: Arc<Calls>,
    tenant: TenantId,
    id: ServerRequestId,
}

impl Drop for OpenServerRequestGuard {
    fn drop(&mut self) {
        let open = lock(&self.calls.server_requests.0).remove(&(self.tenant, self.id));
        let Some(open) = open else { return };
        let batch = self.calls.add_withdrawal(Batch::new(), &open.view);
        self.calls.deferred_commits.add(self.tenant, batch);
    }
}

impl Calls {
    /// Lists the open server requests that the caller may see, oldest first: those of all calls at this hub.
    pub fn server_requests(&self, actor: Actor) -> Vec<ServerRequestView> {
        let open = lock(&self.server_requests.0);
        let visible =
            open.iter().filter(|((tenant, _), open)| *tenant == actor.tenant() && open.is_visible_to(actor));
        let mut views: Vec<_> = visible.map(|(_, open)| open.view.clone()).collect();
        views.sort_by_key(|view| view.id);
        views
    }

    /// Lists the open server requests of a call, oldest first.
    pub async fn server_requests_of(&self, actor: Actor, call: CallId) -> Result<Vec<ServerRequestView>> {
        self.call(actor, call).await?; // fails if the caller may not see it
        let mut views = self.server_requests(actor);
        views.retain(|view| view.call == call);
        Ok(views)
    }

    /// Replies to an open server request, once.
    pub async fn reply_to_server_request(
        &self,
        actor: Actor,
        id: ServerRequestId,
        reply: ServerReply,
    ) -> Result<()> {
        let (tenant, (action, audit_action)) = (actor.tenant(), reply.action());
        let (open, result) = {
            let mut all = lock(&self.server_requests.0);
            let visible = all.get(&(tenant, id)).filter(|open| open.is_visible_to(actor));
            let open = visible.ok_or_else(|| self.missing_server_request_error(id))?;
            let result = reply.into_result(&open.request)?;
            let open = all.remove(&(tenant, id)).ok_or_else(|| self.missing_server_request_error(id))?;
            (open, result)
        };
        let (view, subject) = (&open.view, actor.subject().to_string());
        let entry = server_request_entry(self.context.platform.now(), &subject, audit_action, view);
        let event = event_payloads::server_request_closed(id, view.call, action);
        let batch = Batch::new().audit(entry).with_event(event);
        if let Err(error) = self.context.store.commit(tenant, batch).await {
            if !open.reply.is_closed() {
                lock(&self.server_requests.0).insert((tenant, id), open);
            }
            return Err(error);
        }
        open.reply.send(result).map_err(|_| {
            let text = "the call ended before the reply reached its server";
            Error::new(ErrorKind::Conflict, "server_request_closed", text)
        })
    }

    fn missing_server_request_error(&self, id: ServerRequestId) -> Error {
        if self.context.store.shared().is_none() {
            return Error::not_found("server request", id);
        }
        let text = format!(
            "no open server request `{id}` at this hub: in a cluster, reply at the hub that runs the call"
        );
        Error::new(ErrorKind::NotFound, "not_found", text)
    }

    /// Records that the hub refused a server request because the caller does not reply to it.
    pub(super) async fn record_refused_server_request(
        &self,
        actor: Actor,
        call: CallId,
        kind: ServerRequestKind,
    ) {
        let entry = AuditEntry::new(self.context.platform.now(), "hub", "server_request.declined");
        let entry = entry.with("call", call.to_string()).with("kind", kind.name());
        let batch = Batch::new().audit(entry.with("reason", "no_reply_offered"));
        if let Err(error) = self.context.store.commit(actor.tenant(), batch.clone()).await {
            tracing::warn!(call.id = %call, %error, "failed to record a refused server request; queued for retry");
            self.deferred_commits.add(actor.tenant(), batch);
        }
    }

    /// Opens a server request and waits for its reply. `opened` is called when the request can be replied to.
    pub(super) async fn wait_for_reply(
        self: &Arc<Self>,
        actor: Actor,
        (request, view): (ServerRequest, ServerRequestView),
        opened: impl Future<Output = ()>,
    ) -> linchpin::Result<ClientResult> {
        let (tenant, id, call) = (actor.tenant(), view.id, view.call);
        let subject = actor.subject();
        let entry = server_request_entry(view.created, &subject.to_string(), "server_request.opened", &view);
        let event = event_payloads::server_request_opened(id, call);
        let (sender, reply) = oneshot::channel();
        let open = OpenServerRequest { subject, request, view, reply: sender };
        // Before the commit: the reply may follow as soon as the event is published.
        lock(&self.server_requests.0).insert((tenant, id), open);
        let _guard = OpenServerRequestGuard { calls: self.clone(), tenant, id };
        let batch = Batch::new().audit(entry).with_event(event);
        if let Err(error) = self.context.store.commit(tenant, batch).await {
            lock(&self.server_requests.0).remove(&(tenant, id));
            tracing::warn!(call.id = %call, %error, "failed to record a server request");
            let text = "the hub cannot record the server request";
            return Err(linchpin::Error::rpc(code::INTERNAL_ERROR, text));
        }
        opened.await;
        let closed = |_| linchpin::Error::rpc(code::INTERNAL_ERROR, "the server request was closed");
        reply.await.map_err(closed)?
    }

    /// Closes the open server requests of a call that has ended, and adds that to the batch of its outcome.
    pub(super) fn close_server_requests(&self, tenant: TenantId, call: CallId, mut batch: Batch) -> Batch {
        let mut open = lock(&self.server_requests.0);
        for (_, closed) in open.extract_if(|(owner, _), open| *owner == tenant && open.view.call == call) {
            batch = self.add_withdrawal(batch, &closed.view);
        }
        batch
    }

    /// Adds to a batch that a server request was closed without a reply.
    fn add_withdrawal(&self, batch: Batch, view: &ServerRequestView) -> Batch {
        let entry =
            server_request_entry(self.context.platform.now(), "hub", "server_request.cancelled", view);
        let event = event_payloads::server_request_closed(view.id, view.call, "cancel");
        batch.audit(entry.with("reason", "call_ended")).with_event(event)
    }
}

/// Creates the audit entry of a server request, which has no content of requests and replies.
fn server_request_entry(
    at: Timestamp,
    subject: &str,
    action: &'static str,
    view: &ServerRequestView,
) -> AuditEntry {
    AuditEntry::new(at, subject, action)
        .with("call", view.call.to_string())
        .with("server_request", view.id.to_string())
        .with("kind", view.kind.name())
}

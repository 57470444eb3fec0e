//! Exchange between the server of a running call and its caller: progress, log messages and server requests.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use linchpin::client::{Call, CallLog, ClientResult, ServerRequest};
use linchpin::code;
use linchpin::model::{CallToolResult, ClientCapabilities, ListRootsResult, LogParams, extension};
use linchpin::server::Progress;
use serde_json::json;
use tokio::sync::Notify;

use super::calling_client::capabilities_of;
use super::handle::{CallEvent, CallProgress, CallerChannel};
use super::plan::PlannedCall;
use super::server_requests::{ServerRequestKind, ServerRequestView};
use crate::actor::{Actor, Subject};
use crate::connection::all_capabilities;
use crate::hub::calls::Calls;
use crate::hub::event_payloads;
use crate::hub::upstream::access::UpstreamAccess;
use crate::id::{CallId, ServerId, ServerRequestId};
use crate::lock::lock;

/// Minimum time between two progress events of a call on the event stream.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(400);
/// Maximum length of the id of a URL elicitation whose completion is reported, in bytes.
const MAX_ELICITATION_ID_LEN: usize = 256;
/// Maximum number of server requests of one call.
const MAX_SERVER_REQUESTS: usize = 100;

static WITH_SAMPLING: LazyLock<Arc<ClientCapabilities>> = LazyLock::new(|| call_capabilities(true));
static WITHOUT_SAMPLING: LazyLock<Arc<ClientCapabilities>> = LazyLock::new(|| call_capabilities(false));

fn call_capabilities(has_sampling: bool) -> Arc<ClientCapabilities> {
    let ClientCapabilities { sampling, extensions, .. } = all_capabilities();
    let mut extensions = extensions.unwrap_or_default();
    extensions.insert(extension::TASKS.to_owned(), json!({}));
    let sampling = sampling.filter(|_| has_sampling);
    Arc::new(ClientCapabilities { sampling, extensions: Some(extensions), ..all_capabilities() })
}

/// Exchange between the server of one running call and its caller: progress, log messages and server requests.
pub(super) struct CallExchange {
    pub(super) calls: Arc<Calls>,
    pub(super) actor: Actor,
    call: CallId,
    /// Subject whose connection the call uses.
    subject: Subject,
    server: ServerId,
    caller: CallerChannel,
    pub(super) access: Arc<UpstreamAccess>,
    /// Time at which the call ends at the latest.
    expires: Timestamp,
    /// Progress that is not published yet.
    progress: Mutex<Option<CallProgress>>,
    has_progress: Notify,
    /// Number of server requests so far.
    requests: AtomicUsize,
    /// Whether a server request was refused because the caller does not reply.
    has_refused: AtomicBool,
}

impl CallExchange {
    pub(super) fn new(
        calls: &Arc<Calls>,
        actor: Actor,
        plan: &PlannedCall,
        access: Arc<UpstreamAccess>,
        expires: Timestamp,
    ) -> Arc<Self> {
        Arc::new(CallExchange {
            calls: calls.clone(),
            actor,
            call: plan.id,
            subject: plan.upstream_actor(actor).subject(),
            server: plan.target.server.id,
            caller: plan.caller.clone(),
            access,
            expires,
            progress: Mutex::default(),
            has_progress: Notify::new(),
            requests: AtomicUsize::new(0),
            has_refused: AtomicBool::new(false),
        })
    }

    /// Connects the callbacks of a call with the exchange.
    pub(super) fn attach(self: &Arc<Self>, call: Call<CallToolResult>) -> Call<CallToolResult> {
        let (on_progress, on_request, on_log) = (self.clone(), self.clone(), self.clone());
        let call = call
            .capabilities(self.capabilities())
            .progress(move |progress| on_progress.add_progress(&progress))
            .on_named_server_request(move |request, name| on_request.clone().reply_to(request, name));
        let call = match self.caller.options.client.clone() {
            Some(client) => call.on_task(move || client.task_started()),
            None => call,
        };
        match self.caller.log_level() {
            Some(level) => call.log(level, move |message| on_log.report_log(message)),
            None => call,
        }
    }

    /// Returns the capabilities announced with the call: those of the client whose request it is; otherwise all, but
    /// sampling only if the caller replies to it.
    fn capabilities(&self) -> Arc<ClientCapabilities> {
        if self.caller.options.client.is_some() {
            return capabilities_of(&self.caller.options.replies);
        }
        let has_sampling = self.is_replied(ServerRequestKind::Sampling);
        if has_sampling { WITH_SAMPLING.clone() } else { WITHOUT_SAMPLING.clone() }
    }

    fn is_replied(&self, kind: ServerRequestKind) -> bool {
        self.caller.options.replies.contains(&kind)
    }

    fn add_progress(&self, progress: &Progress) {
        let message = progress.message().map(|text| self.access.redactor.redact_text(text.to_owned()));
        let progress = CallProgress { progress: progress.done(), total: progress.total(), message };
        self.caller.report_progress(&progress);
        *lock(&self.progress) = Some(progress);
        self.has_progress.notify_one();
    }

    fn report_log(&self, message: CallLog) {
        let data = self.access.redactor.redact(message.params.data);
        self.caller.report_log(LogParams { data, ..message.params });
    }

    /// Publishes the progress of the call, at most once per [`PROGRESS_INTERVAL`], until the future is dropped.
    pub(super) async fn publish_progress(&self) -> Infallible {
        loop {
            self.has_progress.notified().await;
            let progress = lock(&self.progress).take();
            if let Some(mut progress) = progress {
                // The events of a cluster are stored in clear text.
                progress.message.take_if(|_| self.calls.context.store.shared().is_some());
                let event = event_payloads::progress(self.call, &progress);
                self.calls.context.events.publish(self.actor.tenant(), event);
            }
            tokio::time::sleep(PROGRESS_INTERVAL).await;
        }
    }

    /// Returns the warning about server requests that were refused because the caller does not reply to them.
    pub(super) fn warning(&self) -> Option<String> {
        let text = "the server requested input from the user, which was declined: the caller of this call does not \
                    reply to server requests";
        self.has_refused.load(Ordering::Relaxed).then(|| text.to_owned())
    }

    /// Replies to a server request: with the reply of the caller, or at once if the caller does not reply to its kind.
    async fn reply_to(
        self: Arc<Self>,
        request: ServerRequest,
        name: Option<String>,
    ) -> linchpin::Result<ClientResult> {
        if self.requests.fetch_add(1, Ordering::Relaxed) >= MAX_SERVER_REQUESTS {
            let text = format!("a call may send at most {MAX_SERVER_REQUESTS} server requests");
            return Err(linchpin::Error::rpc(code::INTERNAL_ERROR, text));
        }
        let kind = ServerRequestKind::of(&request);
        if kind == ServerRequestKind::Roots && !self.is_replied(kind) {
            let roots = self.caller.options.roots.clone();
            return Ok(ClientResult::Roots(ListRootsResult { roots, meta: None }));
        }
        if !self.is_replied(kind) {
            self.has_refused.store(true, Ordering::Relaxed);
            self.calls.record_refused_server_request(self.actor, self.call, kind).await;
            return match request {
                ServerRequest::Elicit(_) => request.decline(),
                _ => Err(linchpin::Error::rpc(
                    code::INTERNAL_ERROR,
                    format!("the caller of this call does not reply to {} requests", kind.name()),
                )),
            };
        }
        let calls = &self.calls;
        let id = ServerRequestId::new(&*calls.context.platform);
        let times = (calls.context.platform.now(), self.expires);
        let view = ServerRequestView::new((id, self.call), &request, &self.access.redactor, times);
        let event = CallEvent::ServerRequestOpened(Box::new(view.clone()));
        let is_open = Notify::new();
        let opened = async {
            self.caller.report_reliably(event).await;
            is_open.notify_one();
        };
        let reply = match self.caller.options.client.clone() {
            None => calls.wait_for_reply(self.actor, (request, view), opened).await,
            Some(client) => {
                if let ServerRequest::Elicit(elicit) = &request
                    && let Some(elicitation) = &elicit.elicitation_id
                    && kind == ServerRequestKind::Url
                    && elicitation.len() <= MAX_ELICITATION_ID_LEN
                {
                    let key = (self.actor.tenant(), self.subject, self.server, elicitation.clone());
                    calls.upstream.url_elicitations().insert(key, client.clone(), times.0);
                }
                let forwarded = async {
                    is_open.notified().await;
                    self.forward_request(&*client, (request.clone(), name), &view).await
                };
                tokio::select! {
                    biased;
                    reply = calls.wait_for_reply(self.actor, (request.clone(), view.clone()), opened) => reply,
                    reply = forwarded => reply,
                }
            }
        };
        self.caller.report(CallEvent::ServerRequestClosed(id));
        reply
    }
}

//! Shared state of all handles to one connection; sends requests and awaits their responses.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use linchpin_jsonrpc::string::write_string;
use linchpin_jsonrpc::{CallError, Id, Outbox, Peer, ResponseTimeout, write};
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{
    CancelledParams, ClientCapabilities, Implementation, LogLevel, Meta, ServerCapabilities, key,
};
use linchpin_protocol::version::Feature;
use linchpin_protocol::{Era, Method, Revision};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::active_calls::{ActiveCalls, CallScope};
use super::cache::{ResponseCache, is_cacheable};
use super::handlers::{Handlers, ListChanged};
use super::output_validation::OutputSchemas;
use super::retry;
use super::rounds::result_type;
use super::settings::Settings;
use super::stray_output::StrayOutput;
use crate::lock::lock;
use crate::server::{Progress, spawn};
use crate::transport::PerRequestTransport;

/// Metadata keys that identify the client; callers cannot override them.
const IDENTITY_KEYS: [&str; 4] =
    [key::PROTOCOL_VERSION, key::CLIENT_INFO, key::CLIENT_CAPABILITIES, key::LOG_LEVEL];
/// Outgoing bytes that may be queued before senders must wait.
const HIGH_WATER: usize = 1 << 20;
/// Maximum number of requests of a client that wait for a response.
const MAX_PENDING_REQUESTS: usize = 4_096;

/// Negotiated revision and the server's description of itself.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub(crate) revision: Revision,
    pub(crate) server: Option<Implementation>,
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) instructions: Option<String>,
}

/// Callback for the progress of a client request.
pub(crate) struct ProgressHook<F: ?Sized = dyn Fn(Progress) + Send + Sync> {
    /// Number of the request under which the callback is registered; 0 before it is sent.
    number: AtomicI64,
    pub(crate) callback: F,
}

impl<F> ProgressHook<F> {
    pub(crate) fn new(callback: F) -> Self {
        ProgressHook { number: AtomicI64::new(0), callback }
    }
}

pub(crate) struct ClientCore {
    pub(crate) peer: Peer,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) settings: Settings,
    pub(crate) handlers: Arc<Handlers>,
    pub(crate) negotiated: Arc<OnceLock<Negotiated>>,
    /// Lines on standard output of the server that are not messages.
    pub(crate) stray: StrayOutput,
    pub(crate) runtime: Handle,
    pub(crate) output_schemas: OutputSchemas,
    pub(crate) cache: ResponseCache,
    /// Transport, if it sends each request separately and can lose one without losing the others.
    pub(crate) per_request: OnceLock<Weak<dyn PerRequestTransport>>,
    /// Log level to restore in a new session.
    pub(crate) log_level: Mutex<Option<LogLevel>>,
    /// Subscribed resources to restore in a new session, with their subscription counts.
    pub(crate) subscriptions: Mutex<BTreeMap<String, usize>>,
    /// Progress callbacks, by request number.
    pub(crate) progress_hooks: Mutex<HashMap<i64, Arc<ProgressHook>>>,
    /// Server requests that are being handled, by id, each with the signal that cancels it.
    pub(crate) server_requests: Mutex<HashMap<Id<'static>, Arc<Notify>>>,
    /// Calls in flight that handle server requests or log messages themselves.
    pub(super) active_calls: Mutex<ActiveCalls>,
    /// Waiters for the acknowledgement of a `subscriptions/listen` request, by request number.
    pub(crate) ack_waiters: Mutex<HashMap<i64, Arc<Notify>>>,
    /// Encoded client identity: `_meta` members of every stateless-era request.
    identity_meta: OnceLock<Vec<u8>>,
    /// Callback for list changes, in addition to the handlers.
    pub(crate) on_list_changed: OnceLock<Box<dyn Fn(ListChanged) + Send + Sync>>,
}

impl ClientCore {
    pub(crate) fn new(settings: Settings, handlers: Arc<Handlers>) -> Arc<Self> {
        let outbox = Arc::new(Outbox::without_callback(HIGH_WATER));
        let negotiated: Arc<OnceLock<Negotiated>> = Arc::default();
        let negotiated_cell = negotiated.clone();
        let peer = Peer::with_ids(
            outbox.clone(),
            MAX_PENDING_REQUESTS,
            settings.string_ids,
            move |to, id, reason| {
                // `initialize` must not be cancelled.
                if let Some(Negotiated { revision, .. }) = negotiated_cell.get() {
                    cancel(to, *revision, id, reason);
                }
            },
        );
        let runtime = Handle::current();
        spawn(&runtime, peer.enforce_timeouts());
        Arc::new(ClientCore {
            peer,
            outbox,
            settings,
            handlers,
            negotiated,
            stray: StrayOutput::default(),
            runtime,
            output_schemas: OutputSchemas::default(),
            cache: ResponseCache::default(),
            per_request: OnceLock::new(),
            log_level: Mutex::default(),
            subscriptions: Mutex::default(),
            progress_hooks: Mutex::default(),
            server_requests: Mutex::default(),
            active_calls: Mutex::default(),
            ack_waiters: Mutex::default(),
            identity_meta: OnceLock::new(),
            on_list_changed: OnceLock::new(),
        })
    }

    /// Returns the negotiated revision, or the latest one before the negotiation.
    pub(crate) fn revision(&self) -> Revision {
        self.negotiated.get().map_or(Revision::LATEST, |negotiated| negotiated.revision)
    }

    /// Returns the name of the server in log events: the client's label, or the name that the server reports.
    pub(crate) fn server_label(&self) -> &str {
        let reported = || self.negotiated.get().and_then(|negotiated| negotiated.server.as_ref());
        match &self.settings.label {
            Some(label) => label,
            None => reported().map_or("unknown", |server| &server.name),
        }
    }

    /// Sends a notification to the server. It needs no metadata in the stateless era.
    pub(crate) fn notify(&self, method: &str, params: &dyn Encode) {
        let revision = self.revision();
        self.peer.notify(method, |out| params.encode(&mut Encoder { out, revision }));
    }

    /// Returns the transport if it sends each request separately and can lose one without losing the others.
    pub(crate) fn per_request_transport(&self) -> Option<Arc<dyn PerRequestTransport>> {
        self.per_request.get().and_then(Weak::upgrade)
    }

    /// Sends a request and returns its result as JSON text. `params` must be a JSON object. A lost read-only request
    /// is sent once more if the connection is still open.
    pub(crate) async fn request(
        &self,
        revision: Revision,
        method: &str,
        params: &[u8],
        options: &RequestOptions,
    ) -> Result<String, CallError> {
        match self.request_once(revision, method, params, options).await {
            Err(error) if self.may_retry(method, &error) => {
                tracing::debug!(method, %error, "connection lost before the response; sending the request again");
                Box::pin(self.request_once(revision, method, params, options)).await
            }
            result => result,
        }
    }

    /// Like [`Self::request`], but returns a fresh cached result if there is one.
    pub(crate) async fn request_cached(
        &self,
        revision: Revision,
        method: Method,
        params: &[u8],
        options: &RequestOptions,
    ) -> Result<String, CallError> {
        let plain = options.meta.is_none() && options.capabilities.is_none() && options.scope.is_none();
        if !is_cacheable(method) || !self.settings.cache || !plain || !revision.has(Feature::CacheHints) {
            return self.request(revision, method.name(), params, options).await;
        }
        let miss = match self.cache.find(method, params) {
            Ok(text) if !options.bypass_cache => return Ok(text),
            Ok(_) => self.cache.bypass(method, params),
            Err(miss) => miss,
        };
        let text = Box::pin(self.request(revision, method.name(), params, options)).await?;
        if result_type(&text) == "complete" {
            self.cache.store(miss, &text);
        }
        Ok(text)
    }

    fn may_retry(&self, method: &str, error: &CallError) -> bool {
        retry::may_have_been_processed(error)
            && retry::is_idempotent(method)
            && self.per_request_transport().is_some()
            && !self.outbox.is_closed()
    }

    async fn request_once(
        &self,
        revision: Revision,
        method: &str,
        params: &[u8],
        options: &RequestOptions,
    ) -> Result<String, CallError> {
        let timeouts = ResponseTimeout {
            timeout: options.timeout.unwrap_or(self.settings.timeout),
            extend_to: options.max_timeout.or(self.settings.max_timeout),
        };
        // Do not wait without limit for a server that does not read.
        if self.outbox.is_full() {
            let space = Box::pin(tokio::time::timeout(timeouts.timeout, self.outbox.wait_for_space()));
            space.await.map_err(|_| CallError::TimedOut(timeouts.timeout))?;
        }
        let wants_progress = options.progress.is_some() || timeouts.extend_to.is_some();
        let call = self.peer.request(method, timeouts, |number, out| {
            let token = wants_progress.then_some(number);
            if let Some(hook) = &options.progress {
                hook.number.store(number, Ordering::Relaxed);
                lock(&self.progress_hooks).insert(number, hook.clone());
            }
            if let Some(scope) = &options.scope {
                scope.set_request_number(number);
            }
            self.write_params(revision, params, token, options, out);
        })?;
        // The callback of a call that may become a task stays registered until the task has finished.
        let hook = options.progress.as_ref().filter(|_| !options.may_become_task(revision));
        let _registered = hook.map(|hook| ProgressHookGuard { core: self, hook: hook.clone() });
        // In-memory responses may always be ready immediately: use the task budget, so that other tasks run.
        tokio::task::coop::cooperative(call).await
    }

    /// Appends parameters with the metadata that the revision requires.
    pub(crate) fn write_params(
        &self,
        revision: Revision,
        params: &[u8],
        token: Option<i64>,
        options: &RequestOptions,
        out: &mut Vec<u8>,
    ) {
        let open = params.strip_suffix(b"}").unwrap_or(b"{");
        out.extend_from_slice(open);
        let stateless = revision.era() == Era::Stateless;
        if stateless || token.is_some() || options.meta.is_some() {
            if open.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(b"\"_meta\":{");
            let start = out.len();
            match (&options.capabilities, options.log_level) {
                _ if !stateless => {}
                (None, None) => out.extend_from_slice(self.identity_meta.get_or_init(|| {
                    let (mut meta, level) = (Vec::new(), self.settings.log_level);
                    self.write_identity(revision, &self.handlers.capabilities(), level, &mut meta);
                    meta
                })),
                (capabilities, level) => {
                    let level = level.into_iter().chain(self.settings.log_level).min();
                    match capabilities {
                        Some(capabilities) => self.write_identity(revision, capabilities, level, out),
                        None => self.write_identity(revision, &self.handlers.capabilities(), level, out),
                    }
                }
            }
            if let Some(token) = token {
                write_separator(start, out);
                out.extend_from_slice(b"\"progressToken\":");
                write::integer(token, out);
            }
            let reserved =
                |key: &str| key == key::PROGRESS_TOKEN || stateless && IDENTITY_KEYS.contains(&key);
            for (key, value) in
                options.meta.iter().flat_map(|meta| meta.iter()).filter(|(key, _)| !reserved(key))
            {
                write_separator(start, out);
                write_string(key, out);
                out.push(b':');
                write::value(value, out);
            }
            out.push(b'}');
        }
        out.push(b'}');
    }

    /// Appends the `_meta` members that identify the client.
    fn write_identity(
        &self,
        revision: Revision,
        capabilities: &ClientCapabilities,
        log_level: Option<LogLevel>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        Encoder { out, revision }.object(|fields| {
            fields.field(key::PROTOCOL_VERSION, &revision);
            fields.field(key::CLIENT_INFO, &self.settings.info);
            fields.field(key::CLIENT_CAPABILITIES, capabilities);
            fields.field(key::LOG_LEVEL, &log_level);
        });
        out.remove(start);
        out.pop();
    }

    /// Fails all pending requests and cancels the handlers of server requests after the connection closed.
    pub(crate) fn close(&self, reason: &str) {
        self.peer.close(reason);
        for answering in lock(&self.server_requests).values() {
            answering.notify_one();
        }
    }
}

fn write_separator(start: usize, out: &mut Vec<u8>) {
    if out.len() > start {
        out.push(b',');
    }
}

/// Guard that removes a progress hook when its request or task finishes or is dropped.
pub(super) struct ProgressHookGuard<C: Deref<Target = ClientCore>> {
    core: C,
    hook: Arc<ProgressHook>,
}

impl ProgressHookGuard<Arc<ClientCore>> {
    /// Creates the guard of a call that may become a task, if it has a progress hook.
    pub(super) fn of_task(
        core: &Arc<ClientCore>,
        options: &RequestOptions,
    ) -> Option<ProgressHookGuard<Arc<ClientCore>>> {
        let hook = options.progress.as_ref().filter(|_| options.may_become_task(core.revision()))?;
        Some(ProgressHookGuard { core: core.clone(), hook: hook.clone() })
    }
}

impl<C: Deref<Target = ClientCore>> Drop for ProgressHookGuard<C> {
    fn drop(&mut self) {
        lock(&self.core.progress_hooks).remove(&self.hook.number.load(Ordering::Relaxed));
    }
}

/// Options of one request of the client.
#[derive(Clone, Default)]
pub(crate) struct RequestOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_timeout: Option<Duration>,
    pub(crate) progress: Option<Arc<ProgressHook>>,
    /// Requested TTL of the task in milliseconds, if the call should run as a task.
    pub(crate) task_ttl: Option<u64>,
    pub(crate) meta: Option<Box<Meta>>,
    /// Handlers of this call for server requests and log messages.
    pub(crate) scope: Option<Arc<CallScope>>,
    /// Client capabilities announced with this call instead of the client's.
    pub(crate) capabilities: Option<Arc<ClientCapabilities>>,
    /// Minimum level of log messages announced with this call instead of the client's.
    pub(crate) log_level: Option<LogLevel>,
    /// Whether to send the request even if its response is cached.
    pub(crate) bypass_cache: bool,
}

impl RequestOptions {
    /// Returns whether a request with these options may become a task whose progress is reported under the token of the
    /// request.
    fn may_become_task(&self, revision: Revision) -> bool {
        self.task_ttl.is_some() && revision.has(Feature::CoreTasks)
    }
}

/// Notifies the server that a request is cancelled.
fn cancel(outbox: &Outbox, revision: Revision, id: &Id<'_>, reason: &str) {
    let (request_id, reason) = (Some(id.clone().into_owned()), Some(reason.to_owned()));
    let params = CancelledParams { request_id, reason, meta: None };
    outbox.send(|out| {
        let encode = |out: &mut Vec<u8>| params.encode(&mut Encoder { out, revision });
        write::notification(Method::Cancelled.name(), out, encode);
    });
}

/// Returns the log level to set by request: only in the session era, since stateless requests carry it in `_meta`.
pub(crate) fn session_log_level(revision: Revision, level: Option<LogLevel>) -> Option<LogLevel> {
    level.filter(|_| revision.era() == Era::Session)
}

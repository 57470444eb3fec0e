//! Context of a request: access to the client, the session and shared state for handlers.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use linchpin_jsonrpc::{Id, write};
use linchpin_protocol::encode::{Encode, Encoder, to_value};
use linchpin_protocol::model::{
    ClientCapabilities, Implementation, LogLevel, LogParams, Meta, ProgressParams, RequestMeta, key,
};
use linchpin_protocol::{Era, Method, Revision};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::cancellation::Cancel;
use super::scope::RequestScope;
use crate::lock::lock;
use crate::server::definitions::shared_state::StateMap;
use crate::server::definitions::tool::ToolEntry;
use crate::server::identity::Identity;
use crate::server::input::ask::supports_input_requests;
use crate::server::input::mailbox::InputMailbox;
use crate::server::session::Session;
use crate::server::{Connection, Service};
use crate::{Error, Result};

/// Context of one request, through which a handler reaches the client, its session and shared state. Cheap to clone;
/// take it as the last parameter of a handler.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

/// Name and capabilities of the client that sent a request.
#[derive(Debug, Default)]
pub(crate) struct ClientInfo {
    pub(crate) info: Option<Implementation>,
    pub(crate) capabilities: ClientCapabilities,
}

struct Inner {
    service: Service,
    revision: Revision,
    client: Arc<ClientInfo>,
    current_request: Mutex<CurrentRequest>,
    /// Whether the result may be `input_required` (stateless era).
    supports_input_requests: bool,
    mailbox: InputMailbox,
    /// Id of the task that the call runs as.
    task: OnceLock<Arc<str>>,
    identity: Option<Arc<Identity>>,
    meta_text: Option<Box<str>>,
    meta_map: OnceLock<Meta>,
    /// Name of the called tool, resource or prompt, once resolved.
    target: OnceLock<Arc<str>>,
    /// Tool that is called; a layer may have chosen it.
    tool: OnceLock<Arc<ToolEntry>>,
    /// Shared state of the mounted server that the called definition comes from, once resolved.
    state: OnceLock<Arc<StateMap>>,
    cancel: Arc<Cancel>,
    /// Notified when the handler wants the call to become a task.
    task_wanted: Notify,
    values: Mutex<StateMap>,
    /// Bits of the last progress value that was sent.
    progress: AtomicU64,
}

/// Request that a call currently belongs to. A call that needs input ends this request and resumes with the retry
/// request.
#[derive(Clone)]
pub(crate) struct CurrentRequest {
    /// Connection of the request; `None` while the call waits for the retry request.
    pub(crate) connection: Option<Arc<Connection>>,
    pub(crate) id: Id<'static>,
    pub(crate) meta: Arc<RequestMeta>,
}

fn to_once_lock<T: Clone>(cell: &OnceCell<T>) -> OnceLock<T> {
    cell.get().cloned().map(OnceLock::from).unwrap_or_default()
}

impl Context {
    pub(crate) fn new(scope: &RequestScope<'_>) -> Self {
        Context(Arc::new(Inner {
            service: scope.service.without_parked_guard(),
            revision: scope.revision,
            client: scope.client.clone(),
            current_request: Mutex::new(CurrentRequest {
                connection: Some(scope.connection.clone()),
                id: scope.id.clone().into_owned(),
                meta: Arc::new(scope.meta.cloned().unwrap_or_default()),
            }),
            supports_input_requests: supports_input_requests(scope.method),
            mailbox: InputMailbox::from_log(scope.log.take().unwrap_or_default()),
            task: OnceLock::new(),
            identity: scope.connection.identity().cloned(),
            meta_text: scope.meta_text.map(Into::into),
            meta_map: OnceLock::new(),
            target: to_once_lock(&scope.target),
            tool: to_once_lock(&scope.tool),
            state: to_once_lock(&scope.state),
            cancel: scope.cancel(),
            task_wanted: Notify::new(),
            values: Mutex::default(),
            progress: AtomicU64::new(f64::NEG_INFINITY.to_bits()),
        }))
    }

    pub(crate) fn service(&self) -> &Service {
        &self.0.service
    }

    pub(crate) fn scope<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        route: &'a CurrentRequest,
        method: &'a str,
    ) -> RequestScope<'a> {
        let Inner { revision, client, meta_text, .. } = &*self.0;
        let CurrentRequest { id, meta, .. } = route;
        let scope =
            RequestScope::with(connection, id, method, *revision, client, Some(meta), meta_text.as_deref());
        let _ = scope.cancel.set(self.0.cancel.clone());
        scope
    }

    /// Returns the request that the call serves now; a call that waited for input continues with a later one.
    pub(crate) fn current_request(&self) -> CurrentRequest {
        lock(&self.0.current_request).clone()
    }

    /// Moves the call to another request of the same client, through which it continues.
    pub(crate) fn continue_with(&self, route: CurrentRequest) {
        *lock(&self.0.current_request) = route;
        self.0.progress.store(f64::NEG_INFINITY.to_bits(), Ordering::Relaxed);
    }

    /// Drops the connection while the call is parked: a parked call must not hold its connection.
    pub(crate) fn detach(&self) {
        lock(&self.0.current_request).connection = None;
    }

    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        lock(&self.0.current_request).connection.clone()
    }

    /// Returns the protocol revision of the request.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    pub(crate) fn mailbox(&self) -> &InputMailbox {
        &self.0.mailbox
    }

    pub(crate) fn may_request_input(&self) -> bool {
        self.0.supports_input_requests || self.0.task.get().is_some()
    }

    /// Returns the id of the task that the call runs as, if it does.
    pub(crate) fn task_id(&self) -> Option<&str> {
        self.0.task.get().map(|task| &**task)
    }

    pub(crate) fn set_task(&self, id: &str) {
        let _ = self.0.task.set(id.into());
    }

    /// Makes the call a task now, if it may run as one and the client leaves that to the server: the work will take long.
    pub fn become_task(&self) {
        self.0.task_wanted.notify_one();
    }

    /// Waits until the handler wants the call to become a task.
    pub(crate) async fn task_wanted(&self) {
        self.0.task_wanted.notified().await;
    }

    /// Copies the request-scoped values from another context of the same request.
    pub(crate) fn copy_values(&self, other: &Context) {
        let values = lock(&other.0.values).clone();
        *lock(&self.0.values) = values;
    }

    /// Returns the cancellation state of the call.
    pub(crate) fn cancellation(&self) -> &Arc<Cancel> {
        &self.0.cancel
    }

    /// Returns the principal that the transport has authenticated: the subject of [`Self::identity`], if there is one.
    pub fn principal(&self) -> Option<&str> {
        self.identity().map(Identity::subject).or_else(|| self.0.service.principal())
    }

    /// Returns the identity of the client with its scopes, if it was authenticated by a token. A resumed call retains
    /// the identity that it started with.
    pub fn identity(&self) -> Option<&Identity> {
        self.0.identity.as_deref()
    }

    /// Returns the registered name or URI of the called tool, prompt or resource, once it is resolved.
    pub(crate) fn target(&self) -> Option<&str> {
        self.0.target.get().map(|target| &**target)
    }

    pub(crate) fn set_target(&self, name: &Arc<str>, state: Option<&Arc<StateMap>>) {
        let _ = self.0.target.set(name.clone());
        if let Some(state) = state {
            let _ = self.0.state.set(state.clone());
        }
    }

    /// Returns the called tool, once its name is resolved.
    pub(crate) fn tool(&self) -> Option<&Arc<ToolEntry>> {
        self.0.tool.get()
    }

    pub(crate) fn set_tool(&self, tool: &Arc<ToolEntry>) {
        if self.0.tool.set(tool.clone()).is_ok() {
            self.mailbox().enter_tool();
        }
    }

    /// Returns the name and version that the client reports.
    pub fn client(&self) -> Option<&Implementation> {
        self.0.client.info.as_ref()
    }

    /// Returns the capabilities that the client declares.
    pub fn capabilities(&self) -> &ClientCapabilities {
        &self.0.client.capabilities
    }

    /// Returns whether the client has sent `notifications/initialized`. Always `true` in the stateless era.
    pub fn is_initialized(&self) -> bool {
        match self.0.revision.era() {
            Era::Session => self
                .connection()
                .is_none_or(|connection| connection.session().is_none_or(Session::is_initialized)),
            Era::Stateless => true,
        }
    }

    /// Returns the JSON-RPC id of the request. It changes after each round trip in which the client supplies input.
    pub fn request_id(&self) -> Id<'static> {
        lock(&self.0.current_request).id.clone()
    }

    /// Returns the `_meta` of the request.
    pub fn meta(&self) -> &Meta {
        self.0.meta_map.get_or_init(|| {
            let text = self.0.meta_text.as_deref();
            text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        })
    }

    /// Stores a value for the rest of this request, for example in a layer for the handler behind it.
    pub fn set<T: Send + Sync + 'static>(&self, value: T) {
        lock(&self.0.values).insert(value);
    }

    /// Returns the value of this type: stored for this request with [`Self::set`], added to the server with
    /// [`crate::Server::state`] (a mounted server's own state first), or stored in the session.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let value = lock(&self.0.values).find();
        if value.is_some() {
            return value;
        }
        let mounted = self.0.state.get().and_then(|state| state.find());
        let session = || self.session().ok().and_then(|session| session.get());
        mounted.or_else(|| self.0.service.settings().state.find()).or_else(session)
    }

    /// Returns the session, to store values for this client. Fails in the stateless era.
    pub fn session(&self) -> Result<Session> {
        let connection = self.connection().filter(|_| self.0.revision.era() == Era::Session);
        let session = connection.as_ref().and_then(|connection| connection.session());
        session.cloned().ok_or_else(|| {
            Error::tool(
                "this client has no session: return a handle from one tool and take it as an argument of the next",
            )
        })
    }

    /// Sends a progress notification, if the client requested progress. Values that do not increase are dropped.
    pub fn progress(&self, progress: impl Into<Progress>) {
        let Some(token) = self.current_request().meta.progress_token.clone() else { return };
        let Progress { done, total, message } = progress.into();
        if !done.is_finite() {
            return; // JSON has no such number
        }
        let total = total.filter(|total| total.is_finite());
        let increased = |last: u64| (done > f64::from_bits(last)).then(|| done.to_bits());
        if self.0.progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increased).is_err() {
            return;
        }
        let params = ProgressParams { progress_token: token, progress: done, total, message, meta: None };
        self.send(Method::Progress.name(), &params);
    }

    /// Returns whether the client has requested progress notifications.
    pub fn wants_progress(&self) -> bool {
        self.current_request().meta.progress_token.is_some()
    }

    /// Sends a log message, if the client wants messages of this level.
    pub fn log(&self, level: LogLevel, data: impl Into<Value>) {
        if self.wants_log(level) {
            let logger = Some(self.0.service.settings().info.name.clone());
            self.send(Method::Log.name(), &LogParams { level, logger, data: data.into(), meta: None });
        }
    }

    /// Sends a log message of another server with its logger and metadata, if the client wants messages of this level.
    pub fn forward_log(&self, message: &LogParams) {
        if self.wants_log(message.level) {
            self.send(Method::Log.name(), message);
        }
    }

    fn wants_log(&self, level: LogLevel) -> bool {
        self.log_level().is_some_and(|min_level| level >= min_level)
    }

    /// Returns the minimum level of the log messages that the client wants; `None` if it wants none.
    pub fn log_level(&self) -> Option<LogLevel> {
        match self.0.revision.era() {
            Era::Session => {
                self.connection().and_then(|connection| connection.session().map(Session::log_level))
            }
            Era::Stateless => self.current_request().meta.log_level,
        }
    }

    /// Sends a custom notification to this client.
    pub fn notify(&self, method: &str, params: &Value) {
        self.send(method, params);
    }

    fn send(&self, method: &str, params: &dyn Encode) {
        if !self.0.cancel.has_ended() {
            self.send_after_end(method, params); // after its end no message may be sent for a request
        }
    }

    /// Sends a notification that may also be sent after the end of the request.
    pub(crate) fn send_after_end(&self, method: &str, params: &dyn Encode) {
        let revision = self.0.revision;
        let related = self.task_id().map(|task| with_related_task(task, to_value(params, revision)));
        if related.is_some() && revision.era() == Era::Stateless {
            return; // the request was answered, and stateless tasks send no messages but their status
        }
        let params = related.as_ref().map_or(params, |related| related);
        let Some(connection) = self.connection() else { return };
        connection.notify(|out| {
            write::notification(method, out, |out| params.encode(&mut Encoder { out, revision }));
        });
    }

    /// Returns the HTTP request, if there is one: its headers, and extensions set by an outer HTTP server.
    #[cfg(feature = "http-server")]
    pub fn http(&self) -> Option<Arc<::http::request::Parts>> {
        self.connection().and_then(|connection| connection.http().cloned())
    }

    /// Closes the HTTP stream of this request while the handler continues: the client reopens it after `delay`, and no
    /// connection is held in between. Has no effect if the client could not resume the stream.
    #[cfg(feature = "http-server")]
    pub fn close_stream(&self, delay: std::time::Duration) {
        self.connection().into_iter().for_each(|connection| connection.close_stream(delay));
    }

    /// Returns whether the client is connected, as far as the server can tell. A client with a session that has lost its
    /// connection may resume the stream of the request later.
    pub fn is_attached(&self) -> bool {
        self.connection().is_some_and(|connection| connection.is_attached())
    }

    /// Returns whether the client has cancelled the request. After the first call of this method or of
    /// [`Self::cancelled`], the handler must end by itself.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.is_cancelled()
    }

    /// Waits until the client cancels the request. A handler that calls neither this nor [`Self::is_cancelled`] is
    /// dropped at its next await point.
    pub async fn cancelled(&self) {
        self.0.cancel.observe().await;
    }
}

/// Adds a reference to the task to the parameters of a message.
pub(in crate::server) fn with_related_task(task: &str, mut params: Value) -> Value {
    if params.is_object() || params.is_null() {
        params["_meta"][key::RELATED_TASK] = json!({ "taskId": task });
    }
    params
}

/// Progress of a request: `0.5`, `(3.0, 10.0)` or `(3.0, 10.0, "three of ten")`.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    done: f64,
    total: Option<f64>,
    message: Option<String>,
}

impl Progress {
    /// Creates a progress from its parts.
    pub fn new(done: f64, total: Option<f64>, message: Option<String>) -> Self {
        Progress { done, total, message }
    }

    /// Returns the amount of work done, as a progress notification reports it.
    pub fn done(&self) -> f64 {
        self.done
    }

    /// Returns the total amount of work, as a progress notification reports it, if known.
    pub fn total(&self) -> Option<f64> {
        self.total
    }

    /// Returns the description of the current work, as a progress notification reports it.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}

impl From<&Progress> for Progress {
    fn from(progress: &Progress) -> Self {
        progress.clone()
    }
}

impl From<f64> for Progress {
    fn from(done: f64) -> Self {
        Progress { done, total: None, message: None }
    }
}

impl From<(f64, f64)> for Progress {
    fn from((done, total): (f64, f64)) -> Self {
        Progress { done, total: Some(total), message: None }
    }
}

impl<S: Into<String>> From<(f64, f64, S)> for Progress {
    fn from((done, total, message): (f64, f64, S)) -> Self {
        Progress { done, total: Some(total), message: Some(message.into()) }
    }
}

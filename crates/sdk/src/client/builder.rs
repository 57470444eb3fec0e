//! Client builder: transport, settings and handlers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::model::{
    ClientCapabilities, CreateMessageParams, CreateMessageResult, ElicitParams, ElicitResult, EmptyParams,
    Implementation, LogLevel, LogParams, Root,
};
use linchpin_protocol::{Era, Method, Revision};
use serde_json::Value;

use super::Client;
use super::core::ClientCore;
use super::error::ClientError;
use super::handlers::{Handlers, ListChanged, RequestFunction, all_capabilities};
use super::inbox::Inbox;
use super::negotiation::{EraHint, negotiate};
use super::retry::NOT_CONNECTED;
use super::revision_cache::RevisionCache;
use super::settings::Settings;
use crate::Result;
use crate::server_request::{ClientResult, ServerRequest};
use crate::transport::{Transport, Wire};

/// Builder of a [`Client`]; [`ClientBuilder::connect`] connects it. Options of a single transport are methods of
/// `ClientBuilder<Http>` or of [`Command`](super::Command).
#[must_use = "a client does nothing until it is connected"]
pub struct ClientBuilder<T = Box<dyn Transport>> {
    pub(super) transport: T,
    settings: Settings,
    handlers: Handlers,
    revision_cache: RevisionCache,
}

impl<T: Transport> ClientBuilder<T> {
    pub(super) fn new(transport: T) -> Self {
        let handlers = Handlers { tasks: true, ..Handlers::default() };
        ClientBuilder {
            transport,
            settings: Settings::default(),
            handlers,
            revision_cache: RevisionCache::shared(),
        }
    }

    /// Sets the name and version that the client reports.
    pub fn info(mut self, info: Implementation) -> Self {
        self.settings.info = info;
        self
    }

    /// Sets the timeout of all requests to the server. Default: 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Restarts the request timeout on each progress notification, up to `max` in total.
    pub fn extend_on_progress(mut self, max: Duration) -> Self {
        self.settings.max_timeout = Some(max);
        self
    }

    /// Sets the timeout for starting the server and negotiating a revision. Default: 60 s.
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.settings.open_timeout = timeout;
        self
    }

    /// Sets how long to wait for a stateless-era response before a session is opened as well. Default: 5 s.
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.settings.probe_timeout = timeout;
        self
    }

    /// Sets the maximum size of a received message in bytes. Default: 8 MiB.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.settings.max_message_bytes = bytes;
        self
    }

    /// Sets the maximum number of pages that are read per list. Default: 1,000.
    pub fn max_pages(mut self, pages: usize) -> Self {
        self.settings.max_pages = pages;
        self
    }

    /// Sets the maximum number of round trips for input requests per call. Default: 32.
    pub fn max_rounds(mut self, rounds: usize) -> Self {
        self.settings.max_rounds = rounds;
        self
    }

    /// Restricts the negotiation to these revisions.
    pub fn revisions(mut self, revisions: impl IntoIterator<Item = Revision>) -> Self {
        self.settings.revisions = revisions.into_iter().collect();
        self
    }

    /// Erases the type of the transport, so that builders of different transports have the same type.
    pub fn boxed(self) -> ClientBuilder {
        let ClientBuilder { transport, settings, handlers, revision_cache } = self;
        ClientBuilder { transport: Box::new(transport), settings, handlers, revision_cache }
    }

    /// Disables the response cache. By default, lists and read resources are cached for as long as the server
    /// declares them fresh; [`Call::fresh`](super::Call::fresh) and [`Pages::fresh`](super::Pages::fresh) bypass the
    /// cache once.
    pub fn without_cache(mut self) -> Self {
        self.settings.cache = false;
        self
    }

    /// Uses strings instead of numbers as JSON-RPC request ids.
    pub fn string_ids(mut self) -> Self {
        self.settings.string_ids = true;
        self
    }

    /// Sets the name of the server in log events. Default: the name that the server reports.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = Some(label.into());
        self
    }

    /// Sets the cache of the last negotiated revision of each server, which can save a probe at the next connection.
    /// Default: one cache shared by all clients of the process.
    pub fn revision_cache(mut self, revision_cache: RevisionCache) -> Self {
        self.revision_cache = revision_cache;
        self
    }

    /// Sets the handler of form elicitations: `|ask: ElicitParams| async move { Ok(ElicitResult::accept(…)) }`.
    pub fn on_elicit<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(ElicitParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult>> + Send + 'static,
    {
        self.handlers.elicit = Some(Box::new(move |params| Box::pin(handler(params))));
        self
    }

    /// Sets the handler of URL elicitations. It must show the full URL and open it only with the user's consent.
    pub fn on_elicit_url<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(ElicitParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult>> + Send + 'static,
    {
        self.handlers.elicit_url = Some(Box::new(move |params| Box::pin(handler(params))));
        self
    }

    /// Sets the handler of sampling requests.
    pub fn on_sample<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(CreateMessageParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult>> + Send + 'static,
    {
        self.handlers.sample = Some(Box::new(move |params| Box::pin(handler(params))));
        self
    }

    /// Like [`Self::on_sample`], for a model that supports the tools of a request.
    pub fn on_sample_with_tools<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(CreateMessageParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult>> + Send + 'static,
    {
        self.handlers.sample_tools = true;
        self.on_sample(handler)
    }

    /// Declares the client's roots; [`Client::set_roots`] replaces them.
    pub fn roots(self, roots: impl IntoIterator<Item = Root>) -> Self {
        *crate::lock::lock(&self.handlers.roots) = Some(roots.into_iter().collect());
        self
    }

    /// Sets the minimum log level and the callback for the server's log messages. Like all notification callbacks,
    /// it runs on the thread that reads messages and must not block.
    pub fn on_log(
        mut self,
        min_level: LogLevel,
        callback: impl Fn(LogParams) + Send + Sync + 'static,
    ) -> Self {
        self.settings.log_level = Some(min_level);
        self.handlers.log = Some(Box::new(callback));
        self
    }

    /// Sets the callback for changed lists of the server.
    pub fn on_list_changed(mut self, callback: impl Fn(ListChanged) + Send + Sync + 'static) -> Self {
        self.handlers.list_changed = Some(Box::new(callback));
        self
    }

    /// Sets the callback for updates of resources subscribed to with [`Client::subscribe`].
    pub fn on_resource_updated(mut self, callback: impl Fn(String) + Send + Sync + 'static) -> Self {
        self.handlers.resource_updated = Some(Box::new(callback));
        self
    }

    /// Sets the callback for all notifications; it receives method and parameters.
    pub fn on_notification(mut self, callback: impl Fn(&str, Value) + Send + Sync + 'static) -> Self {
        self.handlers.notification = Some(Box::new(callback));
        self
    }

    /// Declares all client capabilities, for server requests that are handled by calls: with
    /// [`Call::on_server_request`](super::Call::on_server_request), or behind [`crate::Server::proxy`].
    pub fn forward_server_requests(mut self) -> Self {
        self.handlers.declared = all_capabilities();
        self
    }

    /// Declares capabilities and sets the handler of all server requests that have no other handler. The handler of a
    /// call, [`Call::on_server_request`](super::Call::on_server_request), takes precedence.
    pub fn on_server_request<F, Fut>(mut self, capabilities: ClientCapabilities, handler: F) -> Self
    where
        F: Fn(ServerRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ClientResult>> + Send + 'static,
    {
        self.handlers.declared = capabilities;
        self.handlers.fallback = Some(Box::new(RequestFunction::new(move |request, _| handler(request))));
        self
    }

    /// Does not declare the tasks capability. By default, servers may run slow calls as tasks.
    pub fn without_tasks(mut self) -> Self {
        self.handlers.tasks = false;
        self
    }

    /// Opens the transport and negotiates a revision.
    pub async fn connect(self) -> Result<Client, ClientError> {
        let ClientBuilder { transport, settings, handlers, revision_cache } = self;
        let handlers = Arc::new(handlers);
        let name = transport.name();
        let supported = settings.revisions.clone();
        let supports = |era: Era| supported.iter().any(|revision| revision.era() == era);
        let cached_era = revision_cache.get(&name).map(Revision::era).filter(|era| supports(*era));
        let mut hint = cached_era.map_or(EraHint::Unknown, EraHint::Known);
        loop {
            let core = ClientCore::new(settings.clone(), handlers.clone());
            let wire =
                Wire::new(Arc::new(Inbox(core.clone())), core.outbox.clone(), settings.max_message_bytes);
            let handle = match tokio::time::timeout(settings.open_timeout, transport.open(wire)).await {
                Ok(handle) => handle,
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the connection to `{name}` was not opened in time"),
                )),
            };
            let handle = handle.map_err(|source| ClientError::Open { server: name.clone(), source })?;
            match Box::pin(negotiate(&core, hint)).await {
                Ok(negotiated) => {
                    let era = negotiated.revision.era();
                    // A client restricted to one era does not learn which era the server would choose.
                    if supports(Era::Session) && supports(Era::Stateless) {
                        revision_cache.set(&name, negotiated.revision);
                    }
                    let _ = core.negotiated.set(negotiated);
                    // The revision is set before this notification: the server may send requests as soon as it reads
                    // it, and the responses use that revision.
                    if era == Era::Session {
                        core.notify(Method::Initialized.name(), &EmptyParams::default());
                        // If the notification does not get through, the next request fails.
                        let _ = tokio::time::timeout(settings.open_timeout, handle.flush()).await;
                    }
                    return Client::new(core, handle).after_open().await;
                }
                Err(error) => {
                    handle.close().await;
                    if is_auth_rejection(&error) {
                        return Err(error); // rejected independently of the era
                    }
                    // A session-era server may exit on an unknown request, and a remembered server may have been
                    // replaced: try the other era once.
                    hint = match (hint, &error) {
                        (EraHint::Unknown, ClientError::Call(CallError::Closed(_) | CallError::Lost(_)))
                            if supports(Era::Session) =>
                        {
                            EraHint::Known(Era::Session)
                        }
                        (EraHint::Known(_), _) if revision_cache.get(&name).is_some() => EraHint::Unknown,
                        _ => return Err(into_open_error(&name, error)),
                    };
                    revision_cache.remove(&name);
                }
            }
        }
    }
}

/// Converts a failure to connect into [`ClientError::Open`].
fn into_open_error(server: &str, error: ClientError) -> ClientError {
    match error {
        ClientError::Call(CallError::Transport { code: NOT_CONNECTED, message, .. }) => {
            ClientError::Open { server: server.to_owned(), source: io::Error::other(message.to_string()) }
        }
        error => error,
    }
}

/// Returns whether the server, or a proxy in front of it, rejected the client.
fn is_auth_rejection(error: &ClientError) -> bool {
    matches!(error, ClientError::Call(CallError::Transport { status: Some(401 | 403 | 407), .. }))
}

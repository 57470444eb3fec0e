//! Built MCP server, which is shared by all connections and cheap to clone.

use std::sync::Arc;
use std::time::Instant;

use linchpin_jsonrpc::{Outbox, Params};
use linchpin_protocol::model::{
    DiscoverResult, InitializeParams, InitializeResult, ListCapability, ResourcesCapability,
    ServerCapabilities, SubscriptionFilter,
};
use linchpin_protocol::wire::{self, error_object, session_era, stateless_era};
use linchpin_protocol::{Era, Error as ProtocolError, Revision};
use serde_json::Map;

use super::catalog::{Catalog, LiveCatalog};
use super::handle::ServerHandle;
use super::identity::Identity;
use super::input::rounds::ParkedCalls;
use super::request::context::ClientInfo;
use super::request::observe::{ErrorReport, RequestEvent, has_subscriber, print_to_stderr};
use super::request::work::{RequestOutcome, catch_panic};
use super::session::Session;
use super::settings::ServerSettings;
use super::skills;
use super::tasks::{self, TaskRegistry};
use super::{Connection, ReplyChannel};
use crate::client::{Client as InMemoryClient, ClientBuilder};
use crate::transport::memory::Memory;
use crate::{Error, Result, transport};

/// Built MCP server that can serve any number of clients.
#[derive(Clone)]
pub struct Service {
    inner: Arc<ServiceInner>,
    /// Principal of the clients of this service, if it is known.
    principal: Option<Arc<str>>,
    /// Identity of the clients, if it is the same for all requests.
    client_identity: Option<Arc<Identity>>,
    /// Whether calls are parked while they wait for input.
    parking_enabled: bool,
    /// Guard that drops the parked calls when the last clone of the service is dropped. Calls themselves hold none:
    /// otherwise the server would never be dropped.
    _parked_guard: Option<Arc<ParkedCallsGuard>>,
}

/// Guard that drops the parked calls of a server when it is dropped.
struct ParkedCallsGuard(Arc<ParkedCalls>);

impl Drop for ParkedCallsGuard {
    fn drop(&mut self) {
        self.0.clear();
    }
}

struct ServiceInner {
    settings: ServerSettings,
    catalog: Arc<LiveCatalog>,
    /// Encoded server identity that stateless results carry.
    identity: Vec<u8>,
    /// Whether tools, resources or prompts may be added to lists that are empty now.
    may_change: bool,
    parked_calls: Arc<ParkedCalls>,
}

impl Service {
    pub(crate) fn new(settings: ServerSettings, catalog: Arc<LiveCatalog>, changes: bool) -> Self {
        let identity = stateless_era::identity(&settings.info);
        let parked_calls: Arc<ParkedCalls> = Arc::default();
        let guard = Some(Arc::new(ParkedCallsGuard(Arc::clone(&parked_calls))));
        let inner = Arc::new(ServiceInner { settings, catalog, identity, may_change: changes, parked_calls });
        Service { inner, principal: None, client_identity: None, parking_enabled: true, _parked_guard: guard }
    }

    /// Handles one message and returns the response, if the message expects one. For embedding in any web framework. A
    /// request that names no revision is served with the newest session-era revision, but without a session.
    pub async fn handle_json(&self, message: &[u8]) -> Option<Vec<u8>> {
        let outbox = Arc::new(Outbox::new(usize::MAX, || ()));
        let connection = Connection::new(self.clone(), outbox.clone(), ReplyChannel::OneShot);
        if message.len() > self.inner.settings.max_message {
            connection.reject_oversized(self.inner.settings.max_message);
        } else if let Some(rest) = connection.receive(message) {
            rest.await;
        }
        let mut output = Vec::new();
        outbox.take(&mut output);
        output.pop().map(|_newline| output)
    }

    /// Serves an MCP client over standard input and output until the input ends.
    pub async fn run(self) -> Result<()> {
        transport::stdio::serve(self).await
    }

    /// Serves an MCP client over a pair of blocking byte streams, such as a socket and its clone, one message per line,
    /// until the input ends and every request has its response.
    pub async fn run_on(
        self,
        input: impl std::io::Read + Send + 'static,
        output: impl std::io::Write + Send + 'static,
    ) -> Result<()> {
        transport::stdio::serve_on(self, input, output).await
    }

    /// Returns a client that is connected to this server in memory.
    pub async fn connect_in_memory(&self) -> Result<InMemoryClient> {
        Ok(self.client().connect().await?)
    }

    /// Like [`Self::connect_in_memory`], but returns a builder for a client with its own handlers and settings.
    pub fn client(&self) -> ClientBuilder {
        InMemoryClient::over(Memory(self.clone()))
    }

    /// Returns a handle that changes the server while it runs.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle::new(self.inner.catalog.clone())
    }

    /// Returns a handle to the same server for a client authenticated as `principal`. Request state that one principal
    /// received is rejected when another principal sends it.
    #[must_use]
    pub fn for_principal(&self, principal: impl Into<Arc<str>>) -> Service {
        Service { principal: Some(principal.into()), ..self.clone() }
    }

    /// Returns a handle to the same server for a client with this identity, whose scopes limit what it may do.
    #[must_use]
    pub fn for_identity(&self, identity: Identity) -> Service {
        let principal = Some(identity.principal().into());
        Service { principal, client_identity: Some(Arc::new(identity)), ..self.clone() }
    }

    /// Returns the same server without call parking: a call that waits for input is replayed from its start, as on
    /// another instance. For tests.
    #[must_use]
    pub fn without_parking(&self) -> Service {
        Service { parking_enabled: false, ..self.clone() }
    }

    /// Returns a handle to the same server that does not hold the guard of parked calls, for use inside a call.
    pub(crate) fn without_parked_guard(&self) -> Service {
        Service { _parked_guard: None, ..self.clone() }
    }

    pub(crate) fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// Returns the identity that all clients of this service have, if it was set with `for_identity`.
    pub(crate) fn client_identity(&self) -> Option<&Arc<Identity>> {
        self.client_identity.as_ref()
    }

    pub(crate) fn tasks(&self) -> &TaskRegistry {
        &self.inner.settings.tasks
    }

    pub(crate) fn parked_calls(&self) -> &Arc<ParkedCalls> {
        &self.inner.parked_calls
    }

    pub(crate) fn max_parked(&self) -> usize {
        if self.parking_enabled { self.inner.settings.max_parked } else { 0 }
    }

    pub(crate) fn settings(&self) -> &ServerSettings {
        &self.inner.settings
    }

    pub(crate) fn live_catalog(&self) -> &Arc<LiveCatalog> {
        &self.inner.catalog
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog.snapshot()
    }

    pub(crate) fn identity(&self) -> &[u8] {
        &self.inner.identity
    }

    /// Returns the capabilities that follow from the registered definitions.
    fn capabilities(&self) -> ServerCapabilities {
        let catalog = self.catalog();
        let changes = self.inner.may_change;
        let list = |empty: bool| (!empty || changes).then_some(ListCapability { list_changed: Some(true) });
        let any_resources = !catalog.resources.is_empty()
            || !catalog.templates.is_empty()
            || !catalog.skills.is_empty()
            || self.inner.settings.fallback_reader.is_some()
            || changes;
        let forwards = self.inner.catalog.forward().is_some();
        let completes = catalog.prompts.iter().any(|prompt| !prompt.completers.is_empty())
            || catalog.templates.iter().any(|template| !template.completers.is_empty());
        ServerCapabilities {
            tools: list(catalog.tools.is_empty()),
            resources: any_resources
                .then_some(ResourcesCapability { subscribe: Some(true), list_changed: Some(true) }),
            prompts: list(catalog.prompts.is_empty()),
            completions: (completes || forwards).then(Map::new),
            logging: Some(Map::new()),
            tasks: tasks::capabilities(&catalog),
            extensions: skills::extensions(
                &catalog,
                tasks::extensions(
                    &catalog,
                    self.inner.settings.extensions.as_ref(),
                    catalog.extensions.as_ref(),
                ),
            ),
            experimental: self.inner.settings.experimental.clone(),
        }
    }

    /// Returns the instructions for the model.
    fn instructions(&self) -> Option<String> {
        self.catalog().instructions.clone().or_else(|| self.inner.settings.instructions.clone())
    }

    pub(crate) fn initialize(
        &self,
        params: &Params<'_>,
        outbox: &Arc<Outbox>,
    ) -> Result<(Session, InitializeResult), ProtocolError> {
        let params: InitializeParams = wire::decode(params.text().unwrap_or("{}"))
            .map_err(|invalid| ProtocolError::InvalidParams { path: invalid.path, reason: invalid.reason })?;
        let supported = &self.inner.settings.revisions;
        let Some(revision) = session_era::negotiate(&params.protocol_version, supported) else {
            return Err(ProtocolError::UnsupportedVersion {
                requested: params.protocol_version,
                supported: supported.clone(),
            });
        };
        let client = ClientInfo { info: Some(params.client_info), capabilities: params.capabilities };
        let result = InitializeResult {
            protocol_version: revision.as_str().to_owned(),
            capabilities: self.capabilities(),
            server_info: self.inner.settings.info.clone(),
            instructions: self.instructions(),
            meta: None,
        };
        Ok((Session::new(revision, client, outbox.clone()), result))
    }

    pub(crate) fn discover(&self) -> DiscoverResult {
        let settings = &self.inner.settings;
        let stateless = settings.revisions.iter().filter(|revision| revision.era() == Era::Stateless);
        DiscoverResult {
            supported_versions: stateless.map(|revision| revision.as_str().to_owned()).collect(),
            capabilities: self.capabilities(),
            instructions: self.instructions(),
            ttl_ms: Some(settings.cache.ttl_ms),
            cache_scope: Some(settings.cache.scope),
            meta: None,
        }
    }

    /// Returns the part of a subscription filter that this server accepts.
    pub(crate) fn accepted_subscriptions(
        &self,
        requested: SubscriptionFilter,
        can_watch: impl Fn(&str) -> bool,
        sees_task: impl Fn(&str) -> bool,
    ) -> SubscriptionFilter {
        let capabilities = self.capabilities();
        let accept = |requested: Option<bool>, is_supported: bool| {
            (requested == Some(true) && is_supported).then_some(true)
        };
        let resources = capabilities.resources.is_some();
        let readable = |uris: Vec<String>| uris.into_iter().filter(|uri| can_watch(uri)).collect();
        SubscriptionFilter {
            tools_list_changed: accept(requested.tools_list_changed, capabilities.tools.is_some()),
            prompts_list_changed: accept(requested.prompts_list_changed, capabilities.prompts.is_some()),
            resources_list_changed: accept(requested.resources_list_changed, resources),
            resource_subscriptions: requested.resource_subscriptions.filter(|_| resources).map(readable),
            task_ids: requested.task_ids.map(|ids| ids.into_iter().filter(|id| sees_task(id)).collect()),
        }
    }

    /// Reports method, duration and outcome of a finished request to the registered hooks.
    pub(crate) fn observe(
        &self,
        method: &str,
        target: Option<&str>,
        started: Option<Instant>,
        revision: Revision,
        outcome: &RequestOutcome,
    ) {
        if let Some(error) = &outcome.internal_error {
            self.report(error, method, target);
        }
        let settings = &self.inner.settings;
        if let (Some(instrument), Some(started)) = (&settings.instrument, started) {
            let event = RequestEvent {
                method,
                target,
                error: outcome.result.as_ref().err().map(|error| error_object(error, revision).code),
                tool_error: outcome.tool_error,
                duration: started.elapsed(),
                state: &settings.state,
            };
            call_hook("instrument", || instrument(&event));
        }
    }

    /// Reports an error whose details clients do not see to the error hook or, without one, to the log.
    pub(crate) fn report(&self, error: &Error, method: &str, target: Option<&str>) {
        let settings = &self.inner.settings;
        if let Some(on_error) = &settings.on_error {
            let report = ErrorReport { error, method, target, state: &settings.state };
            call_hook("on_error", || on_error(&report));
            return;
        }
        tracing::error!(method, target, error = ?error, "handler failed");
        if !has_subscriber() {
            let target = target.map(|target| format!(" `{target}`")).unwrap_or_default();
            print_to_stderr(format_args!("{}: {method}{target} failed: {error:?}", settings.info.name));
        }
    }
}

/// Calls a hook and catches its panic: a hook must not end the request that it observes.
fn call_hook(hook: &str, call: impl FnOnce()) {
    if let Err(panicked) = catch_panic(call) {
        tracing::error!(hook, error = ?panicked, "hook panicked");
    }
}

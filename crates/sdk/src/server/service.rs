//! A finished server: shared, cheap to clone, and the same for every connection.

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

use super::Connection;
use super::catalog::{Catalog, Live};
use super::context::Client;
use super::handle::Handle;
use super::report::{Event, Report};
use super::request::{Outcome, caught};
use super::session::Session;
use super::settings::Settings;
use crate::client::Client as InMemoryClient;
use crate::{Error, Result, transport};

/// A server that is ready to serve any number of clients.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    settings: Settings,
    live: Arc<Live>,
    /// The server's identity, as stateless results carry it.
    identity: Vec<u8>,
    /// Whether things may be added later to lists that are empty now.
    changes: bool,
}

impl Service {
    pub(crate) fn new(settings: Settings, live: Arc<Live>, changes: bool) -> Self {
        let identity = stateless_era::identity(&settings.info);
        Service(Arc::new(Inner { settings, live, identity, changes }))
    }

    /// Serves one message and gives its answer, if it wants one: for embedding in any web framework. A request
    /// that says nothing of its revision is served as the newest one with sessions, without a session.
    pub async fn handle_json(&self, message: &[u8]) -> Option<Vec<u8>> {
        let outbox = Arc::new(Outbox::new(usize::MAX, || ()));
        let connection = Connection::new(self.clone(), outbox.clone(), true);
        if message.len() > self.0.settings.max_message {
            connection.too_long(self.0.settings.max_message);
        } else if let Some(rest) = connection.receive(message) {
            rest.await;
        }
        let mut answer = Vec::new();
        outbox.take(&mut answer);
        answer.pop().map(|_newline| answer)
    }

    /// Serves standard input and output until the input ends.
    pub async fn run(self) -> Result<()> {
        transport::stdio::serve(self).await
    }

    /// Serves any pair of blocking byte streams, such as a socket and its copy, one message per line, until the
    /// input ends and every request is answered.
    pub async fn run_on(
        self,
        input: impl std::io::Read + Send + 'static,
        output: impl std::io::Write + Send + 'static,
    ) -> Result<()> {
        transport::stdio::serve_on(self, input, output).await
    }

    /// A client that is connected to this server in memory.
    pub async fn connect_in_memory(&self) -> Result<InMemoryClient> {
        Ok(InMemoryClient::in_memory(self).await?)
    }

    /// For changes while the server runs.
    pub fn handle(&self) -> Handle {
        Handle::new(self.0.live.clone())
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.0.live
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.0.live.snapshot()
    }

    pub(crate) fn identity(&self) -> &[u8] {
        &self.0.identity
    }

    /// What this server can do follows from what is registered.
    fn capabilities(&self) -> ServerCapabilities {
        let catalog = self.catalog();
        let changes = self.0.changes;
        let list = |empty: bool| (!empty || changes).then_some(ListCapability { list_changed: Some(true) });
        let any_resources = !catalog.resources.is_empty()
            || !catalog.templates.is_empty()
            || self.0.settings.catch_all.is_some()
            || changes;
        let completes = catalog.prompts.iter().any(|prompt| !prompt.completers.is_empty())
            || catalog.templates.iter().any(|template| !template.completers.is_empty());
        ServerCapabilities {
            tools: list(catalog.tools.is_empty()),
            resources: any_resources
                .then_some(ResourcesCapability { subscribe: Some(true), list_changed: Some(true) }),
            prompts: list(catalog.prompts.is_empty()),
            completions: completes.then(Map::new),
            logging: Some(Map::new()),
            tasks: None,
            extensions: self.0.settings.extensions.clone(),
            experimental: self.0.settings.experimental.clone(),
        }
    }

    pub(crate) fn initialize(
        &self,
        params: &Params<'_>,
        outbox: &Arc<Outbox>,
    ) -> Result<(Session, InitializeResult), ProtocolError> {
        let params: InitializeParams = wire::decode(params.text().unwrap_or("{}"))
            .map_err(|invalid| ProtocolError::InvalidParams { path: invalid.path, reason: invalid.reason })?;
        let spoken = &self.0.settings.revisions;
        let Some(revision) = session_era::negotiate(&params.protocol_version, spoken) else {
            return Err(ProtocolError::UnsupportedVersion {
                requested: params.protocol_version,
                supported: spoken.clone(),
            });
        };
        let client = Client { info: Some(params.client_info), capabilities: params.capabilities };
        let result = InitializeResult {
            protocol_version: revision.as_str().to_owned(),
            capabilities: self.capabilities(),
            server_info: self.0.settings.info.clone(),
            instructions: self.0.settings.instructions.clone(),
            meta: None,
        };
        Ok((Session::new(revision, client, outbox.clone()), result))
    }

    pub(crate) fn discover(&self) -> DiscoverResult {
        let settings = &self.0.settings;
        let stateless = settings.revisions.iter().filter(|revision| revision.era() == Era::Stateless);
        DiscoverResult {
            supported_versions: stateless.map(|revision| revision.as_str().to_owned()).collect(),
            capabilities: self.capabilities(),
            instructions: settings.instructions.clone(),
            ttl_ms: Some(settings.cache.ttl_ms),
            cache_scope: Some(settings.cache.scope),
            meta: None,
        }
    }

    /// The part of a subscriber's wish that this server can fulfil.
    pub(crate) fn honoured(
        &self,
        wish: SubscriptionFilter,
        can_watch: impl Fn(&str) -> bool,
    ) -> SubscriptionFilter {
        let capabilities = self.capabilities();
        let wanted = |wish: Option<bool>, can: bool| (wish == Some(true) && can).then_some(true);
        let resources = capabilities.resources.is_some();
        let readable = |uris: Vec<String>| uris.into_iter().filter(|uri| can_watch(uri)).collect();
        SubscriptionFilter {
            tools_list_changed: wanted(wish.tools_list_changed, capabilities.tools.is_some()),
            prompts_list_changed: wanted(wish.prompts_list_changed, capabilities.prompts.is_some()),
            resources_list_changed: wanted(wish.resources_list_changed, resources),
            resource_subscriptions: wish.resource_subscriptions.filter(|_| resources).map(readable),
            task_ids: None,
        }
    }

    /// Tells those who watch what came of a request.
    pub(crate) fn observe(
        &self,
        method: &str,
        target: Option<&str>,
        begun: Option<Instant>,
        revision: Revision,
        outcome: &Outcome,
    ) {
        if let Some(error) = &outcome.hidden {
            self.report(error, method, target);
        }
        let settings = &self.0.settings;
        if let (Some(instrument), Some(begun)) = (&settings.instrument, begun) {
            let event = Event {
                method,
                target,
                error: outcome.answer.as_ref().err().map(|error| error_object(error, revision).code),
                tool_error: outcome.tool_error,
                duration: begun.elapsed(),
                state: &settings.state,
            };
            call_hook("instrument", || instrument(&event));
        }
    }

    /// Tells the author of an error that no client sees.
    pub(crate) fn report(&self, error: &Error, method: &str, target: Option<&str>) {
        let settings = &self.0.settings;
        if let Some(on_error) = &settings.on_error {
            let report = Report { error, method, target, state: &settings.state };
            call_hook("on_error", || on_error(&report));
        } else {
            tracing::error!(method, target, error = ?error, "a handler failed");
        }
    }
}

/// Whoever watches must not end what is watched.
fn call_hook(hook: &str, call: impl FnOnce()) {
    if let Err(panicked) = caught(call) {
        tracing::error!(hook, error = ?panicked, "a hook panicked");
    }
}

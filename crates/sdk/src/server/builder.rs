//! Builder of an MCP server: definitions, settings, hooks and mounted servers.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use linchpin_protocol::model::{CacheHints, Icon, Implementation, Meta};
use linchpin_protocol::{Method, Revision};
use serde::de::DeserializeOwned;

use super::catalog::{Addable, LiveCatalog};
use super::clock::Clock;
use super::definitions::args::Args;
use super::definitions::custom_method::{IntoJson, TypedCustomHandler};
use super::definitions::definition_ref::DefinitionRef;
use super::definitions::handler::Handler;
use super::definitions::output::{IntoPrompt, IntoResource, IntoToolOutput};
use super::definitions::prompt::Prompt;
use super::definitions::resource::{FallbackHandler, Resource, ResourceArgs, ResourceTemplate};
use super::definitions::tool::Tool;
use super::forward::Forward;
use super::handle::ServerHandle;
#[cfg(feature = "rounds")]
use super::input::rounds::StateKeys;
use super::proxy::RemoteProxy;
use super::request::context::Context;
use super::request::layer::{Next, Request, Response};
use super::request::observe::{ErrorReport, RequestEvent};
use super::service::Service;
use super::settings::ServerSettings;
use super::tasks::TaskStore;
use crate::client::Client;
use crate::{Error, Result};

/// Builder of an MCP server. The first error in a definition is returned by [`Server::build`], [`Server::run`] or
/// [`Server::connect_in_memory`].
#[must_use = "a server does nothing until it is built and run"]
pub struct Server {
    settings: ServerSettings,
    catalog: Arc<LiveCatalog>,
    error: Option<Error>,
    may_change: bool,
}

impl Server {
    /// Creates a server with a name and a version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        let settings = ServerSettings::new(Implementation::new(name, version));
        Server { settings, catalog: Arc::default(), error: None, may_change: false }
    }

    /// Adds a tool: `|args| async { … }`, or `|args, cx: Context| async { … }`.
    pub fn tool<Form, H>(self, name: impl Into<String>, description: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: Args,
        H::Output: IntoToolOutput,
        Form: 'static,
    {
        self.add(Tool::new(name).description(description).handler(handler))
    }

    /// Adds a resource: `|| async { … }`, or `|cx: Context| async { … }`.
    pub fn resource<Form, H>(self, uri: impl Into<String>, name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: ResourceArgs,
        H::Output: IntoResource,
        Form: 'static,
    {
        self.add(Resource::new(uri, name).handler(handler))
    }

    /// Adds a resource template; its URI variables are the arguments of the handler.
    pub fn resource_template<Form, H>(
        self,
        template: impl Into<String>,
        name: impl Into<String>,
        handler: H,
    ) -> Self
    where
        H: Handler<Form>,
        H::Args: Args,
        H::Output: IntoResource,
        Form: 'static,
    {
        self.add(ResourceTemplate::new(template, name).handler(handler))
    }

    /// Adds a prompt: `|args| async { … }`, or `|args, cx: Context| async { … }`.
    pub fn prompt<Form, H>(self, name: impl Into<String>, description: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: Args,
        H::Output: IntoPrompt,
        Form: 'static,
    {
        self.add(Prompt::new(name).description(description).handler(handler))
    }

    /// Adds a built tool, resource, template, prompt or skill, or a function with an attribute macro.
    #[expect(clippy::should_implement_trait, reason = "adds a definition, not a number")]
    pub fn add<Form>(self, item: impl Addable<Form>) -> Self {
        let added = item.into_item().and_then(|item| self.catalog.change(|catalog| catalog.add(item)));
        self.record_error(added)
    }

    fn record_error<T>(mut self, result: Result<T>) -> Self {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
        self
    }

    /// Sets the reader for URIs that match no resource and no template: `|uri: String| async { … }`.
    pub fn on_read<Form, H>(mut self, handler: H) -> Self
    where
        H: Handler<Form, Args = String>,
        H::Output: IntoResource,
        Form: 'static,
    {
        self.settings.fallback_reader = Some(Arc::new(FallbackHandler(handler, PhantomData)));
        self
    }

    /// Adds the tools, resources, templates, prompts and skills of another server. Its tools and prompts are renamed to
    /// `{prefix}_{name}`; its resources and skills retain their URIs; its handlers retain its state.
    ///
    /// Layers, hooks and custom methods belong to the server that runs: mounting a server that has any of them is an
    /// error.
    pub fn mount(self, prefix: &str, other: Server) -> Self {
        let obstacle = other.settings.mount_obstacle();
        let state = Arc::new(other.settings.state);
        let mounted = match (other.error, obstacle) {
            (Some(error), _) => Err(error),
            (None, Some(obstacle)) => Err(Error::setup(format!(
                "the server `{}` cannot be mounted: it has {obstacle}; register that on the outer server",
                other.settings.info.name
            ))),
            (None, None) => {
                self.catalog.change(|catalog| catalog.mount(prefix, &other.catalog.snapshot(), &state))
            }
        };
        self.record_error(mounted)
    }

    /// Adds everything that a remote server offers. Calls are forwarded to it, with progress, cancellation and its
    /// server requests; for the latter, connect the client with [`crate::ClientBuilder::forward_server_requests`].
    pub async fn proxy(self, client: Client) -> Result<Self> {
        self.proxy_as("", client).await
    }

    /// Like [`Self::proxy`], but renames tools and prompts to `{prefix}_{name}`.
    pub async fn proxy_as(mut self, prefix: &str, client: Client) -> Result<Self> {
        RemoteProxy::register(prefix, client, &self.catalog).await?;
        self.may_change = true;
        Ok(self)
    }

    /// Sets the receiver of forwarded requests: for the definitions of [`ServerHandle::set_forwarded`], and for tools,
    /// prompts and resources that are not registered.
    pub fn forward(mut self, to: Arc<dyn Forward>) -> Self {
        self.may_change = true;
        let set = self.catalog.set_forward(to);
        self.record_error(set)
    }

    /// Adds a value that all handlers can get by its type: `cx.get::<T>()`, or `State<T>` in macros.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.settings.state.insert(value);
        self
    }

    /// Sets the display name of the server.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.settings.info.title = Some(title.into());
        self
    }

    /// Sets a one-sentence description of the server.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.settings.info.description = Some(description.into());
        self
    }

    /// Sets the URL of the server's website.
    pub fn website(mut self, url: impl Into<String>) -> Self {
        self.settings.info.website_url = Some(url.into());
        self
    }

    /// Sets the icons of the server that clients can display.
    pub fn icons(mut self, icons: impl IntoIterator<Item = Icon>) -> Self {
        self.settings.info.icons = Some(icons.into_iter().collect());
        self
    }

    /// Sets the instructions for the model: how to use the server.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.settings.instructions = Some(instructions.into());
        self
    }

    /// Restricts the server to one protocol revision, given by its date. Default: all supported revisions.
    pub fn protocol_version(mut self, version: &str) -> Self {
        match version.parse::<Revision>() {
            Ok(revision) => {
                self.settings.revisions = vec![revision];
                self
            }
            Err(error) => self.record_error::<()>(Err(Error::setup(error.to_string()))),
        }
    }

    /// Sets the number of items on one page of a list. Default: 1,000.
    pub fn page_size(mut self, items: usize) -> Self {
        self.settings.page_size = items.max(1);
        self
    }

    /// Sets the cache hints of lists and resources: for how long and by whom they may be cached (stateless era).
    pub fn cache(mut self, hints: CacheHints) -> Self {
        self.settings.cache = hints;
        self
    }

    /// Sets the maximum size of a message in bytes; longer messages are rejected. Default: 4 MiB.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.settings.max_message = bytes;
        self
    }

    /// Sets how many requests of one client may run concurrently. Default: 1,024.
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.settings.max_in_flight = requests.max(1);
        self
    }

    /// Sets how long running requests may take to finish after the end of the input, or at the shutdown of an HTTP
    /// endpoint. Default: 30 s.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.settings.shutdown_timeout = timeout;
        self
    }

    /// Sets how long a client may take to respond to a server request of a handler. Default: 10 min.
    pub fn input_timeout(mut self, timeout: Duration) -> Self {
        self.settings.input_timeout = timeout;
        self
    }

    /// Sets how many calls may be parked while they wait for input without a session. Default: 1,024. Above the limit
    /// the oldest call is evicted: it is replayed if it may safely run twice, and fails otherwise.
    pub fn max_parked(mut self, calls: usize) -> Self {
        self.settings.max_parked = calls;
        self
    }

    /// Sets the keys that seal the request state, which travels through the client between two round trips. Instances
    /// that share keys can resume each other's calls. Default: one random key per process.
    #[cfg(feature = "rounds")]
    pub fn keys(mut self, keys: StateKeys) -> Self {
        self.settings.keys = keys;
        self
    }

    /// Sets the audience of the request state: instances accept each other's state only if they have the same audience.
    /// Default: the name of the server.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.settings.audience = Some(audience.into());
        self
    }

    /// Sets the store of tasks, which can outlive the process. Default: memory.
    pub fn task_store(mut self, store: impl TaskStore) -> Self {
        self.settings.tasks.set_store(Arc::new(store));
        self
    }

    /// Sets how often clients should poll a task. Default: 1 s.
    pub fn task_poll_interval(mut self, interval: Duration) -> Self {
        self.settings.tasks.set_poll_interval(interval);
        self
    }

    /// Sets the source of the current time, with which tasks and request state expire. Default: the system clock.
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.settings.clock = Clock::new(now);
        self
    }

    /// Sets experimental capabilities, which are not part of the protocol.
    pub fn experimental(mut self, capabilities: Meta) -> Self {
        self.settings.experimental = Some(capabilities);
        self
    }

    /// Sets the supported extensions by identifier, with their settings.
    pub fn extensions(mut self, extensions: Meta) -> Self {
        self.settings.extensions = Some(extensions);
        self
    }

    /// Handles a method, replacing the built-in handler if the method has one.
    ///
    /// `initialize` cannot be replaced: it creates the session.
    pub fn on_request<Form, H>(mut self, method: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: DeserializeOwned,
        H::Output: IntoJson,
        Form: 'static,
    {
        let method = method.into();
        if Method::find(&method) == Some(Method::Initialize) {
            return self.record_error::<()>(Err(Error::setup(
                "the method `initialize` cannot be replaced: it creates the session",
            )));
        }
        self.settings.requests.insert(method, Arc::new(TypedCustomHandler(handler, PhantomData)));
        self
    }

    /// Adds a handler for a custom method. It is an error if the protocol or this server already has a method of that
    /// name.
    pub fn define_method<Form, H>(self, method: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: DeserializeOwned,
        H::Output: IntoJson,
        Form: 'static,
    {
        let method = method.into();
        // `on_request` rejects `initialize` with its own error.
        if Method::find(&method).is_some_and(|found| found != Method::Initialize)
            || self.settings.requests.contains_key(&method)
        {
            let text = format!("the method `{method}` already exists: use on_request to replace it");
            return self.record_error::<()>(Err(Error::setup(text)));
        }
        self.on_request(method, handler)
    }

    /// Handles a notification, after the built-in handler.
    pub fn on_notification<Form, H>(mut self, method: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form, Output = ()>,
        H::Args: DeserializeOwned,
        Form: 'static,
    {
        self.settings.notifications.insert(method.into(), Arc::new(TypedCustomHandler(handler, PhantomData)));
        self
    }

    /// Adds a function (layer) around every request except `initialize`; the layer that is added first is the
    /// outermost.
    pub fn layer<F, Fut>(mut self, layer: F) -> Self
    where
        F: Fn(Request, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response>> + Send + 'static,
    {
        self.settings.layers.push(Arc::new(layer));
        self
    }

    /// Calls a function for every finished request.
    pub fn instrument(mut self, instrument: impl Fn(&RequestEvent<'_>) + Send + Sync + 'static) -> Self {
        self.settings.instrument = Some(Box::new(instrument));
        self
    }

    /// Calls a function with every error whose details are not sent to the client. Default: errors are logged with
    /// `tracing`, or written to standard error if the process has no subscriber.
    pub fn on_error(mut self, report: impl Fn(&ErrorReport<'_>) + Send + Sync + 'static) -> Self {
        self.settings.on_error = Some(Box::new(report));
        self
    }

    /// Sets the filter that decides which tools, prompts and resources a request may see and use.
    pub fn visible(
        mut self,
        visible: impl Fn(DefinitionRef<'_>, &Context) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.settings.visible = Some(Box::new(visible));
        self
    }

    /// Returns a handle that changes the server while it runs. The server then announces the capabilities tools,
    /// prompts and resources even if it has none yet.
    pub fn handle(&mut self) -> ServerHandle {
        self.may_change = true;
        ServerHandle::new(self.catalog.clone())
    }

    /// Returns the built server, or the first error in its definition: a duplicate name, a schema that cannot be
    /// checked, a `State<T>` without [`Self::state`]. A [layer](Self::layer) can set state for each request; so with
    /// layers, state is not checked here, and a request whose state is missing fails.
    pub fn build(self) -> Result<Service> {
        if let Some(error) = self.error {
            return Err(error);
        }
        // A layer may set state for each request.
        if self.settings.layers.is_empty() {
            self.catalog.snapshot().check_state(&self.settings.state)?;
        }
        Ok(Service::new(self.settings, self.catalog, self.may_change))
    }

    /// Serves an MCP client over standard input and output until the input ends.
    pub async fn run(self) -> Result<()> {
        self.build()?.run().await
    }

    /// Returns a client that is connected to this server in memory.
    pub async fn connect_in_memory(self) -> Result<Client> {
        self.build()?.connect_in_memory().await
    }
}

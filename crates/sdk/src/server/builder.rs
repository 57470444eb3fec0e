//! Putting a server together.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use linchpin_protocol::model::{CacheHints, Icon, Implementation, Meta};
use linchpin_protocol::{Method, Revision};
use serde::de::DeserializeOwned;

use super::args::Args;
use super::catalog::{Addable, Live};
use super::clock::Clock;
use super::context::Context;
use super::custom::{IntoJson, Typed};
use super::handle::Handle;
use super::handler::Handler;
use super::layer::{Next, Request, Response};
use super::listed::Listed;
use super::output::{IntoPrompt, IntoResource, IntoToolOutput};
use super::prompt::Prompt;
use super::proxy::Proxy;
use super::report::{Event, Report};
use super::resource::{CatchAllHandler, Resource, ResourceArgs, ResourceTemplate};
#[cfg(feature = "rounds")]
use super::rounds::Keys;
use super::service::Service;
use super::settings::Settings;
use super::tasks::TaskStore;
use super::tool::Tool;
use crate::client::Client;
use crate::{Error, Result};

/// A server that is being put together. What is wrong with a definition is said by [`Server::build`],
/// [`Server::run`] or [`Server::connect_in_memory`], whichever comes.
#[must_use = "a server does nothing until it is run"]
pub struct Server {
    settings: Settings,
    live: Arc<Live>,
    error: Option<Error>,
    changes: bool,
}

impl Server {
    /// A server with a name and a version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        let settings = Settings::new(Implementation::new(name, version));
        Server { settings, live: Arc::default(), error: None, changes: false }
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

    /// Adds a pattern of resources; the variables are the arguments of its handler.
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

    /// Adds a finished tool, resource, template, prompt or skill, or a function with an attribute macro.
    #[expect(clippy::should_implement_trait, reason = "this is not the addition of numbers")]
    pub fn add<Form>(self, item: impl Addable<Form>) -> Self {
        let added = item.into_item().and_then(|item| self.live.change(|catalog| catalog.add(item)));
        self.note(added)
    }

    fn note<T>(mut self, result: Result<T>) -> Self {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
        self
    }

    /// Reads every URI that no resource and no template stands for: `|uri: String| async { … }`.
    pub fn on_read<Form, H>(mut self, handler: H) -> Self
    where
        H: Handler<Form, Args = String>,
        H::Output: IntoResource,
        Form: 'static,
    {
        self.settings.catch_all = Some(Arc::new(CatchAllHandler(handler, PhantomData)));
        self
    }

    /// Takes over the tools, resources, templates, prompts and skills of another server. Its tools and prompts get
    /// `prefix` and an underscore before their names; its resources and skills keep their URIs; its handlers keep its state.
    /// What works around the handlers (layers, hooks, methods of its own) belongs to the server that runs, and a
    /// server that has such is refused.
    pub fn mount(self, prefix: &str, other: Server) -> Self {
        let hook = other.settings.hook();
        let state = Arc::new(other.settings.state);
        let mounted = match (other.error, hook) {
            (Some(error), _) => Err(error),
            (None, Some(hook)) => Err(Error::setup(format!(
                "the server `{}` cannot be mounted: it has {hook}; give that to the server it is mounted in",
                other.settings.info.name
            ))),
            (None, None) => self.live.change(|catalog| catalog.mount(prefix, &other.live.snapshot(), &state)),
        };
        self.note(mounted)
    }

    /// Offers everything that a remote server has: calls are passed on to it, with progress, cancellation and the
    /// questions it asks. For those, connect the client with [`crate::ClientBuilder::forwarding`].
    pub async fn proxy(self, client: Client) -> Result<Self> {
        self.proxy_as("", client).await
    }

    /// As [`Self::proxy`]; tools and prompts get `prefix` and an underscore before their names.
    pub async fn proxy_as(mut self, prefix: &str, client: Client) -> Result<Self> {
        Proxy::register(prefix, client, &self.live).await?;
        self.changes = true;
        Ok(self)
    }

    /// Gives a value to all handlers, which find it by its type: `cx.get::<T>()`, or `State<T>` in macros.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.settings.state.insert(value);
        self
    }

    /// The name for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.settings.info.title = Some(title.into());
        self
    }

    /// What the server is, in a sentence.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.settings.info.description = Some(description.into());
        self
    }

    /// Where to read about it.
    pub fn website(mut self, url: impl Into<String>) -> Self {
        self.settings.info.website_url = Some(url.into());
        self
    }

    /// Pictures to show.
    pub fn icons(mut self, icons: impl IntoIterator<Item = Icon>) -> Self {
        self.settings.info.icons = Some(icons.into_iter().collect());
        self
    }

    /// How to use the server, for the model.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.settings.instructions = Some(instructions.into());
        self
    }

    /// Speaks only this revision, by its date.
    pub fn protocol_version(mut self, version: &str) -> Self {
        match version.parse::<Revision>() {
            Ok(revision) => {
                self.settings.revisions = vec![revision];
                self
            }
            Err(error) => self.note::<()>(Err(Error::setup(error.to_string()))),
        }
    }

    /// Items on one page of a list; 1,000 when nothing is said.
    pub fn page_size(mut self, items: usize) -> Self {
        self.settings.page_size = items.max(1);
        self
    }

    /// How long, and by whom, lists and resources may be kept (stateless era).
    pub fn cache(mut self, hints: CacheHints) -> Self {
        self.settings.cache = hints;
        self
    }

    /// The longest message that is read, in bytes; 4 MiB when nothing is said.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.settings.max_message = bytes;
        self
    }

    /// Requests of one client that may be worked on at a time; 1,024 when nothing is said.
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.settings.max_in_flight = requests.max(1);
        self
    }

    /// How long requests may take to finish after the input has ended; 30 seconds when nothing is said.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.settings.shutdown_timeout = timeout;
        self
    }

    /// How long a client may take to answer a question of a handler; 10 minutes when nothing is said.
    pub fn question_timeout(mut self, timeout: Duration) -> Self {
        self.settings.question_timeout = timeout;
        self
    }

    /// Calls that may wait for answers without a session; 1,024 when nothing is said. When there are more, the
    /// oldest is let go: it is run again if that does no harm, and fails otherwise.
    pub fn max_parked(mut self, calls: usize) -> Self {
        self.settings.max_parked = calls;
        self
    }

    /// The keys that seal what travels through clients between two rounds of questions. Instances that share keys
    /// can go on with each other's calls. Without them each process has a key of its own.
    #[cfg(feature = "rounds")]
    pub fn keys(mut self, keys: Keys) -> Self {
        self.settings.keys = keys;
        self
    }

    /// Whom that state is meant for: instances with the same name for it understand each other. The server's name
    /// when nothing is said.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.settings.audience = Some(audience.into());
        self
    }

    /// Where tasks are kept, in place of memory.
    pub fn task_store(mut self, store: impl TaskStore) -> Self {
        self.settings.tasks.set_store(Arc::new(store));
        self
    }

    /// How often clients should look at a task; every second when nothing is said.
    pub fn task_poll_interval(mut self, interval: Duration) -> Self {
        self.settings.tasks.set_poll_interval(interval);
        self
    }

    /// Where the time of day comes from.
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.settings.clock = Clock::new(now);
        self
    }

    /// Capabilities that are no part of the protocol.
    pub fn experimental(mut self, capabilities: Meta) -> Self {
        self.settings.experimental = Some(capabilities);
        self
    }

    /// Extensions by identifier, with their settings.
    pub fn extensions(mut self, extensions: Meta) -> Self {
        self.settings.extensions = Some(extensions);
        self
    }

    /// Answers a method itself, also one that the server would answer otherwise.
    ///
    /// Only `initialize` cannot be replaced: without it there is no session to serve in.
    pub fn on_request<Form, H>(mut self, method: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: DeserializeOwned,
        H::Output: IntoJson,
        Form: 'static,
    {
        let method = method.into();
        if Method::find(&method) == Some(Method::Initialize) {
            return self.note::<()>(Err(Error::setup("the method `initialize` cannot be replaced")));
        }
        self.settings.requests.insert(method, Arc::new(Typed(handler, PhantomData)));
        self
    }

    /// Adds a method; refused when the protocol or this server has one of that name.
    pub fn define_method<Form, H>(self, method: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form>,
        H::Args: DeserializeOwned,
        H::Output: IntoJson,
        Form: 'static,
    {
        let method = method.into();
        if Method::find(&method).is_some() || self.settings.requests.contains_key(&method) {
            let text = format!("the method `{method}` exists already: use on_request to replace it");
            return self.note::<()>(Err(Error::setup(text)));
        }
        self.on_request(method, handler)
    }

    /// Is told of a notification, after the server itself.
    pub fn on_notification<Form, H>(mut self, method: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Form, Output = ()>,
        H::Args: DeserializeOwned,
        Form: 'static,
    {
        self.settings.notifications.insert(method.into(), Arc::new(Typed(handler, PhantomData)));
        self
    }

    /// Puts a function around every request but `initialize`; the first one is the outermost.
    pub fn layer<F, Fut>(mut self, layer: F) -> Self
    where
        F: Fn(Request, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response>> + Send + 'static,
    {
        self.settings.layers.push(Arc::new(layer));
        self
    }

    /// Is told of every request that was answered.
    pub fn instrument(mut self, instrument: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.settings.instrument = Some(Box::new(instrument));
        self
    }

    /// Is called with every error whose detail the client does not see. Default: they are logged with `tracing`, or
    /// written to standard error if the process has no subscriber.
    pub fn on_error(mut self, report: impl Fn(&Report<'_>) + Send + Sync + 'static) -> Self {
        self.settings.on_error = Some(Box::new(report));
        self
    }

    /// Decides which tools, prompts and resources a request may see and use.
    pub fn visible(mut self, visible: impl Fn(Listed<'_>, &Context) -> bool + Send + Sync + 'static) -> Self {
        self.settings.visible = Some(Box::new(visible));
        self
    }

    /// For changes while the server runs. With it the server announces that it may get tools, prompts and
    /// resources even if it has none yet.
    pub fn handle(&mut self) -> Handle {
        self.changes = true;
        Handle::new(self.live.clone())
    }

    /// Returns the finished server, or the first error in its definition: a duplicate name, a schema that cannot be
    /// checked, a `State<T>` without [`Self::state`]. With a [layer](Self::layer), which can set state for each request, state
    /// is not checked here: a request whose state is missing fails.
    pub fn build(self) -> Result<Service> {
        if let Some(error) = self.error {
            return Err(error);
        }
        // A layer may set state for each request.
        if self.settings.layers.is_empty() {
            self.live.snapshot().check_state(&self.settings.state)?;
        }
        Ok(Service::new(self.settings, self.live, self.changes))
    }

    /// Serves standard input and output until the input ends.
    pub async fn run(self) -> Result<()> {
        self.build()?.run().await
    }

    /// A client that is connected to this server in memory.
    pub async fn connect_in_memory(self) -> Result<Client> {
        self.build()?.connect_in_memory().await
    }
}

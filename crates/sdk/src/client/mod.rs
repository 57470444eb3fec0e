//! Clients: a connection to a server, and what can be asked over it.
//!
//! [`Client::stdio`] and its like describe a client, [`ClientBuilder::connect`] connects it. Requests are values
//! that can be given a timeout and a progress hook, and are sent when they are awaited; dropping them cancels.

mod builder;
mod cache;
mod call;
mod check;
mod connect;
mod core;
mod eras;
mod error;
mod handlers;
mod inbox;
#[cfg(feature = "http-client")]
mod over_http;
mod pages;
pub(crate) mod repeat;
mod rounds;
mod session;
mod settings;
mod skills;
mod stray;
mod subscription;
mod tasks;

use std::collections::BTreeMap;
#[cfg(unix)]
use std::ffi::OsStr;
use std::sync::{Arc, OnceLock};

use linchpin_protocol::encode::{Encode, to_vec};
use linchpin_protocol::model::{
    CompleteParams, CompleteResult, CompletionArgument, CompletionReference, EmptyParams, EmptyResult,
    GetPromptParams, GetPromptResult, Implementation, LogLevel, Prompt, ReadResourceParams,
    ReadResourceResult, Resource, ResourceTemplate, Root, ServerCapabilities, SetLevelParams, Tool,
};
use linchpin_protocol::{Method, Revision};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(crate) use self::core::Options;
use self::core::{Agreed, Core, wants_level};
pub use builder::ClientBuilder;
pub use call::{Call, Outcome};
pub use eras::Eras;
pub use error::ClientError;
pub(crate) use handlers::Answerer;
pub use handlers::Changed;
#[cfg(feature = "http-client")]
pub(crate) use inbox::guarded;
pub use pages::{Item, LeftOut, Listing, Pages};
pub use skills::Child;
#[cfg(feature = "skills")]
pub use skills::{LoadedSkill, SkillFile};
pub use subscription::Subscription;
pub use tasks::{Started, TaskHandle};

use crate::sync::lock;
#[cfg(unix)]
pub use crate::transport::child::{Arguments, Command, Lineage};
#[cfg(target_os = "linux")]
pub use crate::transport::child::{SUPERVISE, supervise};
#[cfg(feature = "http-client")]
use crate::transport::http::Http;
use crate::transport::{Line, Transport};

/// A connected client. Clones share the connection, which ends when the last of them is dropped.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
    line: Arc<dyn Line>,
    /// The stream of changes of lists, where one must be opened for them.
    watching: Arc<OnceLock<Subscription>>,
}

impl Client {
    /// A client of a server that is started as a process and speaks on its standard input and output.
    ///
    /// ```
    /// use linchpin::Client;
    ///
    /// let alone = Client::stdio("my-server", []);
    /// let with_arguments = Client::stdio("npx", ["-y", "some-server"]);
    /// let with_strings = Client::stdio("my-server", &[format!("--port={}", 8080)]);
    /// ```
    #[cfg(unix)]
    pub fn stdio(program: impl AsRef<OsStr>, args: impl Arguments) -> ClientBuilder {
        Self::command(Command::new(program).args(args.into_arguments()))
    }

    /// As [`Self::stdio`], with an environment, a working directory and hooks of its own.
    #[cfg(unix)]
    pub fn command(command: Command) -> ClientBuilder {
        Self::over(command)
    }

    /// A client of a server on the network, by its URL: Streamable HTTP of every revision, or HTTP+SSE if that is what
    /// it speaks.
    #[cfg(feature = "http-client")]
    pub fn http(url: impl Into<String>) -> ClientBuilder<Http> {
        ClientBuilder::new(Http::new(url))
    }

    /// A client of a server on the network that speaks HTTP+SSE, as before Streamable HTTP. [`Self::http`] finds that
    /// out by itself.
    #[cfg(feature = "http-client")]
    pub fn sse(url: impl Into<String>) -> ClientBuilder<Http> {
        let is_session = |revision: &Revision| revision.era() == linchpin_protocol::Era::Session;
        let sessions = Revision::ALL.into_iter().filter(is_session);
        ClientBuilder::new(Http::sse(url)).revisions(sessions)
    }

    /// A client of a server that is reached in a way of your own.
    pub fn over(transport: impl Transport) -> ClientBuilder {
        ClientBuilder::new(Box::new(transport))
    }

    fn new(core: Arc<Core>, line: Box<dyn Line>) -> Self {
        Client { core, line: line.into(), watching: Arc::default() }
    }

    /// What is to be done as soon as both sides have agreed.
    async fn opened(self) -> Result<Self, ClientError> {
        let (revision, capabilities) = (self.revision(), self.capabilities());
        if let Some(level) = wants_level(revision, self.core.settings.log_level)
            && capabilities.logging.is_some()
        {
            // A server that refuses still serves.
            if let Err(error) = self.set_log_level(level).await {
                let server = self.core.server_label();
                tracing::warn!(server, %error, "the server refused the log level");
            }
        }
        if self.core.handlers.list_changed.is_some() {
            // As with the log level.
            if let Err(error) = self.watch_lists().await {
                let server = self.core.server_label();
                tracing::warn!(server, %error, "cannot subscribe to list changes");
            }
        }
        Ok(self)
    }

    fn agreed(&self) -> &Agreed {
        self.core.agreed.get().expect("a client is made once both sides have agreed")
    }

    /// The revision that is spoken.
    pub fn revision(&self) -> Revision {
        self.agreed().revision
    }

    /// Who the server says it is.
    pub fn server(&self) -> Option<&Implementation> {
        self.agreed().server.as_ref()
    }

    /// What the server can do.
    pub fn capabilities(&self) -> &ServerCapabilities {
        &self.agreed().capabilities
    }

    /// How to use the server, for the model.
    pub fn instructions(&self) -> Option<&str> {
        self.agreed().instructions.as_deref()
    }

    /// Whether the connection has ended; requests fail then, and say why.
    pub fn is_closed(&self) -> bool {
        self.core.outbox.is_closed()
    }

    /// Ends the connection in good order, for all clones. A process that was started has ended when this returns,
    /// with everything it started.
    pub async fn close(&self) {
        self.line.close().await;
    }

    fn send<T>(&self, method: Method, params: &dyn Encode) -> Call<T> {
        Call::new(self.clone(), method, Ok(to_vec(params, self.revision())))
    }

    /// The server's tools.
    pub fn tools(&self) -> Pages<Tool> {
        Pages::new(self.clone())
    }

    /// The server's resources.
    pub fn resources(&self) -> Pages<Resource> {
        Pages::new(self.clone())
    }

    /// The server's patterns of resources.
    pub fn resource_templates(&self) -> Pages<ResourceTemplate> {
        Pages::new(self.clone())
    }

    /// The server's prompts.
    pub fn prompts(&self) -> Pages<Prompt> {
        Pages::new(self.clone())
    }

    /// Calls a tool. `arguments` is anything that is a JSON object: `json!({ … })`, a struct, a map; `()` for none.
    pub fn call(&self, tool: impl Into<String>, arguments: impl Serialize) -> Call {
        Call::tool(self.clone(), tool.into(), &arguments)
    }

    /// Reads a resource.
    pub fn read(&self, uri: impl Into<String>) -> Call<ReadResourceResult> {
        let params =
            ReadResourceParams { uri: uri.into(), input_responses: None, request_state: None, meta: None };
        self.send(Method::ReadResource, &params)
    }

    /// Fills in a prompt.
    pub fn prompt<K: Into<String>, V: Into<String>>(
        &self,
        name: impl Into<String>,
        arguments: impl IntoIterator<Item = (K, V)>,
    ) -> Call<GetPromptResult> {
        let arguments: BTreeMap<String, String> =
            arguments.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let params = GetPromptParams {
            name: name.into(),
            arguments: (!arguments.is_empty()).then_some(arguments),
            input_responses: None,
            request_state: None,
            meta: None,
        };
        self.send(Method::GetPrompt, &params)
    }

    /// Completes an argument of a prompt or a variable of a template. [`Call::context`] adds the arguments that are
    /// already known.
    pub fn complete(
        &self,
        reference: CompletionReference,
        argument: impl Into<String>,
        value: impl Into<String>,
    ) -> Call<CompleteResult> {
        let argument = CompletionArgument { name: argument.into(), value: value.into() };
        self.send(Method::Complete, &CompleteParams { reference, argument, context: None, meta: None })
    }

    pub(crate) fn complete_with(&self, params: &CompleteParams) -> Call<CompleteResult> {
        self.send(Method::Complete, params)
    }

    /// Has somebody told of changed lists, beside the handlers. Once.
    pub(crate) async fn watch_changes(
        &self,
        told: Box<dyn Fn(Changed) + Send + Sync>,
    ) -> Result<(), ClientError> {
        let _ = self.core.changed.set(told);
        if self.watching.get().is_none() {
            self.watch_lists().await?;
        }
        Ok(())
    }

    /// Asks whether the server is there. Where the revision has no `ping`, what it says of itself is asked for.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let method = if Method::Ping.is_in(self.revision()) { Method::Ping } else { Method::Discover };
        self.send::<EmptyResult>(method, &EmptyParams::default()).await.map(|_| ())
    }

    /// Sets the least level of log messages, in a session. In the stateless era the level is said when connecting.
    pub async fn set_log_level(&self, level: LogLevel) -> Result<(), ClientError> {
        *lock(&self.core.level) = Some(level);
        self.send::<EmptyResult>(Method::SetLevel, &SetLevelParams { level, meta: None }).await.map(|_| ())
    }

    /// Changes the folders that the client works in, if it was connected with any, and tells the server where the revision has such a notice.
    pub fn set_roots(&self, roots: impl IntoIterator<Item = Root>) {
        let before = lock(&self.core.handlers.roots).replace(roots.into_iter().collect());
        let declared = before.is_some() || self.core.handlers.forward;
        if declared && Method::RootsChanged.is_in(self.revision()) {
            self.core.notify(Method::RootsChanged.name(), &EmptyParams::default());
        }
    }

    /// Sends a request of your own and decodes its result. `params` is anything that is a JSON object; its `_meta`
    /// is kept.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
    ) -> Result<T, ClientError> {
        let params = call::object(&params)?;
        let mut params: Map<String, Value> =
            serde_json::from_slice(&params).map_err(|error| ClientError::BadArguments(error.to_string()))?;
        let meta = params.remove("_meta").and_then(|meta| serde_json::from_value(meta).ok()).map(Box::new);
        let options = Options { meta, ..Options::default() };
        let text =
            self.core.ask(self.revision(), method, &to_vec(&params, self.revision()), &options).await?;
        call::decoded(method, &text)
    }

    /// Sends a notification of your own.
    pub fn notify(&self, method: &str, params: &Value) {
        self.core.notify(method, params);
    }

    /// A task by its id, which may come from an earlier connection.
    pub fn task(&self, id: impl Into<String>) -> TaskHandle {
        TaskHandle::new(self.clone(), id.into())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.server().map(|server| &server.name);
        f.debug_struct("Client").field("server", &name).field("revision", &self.revision()).finish()
    }
}

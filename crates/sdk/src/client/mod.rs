//! MCP client: connections to servers and the requests sent over them.
//!
//! [`Client::stdio`] and the similar constructors return a builder, and [`ClientBuilder::connect`] connects it. A
//! request is a value with options such as a timeout and a progress hook. It is sent when it is awaited, and
//! cancelled when it is dropped.

mod active_calls;
mod builder;
mod cache;
mod call;
mod core;
mod error;
mod handlers;
#[cfg(feature = "http-client")]
mod http_options;
mod inbox;
mod negotiation;
mod output_validation;
mod pages;
pub(crate) mod retry;
mod revision_cache;
mod rounds;
mod session_restore;
mod settings;
mod skills;
mod stray_output;
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
use linchpin_protocol::{Era, Method, Revision};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(crate) use self::core::RequestOptions;
use self::core::{ClientCore, Negotiated, session_log_level};
pub use builder::ClientBuilder;
pub use call::{Call, CallOutput};
pub use error::ClientError;
pub(crate) use handlers::ServerRequestHandler;
pub use handlers::{CallLog, ListChanged};
#[cfg(feature = "http-client")]
pub(crate) use inbox::catch_hook_panic;
pub use pages::{Item, Listing, Pages, SkippedEntry};
pub use revision_cache::RevisionCache;
pub use skills::DirectoryEntry;
#[cfg(feature = "skills")]
pub use skills::{LoadedSkill, SkillFile};
pub use subscription::Subscription;
pub use tasks::{StartedCall, TaskHandle};

use crate::lock::lock;
pub use crate::server_request::{ClientResult, ServerRequest};
#[cfg(unix)]
pub use crate::transport::child::{Arguments, Command, Lineage};
#[cfg(target_os = "linux")]
pub use crate::transport::child::{SUPERVISE, supervise};
#[cfg(feature = "http-client")]
use crate::transport::http::HttpTransport;
use crate::transport::{Transport, TransportHandle};

/// Client that is connected to a server, for sending requests. Clones share the connection, which closes when the last
/// clone is dropped.
#[derive(Clone)]
pub struct Client {
    core: Arc<ClientCore>,
    handle: Arc<dyn TransportHandle>,
    /// Subscription to list changes, for revisions that need one.
    list_stream: Arc<OnceLock<Subscription>>,
}

impl Client {
    /// Creates a client for a server that runs as a child process and uses its standard input and output.
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

    /// Like [`Self::stdio`], with a custom environment, working directory and hooks.
    #[cfg(unix)]
    pub fn command(command: Command) -> ClientBuilder {
        Self::over(command)
    }

    /// Creates a client for a remote server. It uses Streamable HTTP in every revision, and falls back to HTTP+SSE
    /// if the server supports only that.
    #[cfg(feature = "http-client")]
    pub fn http(url: impl Into<String>) -> ClientBuilder<HttpTransport> {
        ClientBuilder::new(HttpTransport::new(url))
    }

    /// Creates a client for a remote server that uses HTTP+SSE, the predecessor of Streamable HTTP. [`Self::http`]
    /// detects such servers automatically.
    #[cfg(feature = "http-client")]
    pub fn sse(url: impl Into<String>) -> ClientBuilder<HttpTransport> {
        let is_session = |revision: &Revision| revision.era() == Era::Session;
        let sessions = Revision::ALL.into_iter().filter(is_session);
        ClientBuilder::new(HttpTransport::sse(url)).revisions(sessions)
    }

    /// Creates a client with a custom transport.
    pub fn over(transport: impl Transport) -> ClientBuilder {
        ClientBuilder::new(Box::new(transport))
    }

    fn new(core: Arc<ClientCore>, line: Box<dyn TransportHandle>) -> Self {
        Client { core, handle: line.into(), list_stream: Arc::default() }
    }

    /// Completes the opening of a connection: sets the log level and subscribes to list changes.
    async fn after_open(self) -> Result<Self, ClientError> {
        let (revision, capabilities) = (self.revision(), self.capabilities());
        if let Some(level) = session_log_level(revision, self.core.settings.log_level)
            && capabilities.logging.is_some()
        {
            // The connection is usable even if the server rejects the log level.
            if let Err(error) = self.set_log_level(level).await {
                let server = self.core.server_label();
                tracing::warn!(server, %error, "server rejected the log level");
            }
        }
        if self.core.handlers.list_changed.is_some() {
            // The connection is usable without the subscription.
            if let Err(error) = self.subscribe_lists().await {
                let server = self.core.server_label();
                tracing::warn!(server, %error, "failed to subscribe to list changes");
            }
        }
        Ok(self)
    }

    fn negotiated(&self) -> &Negotiated {
        self.core.negotiated.get().expect("a client is created after the negotiation")
    }

    /// Returns the negotiated revision.
    pub fn revision(&self) -> Revision {
        self.negotiated().revision
    }

    /// Returns the name and version that the server reports.
    pub fn server(&self) -> Option<&Implementation> {
        self.negotiated().server.as_ref()
    }

    /// Returns the capabilities that the server declares.
    pub fn capabilities(&self) -> &ServerCapabilities {
        &self.negotiated().capabilities
    }

    /// Returns the server's usage instructions for the model.
    pub fn instructions(&self) -> Option<&str> {
        self.negotiated().instructions.as_deref()
    }

    /// Returns whether the connection to the server is closed. Requests on a closed connection fail with the reason.
    pub fn is_closed(&self) -> bool {
        self.core.outbox.is_closed()
    }

    /// Returns whether each server request and log message names the call that it belongs to. This is so in revisions
    /// without sessions.
    ///
    /// In a session, a request on the response stream of a call (Streamable HTTP) or with the task of a call belongs to
    /// that call. Any other request belongs to a call in flight with a handler: of those with the fewest open server
    /// requests, to the oldest call of an asking tool ([`Self::is_asking_tool`]), or else to the oldest call. That can be
    /// wrong if several calls send requests at the same time. To be certain, use one connection for each of them.
    pub fn attributes_requests(&self) -> bool {
        self.revision().era() == Era::Stateless
    }

    /// Returns whether a call of this tool is known to have sent a server request that did not name its call. A
    /// connection remembers up to 256 such tools.
    pub fn is_asking_tool(&self, tool: &str) -> bool {
        lock(&self.core.active_calls).is_asking_tool(tool)
    }

    /// Closes the connection gracefully, for all clones. A child process and all its descendants have exited when
    /// this returns.
    pub async fn close(&self) {
        self.handle.close().await;
    }

    fn typed_call<T>(&self, method: Method, params: &dyn Encode) -> Call<T> {
        Call::new(self.clone(), method, Ok(to_vec(params, self.revision())))
    }

    /// Lists the tools of the server.
    pub fn tools(&self) -> Pages<Tool> {
        Pages::new(self.clone())
    }

    /// Lists the resources of the server.
    pub fn resources(&self) -> Pages<Resource> {
        Pages::new(self.clone())
    }

    /// Lists the resource templates of the server.
    pub fn resource_templates(&self) -> Pages<ResourceTemplate> {
        Pages::new(self.clone())
    }

    /// Lists the prompts of the server.
    pub fn prompts(&self) -> Pages<Prompt> {
        Pages::new(self.clone())
    }

    /// Calls a tool. `arguments` must serialize to a JSON object (`json!({ … })`, a struct, a map); pass `()` for
    /// none.
    pub fn call(&self, tool: impl Into<String>, arguments: impl Serialize) -> Call {
        Call::tool(self.clone(), tool.into(), &arguments)
    }

    /// Reads a resource of the server.
    pub fn read(&self, uri: impl Into<String>) -> Call<ReadResourceResult> {
        let params =
            ReadResourceParams { uri: uri.into(), input_responses: None, request_state: None, meta: None };
        self.typed_call(Method::ReadResource, &params)
    }

    /// Gets a prompt of the server, rendered with these arguments.
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
        self.typed_call(Method::GetPrompt, &params)
    }

    /// Completes an argument of a prompt or a variable of a resource template. [`Call::context`] adds the arguments
    /// that are already known.
    pub fn complete(
        &self,
        reference: CompletionReference,
        argument: impl Into<String>,
        value: impl Into<String>,
    ) -> Call<CompleteResult> {
        let argument = CompletionArgument { name: argument.into(), value: value.into() };
        self.typed_call(Method::Complete, &CompleteParams { reference, argument, context: None, meta: None })
    }

    /// Like [`Self::complete`], with the parameters of a request.
    pub fn complete_with(&self, params: &CompleteParams) -> Call<CompleteResult> {
        self.typed_call(Method::Complete, params)
    }

    /// Registers a callback for changed lists of tools, prompts or resources. The client's own handlers are still called. Only the first callback takes effect.
    pub(crate) async fn watch_changes(
        &self,
        callback: Box<dyn Fn(ListChanged) + Send + Sync>,
    ) -> Result<(), ClientError> {
        let _ = self.core.on_list_changed.set(callback);
        if self.list_stream.get().is_none() {
            self.subscribe_lists().await?;
        }
        Ok(())
    }

    /// Checks that the server responds. Revisions without `ping` use `server/discover` instead.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let method = if Method::Ping.exists_in(self.revision()) { Method::Ping } else { Method::Discover };
        self.typed_call::<EmptyResult>(method, &EmptyParams::default()).await.map(|_| ())
    }

    /// Sets the minimum level of log messages of a session. In the stateless era the level is fixed at connect time.
    pub async fn set_log_level(&self, level: LogLevel) -> Result<(), ClientError> {
        *lock(&self.core.log_level) = Some(level);
        self.typed_call::<EmptyResult>(Method::SetLevel, &SetLevelParams { level, meta: None })
            .await
            .map(|_| ())
    }

    /// Replaces the roots that the client reports to the server. If the client declared roots when it connected and the
    /// revision has the notification, the server is notified.
    pub fn set_roots(&self, roots: impl IntoIterator<Item = Root>) {
        let previous = lock(&self.core.handlers.roots).replace(roots.into_iter().collect());
        let declared = previous.is_some() || self.core.handlers.declared.roots.is_some();
        if declared && Method::RootsChanged.exists_in(self.revision()) {
            self.core.notify(Method::RootsChanged.name(), &EmptyParams::default());
        }
    }

    /// Sends a custom request and decodes its result. `params` must serialize to a JSON object; its `_meta` is sent
    /// too.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
    ) -> Result<T, ClientError> {
        let params = call::to_json_object(&params)?;
        let mut params: Map<String, Value> =
            serde_json::from_slice(&params).map_err(|error| ClientError::BadArguments(error.to_string()))?;
        let meta = params.remove("_meta").and_then(|meta| serde_json::from_value(meta).ok()).map(Box::new);
        let options = RequestOptions { meta, ..RequestOptions::default() };
        let text =
            self.core.request(self.revision(), method, &to_vec(&params, self.revision()), &options).await?;
        call::decode_result(method, &text)
    }

    /// Sends a custom notification to the server.
    pub fn notify(&self, method: &str, params: &Value) {
        self.core.notify(method, params);
    }

    /// Returns a handle to a task by its id. The task may have been created over an earlier connection.
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

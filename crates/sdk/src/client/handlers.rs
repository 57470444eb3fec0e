//! Handlers of a client for server requests and notifications.

use std::sync::{Arc, Mutex};

use linchpin_protocol::model::{
    ClientCapabilities, CreateMessageParams, CreateMessageResult, ElicitMode, ElicitParams, ElicitResult,
    ElicitationCapability, ListRootsResult, LogParams, Root, RootsCapability, SamplingCapability, extension,
};
use linchpin_protocol::{Revision, code};
use serde_json::{Value, json};

use crate::lock::lock;
use crate::server::BoxFuture;
use crate::server_request::{ClientResult, ServerRequest};
use crate::{Error, Result};

/// Handler of server requests: elicitation, sampling and roots.
pub(crate) trait ServerRequestHandler: Send + Sync {
    /// Handles a request. `name` identifies it within its call, in revisions without sessions.
    fn handle(&self, request: ServerRequest, name: Option<&str>) -> BoxFuture<Result<ClientResult>>;
}

/// Server request handler that is a function.
pub(crate) struct RequestFunction<F>(Arc<F>);

impl<F> RequestFunction<F> {
    pub(crate) fn new(function: F) -> Self {
        RequestFunction(Arc::new(function))
    }
}

impl<F, Fut> ServerRequestHandler for RequestFunction<F>
where
    F: Fn(ServerRequest, Option<String>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ClientResult>> + Send + 'static,
{
    fn handle(&self, request: ServerRequest, name: Option<&str>) -> BoxFuture<Result<ClientResult>> {
        let (function, method, name) = (self.0.clone(), request.method(), name.map(str::to_owned));
        // The function runs in the future, where a panic is caught.
        Box::pin(async move {
            let reply = function(request, name).await?;
            if reply.method() == method {
                return Ok(reply);
            }
            let (expected, found) = (method.name(), reply.method().name());
            let text = format!("the handler of {expected} returned a result of {found}");
            Err(Error::rpc(code::INTERNAL_ERROR, text))
        })
    }
}

/// Log message of the server that a call receives.
#[derive(Debug, Clone, PartialEq)]
pub struct CallLog {
    /// The log message.
    pub params: LogParams,
    /// Whether the message belongs to this call. Otherwise the server did not name the call: every call in flight with
    /// a log callback receives the message.
    pub is_attributed: bool,
}

type RequestCallback<P, R> = Box<dyn Fn(P) -> BoxFuture<Result<R>> + Send + Sync>;
type NotificationCallback<T> = Box<dyn Fn(T) + Send + Sync>;
type AnyNotificationCallback = Box<dyn Fn(&str, Value) + Send + Sync>;

/// Which list of the server has changed: tools, resources or prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListChanged {
    /// Tools were added, removed or changed.
    Tools,
    /// Resources or resource templates were added, removed or changed.
    Resources,
    /// Prompts were added, removed or changed.
    Prompts,
}

/// Callbacks of a client for server requests and notifications.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) elicit: Option<RequestCallback<ElicitParams, ElicitResult>>,
    pub(crate) elicit_url: Option<RequestCallback<ElicitParams, ElicitResult>>,
    pub(crate) sample: Option<RequestCallback<CreateMessageParams, CreateMessageResult>>,
    pub(crate) sample_tools: bool,
    pub(crate) roots: Mutex<Option<Vec<Root>>>,
    pub(crate) log: Option<NotificationCallback<LogParams>>,
    pub(crate) list_changed: Option<NotificationCallback<ListChanged>>,
    pub(crate) resource_updated: Option<NotificationCallback<String>>,
    pub(crate) notification: Option<AnyNotificationCallback>,
    /// Handler of the server requests that have no handler above, and of those that belong to no call.
    pub(crate) fallback: Option<Box<dyn ServerRequestHandler>>,
    /// Capabilities that are declared in addition to those of the handlers above.
    pub(crate) declared: ClientCapabilities,
    /// Whether to declare the tasks capability.
    pub(crate) tasks: bool,
}

impl Handlers {
    /// Derives the client capabilities from the handlers.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let capability = |has_handler: bool| has_handler.then(|| json!({}));
        let mut capabilities = self.declared.clone();
        if self.elicit.is_some() || self.elicit_url.is_some() {
            let ElicitationCapability { form, url } = capabilities.elicitation.take().unwrap_or_default();
            capabilities.elicitation = Some(ElicitationCapability {
                form: form.or(capability(self.elicit.is_some())),
                url: url.or(capability(self.elicit_url.is_some())),
            });
        }
        if self.sample.is_some() {
            let sampling = capabilities.sampling.get_or_insert_default();
            sampling.tools = sampling.tools.take().or(capability(self.sample_tools));
        }
        if lock(&self.roots).is_some() {
            capabilities.roots = Some(RootsCapability { list_changed: Some(true) });
        }
        if self.tasks {
            capabilities.extensions.get_or_insert_default().insert(extension::TASKS.to_owned(), json!({}));
        }
        capabilities
    }
}

/// Returns the capabilities of a client that handles all server requests.
pub(crate) fn all_capabilities() -> ClientCapabilities {
    let supported = || Some(json!({}));
    ClientCapabilities {
        elicitation: Some(ElicitationCapability { form: supported(), url: supported() }),
        sampling: Some(SamplingCapability { context: None, tools: supported() }),
        roots: Some(RootsCapability { list_changed: Some(true) }),
        ..ClientCapabilities::default()
    }
}

impl ServerRequestHandler for Arc<Handlers> {
    fn handle(&self, request: ServerRequest, name: Option<&str>) -> BoxFuture<Result<ClientResult>> {
        let (handlers, method) = (self.clone(), request.method().name());
        let name = name.map(str::to_owned);
        Box::pin(async move {
            let unsupported = || handlers.unhandled(method);
            if let Some(fallback) = &handlers.fallback
                && !handlers.has_handler(&request)
            {
                return match handlers.undeclared(&request) {
                    Some(error) => Err(error),
                    None => fallback.handle(request, name.as_deref()).await,
                };
            }
            Ok(match request {
                ServerRequest::Elicit(params) => {
                    let url = params.mode == Some(ElicitMode::Url);
                    let handler = if url { &handlers.elicit_url } else { &handlers.elicit };
                    let other = handlers.elicit.is_some() || handlers.elicit_url.is_some();
                    let wrong_mode = || Error::invalid_params("/mode", unsupported_message(method));
                    let handler =
                        handler.as_ref().ok_or_else(|| if other { wrong_mode() } else { unsupported() })?;
                    ClientResult::Elicit(handler(*params).await?)
                }
                ServerRequest::Sample(params) => {
                    let handler = handlers.sample.as_ref().ok_or_else(unsupported)?;
                    if params.tools.is_some() && !handlers.sample_tools {
                        return Err(Error::invalid_params(
                            "/tools",
                            "this client's model does not support tools",
                        ));
                    }
                    ClientResult::Sample(Box::new(handler(*params).await?))
                }
                ServerRequest::Roots => {
                    let roots = lock(&handlers.roots).clone().ok_or_else(unsupported)?;
                    ClientResult::Roots(ListRootsResult { roots, meta: None })
                }
            })
        })
    }
}

impl Handlers {
    fn has_handler(&self, request: &ServerRequest) -> bool {
        match request {
            ServerRequest::Elicit(params) if params.mode == Some(ElicitMode::Url) => {
                self.elicit_url.is_some()
            }
            ServerRequest::Elicit(_) => self.elicit.is_some(),
            ServerRequest::Sample(_) => self.sample.is_some(),
            ServerRequest::Roots => lock(&self.roots).is_some(),
        }
    }

    /// Returns the error for a server request that needs a capability that the client has not declared.
    pub(crate) fn undeclared(&self, request: &ServerRequest) -> Option<Error> {
        request.missing_capability(&self.capabilities(), Revision::LATEST)?;
        Some(Error::rpc(code::METHOD_NOT_FOUND, unsupported_message(request.method().name())))
    }

    /// Returns the error for a server request without a handler.
    fn unhandled(&self, method: &str) -> Error {
        let declared = &self.declared;
        let is_declared =
            declared.elicitation.is_some() || declared.sampling.is_some() || declared.roots.is_some();
        if is_declared {
            let text = format!("{method} belongs to no call in flight that handles it");
            return Error::rpc(code::INTERNAL_ERROR, text);
        }
        Error::rpc(code::METHOD_NOT_FOUND, unsupported_message(method))
    }
}

fn unsupported_message(method: &str) -> String {
    format!("this client does not support {method}")
}

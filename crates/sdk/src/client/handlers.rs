//! Handlers of a client for server requests and notifications.

use std::sync::{Arc, Mutex};

use linchpin_protocol::model::{
    ClientCapabilities, CreateMessageParams, CreateMessageResult, ElicitMode, ElicitParams, ElicitResult,
    ElicitationCapability, ListRootsResult, LogParams, Root, RootsCapability, SamplingCapability, extension,
};
use serde_json::{Map, Value, json};

use crate::lock::lock;
use crate::server::BoxFuture;
use crate::server_request::{ClientResult, ServerRequest};
use crate::{Error, Result};

/// Handler of server requests: elicitation, sampling and roots.
pub(crate) trait ServerRequestHandler: Send + Sync {
    fn handle(&self, request: ServerRequest) -> BoxFuture<Result<ClientResult>>;
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
    /// Whether to forward server requests to the caller whose call caused them.
    pub(crate) forward: bool,
    /// Whether to declare the tasks capability.
    pub(crate) tasks: bool,
}

impl Handlers {
    /// Derives the client capabilities from the handlers.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let capability = |handler: bool| (handler || self.forward).then(|| json!({}));
        let (form, url) = (capability(self.elicit.is_some()), capability(self.elicit_url.is_some()));
        let elicitation = (form.is_some() || url.is_some()).then_some(ElicitationCapability { form, url });
        let sampling = capability(self.sample.is_some())
            .map(|_| SamplingCapability { context: None, tools: capability(self.sample_tools) });
        let roots =
            capability(lock(&self.roots).is_some()).map(|_| RootsCapability { list_changed: Some(true) });
        let tasks = || Map::from_iter([(extension::TASKS.to_owned(), json!({}))]);
        ClientCapabilities {
            elicitation,
            sampling,
            roots,
            tasks: None,
            extensions: self.tasks.then(tasks),
            experimental: None,
        }
    }
}

impl ServerRequestHandler for Arc<Handlers> {
    fn handle(&self, request: ServerRequest) -> BoxFuture<Result<ClientResult>> {
        let (handlers, method) = (self.clone(), request.method().name());
        Box::pin(async move {
            let unsupported =
                || Error::rpc(linchpin_protocol::code::METHOD_NOT_FOUND, unsupported_message(method));
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

fn unsupported_message(method: &str) -> String {
    format!("this client does not support {method}")
}

//! Link from a running call of the hub back to the MCP client that sent it.

use std::sync::{Arc, OnceLock};

use linchpin::client::ServerRequest;
use linchpin::model::{CreateMessageParams, ElicitMode, ElicitParams, ElicitSchema, LogLevel, LogParams};
use linchpin::{Context, Error, ErrorKind};
use linchpin_hub_core::hub::{CallOptions, CallProgress, CallingClient, ClientReply, ServerRequestKind};
use serde_json::Map;

/// Client that sent the request of a call.
struct ClientLink {
    cx: Context,
    /// Slug of the server that sends the requests, for clients that reach several servers.
    source: Option<String>,
    invalid_reply: InvalidReply,
}

/// Protocol error of a reply of the client, which is the response to its request instead of a result.
#[derive(Clone, Default)]
pub(crate) struct InvalidReply(Arc<OnceLock<Error>>);

impl InvalidReply {
    /// Returns the error, if there is one.
    pub(crate) fn take(self) -> Option<Error> {
        copy_of(self.0.get()?)
    }
}

/// Returns a copy of a protocol error.
fn copy_of(error: &Error) -> Option<Error> {
    match error.kind() {
        ErrorKind::Protocol(error) => Some(error.clone().into()),
        _ => None,
    }
}

impl CallingClient for ClientLink {
    fn progress(&self, progress: &CallProgress) {
        let CallProgress { progress, total, message } = progress.clone();
        self.cx.progress(linchpin::Progress::new(progress, total, message));
    }

    fn log(&self, message: LogParams) {
        self.cx.forward_log(&message);
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.cx.log_level()
    }

    fn task_started(&self) {
        self.cx.become_task();
    }

    fn elicitation_completed(&self, id: &str) {
        self.cx.url_elicitation(self.elicitation_id(id)).complete();
    }

    fn reply(&self, mut request: ServerRequest, name: Option<String>) -> ClientReply {
        if let ServerRequest::Elicit(params) = &mut request {
            // The user sees which server asks, and no server completes the elicitation of another one.
            if let Some(source) = &self.source {
                params.message = format!("{source}: {}", params.message);
            }
            params.elicitation_id = params.elicitation_id.take().map(|id| self.elicitation_id(&id));
        }
        let (cx, invalid_reply) = (self.cx.clone(), self.invalid_reply.clone());
        Box::pin(async move {
            let reply = cx.forward_server_request(request, name.as_deref()).await;
            if let Some(error) = reply.as_ref().err().and_then(copy_of) {
                let _ = invalid_reply.0.set(error); // the first one is returned
            }
            reply
        })
    }
}

impl ClientLink {
    /// Returns the id of a URL elicitation for the client: the ids of two servers may be equal.
    fn elicitation_id(&self, id: &str) -> String {
        self.source.as_ref().map_or_else(|| id.to_owned(), |source| format!("{source}.{id}"))
    }
}

/// Returns the options of a call for the client that sent its request, and what is invalid in its replies. `source` is the
/// slug of the server, for clients that reach several servers.
pub(crate) fn call_options(cx: &Context, source: Option<&str>) -> (CallOptions, InvalidReply) {
    let invalid_reply = InvalidReply::default();
    let source = source.map(str::to_owned);
    let link = ClientLink { cx: cx.clone(), source, invalid_reply: invalid_reply.clone() };
    let options =
        CallOptions { replies: replies(cx), client: Some(Arc::new(link)), ..CallOptions::default() };
    (options, invalid_reply)
}

/// Returns the kinds of server requests that the client replies to.
fn replies(cx: &Context) -> Vec<ServerRequestKind> {
    let capabilities = cx.capabilities();
    let mut kinds = Vec::new();
    if capabilities.elicitation.is_some() {
        let elicitations =
            [(ServerRequestKind::Form, ElicitMode::Form), (ServerRequestKind::Url, ElicitMode::Url)];
        let can_elicit = |mode| cx.can_request(&ServerRequest::Elicit(Box::new(empty_elicitation(mode))));
        kinds.extend(elicitations.into_iter().filter(|(_, mode)| can_elicit(*mode)).map(|(kind, _)| kind));
    }
    if capabilities.sampling.is_some()
        && cx.can_request(&ServerRequest::Sample(Box::new(CreateMessageParams::from("hello"))))
    {
        kinds.push(ServerRequestKind::Sampling);
    }
    if capabilities.roots.is_some() && cx.can_request(&ServerRequest::Roots) {
        kinds.push(ServerRequestKind::Roots);
    }
    kinds
}

/// Creates an elicitation without fields.
pub(crate) fn empty_elicitation(mode: ElicitMode) -> ElicitParams {
    let form =
        ElicitSchema { schema: None, kind: "object".to_owned(), properties: Map::new(), required: None };
    ElicitParams {
        requested_schema: Some(form).filter(|_| mode == ElicitMode::Form),
        mode: Some(mode),
        message: String::new(),
        url: None,
        elicitation_id: None,
        task: None,
        meta: None,
    }
}

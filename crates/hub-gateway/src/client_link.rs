//! Link from a running call of the hub back to the MCP client that sent it.

use linchpin::Context;
use linchpin::client::ServerRequest;
use linchpin::model::{CreateMessageParams, ElicitMode, ElicitParams, ElicitSchema, LogLevel, LogParams};
use linchpin_hub_core::hub::{CallProgress, CallingClient, ClientReply, ServerRequestKind};
use serde_json::Map;

/// Client that sent the request of a call.
pub(crate) struct ClientLink(pub(crate) Context);

impl CallingClient for ClientLink {
    fn progress(&self, progress: &CallProgress) {
        let CallProgress { progress, total, message } = progress.clone();
        self.0.progress(linchpin::Progress::new(progress, total, message));
    }

    fn log(&self, message: LogParams) {
        self.0.forward_log(&message);
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.0.log_level()
    }

    fn elicitation_completed(&self, id: &str) {
        self.0.url_elicitation(id).complete();
    }

    fn reply(&self, request: ServerRequest) -> ClientReply {
        let cx = self.0.clone();
        Box::pin(async move { cx.send_server_request(request).await })
    }
}

/// Returns the kinds of server requests that the client replies to.
pub(crate) fn replies(cx: &Context) -> Vec<ServerRequestKind> {
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

//! Client whose request is a call: receives the progress and the log messages of the call while it runs, and replies to
//! the requests of its server.

use std::pin::Pin;
use std::sync::Arc;

use linchpin::client::{Call, ClientResult, ServerRequest};
use linchpin::encode::to_value;
use linchpin::model::{
    ClientCapabilities, ElicitAction, ElicitationCapability, LogLevel, LogParams, Meta, extension,
};
use linchpin::{Revision, code};
use serde_json::{Value, json};

use super::exchange::CallExchange;
use super::handle::{CallOptions, CallProgress};
use super::server_requests::{ServerReply, ServerRequestKind, ServerRequestView};
use crate::connection::all_capabilities;
use crate::error::ErrorKind;
use crate::secrets::redact::Redactor;

/// Reply of a client to a server request, when it arrives.
pub type ClientReply = Pin<Box<dyn Future<Output = linchpin::Result<ClientResult>> + Send>>;

/// Client whose request is a call, for interfaces through which a client takes part in its calls. All texts of the
/// server are redacted.
pub trait CallingClient: Send + Sync {
    /// Receives the progress of a call. Must not block.
    fn progress(&self, progress: &CallProgress);

    /// Receives a log message of the server. Must not block.
    fn log(&self, message: LogParams);

    /// Returns the minimum level of the log messages that the client wants; `None` if it wants none.
    fn log_level(&self) -> Option<LogLevel>;

    /// Is called when the server runs the call as a task. Must not block.
    fn task_started(&self);

    /// Receives the id of a URL elicitation whose page the user has finished. Must not block.
    fn elicitation_completed(&self, id: &str);

    /// Sends a request of the server to the client and returns its reply. `name` identifies the request within the call,
    /// if the server has named it. Dropping the future withdraws the request.
    fn reply(&self, request: ServerRequest, name: Option<String>) -> ClientReply;
}

impl CallExchange {
    /// Sends an open server request to the calling client, and passes its reply on as that of the caller.
    pub(super) async fn forward_request(
        &self,
        client: &dyn CallingClient,
        (request, name): (ServerRequest, Option<String>),
        view: &ServerRequestView,
    ) -> linchpin::Result<ClientResult> {
        let request = redacted(&request, &self.access.redactor)?;
        let reply = into_reply(client.reply(request, name).await?);
        let recorded = self.calls.reply_to_server_request(self.actor, view.id, reply).await;
        match recorded {
            // The waiting side of the server request yields the reply.
            Ok(()) => std::future::pending().await,
            // A user of the hub has replied at this moment.
            Err(error) if error.kind() == ErrorKind::NotFound => std::future::pending().await,
            Err(error) => Err(linchpin::Error::rpc(code::INVALID_PARAMS, error.message())),
        }
    }
}

/// Passes the server requests of a read to the client that requested it, if the client replies to them.
pub(super) fn attach_client<T>(call: Call<T>, options: &CallOptions, redactor: &Arc<Redactor>) -> Call<T> {
    let Some(client) = options.client.clone() else { return call };
    let (redactor, replies) = (redactor.clone(), options.replies.clone());
    let call = call.capabilities(capabilities_of(&options.replies));
    call.on_named_server_request(move |request, name| {
        let is_replied = replies.contains(&ServerRequestKind::of(&request));
        let (client, redactor) = (client.clone(), redactor.clone());
        async move {
            if is_replied {
                client.reply(redacted(&request, &redactor)?, name).await
            } else {
                request.decline()
            }
        }
    })
}

/// Returns the client capabilities of a caller that replies to these kinds of server requests.
pub(super) fn capabilities_of(replies: &[ServerRequestKind]) -> Arc<ClientCapabilities> {
    let all = all_capabilities();
    let has = |kind| replies.contains(&kind);
    let elicitation = all.elicitation.map(|elicitation| ElicitationCapability {
        form: elicitation.form.filter(|_| has(ServerRequestKind::Form)),
        url: elicitation.url.filter(|_| has(ServerRequestKind::Url)),
    });
    let extensions = Meta::from_iter([(extension::TASKS.to_owned(), json!({}))]);
    Arc::new(ClientCapabilities {
        elicitation: elicitation.filter(|modes| modes.form.is_some() || modes.url.is_some()),
        sampling: all.sampling.filter(|_| has(ServerRequestKind::Sampling)),
        roots: all.roots.filter(|_| has(ServerRequestKind::Roots)),
        extensions: Some(extensions),
        ..ClientCapabilities::default()
    })
}

/// Returns the server request with secrets redacted.
fn redacted(request: &ServerRequest, redactor: &Redactor) -> linchpin::Result<ServerRequest> {
    let value = redactor.redact(to_value(request, Revision::LATEST_SESSION));
    Ok(match request {
        ServerRequest::Elicit(_) => ServerRequest::Elicit(serde_json::from_value(value)?),
        ServerRequest::Sample(_) => ServerRequest::Sample(serde_json::from_value(value)?),
        ServerRequest::Roots => ServerRequest::Roots,
    })
}

/// Converts the result of a client into a reply of the caller.
fn into_reply(result: ClientResult) -> ServerReply {
    match result {
        ClientResult::Elicit(result) => match result.action {
            ElicitAction::Accept => ServerReply::Accept(result.content.map(Value::Object)),
            ElicitAction::Decline => ServerReply::Decline,
            ElicitAction::Cancel => ServerReply::Cancel,
        },
        result => ServerReply::Accept(Some(to_value(&result, Revision::LATEST))),
    }
}

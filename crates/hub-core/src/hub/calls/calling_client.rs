//! Client whose request is a call: receives the progress and the log messages of the call while it runs, and replies to
//! the requests of its server.

use std::pin::Pin;

use linchpin::client::{ClientResult, ServerRequest};
use linchpin::encode::to_value;
use linchpin::model::{ElicitAction, LogLevel, LogParams};
use linchpin::{Revision, code};
use serde_json::Value;

use super::exchange::CallExchange;
use super::handle::CallProgress;
use super::server_requests::{ServerReply, ServerRequestView};
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

    /// Receives the id of a URL elicitation whose page the user has finished. Must not block.
    fn elicitation_completed(&self, id: &str);

    /// Sends a request of the server to the client and returns its reply. Dropping the future withdraws the request.
    fn reply(&self, request: ServerRequest) -> ClientReply;
}

impl CallExchange {
    /// Sends an open server request to the calling client, and passes its reply on as that of the caller.
    pub(super) async fn forward_request(
        &self,
        client: &dyn CallingClient,
        request: ServerRequest,
        view: &ServerRequestView,
    ) -> linchpin::Result<ClientResult> {
        let request = redacted(request, &self.access.redactor);
        let reply = into_reply(client.reply(request).await?);
        let recorded = self.calls.reply_to_server_request(self.actor, view.id, reply).await;
        match recorded {
            // The waiting side of the server request yields the reply.
            Ok(()) => std::future::pending().await,
            Err(error) => Err(linchpin::Error::rpc(code::INVALID_PARAMS, error.message())),
        }
    }
}

/// Returns the server request with secrets redacted.
fn redacted(request: ServerRequest, redactor: &Redactor) -> ServerRequest {
    fn decode<T: serde::de::DeserializeOwned>(value: Value, original: T) -> T {
        serde_json::from_value(value).unwrap_or(original)
    }
    let value = redactor.redact(to_value(&request, Revision::LATEST));
    match request {
        ServerRequest::Elicit(params) => ServerRequest::Elicit(decode(value, params)),
        ServerRequest::Sample(params) => ServerRequest::Sample(decode(value, params)),
        ServerRequest::Roots => ServerRequest::Roots,
    }
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

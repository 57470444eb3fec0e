//! HTTP+SSE transport, the predecessor of Streamable HTTP: one stream with all messages from the server, and an
//! endpoint, named on that stream, for all messages to the server.

use std::sync::Arc;
use std::time::Duration;

use ::http::{Method as Verb, header};
use bytes::Bytes;
use linchpin_jsonrpc::CallError;
use tokio::sync::oneshot;

use super::body::{ResponseBodyKind, ResponseReader};
use super::connection::HttpConnection;
use super::errors;
use super::event_stream::{ResumeState, StreamControl, StreamEnd};
use super::message::OutgoingRequest;
use super::state::HttpMode;
use crate::auth::form_urlencoded;
use crate::egress::{Target, host_of};
use crate::http::sse::SseEvent;
use crate::lock::lock;
use crate::server::spawn_abortable;

/// Idle timeout of the HTTP+SSE stream: effectively none, since it may be idle for any time.
const IDLE_TIMEOUT: Duration = Duration::from_hours(24 * 365);

impl HttpConnection {
    /// Retries `initialize` over HTTP+SSE after the server rejected it over Streamable HTTP.
    pub(super) async fn initialize_over_sse(
        self: &Arc<Self>,
        request: &OutgoingRequest,
        error: CallError,
    ) -> Result<(), CallError> {
        if matches!(lock(&self.state).mode, HttpMode::Sse(_)) || self.find_endpoint().await.is_err() {
            return Err(error);
        }
        let response = self.send(Verb::POST, &request.headers, request.line.clone()).await?;
        if response.status().is_success() {
            return Ok(()); // the response comes on the stream
        }
        Err(self.response_error(response).await)
    }

    /// Opens the HTTP+SSE stream and waits for its `endpoint` event, which names the URL for messages.
    pub(super) async fn find_endpoint(self: &Arc<Self>) -> Result<(), CallError> {
        let mut headers = lock(&self.state).initial_headers(None);
        headers.remove(header::CONTENT_TYPE);
        let response = self.send(Verb::GET, &headers, Bytes::new()).await?;
        if !response.status().is_success() {
            return Err(self.response_error(response).await);
        }
        let content_type = response.headers().get(header::CONTENT_TYPE).cloned();
        let status = response.status();
        let mut reading = ResponseReader::new(response.into_body(), IDLE_TIMEOUT);
        if !matches!(reading.kind(false).await, Ok(ResponseBodyKind::Events)) {
            return Err(errors::not_a_message(content_type.as_ref(), status));
        }
        let (endpoint_sender, endpoint_receiver) = oneshot::channel();
        let task = spawn_abortable(&self.runtime, self.clone().read_legacy_stream(reading, endpoint_sender));
        lock(&self.state).listen_task = Some(task);
        let no_endpoint = || {
            CallError::Lost("the event stream ended before the server named its endpoint for messages".into())
        };
        let endpoint = endpoint_receiver.await.map_err(|_| no_endpoint())??;
        self.report_diagnostic(|| {
            format!("the server speaks HTTP+SSE; messages are sent to its endpoint at {}", endpoint.origin())
        });
        let mut state = lock(&self.state);
        for pair in endpoint.query().split('&') {
            let value = pair.split_once('=').map_or(pair, |(_, value)| value);
            state.add_secret(value);
        }
        form_urlencoded::decode(endpoint.query()).for_each(|(_, value)| state.add_secret(&value));
        state.mode = HttpMode::Sse(endpoint);
        Ok(())
    }

    /// Reads the HTTP+SSE stream until it ends.
    async fn read_legacy_stream(
        self: Arc<Self>,
        mut reading: ResponseReader,
        endpoint_sender: oneshot::Sender<Result<Target, CallError>>,
    ) {
        let (mut endpoint_sender, mut tail) = (Some(endpoint_sender), ResumeState::default());
        let outcome = self.read_events(&mut reading, &mut tail, |event| {
            if let Some(endpoint_sender) = endpoint_sender.take() {
                let endpoint = self.endpoint(event);
                let flow = if endpoint.is_ok() { StreamControl::Continue } else { StreamControl::Done };
                let _ = endpoint_sender.send(endpoint); // the receiver is gone if the connection was closed
                return flow;
            }
            if !self.deliver(event, None) {
                let server = self.wire.server_label();
                tracing::warn!(server, "ignored an event that is not a message");
            }
            StreamControl::Continue
        });
        let reason = match outcome.await {
            StreamEnd::ConnectionLost(reason) => reason,
            StreamEnd::Failed(error) => error.to_string(),
            StreamEnd::Done => return,
        };
        if endpoint_sender.is_none() {
            self.close(&reason);
        }
    }

    /// Returns the endpoint for messages that the first event of an HTTP+SSE stream names. It must have the origin of
    /// the stream: a server must not redirect the client, with its credentials, to another host.
    fn endpoint(&self, event: &SseEvent<'_>) -> Result<Target, CallError> {
        if event.event != "endpoint" || event.data.trim().is_empty() {
            return Err(CallError::Malformed(
                "the first event of the stream must be `endpoint`, with a URL".into(),
            ));
        }
        let other_origin =
            || "the endpoint for messages must have the same origin as the event stream".to_owned();
        let endpoint =
            self.target.discovered(event.data).map_err(|error| error.to_string()).and_then(|endpoint| {
                endpoint.same_origin(&self.target).then_some(endpoint).ok_or_else(other_origin)
            });
        endpoint.map_err(|reason| {
            self.http.egress.deny(&host_of(event.data), None, &reason);
            CallError::Malformed(reason)
        })
    }
}

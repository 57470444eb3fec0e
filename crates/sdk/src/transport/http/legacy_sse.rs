//! HTTP+SSE transport, the predecessor of Streamable HTTP: one stream with all messages from the server, and an
//! endpoint, named on that stream, for all messages to the server.

use std::sync::Arc;
use std::time::Duration;

use ::http::{Method as Verb, header};
use bytes::Bytes;
use linchpin_jsonrpc::CallError;
use tokio::sync::oneshot;

use super::body::{Kind, Reading};
use super::connection::Link;
use super::errors;
use super::event_stream::{Ended, Flow, Tail};
use super::message::Request;
use super::state::Way;
use crate::auth::form_urlencoded;
use crate::egress::{Target, host_of};
use crate::http::sse::Event;
use crate::lock::lock;
use crate::server::start_abortable;

/// Idle timeout of the stream: effectively none, since it may be idle for any time.
const SILENCE: Duration = Duration::from_hours(24 * 365);

impl Link {
    /// Retries `initialize` over HTTP+SSE after the server rejected it over Streamable HTTP.
    pub(super) async fn greet_as_of_old(
        self: &Arc<Self>,
        request: &Request,
        error: CallError,
    ) -> Result<(), CallError> {
        if matches!(lock(&self.state).way, Way::Sse(_)) || self.find_endpoint().await.is_err() {
            return Err(error);
        }
        let response = self.send(Verb::POST, &request.headers, request.line.clone()).await?;
        if response.status().is_success() {
            return Ok(()); // the response comes on the stream
        }
        Err(self.refusal(response).await)
    }

    /// Opens the stream and waits for the endpoint event.
    pub(super) async fn find_endpoint(self: &Arc<Self>) -> Result<(), CallError> {
        let mut headers = lock(&self.state).first_headers(None);
        headers.remove(header::CONTENT_TYPE);
        let response = self.send(Verb::GET, &headers, Bytes::new()).await?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let content_type = response.headers().get(header::CONTENT_TYPE).cloned();
        let status = response.status();
        let mut reading = Reading::new(response.into_body(), SILENCE);
        if !matches!(reading.kind(false).await, Ok(Kind::Events)) {
            return Err(errors::not_a_message(content_type.as_ref(), status));
        }
        let (found, named) = oneshot::channel();
        let task = start_abortable(&self.runtime, self.clone().hear(reading, found));
        lock(&self.state).listening = Some(task);
        let silent = || CallError::Lost("the server did not name an endpoint".into());
        let endpoint = named.await.map_err(|_| silent())??;
        self.diagnose(|| format!("the server speaks HTTP+SSE; messages go to {}", endpoint.origin()));
        let mut state = lock(&self.state);
        for pair in endpoint.query().split('&') {
            let value = pair.split_once('=').map_or(pair, |(_, value)| value);
            state.hide(value);
        }
        form_urlencoded::decode(endpoint.query()).for_each(|(_, value)| state.hide(&value));
        state.way = Way::Sse(endpoint);
        Ok(())
    }

    /// Reads the stream until it ends.
    async fn hear(self: Arc<Self>, mut reading: Reading, found: oneshot::Sender<Result<Target, CallError>>) {
        let (mut found, mut tail) = (Some(found), Tail::default());
        let heard = self.follow(&mut reading, &mut tail, |event| {
            if let Some(found) = found.take() {
                let endpoint = self.endpoint(event);
                let flow = if endpoint.is_ok() { Flow::Go } else { Flow::Done };
                let _ = found.send(endpoint); // the receiver is gone if the connection was closed
                return flow;
            }
            if !self.deliver(event) {
                let server = self.wire.server_label();
                tracing::warn!(server, "ignored an event that is not a message");
            }
            Flow::Go
        });
        let reason = match heard.await {
            Ended::Cut(reason) => reason,
            Ended::Fault(error) => error.to_string(),
            Ended::Done => return,
        };
        if found.is_none() {
            self.end(&reason);
        }
    }

    /// Returns the endpoint named by an event. It must have the origin of the stream: a server must not redirect the
    /// client, with its credentials, to another host.
    fn endpoint(&self, event: &Event<'_>) -> Result<Target, CallError> {
        if event.event != "endpoint" || event.data.trim().is_empty() {
            return Err(CallError::Malformed("the first event of the stream must be an endpoint".into()));
        }
        let elsewhere = || "the endpoint must have the origin of the stream".to_owned();
        let endpoint =
            self.target.learned(event.data).map_err(|error| error.to_string()).and_then(|endpoint| {
                endpoint.same_origin(&self.target).then_some(endpoint).ok_or_else(elsewhere)
            });
        endpoint.map_err(|reason| {
            self.http.egress.deny(&host_of(event.data), None, &reason);
            CallError::Malformed(reason)
        })
    }
}

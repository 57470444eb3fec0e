//! Exchange of one HTTP request: sends the message and handles the response, including lost sessions.

use std::sync::Arc;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderMap, HeaderValue, Method as Verb, Response, StatusCode};
use linchpin_jsonrpc::{CallError, Id};
use linchpin_protocol::{Method, code};

use super::body::{BOM, ResponseBodyKind, ResponseReader};
use super::connection::HttpConnection;
use super::errors;
use super::message::OutgoingRequest;
use super::state::HttpMode;
use crate::egress::ResponseBody;
use crate::http::header_names;
use crate::lock::lock;
use crate::transport::Direction;

/// Maximum length of the MCP session id that a server may choose.
const MAX_SESSION_ID_LEN: usize = 4 << 10;

impl HttpConnection {
    /// Sends a JSON-RPC request by HTTP POST and passes its response to the client. The error is the reason why there
    /// is no response.
    pub(super) async fn exchange(self: &Arc<Self>, request: &OutgoingRequest) -> Result<(), CallError> {
        let response = self.send(Verb::POST, &request.headers, request.line.clone()).await?;
        let status = response.status();
        self.report_diagnostic(|| format!("response to {}: {status}", request.method));
        if status.is_success() {
            // Not if the other era was negotiated in the meantime.
            if request.is_method(Method::Initialize) && self.wire.is_waiting(&request.id) {
                self.on_session_opened(request, response.headers());
            }
            if request.is_method(Method::Listen) {
                lock(&self.state).has_listened = true;
            }
            return self.read_response(request, response).await;
        }
        // Boxed, like all rare paths, so that the future of every request stays small.
        Box::pin(self.handle_error_response(request, response)).await
    }

    /// Converts an error response into an error, or into a fallback to HTTP+SSE or a new session.
    async fn handle_error_response(
        self: &Arc<Self>,
        request: &OutgoingRequest,
        response: Response<ResponseBody>,
    ) -> Result<(), CallError> {
        match (response.status(), self.response_error(response).await) {
            (_, error) if is_unknown_method(&error) => Err(error),
            (StatusCode::NOT_FOUND, _) if request.session.is_some() => {
                Err(self.renew_lost_session(request.session.unwrap_or_default()).await)
            }
            (StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, error)
                if request.is_method(Method::Initialize) && !matches!(error, CallError::Rejected(_)) =>
            {
                self.initialize_over_sse(request, error).await
            }
            (_, error) => Err(error),
        }
    }

    /// Stores the id of the session that the server has opened.
    fn on_session_opened(&self, initialize: &OutgoingRequest, headers: &HeaderMap) {
        self.set_session(self.session_id(headers));
        // Abort earlier requests that got no response, such as the stateless-era probe.
        let mut state = lock(&self.state);
        let earlier = state.in_flight.extract_if(|id, _| match (id, &initialize.id) {
            (Id::Number(id), Id::Number(initialize_id)) => id < initialize_id,
            _ => false,
        });
        earlier.filter_map(|(_, task)| task).for_each(|task| task.abort());
    }

    /// Returns the session id in the headers of a response.
    pub(super) fn session_id(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut id = headers.get(header_names::SESSION_ID)?.clone();
        let text = id.to_str().ok().filter(|id| !id.is_empty() && id.len() <= MAX_SESSION_ID_LEN)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        lock(&self.state).add_secret(text);
        id.set_sensitive(true);
        Some(id)
    }

    /// Sets the MCP session id that later requests carry.
    pub(super) fn set_session(&self, session: Option<HeaderValue>) {
        if session.is_some() {
            self.report_diagnostic(|| "a session was opened".to_owned());
        }
        lock(&self.state).set_session(session);
    }

    async fn read_response(
        self: &Arc<Self>,
        request: &OutgoingRequest,
        response: Response<ResponseBody>,
    ) -> Result<(), CallError> {
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE).cloned();
        let is_event_stream =
            content_type.as_ref().is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        let mut reading = ResponseReader::new(response.into_body(), self.http.read_timeout);
        let limit = self.wire.max_message();
        let kind = reading.kind(is_event_stream).await.map_err(|broken| broken.into_error(limit))?;
        if matches!(lock(&self.state).mode, HttpMode::Sse(_)) {
            // The response comes on the stream; this body is "Accepted" or empty.
            reading.read_start(limit).await;
            return Ok(());
        }
        match kind {
            ResponseBodyKind::Json => {
                let body = reading.read_to_end(limit).await.map_err(|broken| broken.into_error(limit))?;
                let body = body.strip_prefix(BOM).unwrap_or(&body);
                self.report_message(Direction::Received, body);
                if !self.wire.receive_for(&request.id, body) {
                    return Err(CallError::Malformed("the body is not a JSON-RPC message".into()));
                }
                if self.wire.is_waiting(&request.id) {
                    return Err(CallError::Malformed("the body is not the response to the request".into()));
                }
                Ok(())
            }
            ResponseBodyKind::Events => Box::pin(self.read_response_stream(request, reading)).await,
            ResponseBodyKind::Empty => {
                let reason = format!("the server responded with HTTP {} and no body", status.as_u16());
                Err(CallError::Malformed(reason))
            }
            ResponseBodyKind::Other => Err(errors::not_a_message(content_type.as_ref(), status)),
        }
    }

    /// Opens a new session after the server has lost the current one. Returns the error for the request that noticed
    /// the loss.
    pub(super) async fn renew_lost_session(self: &Arc<Self>, generation: u64) -> CallError {
        match self.renew_session(generation).await {
            Ok(()) => errors::session_not_found("a new session was opened"),
            Err(error) => errors::session_not_found(&format!("a new session could not be opened: {error}")),
        }
    }
}

/// Returns whether an error response means that the method is unknown, not the session.
pub(super) fn is_unknown_method(error: &CallError) -> bool {
    matches!(error, CallError::Rejected(error) if error.code == code::METHOD_NOT_FOUND)
}

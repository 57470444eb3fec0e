//! Execution of one request: responds with one JSON message, or with an SSE stream if other messages precede the
//! response or it takes long.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::http::StatusCode;
use linchpin_jsonrpc::{Message, Outbox, TakeOutcome, code};
use linchpin_protocol::{Era, code as mcp};
use tokio::runtime::Handle;

use crate::server::http::endpoint::Endpoint;
use crate::server::http::responses::{self, HttpResponse};
use crate::server::http::sessions::SessionGuard;
use crate::server::http::streams::SessionStream;
use crate::server::http::streams::body::StreamBody;
use crate::server::{BoxFuture, Connection, spawn};

pub(in crate::server::http) struct RequestExchange<'a> {
    endpoint: &'a Arc<Endpoint>,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    session: Option<SessionGuard>,
    expects_response: bool,
}

/// Guard for a client that disconnects before the response is sent: the request is cancelled or, in a session,
/// continues without this response.
struct DisconnectGuard {
    connection: Option<Arc<Connection>>,
    in_session: bool,
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        match &self.connection {
            Some(connection) if self.in_session => connection.close_outbox(),
            Some(connection) => connection.abandon(),
            None => {}
        }
    }
}

/// Builds the response from the message in `outbox`.
pub(in crate::server::http) fn response_from(
    connection: &Connection,
    outbox: &Outbox,
    era: Era,
) -> HttpResponse {
    let mut lines = Vec::new();
    outbox.take(&mut lines);
    lines.pop(); // the newline
    if lines.is_empty() {
        return responses::accepted();
    }
    responses::json(status(connection, era), lines)
}

/// Returns the HTTP status for the JSON-RPC response that was sent. Errors that occurred before any work was done are
/// also reported by the status.
fn status(connection: &Connection, era: Era) -> StatusCode {
    match (connection.failure(), era) {
        (Some(code::METHOD_NOT_FOUND), Era::Stateless) => StatusCode::NOT_FOUND,
        (
            Some(code::PARSE_ERROR | code::INVALID_REQUEST | mcp::HEADER_MISMATCH | mcp::UNSUPPORTED_VERSION),
            _,
        )
        | (Some(mcp::MISSING_CLIENT_CAPABILITY), Era::Stateless) => StatusCode::BAD_REQUEST,
        (Some(_), Era::Stateless) if connection.was_rejected() => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// Returns whether `lines` contains nothing but the response, which can then be sent as JSON instead of a stream.
fn is_single_response(lines: &[u8]) -> bool {
    memchr::memchr(b'\n', lines).is_some_and(|end| end + 1 == lines.len())
        && !lines.starts_with(br#"{"jsonrpc":"2.0","method""#) // a notification before a cancelled request
}

impl<'a> RequestExchange<'a> {
    pub(in crate::server::http) fn new(
        endpoint: &'a Arc<Endpoint>,
        connection: Arc<Connection>,
        outbox: Arc<Outbox>,
        session: Option<SessionGuard>,
    ) -> Self {
        RequestExchange { endpoint, connection, outbox, session, expects_response: true }
    }

    fn era(&self) -> Era {
        if self.session.is_some() || self.connection.is_one_shot() { Era::Session } else { Era::Stateless }
    }

    pub(in crate::server::http) async fn run(mut self, message: &Message<'_>) -> HttpResponse {
        self.expects_response = matches!(message, Message::Request { .. });
        let rest = self.connection.handle_message(message);
        if let Message::Notification { .. } = message {
            if let Some(rest) = rest {
                let _gone = DisconnectGuard { connection: Some(self.connection), in_session: false };
                rest.await;
            }
            return responses::accepted();
        }
        let Some(mut rest) = rest else {
            self.outbox.mark_complete(); // later messages of a handler's background tasks go elsewhere
            let mut lines = Vec::new();
            self.outbox.take(&mut lines);
            return self.finish(lines);
        };
        // Most batches complete at the first poll.
        let first = std::future::poll_fn(|cx| Poll::Ready(rest.as_mut().poll(cx))).await;
        if first.is_pending() {
            self.spawn_remainder(rest);
        } else {
            self.outbox.mark_complete();
        }
        self.wait_for_response().await
    }

    /// Continues the work that did not finish at the first poll in its own task. In a session it continues regardless
    /// of this response, but does not hold a session that its client has ended.
    fn spawn_remainder(&self, rest: BoxFuture<()>) {
        let (outbox, tracked) = (self.outbox.clone(), self.connection.track(rest));
        spawn(&Handle::current(), async move {
            tracked.await;
            outbox.mark_complete();
        });
    }

    /// Waits until it is decided whether to respond with JSON or a stream.
    async fn wait_for_response(self) -> HttpResponse {
        let mut guard =
            DisconnectGuard { connection: Some(self.connection.clone()), in_session: self.session.is_some() };
        let mut timeout = self.stream_delay().map(|timeout| Box::pin(tokio::time::sleep(timeout)));
        let mut lines = Vec::new();
        loop {
            let found = std::future::poll_fn(|cx| match self.outbox.poll_take(&mut lines, cx) {
                Poll::Ready(found) => Poll::Ready(Some(found)),
                Poll::Pending => match &mut timeout {
                    Some(timeout) => timeout.as_mut().poll(cx).map(|()| None),
                    None => Poll::Pending,
                },
            });
            match found.await {
                Some(TakeOutcome::Last) => {
                    guard.connection = None;
                    return self.finish(lines);
                }
                Some(TakeOutcome::Reconnect(delay)) if self.is_primed() => {
                    return self.stream(&lines, guard, Some(delay));
                }
                Some(TakeOutcome::Reconnect(_)) if lines.is_empty() => {} // the stream could not be resumed
                Some(TakeOutcome::Lines | TakeOutcome::Reconnect(_)) | None => {
                    return self.stream(&lines, guard, None);
                }
            }
        }
    }

    /// Returns whether streams start with an event from which clients can resume.
    fn is_primed(&self) -> bool {
        self.session.as_ref().is_some_and(|guard| guard.session().is_primed())
    }

    /// Returns how long a response may take before it becomes a stream.
    fn stream_delay(&self) -> Option<Duration> {
        self.is_primed().then_some(self.endpoint.options.stream_after)
    }

    /// Builds the HTTP response once all messages of the request are in `lines`.
    fn finish(self, mut lines: Vec<u8>) -> HttpResponse {
        if is_single_response(&lines) {
            if let Some(challenge) = self.endpoint.scope_challenge(&self.connection) {
                return challenge;
            }
            lines.pop();
            return responses::json(status(&self.connection, self.era()), lines);
        }
        if lines.is_empty() && !self.expects_response {
            return responses::accepted();
        }
        // Several messages, or none because the request was cancelled.
        let stream = self.body().with_lines(&lines, true);
        responses::events(stream)
    }

    fn body(&self) -> StreamBody {
        let keep_alive = self.endpoint.options.keep_alive;
        let Some(in_use) = &self.session else { return StreamBody::new(self.outbox.clone(), keep_alive) };
        let session = in_use.session();
        let store = &self.endpoint.options.events;
        let stream =
            SessionStream::new(session.next_stream(), 0, self.outbox.clone(), session.retention(store));
        session.add_stream(stream.clone());
        self.connection.set_stream(&stream);
        StreamBody::resumable(stream, keep_alive).with_priming_event()
    }

    fn stream(
        self,
        lines: &[u8],
        mut guard: DisconnectGuard,
        reconnect_after: Option<Duration>,
    ) -> HttpResponse {
        let mut body = self.body().with_lines(lines, false);
        if let Some(delay) = reconnect_after {
            body = body.with_retry(delay);
        }
        let in_use = self.session;
        if in_use.is_some() {
            guard.connection = None; // its client can resume the stream
        }
        responses::events(body.on_disconnect(Box::new(move || drop((guard, in_use)))))
    }
}

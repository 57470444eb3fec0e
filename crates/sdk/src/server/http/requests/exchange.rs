//! Execution of one request: responds with one JSON message, or with an SSE stream if other messages precede the
//! response or it takes long.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::http::StatusCode;
use linchpin_jsonrpc::{Message, Outbox, Taken, code};
use linchpin_protocol::{Era, code as mcp};
use tokio::runtime::Handle;

use crate::server::http::endpoint::Endpoint;
use crate::server::http::responses::{self, Reply};
use crate::server::http::sessions::InUse;
use crate::server::http::streams::Stream;
use crate::server::http::streams::body::StreamBody;
use crate::server::{BoxFuture, Connection, start};

pub(in crate::server::http) struct Exchange<'a> {
    endpoint: &'a Arc<Endpoint>,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    session: Option<InUse>,
    wants_answer: bool,
}

/// Guard for the disconnection of the client before the response is sent. Without a session the request is cancelled.
/// In a session it continues, but its messages can no longer be delivered through this response.
struct Gone {
    connection: Option<Arc<Connection>>,
    in_session: bool,
}

impl Drop for Gone {
    fn drop(&mut self) {
        match &self.connection {
            Some(connection) if self.in_session => connection.cut(),
            Some(connection) => connection.abandon(),
            None => {}
        }
    }
}

/// Builds the response from the message in `outbox`.
pub(in crate::server::http) fn answered(connection: &Connection, outbox: &Outbox, era: Era) -> Reply {
    let mut lines = Vec::new();
    outbox.take(&mut lines);
    lines.pop(); // the newline
    if lines.is_empty() {
        return responses::accepted();
    }
    responses::json(status(connection, era), lines)
}

/// Returns the HTTP status of a response. Errors that occurred before any work was done are also reported by the
/// status.
fn status(connection: &Connection, era: Era) -> StatusCode {
    match (connection.failure(), era) {
        (Some(code::METHOD_NOT_FOUND), Era::Stateless) => StatusCode::NOT_FOUND,
        (
            Some(code::PARSE_ERROR | code::INVALID_REQUEST | mcp::HEADER_MISMATCH | mcp::UNSUPPORTED_VERSION),
            _,
        )
        | (Some(mcp::MISSING_CLIENT_CAPABILITY), Era::Stateless) => StatusCode::BAD_REQUEST,
        (Some(_), Era::Stateless) if connection.was_refused() => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// Returns whether `lines` contains nothing but the response.
fn is_one_answer(lines: &[u8]) -> bool {
    memchr::memchr(b'\n', lines).is_some_and(|end| end + 1 == lines.len())
        && !lines.starts_with(br#"{"jsonrpc":"2.0","method""#) // a notification before a cancelled request
}

impl<'a> Exchange<'a> {
    pub(in crate::server::http) fn new(
        endpoint: &'a Arc<Endpoint>,
        connection: Arc<Connection>,
        outbox: Arc<Outbox>,
        session: Option<InUse>,
    ) -> Self {
        Exchange { endpoint, connection, outbox, session, wants_answer: true }
    }

    fn era(&self) -> Era {
        if self.session.is_some() || self.connection.is_one_shot() { Era::Session } else { Era::Stateless }
    }

    pub(in crate::server::http) async fn run(mut self, message: &Message<'_>) -> Reply {
        self.wants_answer = matches!(message, Message::Request { .. });
        let rest = self.connection.take(message);
        if let Message::Notification { .. } = message {
            if let Some(rest) = rest {
                let _gone = Gone { connection: Some(self.connection), in_session: false };
                rest.await;
            }
            return responses::accepted();
        }
        let Some(mut rest) = rest else {
            self.outbox.complete(); // later messages of a handler's background tasks go elsewhere
            let mut lines = Vec::new();
            self.outbox.take(&mut lines);
            return self.finished(lines);
        };
        // Most batches complete at the first poll.
        let first = std::future::poll_fn(|cx| Poll::Ready(rest.as_mut().poll(cx))).await;
        if first.is_pending() {
            self.begin(rest);
        } else {
            self.outbox.complete();
        }
        self.wait().await
    }

    /// Spawns the rest of the work. In a session it continues regardless of this response, but does not hold a session
    /// that its client has ended.
    fn begin(&self, rest: BoxFuture<()>) {
        let (outbox, tracked) = (self.outbox.clone(), self.connection.tracked(rest));
        start(&Handle::current(), async move {
            tracked.await;
            outbox.complete();
        });
    }

    /// Waits until it is decided whether to respond with JSON or a stream.
    async fn wait(self) -> Reply {
        let mut gone = Gone { connection: Some(self.connection.clone()), in_session: self.session.is_some() };
        let mut patience = self.patience().map(|patience| Box::pin(tokio::time::sleep(patience)));
        let mut lines = Vec::new();
        loop {
            let found = std::future::poll_fn(|cx| match self.outbox.poll_take(&mut lines, cx) {
                Poll::Ready(found) => Poll::Ready(Some(found)),
                Poll::Pending => match &mut patience {
                    Some(patience) => patience.as_mut().poll(cx).map(|()| None),
                    None => Poll::Pending,
                },
            });
            match found.await {
                Some(Taken::Last) => {
                    gone.connection = None;
                    return self.finished(lines);
                }
                Some(Taken::HangUp(pause)) if self.is_primed() => {
                    return self.stream(&lines, gone, Some(pause));
                }
                Some(Taken::HangUp(_)) if lines.is_empty() => {} // the stream could not be resumed
                Some(Taken::Some | Taken::HangUp(_)) | None => return self.stream(&lines, gone, None),
            }
        }
    }

    /// Returns whether streams start with an event from which clients can resume.
    fn is_primed(&self) -> bool {
        self.session.as_ref().is_some_and(|used| used.session().is_primed())
    }

    /// Returns how long a response may take before it becomes a stream.
    fn patience(&self) -> Option<Duration> {
        self.is_primed().then_some(self.endpoint.options.stream_after)
    }

    /// Builds the response once all messages are in `lines`.
    fn finished(self, mut lines: Vec<u8>) -> Reply {
        if is_one_answer(&lines) {
            if let Some(challenge) = self.endpoint.late_challenge(&self.connection) {
                return challenge;
            }
            lines.pop();
            return responses::json(status(&self.connection, self.era()), lines);
        }
        if lines.is_empty() && !self.wants_answer {
            return responses::accepted();
        }
        // Several messages, or none because the request was cancelled.
        let stream = self.body().with_lines(&lines, true);
        responses::events(stream)
    }

    fn body(&self) -> StreamBody {
        let quiet = self.endpoint.options.keep_alive;
        let Some(in_use) = &self.session else { return StreamBody::new(self.outbox.clone(), quiet) };
        let session = in_use.session();
        let store = &self.endpoint.options.events;
        let stream = Stream::new(session.next_stream(), 0, self.outbox.clone(), session.keeping(store));
        session.add_stream(stream.clone());
        StreamBody::resumable(stream, quiet).primed()
    }

    fn stream(self, lines: &[u8], mut gone: Gone, hang_up: Option<Duration>) -> Reply {
        let mut body = self.body().with_lines(lines, false);
        if let Some(pause) = hang_up {
            body = body.hung_up(pause);
        }
        let in_use = self.session;
        if in_use.is_some() {
            gone.connection = None; // its client can resume the stream
        }
        responses::events(body.on_gone(Box::new(move || drop((gone, in_use)))))
    }
}

//! SSE streams in the client: read as they arrive and, in a session, resumed after a cut, without lost or duplicate
//! messages.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{self, HeaderValue};
use ::http::{Method as Verb, StatusCode};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Id};
use linchpin_protocol::Era;
use tokio::time::Instant;

use super::body::{ResponseBodyKind, ResponseError, ResponseReader};
use super::connection::HttpConnection;
use super::errors;
use super::message::OutgoingRequest;
use crate::http::header_names;
use crate::http::sse::{SseError, SseEvent, SseParser};
use crate::lock::lock;
use crate::transport::Direction;

/// How long to read a stream after its response, so that the connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// First and longest delay before a stream is resumed, if the server names none.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a stream must stay open for its count of failed reconnects to start again.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Maximum reconnection delay that a server may request.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(10);
/// Maximum number of event ids of earlier connections that are remembered.
const MAX_REMEMBERED_EVENTS: usize = 10_000;

/// State of an SSE stream that outlives its HTTP connections: the last event id, and what was already received.
#[derive(Default)]
pub(super) struct ResumeState {
    last_id: Option<String>,
    retry: Option<Duration>,
    /// Hashes of the event ids of earlier connections, and of the current one.
    earlier_events: HashSet<u64>,
    current_events: Vec<u64>,
    /// Whether the current connection of the stream has delivered a new message.
    has_message: bool,
    /// Reconnects since the last connection that delivered a message, stayed open for [`STABLE_AFTER`], or was polled.
    reconnects: usize,
    /// When the current connection of the stream was opened.
    opened_at: Option<Instant>,
}

/// Why reading an SSE stream ended.
pub(super) enum StreamEnd {
    /// The message that ends the stream arrived.
    Done,
    ConnectionLost(String),
    /// The stream cannot be read further, for this reason.
    Failed(CallError),
}

/// Result of handling an event of an SSE stream: whether the reader continues, and whether the event was skipped or
/// invalid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamControl {
    Continue,
    /// The event is not a message and is skipped.
    Skip,
    Done,
    /// The event should be a message and is invalid.
    Invalid,
}

impl ResumeState {
    /// Creates the state of a stream that replaces one with this many failed reconnects.
    pub(super) fn with_reconnects(reconnects: usize) -> Self {
        ResumeState { reconnects, ..ResumeState::default() }
    }

    pub(super) fn reconnects(&self) -> usize {
        self.reconnects
    }

    /// Returns the event id to resume the stream from, if it can be resumed.
    pub(super) fn last_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.last_id.as_ref()?.as_bytes()).ok()
    }

    /// Returns whether an event is new: servers may repeat events after a cut.
    fn is_new(&mut self, event: &SseEvent<'_>) -> bool {
        let Some(id) = event.id.filter(|_| event.has_id) else { return true };
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let event_hash = hasher.finish();
        if self.earlier_events.contains(&event_hash) {
            return false;
        }
        if self.current_events.len() < MAX_REMEMBERED_EVENTS {
            self.current_events.push(event_hash);
        }
        true
    }

    /// Records the end of a connection of the stream and returns the delay before it is reopened; `None` after too many
    /// failed attempts.
    pub(super) fn next_delay(&mut self, max: usize) -> Option<Duration> {
        let had_message = std::mem::take(&mut self.has_message);
        // A long connection without messages is not a failure.
        let was_stable = self.opened_at.take().is_some_and(|since| since.elapsed() >= STABLE_AFTER);
        // Nor is a connection with only an event id, if the server requests long delays: it expects to be polled.
        let polled =
            !self.current_events.is_empty() && self.retry.is_some_and(|retry| retry >= RETRY_BACKOFF.1);
        self.reconnects = if had_message || was_stable || polled { 1 } else { self.reconnects + 1 };
        if self.earlier_events.len() + self.current_events.len() > MAX_REMEMBERED_EVENTS {
            self.earlier_events.clear();
        }
        self.earlier_events.extend(self.current_events.drain(..));
        let backoff = RETRY_BACKOFF.0.saturating_mul(1 << (self.reconnects - 1).min(10)).min(RETRY_BACKOFF.1);
        let delay = match self.retry {
            Some(retry) if had_message => retry,
            Some(retry) => retry.max(backoff),
            None => backoff,
        };
        (self.reconnects <= max).then_some(delay.min(MAX_RETRY_DELAY))
    }
}

impl HttpConnection {
    /// Reads an event stream until `on_event` is done, the stream ends, or it fails.
    pub(super) async fn read_events(
        &self,
        reading: &mut ResponseReader,
        resume: &mut ResumeState,
        on_event: impl FnMut(&SseEvent<'_>) -> StreamControl,
    ) -> StreamEnd {
        self.read_events_with(reading, &mut SseParser::new(self.wire.max_message()), resume, on_event).await
    }

    /// Like [`Self::read_events`], with a parser that may contain the start of an event.
    async fn read_events_with(
        &self,
        reading: &mut ResponseReader,
        parser: &mut SseParser,
        resume: &mut ResumeState,
        mut on_event: impl FnMut(&SseEvent<'_>) -> StreamControl,
    ) -> StreamEnd {
        resume.opened_at.get_or_insert_with(Instant::now);
        let mut flow = StreamControl::Continue;
        loop {
            let chunk = match reading.next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    return StreamEnd::ConnectionLost(
                        "the server closed the stream before the response".into(),
                    );
                }
                Err(ResponseError::ConnectionLost(reason)) => return StreamEnd::ConnectionLost(reason),
                Err(ResponseError::TooLarge) => {
                    return StreamEnd::Failed(errors::body_too_large(self.wire.max_message()));
                }
            };
            let parsed = parser.feed(&chunk, |event| {
                if resume.is_new(&event) {
                    let next = on_event(&event);
                    resume.has_message |= next != StreamControl::Skip && is_message(&event);
                    flow = next.combine(flow);
                }
            });
            if let Some(id) = parser.last_event_id() {
                resume.last_id.get_or_insert_default().clear();
                resume.last_id.get_or_insert_default().push_str(id);
            }
            resume.retry = parser.retry().or(resume.retry);
            match (flow, parsed) {
                (StreamControl::Done, _) => return StreamEnd::Done,
                (StreamControl::Invalid, _) => {
                    return StreamEnd::Failed(errors::invalid_event("its data is not JSON-RPC"));
                }
                (StreamControl::Continue | StreamControl::Skip, Err(SseError::TooLarge)) => {
                    return StreamEnd::Failed(errors::event_too_large(self.wire.max_message()));
                }
                (StreamControl::Continue | StreamControl::Skip, Err(SseError::Invalid)) => {
                    return StreamEnd::Failed(errors::invalid_event("its data is not valid UTF-8"));
                }
                (StreamControl::Continue | StreamControl::Skip, Ok(())) => {}
            }
        }
    }

    /// Passes the message of a server-sent event to the client, for the request on whose response stream it arrived, if
    /// any. Returns `false` if the event should be a message and is not.
    pub(super) fn deliver(&self, event: &SseEvent<'_>, request: Option<&Id<'_>>) -> bool {
        if !is_message(event) {
            return true;
        }
        self.report_message(Direction::Received, event.data.as_bytes());
        let message = event.data.as_bytes();
        request.map_or_else(|| self.wire.try_receive(message), |id| self.wire.receive_for(id, message))
    }

    /// Reads the response stream of a request.
    pub(super) async fn read_response_stream(
        self: &Arc<Self>,
        request: &OutgoingRequest,
        mut reading: ResponseReader,
    ) -> Result<(), CallError> {
        let mut resume = ResumeState::default();
        loop {
            let on_event = |event: &SseEvent<'_>| {
                if !self.deliver(event, Some(&request.id)) {
                    StreamControl::Invalid
                } else if self.wire.is_waiting(&request.id) {
                    StreamControl::Continue
                } else {
                    StreamControl::Done
                }
            };
            let mut parser = SseParser::new(self.wire.max_message());
            let reason = match self.read_events_with(&mut reading, &mut parser, &mut resume, on_event).await {
                StreamEnd::Done => {
                    let rest = self.read_events_with(&mut reading, &mut parser, &mut resume, |event| {
                        self.deliver(event, Some(&request.id));
                        StreamControl::Continue
                    });
                    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
                    return Ok(());
                }
                StreamEnd::Failed(error) => return Err(error),
                StreamEnd::ConnectionLost(reason) => reason,
            };
            if request.era == Era::Stateless || resume.last_id().is_none() {
                return Err(CallError::Lost(reason.into()));
            }
            reading = Box::pin(self.resume(request, &mut resume, reason)).await?;
        }
    }

    /// Resumes a cut stream, within the allowed number of attempts.
    async fn resume(
        self: &Arc<Self>,
        request: &OutgoingRequest,
        resume: &mut ResumeState,
        mut reason: String,
    ) -> Result<ResponseReader, CallError> {
        loop {
            let Some(delay) = resume.next_delay(self.http.max_reconnects) else {
                let attempts = self.http.max_reconnects;
                return Err(CallError::Lost(format!("{reason}; gave up after {attempts} reconnects").into()));
            };
            self.report_diagnostic(|| {
                format!("the stream of {} was cut ({reason}): reconnecting", request.method)
            });
            tokio::time::sleep(delay).await;
            match self.reopen(resume).await {
                Ok(reading) => return Ok(reading),
                Err(ResumeError::Transient(resume_error)) => reason = resume_error,
                Err(ResumeError::Permanent(error)) => return Err(error),
                Err(ResumeError::SessionLost(generation)) => {
                    return Err(self.renew_lost_session(generation).await);
                }
            }
        }
    }

    /// Reopens a cut stream, or opens the standalone stream.
    pub(super) async fn reopen(&self, tail: &mut ResumeState) -> Result<ResponseReader, ResumeError> {
        let (mut headers, generation) = {
            let revision = self.wire.revision();
            let mut state = lock(&self.state);
            let headers = state.current_headers(revision);
            (headers, state.generation)
        };
        headers.remove(header::CONTENT_TYPE);
        let has_session = headers.contains_key(header_names::SESSION_ID);
        if let Some(last_id) = tail.last_id() {
            headers.insert(header_names::LAST_EVENT_ID, last_id);
        }
        let sent = tokio::time::timeout(self.http.read_timeout, self.send(Verb::GET, &headers, Bytes::new()));
        let response = match sent.await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(ResumeError::Transient(error.to_string())),
            Err(_) => return Err(ResumeError::Transient("the server does not respond".into())),
        };
        match response.status() {
            status if status.is_success() => {
                tail.opened_at = Some(Instant::now());
                self.report_diagnostic(|| "the event stream is open".to_owned());
                let mut reading = ResponseReader::new(response.into_body(), self.http.read_timeout);
                match reading.kind(true).await {
                    Ok(ResponseBodyKind::Events) => Ok(reading),
                    Ok(_) => Err(ResumeError::Permanent(CallError::Lost(
                        "the server does not resume event streams".into(),
                    ))),
                    Err(_) => {
                        Err(ResumeError::Transient("the resumed stream broke before its first event".into()))
                    }
                }
            }
            StatusCode::NOT_FOUND if has_session => Err(ResumeError::SessionLost(generation)),
            // Conflict: the server has not yet noticed that the previous connection is gone.
            status
                if status.is_server_error()
                    || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT) =>
            {
                Err(ResumeError::Transient(format!("the server responded with HTTP {}", status.as_u16())))
            }
            status => {
                let reason = format!("the server did not resume the stream: HTTP {}", status.as_u16());
                Err(ResumeError::Permanent(CallError::Lost(reason.into())))
            }
        }
    }
}

/// Reason why an SSE stream could not be resumed.
pub(super) enum ResumeError {
    /// Temporary failure: a later attempt to resume may succeed.
    Transient(String),
    Permanent(CallError),
    /// The session of this generation is lost.
    SessionLost(u64),
}

impl StreamControl {
    /// Combines the decisions about two events of one chunk: the first one that ends the stream wins.
    fn combine(self, before: StreamControl) -> StreamControl {
        if matches!(before, StreamControl::Continue | StreamControl::Skip) { self } else { before }
    }
}

/// Returns whether an SSE event must contain a JSON-RPC message.
fn is_message(event: &SseEvent<'_>) -> bool {
    !event.data.is_empty() && event.event == "message"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_have_an_end_unless_something_comes() {
        let mut resume = ResumeState::default();
        let millis = |resume: &mut ResumeState| resume.next_delay(5).map(|delay| delay.as_millis());
        let backoff: Vec<_> = (0..6).map(|_| millis(&mut resume)).collect();
        assert_eq!(backoff, [Some(100), Some(200), Some(400), Some(800), Some(1_600), None]);
        resume.has_message = true;
        assert_eq!(millis(&mut resume), Some(100));
        resume.retry = Some(Duration::from_millis(300));
        assert_eq!(millis(&mut resume), Some(300));
        assert_eq!(millis(&mut resume), Some(400));
        resume.opened_at = Some(Instant::now());
        tokio::time::advance(STABLE_AFTER).await;
        assert_eq!(millis(&mut resume), Some(300));
        resume.retry = Some(Duration::ZERO);
        resume.has_message = true;
        assert_eq!(millis(&mut resume), Some(0));
        assert_eq!(millis(&mut resume), Some(200));
        resume.retry = Some(Duration::MAX);
        assert_eq!(resume.next_delay(5), Some(MAX_RETRY_DELAY));
    }

    #[test]
    fn only_what_earlier_connections_brought_is_known() {
        let mut resume = ResumeState::default();
        let event = |id| SseEvent { id: Some(id), has_id: true, event: "message", data: "x" };
        assert!(resume.is_new(&event("1")) && resume.is_new(&event("1")) && resume.is_new(&event("2")));
        resume.next_delay(1);
        assert!(!resume.is_new(&event("1")) && !resume.is_new(&event("2")) && resume.is_new(&event("3")));
        assert!(resume.is_new(&SseEvent { has_id: false, ..event("1") }));
    }
}

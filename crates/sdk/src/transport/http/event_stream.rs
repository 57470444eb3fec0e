//! Event streams: read as they arrive and, in a session, resumed after a cut, without lost or duplicate messages.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{self, HeaderValue};
use ::http::{Method as Verb, StatusCode};
use bytes::Bytes;
use linchpin_jsonrpc::CallError;
use linchpin_protocol::Era;
use tokio::time::Instant;

use super::body::{Broken, Kind, Reading};
use super::connection::Link;
use super::errors;
use super::message::Request;
use crate::http::header_names;
use crate::http::sse::{Event, Fault, Parser};
use crate::lock::lock;
use crate::transport::Direction;

/// How long to read a stream after its response, so that the connection can be reused.
const LINGER: Duration = Duration::from_secs(1);
/// First and longest delay before a stream is resumed, if the server names none.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A connection open for this long resets the attempts.
const LONG: Duration = Duration::from_secs(10);
/// Upper bound of the delay that a server may request.
const LONGEST_RETRY: Duration = Duration::from_mins(10);
/// Maximum number of remembered events of earlier connections.
const MAX_SEEN: usize = 10_000;

/// State of a stream across its connections.
#[derive(Default)]
pub(super) struct Tail {
    last_id: Option<String>,
    retry: Option<Duration>,
    /// Hashes of the event ids of earlier connections, and of the current one.
    before: HashSet<u64>,
    now: Vec<u64>,
    /// Whether this connection delivered a new message.
    brought: bool,
    /// Consecutive reconnects without a new message.
    tries: usize,
    /// When the connection was opened.
    since: Option<Instant>,
}

/// How reading a stream ended.
pub(super) enum Ended {
    /// The expected message arrived.
    Done,
    Cut(String),
    /// The stream cannot be read further.
    Fault(CallError),
}

/// What to do after an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Go,
    /// The event was not a message and is skipped.
    Skip,
    Done,
    /// The event was not a message, which is an error.
    Bad,
}

impl Tail {
    /// Creates the state of a stream that replaces one with this many failed reconnects.
    pub(super) fn after(tries: usize) -> Self {
        Tail { tries, ..Tail::default() }
    }

    pub(super) fn tries(&self) -> usize {
        self.tries
    }

    /// Returns the id to resume from, if the stream can be resumed.
    pub(super) fn last_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.last_id.as_ref()?.as_bytes()).ok()
    }

    /// Returns whether an event is new: servers may repeat events after a cut.
    fn is_new(&mut self, event: &Event<'_>) -> bool {
        let Some(id) = event.id.filter(|_| event.has_id) else { return true };
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let mark = hasher.finish();
        if self.before.contains(&mark) {
            return false;
        }
        if self.now.len() < MAX_SEEN {
            self.now.push(mark);
        }
        true
    }

    /// Ends a connection of the stream. Returns the delay before the next one; `None` if there were too many
    /// attempts.
    pub(super) fn pause(&mut self, most: usize) -> Option<Duration> {
        let brought = std::mem::take(&mut self.brought);
        // A long connection without messages is not a failure.
        let lasted = self.since.take().is_some_and(|since| since.elapsed() >= LONG);
        // Nor is a connection with only an event id, if the server requests long delays: it expects to be polled.
        let polled = !self.now.is_empty() && self.retry.is_some_and(|retry| retry >= PAUSES.1);
        self.tries = if brought || lasted || polled { 1 } else { self.tries + 1 };
        if self.before.len() + self.now.len() > MAX_SEEN {
            self.before.clear();
        }
        self.before.extend(self.now.drain(..));
        let grown = PAUSES.0.saturating_mul(1 << (self.tries - 1).min(10)).min(PAUSES.1);
        let pause = match self.retry {
            Some(retry) if brought => retry,
            Some(retry) => retry.max(grown),
            None => grown,
        };
        (self.tries <= most).then_some(pause.min(LONGEST_RETRY))
    }
}

impl Link {
    /// Reads a stream until `on` is done, the stream ends, or it fails.
    pub(super) async fn follow(
        &self,
        reading: &mut Reading,
        tail: &mut Tail,
        on: impl FnMut(&Event<'_>) -> Flow,
    ) -> Ended {
        self.follow_on(reading, &mut Parser::new(self.wire.max_message()), tail, on).await
    }

    /// Like [`Self::follow`], with a parser that may contain the start of an event.
    async fn follow_on(
        &self,
        reading: &mut Reading,
        parser: &mut Parser,
        tail: &mut Tail,
        mut on: impl FnMut(&Event<'_>) -> Flow,
    ) -> Ended {
        tail.since.get_or_insert_with(Instant::now);
        let mut flow = Flow::Go;
        loop {
            let chunk = match reading.next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ended::Cut("the server closed the stream before the response".into()),
                Err(Broken::Cut(reason)) => return Ended::Cut(reason),
                Err(Broken::TooLarge) => {
                    return Ended::Fault(errors::body_too_large(self.wire.max_message()));
                }
            };
            let fed = parser.feed(&chunk, |event| {
                if tail.is_new(&event) {
                    let next = on(&event);
                    tail.brought |= next != Flow::Skip && is_message(&event);
                    flow = next.after(flow);
                }
            });
            if let Some(id) = parser.last_event_id() {
                tail.last_id.get_or_insert_default().clear();
                tail.last_id.get_or_insert_default().push_str(id);
            }
            tail.retry = parser.retry().or(tail.retry);
            match (flow, fed) {
                (Flow::Done, _) => return Ended::Done,
                (Flow::Bad, _) => return Ended::Fault(errors::invalid_event("it is not JSON-RPC")),
                (Flow::Go | Flow::Skip, Err(Fault::TooLarge)) => {
                    return Ended::Fault(errors::event_too_large(self.wire.max_message()));
                }
                (Flow::Go | Flow::Skip, Err(Fault::Invalid)) => {
                    return Ended::Fault(errors::invalid_event("it is not valid UTF-8"));
                }
                (Flow::Go | Flow::Skip, Ok(())) => {}
            }
        }
    }

    /// Passes on the message of an event. Returns `false` if the event should be a message and is not.
    pub(super) fn deliver(&self, event: &Event<'_>) -> bool {
        if !is_message(event) {
            return true;
        }
        self.tell(Direction::Received, event.data.as_bytes());
        self.wire.try_receive(event.data.as_bytes())
    }

    /// Reads the response stream of a request.
    pub(super) async fn stream(
        self: &Arc<Self>,
        request: &Request,
        mut reading: Reading,
    ) -> Result<(), CallError> {
        let mut tail = Tail::default();
        loop {
            let on = |event: &Event<'_>| {
                if !self.deliver(event) {
                    Flow::Bad
                } else if self.wire.is_waiting(&request.id) {
                    Flow::Go
                } else {
                    Flow::Done
                }
            };
            let mut parser = Parser::new(self.wire.max_message());
            let reason = match self.follow_on(&mut reading, &mut parser, &mut tail, on).await {
                Ended::Done => {
                    let rest = self.follow_on(&mut reading, &mut parser, &mut tail, |event| {
                        self.deliver(event);
                        Flow::Go
                    });
                    let _ = tokio::time::timeout(LINGER, rest).await;
                    return Ok(());
                }
                Ended::Fault(error) => return Err(error),
                Ended::Cut(reason) => reason,
            };
            if request.era == Era::Stateless || tail.last_id().is_none() {
                return Err(CallError::Lost(reason.into()));
            }
            reading = Box::pin(self.resume(request, &mut tail, reason)).await?;
        }
    }

    /// Resumes a cut stream, within the allowed number of attempts.
    async fn resume(
        self: &Arc<Self>,
        request: &Request,
        tail: &mut Tail,
        mut reason: String,
    ) -> Result<Reading, CallError> {
        loop {
            let Some(pause) = tail.pause(self.http.max_reconnects) else {
                let tries = self.http.max_reconnects;
                return Err(CallError::Lost(format!("{reason}; gave up after {tries} reconnects").into()));
            };
            self.diagnose(|| format!("the stream of {} was cut ({reason}): reconnecting", request.method));
            tokio::time::sleep(pause).await;
            match self.take_up(tail).await {
                Ok(reading) => return Ok(reading),
                Err(Interrupted::Again(why)) => reason = why,
                Err(Interrupted::Over(error)) => return Err(error),
                Err(Interrupted::Session(generation)) => return Err(self.lost_session(generation).await),
            }
        }
    }

    /// Reopens a cut stream, or opens the standalone stream.
    pub(super) async fn take_up(&self, tail: &mut Tail) -> Result<Reading, Interrupted> {
        let (mut headers, generation) = {
            let agreed = self.wire.revision();
            let mut state = lock(&self.state);
            let headers = state.headers_now(agreed);
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
            Ok(Err(error)) => return Err(Interrupted::Again(error.to_string())),
            Err(_) => return Err(Interrupted::Again("the server does not respond".into())),
        };
        match response.status() {
            status if status.is_success() => {
                tail.since = Some(Instant::now());
                self.diagnose(|| "the stream is open".to_owned());
                let mut reading = Reading::new(response.into_body(), self.http.read_timeout);
                match reading.kind(true).await {
                    Ok(Kind::Events) => Ok(reading),
                    Ok(_) => {
                        Err(Interrupted::Over(CallError::Lost("the server does not resume streams".into())))
                    }
                    Err(_) => Err(Interrupted::Again("the stream was cut".into())),
                }
            }
            StatusCode::NOT_FOUND if has_session => Err(Interrupted::Session(generation)),
            // Conflict: the server has not yet noticed that the previous connection is gone.
            status
                if status.is_server_error()
                    || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT) =>
            {
                Err(Interrupted::Again(format!("the server responded with HTTP {}", status.as_u16())))
            }
            status => {
                let reason = format!("the server did not resume the stream: HTTP {}", status.as_u16());
                Err(Interrupted::Over(CallError::Lost(reason.into())))
            }
        }
    }
}

/// Why a stream was not reopened.
pub(super) enum Interrupted {
    /// It may succeed later.
    Again(String),
    Over(CallError),
    /// The session with this number is lost.
    Session(u64),
}

impl Flow {
    /// Combines the decisions about two events of one chunk: the first one that ends the stream wins.
    fn after(self, before: Flow) -> Flow {
        if matches!(before, Flow::Go | Flow::Skip) { self } else { before }
    }
}

/// Returns whether an event should be a message.
fn is_message(event: &Event<'_>) -> bool {
    !event.data.is_empty() && event.event == "message"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_have_an_end_unless_something_comes() {
        let mut tail = Tail::default();
        let millis = |tail: &mut Tail| tail.pause(5).map(|pause| pause.as_millis());
        let grown: Vec<_> = (0..6).map(|_| millis(&mut tail)).collect();
        assert_eq!(grown, [Some(100), Some(200), Some(400), Some(800), Some(1_600), None]);
        tail.brought = true;
        assert_eq!(millis(&mut tail), Some(100));
        tail.retry = Some(Duration::from_millis(300));
        assert_eq!(millis(&mut tail), Some(300));
        assert_eq!(millis(&mut tail), Some(400));
        tail.since = Some(Instant::now());
        tokio::time::advance(LONG).await;
        assert_eq!(millis(&mut tail), Some(300));
        tail.retry = Some(Duration::ZERO);
        tail.brought = true;
        assert_eq!(millis(&mut tail), Some(0));
        assert_eq!(millis(&mut tail), Some(200));
        tail.retry = Some(Duration::MAX);
        assert_eq!(tail.pause(5), Some(LONGEST_RETRY));
    }

    #[test]
    fn only_what_earlier_connections_brought_is_known() {
        let mut tail = Tail::default();
        let event = |id| Event { id: Some(id), has_id: true, event: "message", data: "x" };
        assert!(tail.is_new(&event("1")) && tail.is_new(&event("1")) && tail.is_new(&event("2")));
        tail.pause(1);
        assert!(!tail.is_new(&event("1")) && !tail.is_new(&event("2")) && tail.is_new(&event("3")));
        assert!(tail.is_new(&Event { has_id: false, ..event("1") }));
    }
}

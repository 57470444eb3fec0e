//! Event streams: read as they come, and in a session taken up again after a cut, without a message lost or twice.

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
use super::fault;
use super::link::Link;
use super::message::Request;
use crate::http::names;
use crate::http::sse::{Event, Fault, Parser};
use crate::sync::lock;
use crate::transport::Direction;

/// How long a stream may go on after the answer, so that its connection can be used again.
const LINGER: Duration = Duration::from_secs(1);
/// The first and the longest pause before a stream is taken up again, if the server does not say.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A connection that lasts so long is no failure.
const LONG: Duration = Duration::from_secs(10);
/// The longest pause that a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_mins(10);
/// Events of connections before that are remembered.
const MAX_SEEN: usize = 10_000;

/// What is known of a stream beyond its connection.
#[derive(Default)]
pub(super) struct Tail {
    last_id: Option<String>,
    retry: Option<Duration>,
    /// Marks of the events that earlier connections brought, and this one.
    before: HashSet<u64>,
    now: Vec<u64>,
    /// Whether this connection brought a new message.
    brought: bool,
    /// How often in a row it was taken up again and brought nothing.
    tries: usize,
    /// When the connection was opened.
    since: Option<Instant>,
}

/// How reading a stream ended.
pub(super) enum Ended {
    /// With what was wanted.
    Done,
    Cut(String),
    /// It cannot be read on.
    Fault(CallError),
}

/// What is to become of a stream after an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Go,
    /// It was no message, and is passed over.
    Skip,
    Done,
    /// It was no message.
    Bad,
}

impl Tail {
    /// A stream in place of one that was taken up so often in vain.
    pub(super) fn after(tries: usize) -> Self {
        Tail { tries, ..Tail::default() }
    }

    pub(super) fn tries(&self) -> usize {
        self.tries
    }

    /// Whether the stream can be taken up again.
    pub(super) fn last_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.last_id.as_ref()?.as_bytes()).ok()
    }

    /// Whether an event is new: servers may repeat some after a cut.
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

    /// A connection of the stream is over. How long to wait for the next, if there may be one.
    pub(super) fn pause(&mut self, most: usize) -> Option<Duration> {
        let brought = std::mem::take(&mut self.brought);
        // One that was there for long, and had nothing to say, was worth it as well.
        let lasted = self.since.take().is_some_and(|since| since.elapsed() >= LONG);
        // So is one that only names an id, if the server does not want to be asked often.
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
    /// Reads a stream until `on` has what it wants, the stream ends, or it breaks.
    pub(super) async fn follow(
        &self,
        reading: &mut Reading,
        tail: &mut Tail,
        on: impl FnMut(&Event<'_>) -> Flow,
    ) -> Ended {
        self.follow_on(reading, &mut Parser::new(self.wire.max_message()), tail, on).await
    }

    /// The same, with a parser that may hold the beginning of an event.
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
                Ok(None) => return Ended::Cut("the server closed the stream before the answer".into()),
                Err(Broken::Cut(reason)) => return Ended::Cut(reason),
                Err(Broken::TooLarge) => return Ended::Fault(fault::body_too_large(self.wire.max_message())),
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
                (Flow::Bad, _) => return Ended::Fault(fault::invalid_event("it is not JSON-RPC")),
                (Flow::Go | Flow::Skip, Err(Fault::TooLarge)) => {
                    return Ended::Fault(fault::event_too_large(self.wire.max_message()));
                }
                (Flow::Go | Flow::Skip, Err(Fault::Invalid)) => {
                    return Ended::Fault(fault::invalid_event("it is not UTF-8"));
                }
                (Flow::Go | Flow::Skip, Ok(())) => {}
            }
        }
    }

    /// Hands over the message of an event. Whether it was one, or none was meant.
    pub(super) fn deliver(&self, event: &Event<'_>) -> bool {
        if !is_message(event) {
            return true;
        }
        self.tell(Direction::Received, event.data.as_bytes());
        self.wire.try_receive(event.data.as_bytes())
    }

    /// Reads the stream that answers a request.
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

    /// Takes up a stream that was cut, as often as it may be tried.
    async fn resume(
        self: &Arc<Self>,
        request: &Request,
        tail: &mut Tail,
        mut reason: String,
    ) -> Result<Reading, CallError> {
        loop {
            let Some(pause) = tail.pause(self.http.max_reconnects) else {
                let tries = self.http.max_reconnects;
                return Err(CallError::Lost(format!("{reason}, and again after {tries} reconnects").into()));
            };
            self.diagnose(|| {
                format!("the stream of {} was cut ({reason}): it is taken up again", request.method)
            });
            tokio::time::sleep(pause).await;
            match self.take_up(tail).await {
                Ok(reading) => return Ok(reading),
                Err(Interrupted::Again(why)) => reason = why,
                Err(Interrupted::Over(error)) => return Err(error),
                Err(Interrupted::Session(generation)) => return Err(self.lost_session(generation).await),
            }
        }
    }

    /// Opens a stream again where it was cut, or the one that belongs to no request.
    pub(super) async fn take_up(&self, tail: &mut Tail) -> Result<Reading, Interrupted> {
        let (mut headers, generation) = {
            let agreed = self.wire.revision();
            let mut state = lock(&self.state);
            let headers = state.headers_now(agreed);
            (headers, state.generation)
        };
        headers.remove(header::CONTENT_TYPE);
        let has_session = headers.contains_key(names::SESSION_ID);
        if let Some(last_id) = tail.last_id() {
            headers.insert(names::LAST_EVENT_ID, last_id);
        }
        let sent = tokio::time::timeout(self.http.read_timeout, self.send(Verb::GET, &headers, Bytes::new()));
        let response = match sent.await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Interrupted::Again(error.to_string())),
            Err(_) => return Err(Interrupted::Again("the server does not answer".into())),
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
            // In conflict: the server has not noticed yet that the connection before is gone.
            status
                if status.is_server_error()
                    || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT) =>
            {
                Err(Interrupted::Again(format!("the server answered HTTP {}", status.as_u16())))
            }
            status => {
                let reason = format!("the server does not take up the stream: HTTP {}", status.as_u16());
                Err(Interrupted::Over(CallError::Lost(reason.into())))
            }
        }
    }
}

/// Why a stream was not taken up again.
pub(super) enum Interrupted {
    /// It may work later.
    Again(String),
    Over(CallError),
    /// The session that it belongs to, by its number, is gone.
    Session(u64),
}

impl Flow {
    /// What counts of two events of one piece: the first that is not to go on.
    fn after(self, before: Flow) -> Flow {
        if matches!(before, Flow::Go | Flow::Skip) { self } else { before }
    }
}

/// Whether an event is meant as a message.
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

//! Event stream (SSE): resumable with `Last-Event-ID`, and closed when the caller loses access.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use linchpin_hub_core::events::{Event, EventSubscription};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::app::AppState;
use crate::authentication::Caller;
use crate::chunked_body::{Chunk, chunked};
use crate::problem::{Problem, Result};
use crate::request::ApiRequest;
use crate::response::respond_with;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Interval of heartbeats on an idle stream.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// Kinds of events after which the credential of the subscriber is checked again. Every heartbeat also checks it.
const RECHECK_EVENTS: [&str; 4] = ["agent", "session", "token", "user"];

/// SSE stream of hub events to one subscriber.
struct EventStream {
    app: Arc<AppState>,
    caller: Caller,
    subscription: EventSubscription,
    is_first_chunk: bool,
    /// Whether the last event id is of another event log, so that events may have been missed.
    is_foreign_position: bool,
    heartbeat: Interval,
}

pub(crate) async fn stream_events(request: ApiRequest) -> Result<Response> {
    let caller = request.caller()?.clone();
    let after = match request.headers.get(LAST_EVENT_ID) {
        None => None,
        Some(id) => Some(id.to_str().ok().and_then(EventPosition::parse).ok_or_else(|| {
            let text = "Last-Event-ID must be the id of an event of this stream";
            Problem::bad_request("invalid_last_event_id", text)
        })?),
    };
    let is_foreign_position =
        after.as_ref().is_some_and(|position| position.log_id != request.app.event_log_id);
    let number = after.filter(|_| !is_foreign_position).map(|position| position.number);
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = EventStream {
        subscription: request.hub().events().subscribe(caller.actor.tenant(), number),
        app: request.app,
        caller,
        is_first_chunk: true,
        is_foreign_position,
        heartbeat,
    };
    let mut response = respond_with(StatusCode::OK, "text/event-stream", chunked(stream, next_chunk));
    // Proxies must not buffer the stream.
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// Parsed SSE event id: id of the event log, and event number.
struct EventPosition<'a> {
    log_id: &'a str,
    number: u64,
}

impl<'a> EventPosition<'a> {
    fn parse(id: &'a str) -> Option<Self> {
        let (log_id, number) = id.split_once('-')?;
        Some(EventPosition { log_id, number: number.parse().ok()? })
    }
}

async fn next_chunk(mut stream: EventStream) -> Chunk<EventStream> {
    let piece = stream.next_event_text().await;
    Ok(piece.map(|piece| (Bytes::from(piece), stream)))
}

impl EventStream {
    async fn next_event_text(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_first_chunk) {
            // A disconnected client reconnects after one second.
            return Some("retry: 1000\n\n".to_owned());
        }
        if std::mem::take(&mut self.is_foreign_position) {
            return Some(missed_event());
        }
        let (piece, is_checked) = tokio::select! {
            biased;
            () = self.app.wait_closed() => return None,
            event = self.subscription.next() => match event {
                Ok(event) => (format_event(&event, &self.app.event_log_id), RECHECK_EVENTS.contains(&&*event.kind)),
                Err(_) => (missed_event(), true),
            },
            _ = self.heartbeat.tick() => (": \n\n".to_owned(), true),
        };
        // If the store cannot be read, the stream ends: the client reconnects.
        let may = !is_checked || self.caller.is_still_valid(&self.app).await.unwrap_or(false);
        may.then_some(piece)
    }
}

/// Formats the event for a subscriber that has missed events and must reload everything.
fn missed_event() -> String {
    "event: missed\ndata: {}\n\n".to_owned()
}

fn format_event(event: &Event, run: &str) -> String {
    let Event { number, kind, body, .. } = event;
    format!("id: {run}-{number}\nevent: {kind}\ndata: {body}\n\n")
}

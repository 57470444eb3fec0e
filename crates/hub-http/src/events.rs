//! Event stream (SSE): resumable with `Last-Event-ID`, and closed when the caller loses access.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use linchpin_hub_core::events::{Event, Watching};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::app::App;
use crate::authentication::Caller;
use crate::chunked_body::{Made, pieces};
use crate::problem::{Problem, Result};
use crate::request::Asked;
use crate::response::with;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Events after which the credential of the subscriber is checked again. Every heartbeat also checks it.
const CHECKED: [&str; 4] = ["agent", "session", "token", "user"];

/// Event stream of one subscriber.
struct Watcher {
    app: Arc<App>,
    caller: Caller,
    watching: Watching,
    is_new: bool,
    /// Whether the last event id is of another event log, so that events may have been missed.
    is_lost: bool,
    heartbeat: Interval,
}

pub(crate) async fn watch(asked: Asked) -> Result<Response> {
    let caller = asked.caller()?.clone();
    let after = match asked.headers.get(LAST_EVENT_ID) {
        None => None,
        Some(id) => Some(id.to_str().ok().and_then(Place::read).ok_or_else(|| {
            let text = "Last-Event-ID must be the id of an event of this stream";
            Problem::malformed("wrong_event_id", text)
        })?),
    };
    let is_lost = after.as_ref().is_some_and(|place| place.run != asked.app.run);
    let number = after.filter(|_| !is_lost).map(|place| place.number);
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watcher = Watcher {
        watching: asked.hub().events().watch(caller.scope.tenant(), number),
        app: asked.app,
        caller,
        is_new: true,
        is_lost,
        heartbeat,
    };
    let mut response = with(StatusCode::OK, "text/event-stream", pieces(watcher, next));
    // Proxies must not buffer the stream.
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// Parsed event id: event log and number.
struct Place<'a> {
    run: &'a str,
    number: u64,
}

impl<'a> Place<'a> {
    fn read(id: &'a str) -> Option<Self> {
        let (run, number) = id.split_once('-')?;
        Some(Place { run, number: number.parse().ok()? })
    }
}

async fn next(mut watcher: Watcher) -> Made<Watcher> {
    let piece = watcher.piece().await;
    Ok(piece.map(|piece| (Bytes::from(piece), watcher)))
}

impl Watcher {
    async fn piece(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_new) {
            // A disconnected client reconnects after one second.
            return Some("retry: 1000\n\n".to_owned());
        }
        if std::mem::take(&mut self.is_lost) {
            return Some(missed());
        }
        let (piece, is_checked) = tokio::select! {
            biased;
            () = self.app.closed() => return None,
            event = self.watching.next() => match event {
                Ok(event) => (written(&event, &self.app.run), CHECKED.contains(&&*event.kind)),
                Err(_) => (missed(), true),
            },
            _ = self.heartbeat.tick() => (": \n\n".to_owned(), true),
        };
        // If the store cannot be read, the stream ends: the client reconnects.
        let may = !is_checked || self.caller.is_still_known(&self.app).await.unwrap_or(false);
        may.then_some(piece)
    }
}

/// Formats the event for a subscriber that has missed events and must reload everything.
fn missed() -> String {
    "event: missed\ndata: {}\n\n".to_owned()
}

fn written(event: &Event, run: &str) -> String {
    let Event { number, kind, body, .. } = event;
    format!("id: {run}-{number}\nevent: {kind}\ndata: {body}\n\n")
}

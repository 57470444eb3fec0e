//! GET requests: the standalone stream of a session, and resumption of streams.

use std::sync::Arc;

use ::http::StatusCode;
use ::http::request::Parts;

use super::legacy_sse;
use super::post::{accepts, session_limit_response};
use crate::http::header_names;
use crate::server::http::endpoint::{Endpoint, session_not_found};
use crate::server::http::responses::{self, HttpResponse};
use crate::server::http::sessions::id::SessionId;
use crate::server::http::sessions::store;
use crate::server::http::sessions::{HttpSession, SessionGuard};
use crate::server::http::streams::body::StreamBody;
use crate::server::http::streams::sse_frame::parse_id;
use crate::server::http::streams::{STANDALONE, SessionStream, is_gapless};

pub(in crate::server::http) async fn get(
    endpoint: &Arc<Endpoint>,
    parts: &Parts,
    principal: Option<Arc<str>>,
) -> HttpResponse {
    let id = match endpoint.session_id(parts) {
        Ok(id) => id,
        Err(refusal) => return *refusal,
    };
    if id.is_none() && endpoint.options.legacy.is_none() && !endpoint.options.sessions {
        return responses::method_not_allowed("POST");
    }
    if !accepts(&parts.headers, b"text", b"event-stream") {
        let text = "a GET request opens an event stream: send Accept: text/event-stream";
        return responses::error(StatusCode::NOT_ACCEPTABLE, text);
    }
    let Some(id) = id else {
        if endpoint.options.legacy.is_some() {
            return legacy_sse::open(endpoint, parts, principal);
        }
        let text =
            "the header Mcp-Session-Id is missing: open a session with initialize first, and send its id";
        return responses::error(StatusCode::BAD_REQUEST, text);
    };
    let Some(id) = SessionId::parse(id.as_bytes()).filter(|_| endpoint.options.sessions) else {
        return session_not_found();
    };
    let found = match endpoint.sessions.find(&id, principal.as_deref()) {
        Some(found) => Some(found),
        None => match store::restore(endpoint, id, principal.as_ref()).await {
            Ok(restored) => restored,
            Err(limit_reached) => return session_limit_response(&limit_reached),
        },
    };
    let Some(in_use) = found else { return session_not_found() };
    let Some(last) = parts.headers.get(&header_names::LAST_EVENT_ID) else { return open(endpoint, in_use) };
    let resumed = match last.to_str().ok().and_then(parse_id) {
        Some((stream, number)) => resume(endpoint, in_use.session(), stream, number).await,
        None => None,
    };
    resumed.map_or_else(events_unavailable, |body| stream_response(body, in_use))
}

/// Opens the standalone stream, which belongs to no request.
fn open(endpoint: &Endpoint, in_use: SessionGuard) -> HttpResponse {
    let stream = standalone_stream(endpoint, in_use.session());
    let Some(body) = StreamBody::resumable_if_detached(stream, endpoint.options.keep_alive) else {
        let text = "this session already has an open stream: close it, or resume it with Last-Event-ID";
        return responses::error(StatusCode::CONFLICT, text);
    };
    stream_response(body.with_priming_event(), in_use)
}

fn stream_response(body: StreamBody, in_use: SessionGuard) -> HttpResponse {
    responses::events(body.on_disconnect(Box::new(move || drop(in_use))))
}

fn events_unavailable() -> HttpResponse {
    let text =
        "the events after this Last-Event-ID are not available: the stream cannot be resumed without a gap";
    responses::error(StatusCode::BAD_REQUEST, text)
}

fn standalone_stream(endpoint: &Endpoint, session: &HttpSession) -> Arc<SessionStream> {
    let make = || {
        let outbox = session.connection.shared_outbox().clone();
        SessionStream::new(
            STANDALONE,
            session.first_event(),
            outbox,
            session.retention(&endpoint.options.events),
        )
    };
    session.standalone_stream(make)
}

/// Resumes an SSE stream after the event `number`; `None` if that is not possible without a gap.
async fn resume(endpoint: &Endpoint, session: &HttpSession, stream: u32, number: u64) -> Option<StreamBody> {
    let keep_alive = endpoint.options.keep_alive;
    let events = &endpoint.options.events;
    let live = if stream == STANDALONE {
        Some(standalone_stream(endpoint, session))
    } else {
        session.stream(stream)
    };
    // Events sent before this process knew the session are only in the store.
    let Some(live) = live.filter(|live| live.contains_event(number)) else {
        let missed = events.load_after(&session.key, stream, number).await;
        let all = !missed.is_empty() && is_gapless(number, &missed);
        return all.then(|| StreamBody::finished(stream, &missed, keep_alive));
    };
    // Take over the stream before loading the missed events, so that no event can be lost in between.
    let body = StreamBody::resumable(live, keep_alive);
    let missed = events.load_after(&session.key, stream, number).await;
    body.with_missed_events(number, &missed)
}

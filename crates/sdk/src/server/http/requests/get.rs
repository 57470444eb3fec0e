//! GET requests: the standalone stream of a session, and resumption of streams.

use std::sync::Arc;

use ::http::StatusCode;
use ::http::request::Parts;

use super::legacy_sse;
use super::post::{accepts, no_room};
use crate::http::header_names;
use crate::server::http::endpoint::{Endpoint, no_session};
use crate::server::http::responses::{self, Reply};
use crate::server::http::sessions::id::SessionId;
use crate::server::http::sessions::store;
use crate::server::http::sessions::{InUse, Session};
use crate::server::http::streams::body::StreamBody;
use crate::server::http::streams::sse_frame::parse_id;
use crate::server::http::streams::{STANDALONE, Stream, is_gapless};

pub(in crate::server::http) async fn get(
    endpoint: &Arc<Endpoint>,
    parts: &Parts,
    principal: Option<Arc<str>>,
) -> Reply {
    let id = match endpoint.session_of(parts) {
        Ok(id) => id,
        Err(refusal) => return *refusal,
    };
    if id.is_none() && endpoint.options.legacy.is_none() && !endpoint.options.sessions {
        return responses::not_allowed("POST");
    }
    if !accepts(&parts.headers, b"text", b"event-stream") {
        let text = "streams are sent as events: send Accept: text/event-stream";
        return responses::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    let Some(id) = id else {
        if endpoint.options.legacy.is_some() {
            return legacy_sse::open(endpoint, parts, principal);
        }
        let text = "open a session with initialize first, and send its Mcp-Session-Id";
        return responses::refuse(StatusCode::BAD_REQUEST, text);
    };
    let Some(id) = SessionId::parse(id.as_bytes()).filter(|_| endpoint.options.sessions) else {
        return no_session();
    };
    let found = match endpoint.sessions.find(&id, principal.as_deref()) {
        Some(found) => Some(found),
        None => match store::restore(endpoint, id, principal.as_ref()).await {
            Ok(restored) => restored,
            Err(full) => return no_room(&full),
        },
    };
    let Some(in_use) = found else { return no_session() };
    let Some(last) = parts.headers.get(&header_names::LAST_EVENT_ID) else { return open(endpoint, in_use) };
    let resumed = match last.to_str().ok().and_then(parse_id) {
        Some((stream, number)) => resume(endpoint, in_use.session(), stream, number).await,
        None => None,
    };
    resumed.map_or_else(gone, |body| carry(body, in_use))
}

/// Opens the standalone stream, which belongs to no request.
fn open(endpoint: &Endpoint, in_use: InUse) -> Reply {
    let stream = standalone(endpoint, in_use.session());
    let Some(body) = StreamBody::only(stream, endpoint.options.keep_alive) else {
        let text = "this session already has an open stream: close it, or resume it with Last-Event-ID";
        return responses::refuse(StatusCode::CONFLICT, text);
    };
    carry(body.primed(), in_use)
}

fn carry(body: StreamBody, in_use: InUse) -> Reply {
    responses::events(body.on_gone(Box::new(move || drop(in_use))))
}

fn gone() -> Reply {
    let text =
        "the events after this Last-Event-ID are not available: the stream cannot be resumed without a gap";
    responses::refuse(StatusCode::BAD_REQUEST, text)
}

fn standalone(endpoint: &Endpoint, session: &Session) -> Arc<Stream> {
    let make = || {
        let outbox = session.connection.lasting().clone();
        Stream::new(STANDALONE, session.first_event(), outbox, session.keeping(&endpoint.options.events))
    };
    session.standalone(make)
}

/// Resumes a stream after an event; `None` if that is not possible without a gap.
async fn resume(endpoint: &Endpoint, session: &Session, stream: u32, number: u64) -> Option<StreamBody> {
    let quiet = endpoint.options.keep_alive;
    let events = &endpoint.options.events;
    let live =
        if stream == STANDALONE { Some(standalone(endpoint, session)) } else { session.stream(stream) };
    // Events sent before this process knew the session are only in the store.
    let Some(live) = live.filter(|live| live.has_sent(number)) else {
        let missed = events.after(&session.key, stream, number).await;
        let all = !missed.is_empty() && is_gapless(number, &missed);
        return all.then(|| StreamBody::finished(stream, &missed, quiet));
    };
    // Take over the stream before loading the missed events, so that no event can be lost in between.
    let body = StreamBody::resumable(live, quiet);
    let missed = events.after(&session.key, stream, number).await;
    body.with_missed(number, &missed)
}

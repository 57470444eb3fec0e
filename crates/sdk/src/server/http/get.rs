//! Streams by GET: the one that belongs to no request, and those that a client comes back to.

use std::sync::Arc;

use ::http::StatusCode;
use ::http::request::Parts;
use linchpin_protocol::version::Feature;
use linchpin_protocol::{Era, Revision};

use super::endpoint::{Endpoint, no_session};
use super::key::SessionId;
use super::post::accepts;
use super::reply::{self, Reply};
use super::sessions::{InUse, Session};
use super::stream::{Stream, StreamBody, is_gapless, parse_id};
use super::{legacy, store};
use crate::http::names;

pub(super) async fn get(endpoint: &Arc<Endpoint>, parts: &Parts, principal: Option<Arc<str>>) -> Reply {
    let version = parts.headers.get(&names::PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
    let is_stateless =
        version.and_then(Revision::find).is_some_and(|revision| revision.era() == Era::Stateless);
    let id = parts.headers.get(&names::SESSION_ID);
    if is_stateless || (id.is_none() && endpoint.options.legacy.is_none() && !endpoint.options.sessions) {
        return reply::not_allowed("POST");
    }
    if !accepts(&parts.headers, b"text", b"event-stream") {
        let text = "streams are sent as events: Accept: text/event-stream";
        return reply::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    let Some(id) = id else {
        if endpoint.options.legacy.is_some() {
            return legacy::open(endpoint, parts, principal);
        }
        let text = "open a session with initialize first, and say with Mcp-Session-Id whose stream is wanted";
        return reply::refuse(StatusCode::BAD_REQUEST, text);
    };
    let Some(id) = SessionId::parse(id.as_bytes()).filter(|_| endpoint.options.sessions) else {
        return no_session();
    };
    let found = match endpoint.sessions.find(&id, principal.as_deref()) {
        Some(found) => Some(found),
        None => store::restore(endpoint, id, principal.as_ref()).await,
    };
    let Some(in_use) = found else { return no_session() };
    match parts.headers.get(&names::LAST_EVENT_ID) {
        Some(last) => {
            let last = last.to_str().ok().and_then(parse_id);
            let body = match last {
                Some((stream, number)) => resume(endpoint, in_use.session(), stream, number).await,
                None => None,
            };
            body.map_or_else(gone, |body| carry(body, in_use))
        }
        None => {
            let stream = standalone(endpoint, in_use.session());
            if stream.is_attached() {
                let text = "this session has its stream already: end that one, or go on with Last-Event-ID";
                return reply::refuse(StatusCode::CONFLICT, text);
            }
            let body = StreamBody::resumable(stream, endpoint.options.keep_alive);
            let session = in_use.session().connection.session();
            let is_primed = session.is_some_and(|session| session.revision().has(Feature::PrimedStreams));
            carry(if is_primed { body.primed() } else { body }, in_use)
        }
    }
}

fn carry(body: StreamBody, in_use: InUse) -> Reply {
    reply::events(body.on_gone(Box::new(move || drop(in_use))))
}

fn gone() -> Reply {
    let text =
        "what came after this Last-Event-ID is not known, or no longer: nothing can be sent without a gap";
    reply::refuse(StatusCode::BAD_REQUEST, text)
}

fn standalone(endpoint: &Endpoint, session: &Session) -> Arc<Stream> {
    let make = || {
        let outbox = session.connection.lasting().clone();
        Stream::new(0, outbox, endpoint.options.events.clone(), session.key)
    };
    session.standalone(make)
}

/// Goes on with a stream after an event; `None` when that is not possible without a gap.
async fn resume(endpoint: &Endpoint, session: &Session, stream: u32, number: u64) -> Option<StreamBody> {
    let quiet = endpoint.options.keep_alive;
    let events = &endpoint.options.events;
    let live = if stream == 0 { Some(standalone(endpoint, session)) } else { session.stream(stream) };
    match live {
        Some(live) => {
            // First the turn, then what was sent before it: nothing can come in between.
            let body = StreamBody::resumable(live, quiet);
            let missed = events.after(&session.key, stream, number).await;
            body.with_missed(number, &missed)
        }
        None => {
            let missed = events.after(&session.key, stream, number).await;
            let all = !missed.is_empty() && is_gapless(number, &missed);
            all.then(|| StreamBody::finished(stream, &missed, quiet))
        }
    }
}

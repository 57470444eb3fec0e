//! HTTP+SSE transport of the first revision: one event stream for all server messages, and a POST for each client
//! message. The stream is the session; it announces the URL for the POSTs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::request::Parts;
use ::http::{StatusCode, Uri};
use linchpin_jsonrpc::{Message, Outbox};
use tokio::runtime::Handle;

use crate::lock::lock;
use crate::server::http::endpoint::{Endpoint, session_not_found};
use crate::server::http::responses::{self, HttpResponse};
use crate::server::http::sessions::id::SessionId;
use crate::server::http::streams::body::StreamBody;
use crate::server::{Connection, ReplyChannel, spawn};

/// Maximum number of bytes that may wait on the stream of one client.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Query parameter with the stream id in the URL of a POST.
const SESSION_PARAMETER: &str = "sessionId=";

/// Open streams of the HTTP+SSE transport, by id. Each is a session.
#[derive(Default)]
pub(in crate::server::http) struct LegacySessions(Mutex<HashMap<SessionId, Arc<LegacySession>>>);

struct LegacySession {
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    principal: Option<Arc<str>>,
}

impl LegacySessions {
    /// Ends all HTTP+SSE streams once their running requests are done.
    pub(in crate::server::http) fn close(&self, timeout: Duration) {
        let lines: Vec<_> = lock(&self.0).values().cloned().collect();
        for line in lines {
            let Ok(runtime) = Handle::try_current() else {
                line.outbox.mark_complete();
                continue;
            };
            spawn(&runtime, async move {
                line.connection.finish("the server is shutting down", timeout).await;
                line.outbox.mark_complete();
            });
        }
    }
}

/// Removes the stream id from the URL of a POST and returns it. Handlers may show the URL, and the id is secret.
pub(in crate::server::http) fn take_session_id(endpoint: &Endpoint, parts: &mut Parts) -> Option<String> {
    endpoint.options.legacy.as_ref()?;
    let query = parts.uri.query()?;
    let line = query.split('&').find_map(|pair| pair.strip_prefix(SESSION_PARAMETER))?.to_owned();
    let others: Vec<_> = query.split('&').filter(|pair| !pair.starts_with(SESSION_PARAMETER)).collect();
    let separator = if others.is_empty() { "" } else { "?" };
    let rest = format!("{}{separator}{}", parts.uri.path(), others.join("&"));
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.path_and_query = rest.parse().ok();
    parts.uri = Uri::from_parts(uri).unwrap_or_default();
    Some(line)
}

/// Opens the HTTP+SSE stream of a client.
pub(in crate::server::http) fn open(
    endpoint: &Arc<Endpoint>,
    parts: &Parts,
    principal: Option<Arc<str>>,
) -> HttpResponse {
    let outbox = Arc::new(Outbox::with_capacity(MAX_QUEUED_BYTES, 0));
    let service = endpoint.service_for(principal.as_ref());
    let connection =
        Connection::for_request(service, outbox.clone(), ReplyChannel::Lasting, Arc::new(parts.clone()));
    let id = SessionId::random();
    {
        let mut lines = lock(&endpoint.legacy_sessions.0);
        let principal_sessions =
            lines.values().filter(|line| principal.is_some() && line.principal == principal).count();
        let bounds = endpoint.options.session_limits;
        if lines.len() >= bounds.max || principal_sessions >= bounds.max_per_principal {
            return responses::error(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many streams are open: try again later",
            );
        }
        let line = LegacySession { connection: connection.clone(), outbox: outbox.clone(), principal };
        lines.insert(id, Arc::new(line));
    }
    let first =
        format!("event: endpoint\ndata: {}?{SESSION_PARAMETER}{}\n\n", endpoint.options.path, id.text());
    let owner = Arc::downgrade(endpoint);
    let body = StreamBody::new(outbox, endpoint.options.keep_alive).with_text(&first);
    responses::events(body.on_disconnect(Box::new(move || {
        connection.abandon();
        if let Some(endpoint) = owner.upgrade() {
            let mut lines = lock(&endpoint.legacy_sessions.0);
            lines.remove(&id);
            if lines.is_empty() {
                lines.shrink_to_fit();
            }
        }
    })))
}

/// Handles a message that was posted to an HTTP+SSE session; its response is sent on the stream.
pub(in crate::server::http) fn post(
    endpoint: &Endpoint,
    name: &str,
    message: &Message<'_>,
    parts: Arc<Parts>,
    principal: Option<&str>,
) -> HttpResponse {
    let id = SessionId::parse(name.as_bytes());
    let line = id.and_then(|id| lock(&endpoint.legacy_sessions.0).get(&id).cloned());
    let Some(line) = line.filter(|line| line.principal.as_deref() == principal) else {
        return session_not_found();
    };
    if line.outbox.is_full() {
        let text = "too many responses are unread: read the stream first";
        return responses::error(StatusCode::SERVICE_UNAVAILABLE, text);
    }
    let connection = line.connection.with_http_request(parts);
    if let Some(rest) = connection.handle_message(message) {
        spawn(&Handle::current(), connection.track(rest));
    }
    line.outbox.wake_poller();
    responses::accepted()
}

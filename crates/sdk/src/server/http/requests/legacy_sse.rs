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
use crate::server::http::endpoint::{Endpoint, no_session};
use crate::server::http::responses::{self, Reply};
use crate::server::http::sessions::id::SessionId;
use crate::server::http::streams::body::StreamBody;
use crate::server::{Connection, Reach, start};

/// Maximum number of bytes that may wait for a client.
const HIGH_WATER: usize = 1 << 20;
/// Name of the id parameter in the URL.
const PARAMETER: &str = "sessionId=";

/// Open streams.
#[derive(Default)]
pub(in crate::server::http) struct Lines(Mutex<HashMap<SessionId, Arc<Line>>>);

struct Line {
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    principal: Option<Arc<str>>,
}

impl Lines {
    /// Ends all streams once their running requests are done.
    pub(in crate::server::http) fn close(&self, patience: Duration) {
        let lines: Vec<_> = lock(&self.0).values().cloned().collect();
        for line in lines {
            let Ok(runtime) = Handle::try_current() else {
                line.outbox.complete();
                continue;
            };
            start(&runtime, async move {
                line.connection.finish(patience).await;
                line.outbox.complete();
            });
        }
    }
}

/// Removes the stream id from the URL of a POST and returns it. Handlers may show the URL, and the id is secret.
pub(in crate::server::http) fn take_line(endpoint: &Endpoint, parts: &mut Parts) -> Option<String> {
    endpoint.options.legacy.as_ref()?;
    let query = parts.uri.query()?;
    let line = query.split('&').find_map(|pair| pair.strip_prefix(PARAMETER))?.to_owned();
    let others: Vec<_> = query.split('&').filter(|pair| !pair.starts_with(PARAMETER)).collect();
    let mark = if others.is_empty() { "" } else { "?" };
    let rest = format!("{}{mark}{}", parts.uri.path(), others.join("&"));
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.path_and_query = rest.parse().ok();
    parts.uri = Uri::from_parts(uri).unwrap_or_default();
    Some(line)
}

/// Opens a stream.
pub(in crate::server::http) fn open(
    endpoint: &Arc<Endpoint>,
    parts: &Parts,
    principal: Option<Arc<str>>,
) -> Reply {
    let outbox = Arc::new(Outbox::polled(HIGH_WATER, 0));
    let service = endpoint.service_for(principal.as_ref());
    let connection =
        Connection::for_request(service, outbox.clone(), Reach::Lasting, Arc::new(parts.clone()));
    let id = SessionId::random();
    {
        let mut lines = lock(&endpoint.legacy.0);
        let held = lines.values().filter(|line| principal.is_some() && line.principal == principal).count();
        let bounds = endpoint.options.bounds;
        if lines.len() >= bounds.most || held >= bounds.most_of_one {
            return responses::refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many streams are open: try again later",
            );
        }
        let line = Line { connection: connection.clone(), outbox: outbox.clone(), principal };
        lines.insert(id, Arc::new(line));
    }
    let first = format!("event: endpoint\ndata: {}?{PARAMETER}{}\n\n", endpoint.options.path, id.text());
    let owner = Arc::downgrade(endpoint);
    let body = StreamBody::new(outbox, endpoint.options.keep_alive).with_text(&first);
    responses::events(body.on_gone(Box::new(move || {
        connection.abandon();
        if let Some(endpoint) = owner.upgrade() {
            let mut lines = lock(&endpoint.legacy.0);
            lines.remove(&id);
            if lines.is_empty() {
                lines.shrink_to_fit();
            }
        }
    })))
}

/// Handles a message; its response is sent on the stream.
pub(in crate::server::http) fn post(
    endpoint: &Endpoint,
    name: &str,
    message: &Message<'_>,
    parts: Arc<Parts>,
    principal: Option<&str>,
) -> Reply {
    let id = SessionId::parse(name.as_bytes());
    let line = id.and_then(|id| lock(&endpoint.legacy.0).get(&id).cloned());
    let Some(line) = line.filter(|line| line.principal.as_deref() == principal) else { return no_session() };
    if line.outbox.is_full() {
        let text = "too many responses are unread: read the stream first";
        return responses::refuse(StatusCode::SERVICE_UNAVAILABLE, text);
    }
    let connection = line.connection.by(parts);
    if let Some(rest) = connection.take(message) {
        start(&Handle::current(), connection.tracked(rest));
    }
    line.outbox.nudge();
    responses::accepted()
}

//! POST requests: determines the era of a message and runs it.

use std::sync::Arc;

use ::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, StatusCode};
use bytes::Buf;
use http_body::Body as HttpBody;
use linchpin_jsonrpc::write::{self, UnknownId};
use linchpin_jsonrpc::{Id, Message, Outbox, Params, ParseError, parse};
use linchpin_protocol::model::key;
use linchpin_protocol::wire::error_object;
use linchpin_protocol::{Era, Error as ProtocolError, Method, Revision};
use tokio::runtime::Handle;

use super::exchange::{RequestExchange, response_from};
use super::legacy_sse;
use crate::http::header_names;
use crate::server::http::body::{self, BodyReadError, BodySource};
use crate::server::http::endpoint::{Endpoint, session_not_found};
use crate::server::http::listener::RequestOrigin;
use crate::server::http::mirrored_headers;
use crate::server::http::responses::{self, HttpResponse};
use crate::server::http::sessions::id::SessionId;
use crate::server::http::sessions::store;
use crate::server::http::sessions::{HttpSession, SessionLimitReached};
use crate::server::{Connection, ReplyChannel, spawn};

/// Maximum number of bytes that may wait for the standalone stream, which a client need not open.
pub(in crate::server::http) const STANDALONE_MAX_QUEUED_BYTES: usize = 64 << 10;
/// Maximum number of bytes that may wait for a client that reads the response to its request.
const REQUEST_MAX_QUEUED_BYTES: usize = 1 << 20;
/// Initial capacity of the buffer for an HTTP response; enough for most.
const RESPONSE_CAPACITY: usize = 512;

pub(in crate::server::http) async fn post<B>(
    endpoint: &Arc<Endpoint>,
    parts: Parts,
    body: B,
    origin: Option<&RequestOrigin>,
    line: Option<String>,
    principal: Option<Arc<str>>,
) -> HttpResponse
where
    B: HttpBody<Data: Buf> + Send,
{
    if let Some(refusal) = check_headers(&parts.headers, line.is_some()) {
        return refusal;
    }
    let max_message = endpoint.service.settings().max_message;
    let source = BodySource { parts: &parts, origin, subject: principal.as_ref() };
    let body =
        match body::read(source, body, max_message, &endpoint.bodies, endpoint.options.body_timeout).await {
            Ok(body) => body,
            Err(read_error) => return body_error_response(read_error, max_message),
        };
    let message = match parse(&body.bytes, endpoint.service.settings().limits) {
        Ok(message) => message,
        Err(error) => return parse_error_response(&error),
    };
    if let Err(refusal) = endpoint.check_scopes(&parts, &message) {
        return *refusal;
    }
    if let Some(line) = line {
        return legacy_sse::post(endpoint, &line, &message, Arc::new(parts), principal.as_deref());
    }
    let request = Post { endpoint, parts: Arc::new(parts), message: &message, principal };
    request.serve().await
}

/// Checks the headers of a POST request before its body is read.
fn check_headers(headers: &HeaderMap, answers_elsewhere: bool) -> Option<HttpResponse> {
    // Exactly this type: browsers send other types cross-origin without a preflight request.
    let is_json = |content: &HeaderValue| {
        let media = content.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        media.trim_ascii().eq_ignore_ascii_case(b"application/json")
    };
    let mut contents = headers.get_all(CONTENT_TYPE).iter();
    if !contents.next().is_some_and(is_json) || contents.next().is_some() {
        let text = "send messages with Content-Type: application/json";
        return Some(responses::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let text = "send messages without Content-Encoding";
        return Some(responses::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    if !answers_elsewhere && !accepts_both(headers) {
        let text = "the client must accept both response types: Accept: application/json, text/event-stream";
        return Some(responses::error(StatusCode::NOT_ACCEPTABLE, text));
    }
    None
}

/// Returns whether the client accepts both JSON and event-stream responses.
fn accepts_both(headers: &HeaderMap) -> bool {
    // The value that nearly all clients send.
    let is_common_accept = |value: &HeaderValue| value == "application/json, text/event-stream";
    headers.get(ACCEPT).is_some_and(is_common_accept)
        || accepts(headers, b"application", b"json") && accepts(headers, b"text", b"event-stream")
}

/// Returns whether the client accepts this media type.
pub(in crate::server::http) fn accepts(headers: &HeaderMap, main: &[u8], sub: &[u8]) -> bool {
    let kinds = headers.get_all(ACCEPT).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    kinds.into_iter().any(|kind| {
        let mut parts = kind.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let mut type_parts = parts.next().unwrap_or_default().splitn(2, |byte| *byte == b'/');
        let matches_part = |part: Option<&[u8]>, expected: &[u8]| {
            part.is_some_and(|part| part == b"*" || part.eq_ignore_ascii_case(expected))
        };
        matches_part(type_parts.next(), main) && matches_part(type_parts.next(), sub) && !parts.any(is_zero)
    })
}

/// Returns whether a parameter in `Accept` is a weight of zero.
fn is_zero(parameter: &[u8]) -> bool {
    let weight = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    weight.is_some_and(|weight| weight.iter().all(|byte| matches!(byte, b'0' | b'.')))
}

fn body_error_response(read_error: BodyReadError, max_message: usize) -> HttpResponse {
    match read_error {
        BodyReadError::TooLarge => {
            let text = format!("the message is larger than the limit of {max_message} bytes");
            responses::error(StatusCode::PAYLOAD_TOO_LARGE, &text)
        }
        BodyReadError::TooSlow => {
            responses::error(StatusCode::REQUEST_TIMEOUT, "the message was not received in time")
        }
        BodyReadError::Incomplete => {
            responses::error(StatusCode::BAD_REQUEST, "the request body could not be read")
        }
        BodyReadError::BudgetExceeded => {
            unavailable("the server is receiving too many large messages: try again later")
        }
    }
}

fn parse_error_response(error: &ParseError) -> HttpResponse {
    let object = linchpin_jsonrpc::ErrorObject { code: error.code(), message: error.to_string(), data: None };
    let mut out = Vec::with_capacity(256);
    write::error(error.id.as_ref().filter(|_| !error.is_response), UnknownId::Absent, &object, &mut out);
    responses::json(StatusCode::BAD_REQUEST, out)
}

/// Parsed message of a POST request, with what is needed to serve it.
struct Post<'a> {
    endpoint: &'a Arc<Endpoint>,
    parts: Arc<Parts>,
    message: &'a Message<'a>,
    principal: Option<Arc<str>>,
}

impl Post<'_> {
    async fn serve(self) -> HttpResponse {
        let supported = &self.endpoint.service.settings().revisions;
        match mirrored_headers::named_revision(&self.parts, supported) {
            Ok(Some(revision)) if revision.era() == Era::Stateless => return self.stateless().await,
            Ok(_) => {}
            Err(error) => return self.unsupported_version(error),
        }
        match mirrored_headers::session_id(&self.parts) {
            Ok(Some(id)) if self.endpoint.options.sessions => {
                return match SessionId::parse(id.as_bytes()) {
                    Some(id) => self.in_session(id).await,
                    None => session_not_found(),
                };
            }
            Ok(_) => {}
            Err(error) => return self.error_response(&error),
        }
        match self.message {
            Message::Request { method, params, .. } if *method == Method::Initialize.name() => {
                self.open(params).await
            }
            Message::Request { params, .. } if claims_stateless(params) => self.stateless().await,
            _ if !self.endpoint.options.sessions => self.without_session().await,
            _ => self.invalid_request(
                "the header Mcp-Session-Id is missing: open a session with initialize first, and send its id with every message",
            ),
        }
    }

    fn id(&self) -> Option<&Id<'_>> {
        match self.message {
            Message::Request { id, .. } => Some(id),
            _ => None,
        }
    }

    fn invalid_request(&self, text: &str) -> HttpResponse {
        self.error_response(&ProtocolError::InvalidRequest(text.to_owned()))
    }

    fn error_response(&self, error: &ProtocolError) -> HttpResponse {
        let mut out = Vec::with_capacity(256);
        write::error(self.id(), UnknownId::Absent, &error_object(error, Revision::LATEST), &mut out);
        responses::json(StatusCode::BAD_REQUEST, out)
    }

    /// Creates the response for an unsupported revision, which names only stateless revisions if the request is
    /// stateless, as in the result of `server/discover`.
    fn unsupported_version(&self, mut error: ProtocolError) -> HttpResponse {
        let stateless = matches!(self.message, Message::Request { params, .. } if claims_stateless(params));
        let without_session = |revision: &Revision| revision.era() == Era::Stateless;
        if let ProtocolError::UnsupportedVersion { supported, .. } = &mut error
            && stateless
            && supported.iter().any(without_session)
        {
            supported.retain(without_session);
        }
        self.error_response(&error)
    }

    fn connection(&self, reply_channel: ReplyChannel, outbox: &Arc<Outbox>) -> Arc<Connection> {
        let service = self.endpoint.service_for(self.principal.as_ref());
        Connection::for_request(service, outbox.clone(), reply_channel, self.parts.clone())
    }

    /// Handles a POST with a message of the stateless era.
    async fn stateless(self) -> HttpResponse {
        if matches!(self.message, Message::Response { .. } | Message::Batch(_)) {
            return self
                .invalid_request("this revision has neither client responses nor batches: send one request");
        }
        let (endpoint, parts) = (self.endpoint, self.parts.clone());
        let is_open_ended =
            matches!(self.message, Message::Request { method, .. } if *method == Method::Listen.name());
        let mut reply = self.run_single(ReplyChannel::Request).await;
        if is_open_ended {
            endpoint.end_at_token_expiry(&parts, &mut reply);
        }
        reply
    }

    async fn run_single(self, reply_channel: ReplyChannel) -> HttpResponse {
        let outbox = Arc::new(Outbox::with_capacity(REQUEST_MAX_QUEUED_BYTES, RESPONSE_CAPACITY));
        let connection = self.connection(reply_channel, &outbox);
        RequestExchange::new(self.endpoint, connection, outbox, None).run(self.message).await
    }

    /// Handles a POST with a message of a session-era client on an endpoint without sessions.
    async fn without_session(self) -> HttpResponse {
        if matches!(self.message, Message::Response { .. }) {
            return self
                .invalid_request("unexpected response: without sessions this server sends no requests");
        }
        self.run_single(ReplyChannel::OneShot).await
    }

    /// Handles a POST with a message of an existing session.
    async fn in_session(self, id: SessionId) -> HttpResponse {
        let found = self.endpoint.sessions.find(&id, self.principal.as_deref());
        let Some(session) = (match found {
            Some(session) => Some(session),
            None => match store::restore(self.endpoint, id, self.principal.as_ref()).await {
                Ok(restored) => restored,
                Err(limit_reached) => return session_limit_response(&limit_reached),
            },
        }) else {
            return session_not_found();
        };
        if matches!(self.message, Message::Notification { .. } | Message::Response { .. }) {
            let connection = session.session().connection.with_http_request(self.parts);
            if let Some(rest) = connection.handle_message(self.message) {
                spawn(&Handle::current(), connection.track(rest));
            }
            return responses::accepted();
        }
        let outbox = Arc::new(Outbox::with_capacity(REQUEST_MAX_QUEUED_BYTES, RESPONSE_CAPACITY));
        let connection = session.session().connection.request_part(outbox.clone(), self.parts.clone());
        let exchange = RequestExchange::new(self.endpoint, connection, outbox, Some(session));
        let reply = exchange.run(self.message).await;
        store::save_changes(self.endpoint, self.message, id).await;
        reply
    }

    /// Opens a session for an `initialize` request.
    async fn open(self, params: &Params<'_>) -> HttpResponse {
        if !self.endpoint.options.sessions {
            return self.without_session().await;
        }
        let session_outbox = Arc::new(Outbox::with_capacity(STANDALONE_MAX_QUEUED_BYTES, 0));
        let service = self.endpoint.service_for(self.principal.as_ref());
        let connection = Connection::new(service, session_outbox, ReplyChannel::Lasting);
        let outbox = Arc::new(Outbox::with_capacity(REQUEST_MAX_QUEUED_BYTES, RESPONSE_CAPACITY));
        let part = connection.request_part(outbox.clone(), self.parts.clone());
        // `initialize` completes immediately: no handler is involved.
        let _ = part.handle_message(self.message);
        let mut reply = response_from(&part, &outbox, Era::Session);
        if connection.session().is_none() {
            return reply;
        }
        let id = SessionId::random();
        let session = HttpSession::new(id.key(), self.principal.clone(), connection, 0);
        match self.endpoint.sessions.add(id, session) {
            Ok((_in_use, evicted)) => {
                if let Some(evicted) = evicted {
                    self.endpoint.options.events.delete(&evicted.key);
                }
            }
            Err(limit_reached) => return session_limit_response(&limit_reached),
        }
        self.endpoint.start_reaper();
        store::save(self.endpoint, id, self.principal.as_deref(), params);
        reply.headers_mut().insert(header_names::SESSION_ID, id.header());
        reply
    }
}

/// Returns whether a request without the version header appears to be stateless.
fn claims_stateless(params: &Params<'_>) -> bool {
    params.find("_meta").is_some_and(|meta| meta.contains(key::PROTOCOL_VERSION))
}

pub(in crate::server::http) fn session_limit_response(limit_reached: &SessionLimitReached) -> HttpResponse {
    let text = match limit_reached {
        SessionLimitReached::Principal => {
            "session limit reached, and all your sessions are in use: end one first"
        }
        SessionLimitReached::Server => {
            "session limit of the server reached, and all sessions are in use: try again later"
        }
    };
    unavailable(text)
}

fn unavailable(text: &str) -> HttpResponse {
    let mut reply = responses::error(StatusCode::SERVICE_UNAVAILABLE, text);
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    reply
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use ::http::Request;
    use ::http::header::HOST;
    use tokio::sync::Notify;

    use super::*;
    use crate::Server;
    use crate::server::http::body::BodyBudget;
    use crate::server::http::options::EndpointOptions;

    const LONG_TEXT_LEN: usize = 60_000;

    /// Polls a future once.
    async fn now<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
        std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await
    }

    #[tokio::test]
    async fn a_long_message_takes_room_until_it_is_answered() {
        let release = Arc::new(Notify::new());
        let handler_release = release.clone();
        let server = Server::new("test", "1.0.0").tool("wait", "", move || {
            let handler_release = handler_release.clone();
            async move { handler_release.notified().await }
        });
        let options = EndpointOptions { sessions: false, ..EndpointOptions::default() };
        let mut endpoint = Endpoint::new(server.build().unwrap(), options);
        Arc::get_mut(&mut endpoint).unwrap().bodies = BodyBudget::new(LONG_TEXT_LEN + 1_000);
        let call = |bytes: usize| {
            let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}"#;
            let body = format!("{message:<bytes$}");
            let request = Request::post("/mcp").header(HOST, "localhost");
            let request = request.header(ACCEPT, "*/*").header(CONTENT_TYPE, "application/json");
            let (endpoint, request) = (endpoint.clone(), request.body(body).unwrap());
            Box::pin(async move { endpoint.handle(request, None).await.status().as_u16() })
        };
        let (mut long, mut short) = (call(LONG_TEXT_LEN), call(1_000));
        assert_eq!(now(&mut long).await, Poll::Pending);
        assert_eq!(now(&mut call(LONG_TEXT_LEN)).await, Poll::Ready(503));
        assert_eq!(now(&mut short).await, Poll::Pending);
        release.notify_waiters();
        assert_eq!((long.await, short.await), (200, 200));
        release.notify_one();
        assert_eq!(now(&mut call(LONG_TEXT_LEN)).await, Poll::Ready(200), "the reservation is released");
    }
}

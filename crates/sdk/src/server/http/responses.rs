//! Constructors of the HTTP responses of an MCP endpoint.

use ::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderName, HeaderValue, Response, StatusCode};
use linchpin_jsonrpc::write::{self, UnknownId};
use linchpin_jsonrpc::{ErrorObject, code};

use super::body::Body;
use super::streams::body::StreamBody;

const CONTENT_TYPE_JSON: HeaderValue = HeaderValue::from_static("application/json");
const CONTENT_TYPE_SSE: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// HTTP response of an MCP endpoint.
pub(super) type HttpResponse = Response<Body>;

/// Creates a response with one JSON message.
pub(super) fn json(status: StatusCode, message: Vec<u8>) -> HttpResponse {
    let mut reply = Response::new(Body::from(message));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_JSON);
    reply
}

/// Creates a response with an SSE stream of messages.
pub(super) fn events(stream: StreamBody) -> HttpResponse {
    let mut reply = Response::new(Body::stream(stream));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, CONTENT_TYPE_SSE);
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    reply
}

/// Creates a response without a body.
pub(super) fn empty(status: StatusCode) -> HttpResponse {
    let mut reply = Response::new(Body::default());
    *reply.status_mut() = status;
    reply
}

/// 202 response to a message that has no response of its own.
pub(super) fn accepted() -> HttpResponse {
    empty(StatusCode::ACCEPTED)
}

/// Error response that belongs to no particular message.
pub(super) fn error(status: StatusCode, message: &str) -> HttpResponse {
    error_with(status, &ErrorObject { code: code::INVALID_REQUEST, message: message.to_owned(), data: None })
}

/// Creates an error response with a given JSON-RPC error object.
pub(super) fn error_with(status: StatusCode, error: &ErrorObject) -> HttpResponse {
    let mut out = Vec::with_capacity(256);
    write::error(None, UnknownId::Absent, error, &mut out);
    json(status, out)
}

/// 404 response for other paths than the endpoint's, as plain text because the client may not speak MCP.
pub(super) fn not_found(path: &str) -> HttpResponse {
    let mut reply = Response::new(Body::from(format!("Not found. The endpoint is {path}.\n").into_bytes()));
    *reply.status_mut() = StatusCode::NOT_FOUND;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    reply
}

/// Builds a 405 response, whose `Allow` header lists the methods of the endpoint.
pub(super) fn method_not_allowed(allow: &'static str) -> HttpResponse {
    let text = format!("method not allowed: use one of {allow}");
    let mut reply = error(StatusCode::METHOD_NOT_ALLOWED, &text);
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    reply
}

//! Answers as they are written.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use linchpin_hub_core::Kind;
use linchpin_hub_core::error::Error;
use serde::Serialize;

use crate::problem::Result;

/// An answer with this body.
pub(crate) fn with(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A value.
pub(crate) fn json(value: &impl Serialize) -> Result<Response> {
    json_with(StatusCode::OK, value)
}

/// A value, and what became of the request.
pub(crate) fn json_with(status: StatusCode, value: &impl Serialize) -> Result<Response> {
    let text = serde_json::to_vec(value)
        .map_err(|error| Error::new(Kind::Internal, "not_written", format!("an answer: {error}")))?;
    Ok(with(status, "application/json", text))
}

/// Something that is new, and where it is.
pub(crate) fn created(path: &str, value: &impl Serialize) -> Result<Response> {
    Ok(located(json_with(StatusCode::CREATED, value)?, path))
}

/// With the place of what it is about.
pub(crate) fn located(mut response: Response, path: &str) -> Response {
    if let Ok(path) = HeaderValue::try_from(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

/// It is done, and there is nothing to say.
pub(crate) fn done() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Look there.
pub(crate) fn see_other(path: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let place = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, place);
    response
}

//! Constructors of REST responses.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use linchpin_hub_core::ErrorKind;
use linchpin_hub_core::error::Error;
use serde::Serialize;

use crate::problem::Result;

/// Creates a response with this status, content type and body.
pub(crate) fn respond_with(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Creates a JSON response with status 200.
pub(crate) fn json(value: &impl Serialize) -> Result<Response> {
    json_with_status(StatusCode::OK, value)
}

/// Creates a JSON response with this status.
pub(crate) fn json_with_status(status: StatusCode, value: &impl Serialize) -> Result<Response> {
    let text = serde_json::to_vec(value).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            "record_unwritable",
            format!("failed to serialize a response: {error}"),
        )
    })?;
    Ok(respond_with(status, "application/json", text))
}

/// Creates a 201 response with the path of the new resource in `Location`.
pub(crate) fn created(path: &str, value: &impl Serialize) -> Result<Response> {
    Ok(with_location(json_with_status(StatusCode::CREATED, value)?, path))
}

/// Adds the `Location` header with this path to a response.
pub(crate) fn with_location(mut response: Response, path: &str) -> Response {
    if let Ok(path) = HeaderValue::try_from(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

/// Creates a 204 response.
pub(crate) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Creates a 303 redirect.
pub(crate) fn see_other(path: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, location);
    response
}

//! Errors of the API as problem documents (RFC 9457): status, stable code, field of the request, and what to do.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::platform::{SystemPlatform, random};
use linchpin_hub_core::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::Serialize;

/// Error response of a REST request, before it is rendered as a problem document.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    field: Option<String>,
    detail: String,
    retry_after: Option<Duration>,
}

/// Body of an error response of the REST API: a problem document (RFC 9457).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemDocument<'a> {
    /// URI of the problem type.
    r#type: String,
    /// Title of the HTTP status.
    title: &'a str,
    /// HTTP status of the response.
    status: u16,
    /// Stable, machine-readable error code.
    code: &'a str,
    /// Field or parameter of the request that caused the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    /// Explanation of the problem, with advice.
    detail: &'a str,
}

pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Problem { status, code, field: None, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Creates a problem document with status 400.
    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// Creates the 401 problem of a request without a valid credential.
    pub(crate) fn unauthenticated() -> Self {
        let text = "authentication required: send `Authorization: Bearer` with an API token of the hub, or log in with a browser";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", text)
    }

    /// Creates the 404 problem of an unknown path.
    pub(crate) fn not_found() -> Self {
        let text = "unknown path: /api/v1/openapi.json lists all paths";
        Self::new(StatusCode::NOT_FOUND, "unknown_path", text)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    #[cfg(test)]
    pub(crate) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid if error.field().is_some() => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
            ErrorKind::LimitExceeded => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => return internal(&error),
        };
        let field = error.field().map(str::to_owned);
        let retry_after = error.retry_after();
        Problem { status, code: error.code(), field, detail: error.message().to_owned(), retry_after }
    }
}

/// Creates a problem document with status 500. The error itself is only in the log; the incident number in the response
/// refers to it.
fn internal(error: &Error) -> Problem {
    let mut incident = Digest::from_bytes(random(&SystemPlatform)).to_string();
    incident.truncate(12);
    tracing::error!(incident, code = error.code(), %error, "request failed with an internal error");
    let text = format!("internal error: search the log of the hub for incident {incident}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = ProblemDocument {
            r#type: format!("urn:linchpin:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Problem"),
            status: self.status.as_u16(),
            code: self.code,
            field: self.field.as_deref(),
            detail: &self.detail,
        };
        let text = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, wait.as_secs().into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_status() {
        for (kind, status) in [
            (ErrorKind::Invalid, 400),
            (ErrorKind::Unauthenticated, 401),
            (ErrorKind::NotFound, 404),
            (ErrorKind::Conflict, 409),
            (ErrorKind::PermissionDenied, 403),
            (ErrorKind::LimitExceeded, 429),
            (ErrorKind::Unavailable, 503),
            (ErrorKind::Internal, 500),
        ] {
            let problem = Problem::from(Error::new(kind, "code", "text"));
            assert_eq!(problem.status().as_u16(), status, "{kind:?}");
        }
        let problem = Problem::from(Error::invalid("url", "no"));
        assert_eq!((problem.status().as_u16(), problem.field.as_deref()), (422, Some("url")));
    }

    #[test]
    fn what_broke_in_here_stays_in_here() {
        let problem = Problem::from(Error::new(
            ErrorKind::Internal,
            "record_unreadable",
            "/home/ada/hub.db is damaged",
        ));
        assert!(!problem.detail().contains("ada") && problem.code == "internal", "{problem:?}");
    }
}

//! What went wrong, as whoever asked sees it: a problem document (RFC 9457) with a status, a code that stays the same, the
//! field it is about, and what to do.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::world::{System, random};
use linchpin_hub_core::{Error, Kind};
use schemars::JsonSchema;
use serde::Serialize;

/// What went wrong.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    field: Option<String>,
    detail: String,
    retry_after: Option<Duration>,
}

/// The document.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Document<'a> {
    /// Which kind of problem it is, as a URI.
    r#type: String,
    /// The same in words.
    title: &'a str,
    /// The status of the answer.
    status: u16,
    /// For programs: stays the same.
    code: &'a str,
    /// The field of the request that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    /// What happened and what to do.
    detail: &'a str,
}

pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Problem { status, code, field: None, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn about(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The request itself makes no sense.
    pub(crate) fn malformed(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// Nobody knows who asks.
    pub(crate) fn nobody() -> Self {
        let text = "send `Authorization: Bearer` with a token of the hub, or sign in with a browser";
        Self::new(StatusCode::UNAUTHORIZED, "not_signed_in", text)
    }

    /// The path leads nowhere.
    pub(crate) fn nowhere() -> Self {
        let text = "there is nothing at this path: /api/v1/openapi.json says what there is";
        Self::new(StatusCode::NOT_FOUND, "no_such_path", text)
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
            Kind::Invalid if error.field().is_some() => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::Denied => StatusCode::FORBIDDEN,
            Kind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => return broken(&error),
        };
        let field = error.field().map(str::to_owned);
        let retry_after = error.retry_after();
        Problem { status, code: error.code(), field, detail: error.message().to_owned(), retry_after }
    }
}

/// Something broke in here. What it was stands in the log, under a name that both sides know.
fn broken(error: &Error) -> Problem {
    let mut incident = Digest::from_bytes(random(&System)).to_string();
    incident.truncate(12);
    tracing::error!(incident, code = error.code(), %error, "a request could not be answered");
    let text = format!("something broke in the hub: its log says more under {incident}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
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
            (Kind::Invalid, 400),
            (Kind::Unauthorized, 401),
            (Kind::NotFound, 404),
            (Kind::Conflict, 409),
            (Kind::Denied, 403),
            (Kind::Exhausted, 429),
            (Kind::Unavailable, 503),
            (Kind::Internal, 500),
        ] {
            let problem = Problem::from(Error::new(kind, "code", "text"));
            assert_eq!(problem.status().as_u16(), status, "{kind:?}");
        }
        let problem = Problem::from(Error::invalid("url", "no"));
        assert_eq!((problem.status().as_u16(), problem.field.as_deref()), (422, Some("url")));
    }

    #[test]
    fn what_broke_in_here_stays_in_here() {
        let problem =
            Problem::from(Error::new(Kind::Internal, "not_readable", "/home/ada/hub.db is damaged"));
        assert!(!problem.detail().contains("ada") && problem.code == "internal", "{problem:?}");
    }
}

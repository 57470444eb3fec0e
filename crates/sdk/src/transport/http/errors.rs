//! Error codes and constructors of errors of the HTTP client transport.

use std::borrow::Cow;

use ::http::{HeaderValue, StatusCode};
use linchpin_jsonrpc::CallError;

use crate::auth::{AuthError, AuthErrorKind};
use crate::client::retry::{NOT_CONNECTED, SESSION_NOT_FOUND};
use crate::hidden_characters::is_hidden;

/// Error code: the response body exceeds the size limit.
pub(super) const BODY_TOO_LARGE: &str = "HTTP_BODY_TOO_LARGE";
/// Error code: a server-sent event exceeds the size limit.
pub(super) const EVENT_TOO_LARGE: &str = "SSE_EVENT_DATA_TOO_LARGE";
/// Error code: the data of a server-sent event is not a message.
pub(super) const INVALID_EVENT: &str = "INVALID_SSE_EVENT_DATA";
/// Error code: the server responded with an error status without details.
const STATUS: &str = "HTTP_STATUS";
/// Error code: the server requires authentication (401).
const UNAUTHORIZED: &str = "HTTP_UNAUTHORIZED";
/// Error code: the client is not permitted (403).
const FORBIDDEN: &str = "HTTP_FORBIDDEN";
/// Error code: the response does not come from an MCP server.
const CONTENT_TYPE: &str = "HTTP_CONTENT_TYPE";
/// Error code: the request cannot be sent over HTTP.
const REQUEST: &str = "HTTP_REQUEST";
/// Error code: a redirect is not followed.
const REDIRECT: &str = "HTTP_REDIRECT";
/// Error code: the client's authorization failed, for example at the authorization server.
const AUTHORIZATION: &str = "HTTP_AUTHORIZATION";
/// Error code: a user must sign in, and there is no redirect handler.
const SIGN_IN: &str = "HTTP_SIGN_IN";
/// Error code: the callback that provides headers failed.
const HEADERS: &str = "HTTP_HEADERS_PROVIDER";

/// Maximum number of characters of a response body that an error quotes.
const MAX_QUOTED_CHARS: usize = 200;

fn transport_error(code: &'static str, status: Option<StatusCode>, message: impl AsRef<str>) -> CallError {
    CallError::Transport {
        code,
        status: status.map(|status| status.as_u16()),
        message: message.as_ref().into(),
    }
}

/// Creates the error for a request that was not sent.
pub(super) fn not_connected(reason: impl AsRef<str>) -> CallError {
    transport_error(NOT_CONNECTED, None, reason)
}

pub(super) fn body_too_large(limit: usize) -> CallError {
    let message =
        format!("the response is larger than {limit} bytes: raise `max_response` if this is expected");
    transport_error(BODY_TOO_LARGE, None, message)
}

pub(super) fn event_too_large(limit: usize) -> CallError {
    let message = format!(
        "an event of the stream is larger than {limit} bytes: raise `max_response` if this is expected"
    );
    transport_error(EVENT_TOO_LARGE, None, message)
}

pub(super) fn invalid_event(reason: &str) -> CallError {
    transport_error(INVALID_EVENT, None, format!("an event of the stream is not a message: {reason}"))
}

pub(super) fn session_not_found(renewal: &str) -> CallError {
    let message = format!("the server no longer knows the session; {renewal}");
    transport_error(SESSION_NOT_FOUND, Some(StatusCode::NOT_FOUND), message)
}

/// Creates the error for failed authentication. `status` is that of the challenge, if there was one.
pub(super) fn not_authorized(error: &AuthError, status: Option<StatusCode>) -> CallError {
    let code = if error.kind() == AuthErrorKind::SignInRequired { SIGN_IN } else { AUTHORIZATION };
    transport_error(code, status, error.to_string())
}

pub(super) fn headers_provider_failed(reason: &str) -> CallError {
    transport_error(HEADERS, None, format!("the headers provider failed: {reason}"))
}

pub(super) fn bad_redirect(reason: &str) -> CallError {
    transport_error(REDIRECT, None, reason)
}

pub(super) fn bad_request(reason: &str) -> CallError {
    transport_error(REQUEST, None, reason)
}

pub(super) fn not_a_message(content_type: Option<&HeaderValue>, status: StatusCode) -> CallError {
    let content_type =
        content_type.map_or(Cow::Borrowed("something"), |value| String::from_utf8_lossy(value.as_bytes()));
    let message = format!("the response is {content_type:.60}, not a message: check the URL");
    transport_error(CONTENT_TYPE, Some(status), message)
}

/// Creates the error for a response with an error status. `body` is the response body, without secrets.
pub(super) fn status(status: StatusCode, challenge: Option<&HeaderValue>, body: &str) -> CallError {
    let scheme = challenge.and_then(|value| value.to_str().ok()).and_then(scheme);
    let (code, message) = match status {
        StatusCode::UNAUTHORIZED => {
            let scheme = scheme.map_or(String::new(), |scheme| format!(" ({scheme})"));
            let advice = "set `auth` on the client, or check its token or password";
            (UNAUTHORIZED, format!("the server requires authentication{scheme}: {advice}"))
        }
        StatusCode::FORBIDDEN => (FORBIDDEN, "the server rejected the request: HTTP 403".to_owned()),
        status => {
            let reason = status.canonical_reason().unwrap_or("");
            (
                STATUS,
                format!("the server responded with HTTP {} {reason}", status.as_u16()).trim_end().to_owned(),
            )
        }
    };
    let body = excerpt(body);
    let message = if body.is_empty() { message } else { format!("{message}: {body}") };
    transport_error(code, Some(status), message)
}

/// Returns the scheme of a `WWW-Authenticate` challenge.
fn scheme(challenge: &str) -> Option<&str> {
    let scheme = challenge.split([' ', ',']).next()?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!scheme.is_empty() && scheme.len() <= 32 && scheme.bytes().all(token)).then_some(scheme)
}

/// Returns the start of an error response body on one line, for messages. HTML pages are omitted.
fn excerpt(body: &str) -> String {
    let body = body.trim();
    if body.starts_with('<') {
        return String::new();
    }
    let mut short: String =
        body.chars().filter(|char| !char.is_control() && !is_hidden(*char)).take(MAX_QUOTED_CHARS).collect();
    if short.len() < body.len() && short.chars().count() == MAX_QUOTED_CHARS {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(status: u16, challenge: Option<&'static str>, body: &str) -> String {
        let challenge = challenge.map(HeaderValue::from_static);
        super::status(StatusCode::from_u16(status).unwrap(), challenge.as_ref(), body).to_string()
    }

    #[test]
    fn a_status_is_said_with_what_came_with_it() {
        assert_eq!(
            text(500, None, ""),
            "the server responded with HTTP 500 Internal Server Error (HTTP_STATUS)"
        );
        assert_eq!(text(599, None, " no\n "), "the server responded with HTTP 599: no (HTTP_STATUS)");
        assert_eq!(text(404, None, "<html>…"), "the server responded with HTTP 404 Not Found (HTTP_STATUS)");
        assert!(text(400, None, &"x".repeat(1_000)).len() < 300);
        let unauthorized = text(401, Some("Bearer realm=\"x\", error=\"y\""), "");
        assert!(unauthorized.contains("(Bearer)") && !unauthorized.contains("realm"), "{unauthorized}");
        assert!(text(401, Some("<script> x"), "").starts_with("the server requires authentication: "));
        assert!(text(403, None, "").contains("HTTP_FORBIDDEN"));
    }
}

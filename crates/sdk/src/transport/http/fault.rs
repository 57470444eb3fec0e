//! What can go wrong with one request, by name and in words.

use std::borrow::Cow;

use ::http::{HeaderValue, StatusCode};
use linchpin_jsonrpc::CallError;

use crate::auth::{AuthError, AuthErrorKind};
use crate::client::repeat::{NOT_CONNECTED, SESSION_NOT_FOUND};
use crate::text::is_hidden;

/// The body of an answer is too long.
pub(super) const BODY_TOO_LARGE: &str = "HTTP_BODY_TOO_LARGE";
/// One event of a stream is too long.
pub(super) const EVENT_TOO_LARGE: &str = "SSE_EVENT_DATA_TOO_LARGE";
/// An event of a stream is no message.
pub(super) const INVALID_EVENT: &str = "INVALID_SSE_EVENT_DATA";
/// The server answered with a status that says no more.
const STATUS: &str = "HTTP_STATUS";
/// Who asks is not known to the server, or may not.
const UNAUTHORIZED: &str = "HTTP_UNAUTHORIZED";
const FORBIDDEN: &str = "HTTP_FORBIDDEN";
/// What answered is no MCP server.
const CONTENT_TYPE: &str = "HTTP_CONTENT_TYPE";
/// The request cannot be written as HTTP.
const REQUEST: &str = "HTTP_REQUEST";
/// The server leads elsewhere, where the client does not go.
const REDIRECT: &str = "HTTP_REDIRECT";
/// Signing in failed.
const AUTHORIZATION: &str = "HTTP_AUTHORIZATION";
/// Somebody has to sign in, and nobody can be asked.
const SIGN_IN: &str = "HTTP_SIGN_IN";
/// The provider of headers failed.
const HEADERS: &str = "HTTP_HEADERS_PROVIDER";

/// How much of a body is quoted.
const QUOTED: usize = 200;

fn fault(code: &'static str, status: Option<StatusCode>, message: impl AsRef<str>) -> CallError {
    CallError::Transport {
        code,
        status: status.map(|status| status.as_u16()),
        message: message.as_ref().into(),
    }
}

/// Nothing was sent.
pub(super) fn not_connected(reason: impl AsRef<str>) -> CallError {
    fault(NOT_CONNECTED, None, reason)
}

pub(super) fn body_too_large(limit: usize) -> CallError {
    let message =
        format!("the server's answer has more than {limit} bytes: raise `max_response` if it is right");
    fault(BODY_TOO_LARGE, None, message)
}

pub(super) fn event_too_large(limit: usize) -> CallError {
    let message =
        format!("an event of the stream has more than {limit} bytes: raise `max_response` if it is right");
    fault(EVENT_TOO_LARGE, None, message)
}

pub(super) fn invalid_event(reason: &str) -> CallError {
    fault(INVALID_EVENT, None, format!("an event of the stream is no message: {reason}"))
}

pub(super) fn session_not_found(what_then: &str) -> CallError {
    let message = format!("the server no longer knows the session; {what_then}");
    fault(SESSION_NOT_FOUND, Some(StatusCode::NOT_FOUND), message)
}

/// Nobody could say who asks. The status is that of the answer which asked for it, if there was one.
pub(super) fn not_authorized(error: &AuthError, status: Option<StatusCode>) -> CallError {
    let code = if error.kind() == AuthErrorKind::Nobody { SIGN_IN } else { AUTHORIZATION };
    fault(code, status, error.to_string())
}

pub(super) fn no_headers(reason: &str) -> CallError {
    fault(HEADERS, None, format!("the provider of headers failed: {reason}"))
}

pub(super) fn bad_redirect(reason: &str) -> CallError {
    fault(REDIRECT, None, reason)
}

pub(super) fn bad_request(reason: &str) -> CallError {
    fault(REQUEST, None, reason)
}

pub(super) fn not_a_message(content_type: Option<&HeaderValue>, status: StatusCode) -> CallError {
    let what =
        content_type.map_or(Cow::Borrowed("something"), |value| String::from_utf8_lossy(value.as_bytes()));
    let message = format!("the server answered with {what:.60}, which is no message: is the URL right?");
    fault(CONTENT_TYPE, Some(status), message)
}

/// A status that is no success. `body` is what came with it, without anything secret.
pub(super) fn status(status: StatusCode, challenge: Option<&HeaderValue>, body: &str) -> CallError {
    let scheme = challenge.and_then(|value| value.to_str().ok()).and_then(scheme);
    let (code, message) = match status {
        StatusCode::UNAUTHORIZED => {
            let scheme = scheme.map_or(String::new(), |scheme| format!(" ({scheme})"));
            let what = "give it with `auth`";
            (UNAUTHORIZED, format!("the server wants to know who asks{scheme}: {what}"))
        }
        StatusCode::FORBIDDEN => (FORBIDDEN, "the server does not allow this: HTTP 403".to_owned()),
        status => {
            let reason = status.canonical_reason().unwrap_or("");
            (STATUS, format!("the server answered HTTP {} {reason}", status.as_u16()).trim_end().to_owned())
        }
    };
    let body = quoted(body);
    let message = if body.is_empty() { message } else { format!("{message}: {body}") };
    fault(code, Some(status), message)
}

/// The scheme of a challenge.
fn scheme(challenge: &str) -> Option<&str> {
    let scheme = challenge.split([' ', ',']).next()?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!scheme.is_empty() && scheme.len() <= 32 && scheme.bytes().all(token)).then_some(scheme)
}

/// The beginning of a text on one line. Pages for people are left out.
fn quoted(body: &str) -> String {
    let body = body.trim();
    if body.starts_with('<') {
        return String::new();
    }
    let mut short: String =
        body.chars().filter(|char| !char.is_control() && !is_hidden(*char)).take(QUOTED).collect();
    if short.len() < body.len() && short.chars().count() == QUOTED {
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
        assert_eq!(text(500, None, ""), "the server answered HTTP 500 Internal Server Error (HTTP_STATUS)");
        assert_eq!(text(599, None, " no\n "), "the server answered HTTP 599: no (HTTP_STATUS)");
        assert_eq!(text(404, None, "<html>…"), "the server answered HTTP 404 Not Found (HTTP_STATUS)");
        assert!(text(400, None, &"x".repeat(1_000)).len() < 300);
        let unauthorized = text(401, Some("Bearer realm=\"x\", error=\"y\""), "");
        assert!(unauthorized.contains("(Bearer)") && !unauthorized.contains("realm"), "{unauthorized}");
        assert!(text(401, Some("<script> x"), "").starts_with("the server wants to know who asks: "));
        assert!(text(403, None, "").contains("HTTP_FORBIDDEN"));
    }
}

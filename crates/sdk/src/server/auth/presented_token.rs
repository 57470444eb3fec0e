//! Access token that a request presents in its `Authorization` header. Only the `Authorization` header is accepted.

use ::http::HeaderValue;
use ::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ::http::request::Parts;

/// Maximum length of an access token in a request, in bytes.
const MAX_TOKEN_LEN: usize = 16 << 10;

/// Authentication scheme under which a request presents its token: `Bearer` or `DPoP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Bearer,
    Dpop,
}

impl Scheme {
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::Bearer => "Bearer",
            Scheme::Dpop => "DPoP",
        }
    }
}

/// Access token and its scheme, as sent in a request. It is never printed.
pub(super) struct PresentedToken<'a> {
    pub(super) scheme: Scheme,
    pub(super) token: &'a str,
}

/// Extracts the token of a request; `Err` if the request is malformed.
pub(super) fn extract(parts: &Parts) -> Result<Option<PresentedToken<'_>>, &'static str> {
    let in_query = |query: &str| query.split('&').any(|pair| pair.split('=').next() == Some("access_token"));
    if parts.uri.query().is_some_and(in_query) {
        return Err("send the token in the Authorization header, not in the URL");
    }
    let is_form = |kind: &HeaderValue| {
        let media = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        media.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    };
    if parts.headers.get_all(CONTENT_TYPE).iter().any(is_form) {
        return Err("send the token in the Authorization header, not in a form");
    }
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("the Authorization header occurs more than once");
    }
    let value = value.to_str().map_err(|_| "the Authorization header contains invalid characters")?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    let schemes = [Scheme::Bearer, Scheme::Dpop];
    let Some(scheme) = schemes.into_iter().find(|candidate| candidate.name().eq_ignore_ascii_case(scheme))
    else {
        return Ok(None); // another scheme
    };
    validate_syntax(token.trim_start_matches(' ')).map(|token| Some(PresentedToken { scheme, token }))
}

fn validate_syntax(token: &str) -> Result<&str, &'static str> {
    if token.len() > MAX_TOKEN_LEN {
        return Err("the token is longer than 16384 bytes");
    }
    let is_token_char = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    let text = token.trim_end_matches('=');
    if text.is_empty() || !text.bytes().all(is_token_char) {
        return Err("the Authorization header must have the form: Bearer token");
    }
    Ok(token)
}

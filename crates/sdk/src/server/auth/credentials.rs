//! The token of a request: in one header, and nowhere else.

use ::http::HeaderValue;
use ::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ::http::request::Parts;

/// Bytes of a token.
const MAX_TOKEN: usize = 16 << 10;

/// How a token is sent.
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

/// A token as it was sent. It is never printed.
pub(super) struct Credentials<'a> {
    pub(super) scheme: Scheme,
    pub(super) token: &'a str,
}

/// The token of a request, if it has one; `Err` says why nobody can tell.
pub(super) fn read(parts: &Parts) -> Result<Option<Credentials<'_>>, &'static str> {
    let in_query = |query: &str| query.split('&').any(|pair| pair.split('=').next() == Some("access_token"));
    if parts.uri.query().is_some_and(in_query) {
        return Err("tokens are sent in the header Authorization, never in the URL");
    }
    let is_form = |kind: &HeaderValue| {
        let media = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        media.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    };
    if parts.headers.get_all(CONTENT_TYPE).iter().any(is_form) {
        return Err("tokens are sent in the header Authorization, never in a form");
    }
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("the header Authorization is there more than once");
    }
    let value = value.to_str().map_err(|_| "the header Authorization has characters that no token has")?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    let known = [Scheme::Bearer, Scheme::Dpop];
    let Some(scheme) = known.into_iter().find(|known| known.name().eq_ignore_ascii_case(scheme)) else {
        return Ok(None); // of another kind, which this server does not know
    };
    check(token.trim_start_matches(' ')).map(|token| Some(Credentials { scheme, token }))
}

fn check(token: &str) -> Result<&str, &'static str> {
    if token.len() > MAX_TOKEN {
        return Err("the token is longer than 16384 bytes");
    }
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    let text = token.trim_end_matches('=');
    if text.is_empty() || !text.bytes().all(is_good) {
        return Err("the header Authorization is not written as: Bearer token");
    }
    Ok(token)
}

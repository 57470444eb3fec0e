//! Requests that signing in consists of, and their answers, as data: somebody else sends them.

use std::fmt;

use super::form;
use super::secret::Secret;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// What the server says of itself (RFC 9728).
    ResourceMetadata,
    /// What its authorization server says of itself (RFC 8414, `OpenID` Connect Discovery).
    ServerMetadata,
    /// The client makes itself known (RFC 7591).
    Registration,
    /// A token is asked for.
    Token,
    /// An identity provider is asked for an assertion (RFC 8693).
    Assertion,
    /// A token is given back (RFC 7009).
    Revocation,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::ResourceMetadata => "protected resource metadata",
            Purpose::ServerMetadata => "authorization server metadata",
            Purpose::Registration => "client registration",
            Purpose::Token => "token request",
            Purpose::Assertion => "token exchange with the identity provider",
            Purpose::Revocation => "token revocation",
        })
    }
}

/// One request that is to be sent.
#[derive(Clone)]
pub(super) struct Exchange {
    purpose: Purpose,
    url: String,
    typed: bool,
    headers: Vec<(&'static str, Secret)>,
    body: Option<(&'static str, Secret)>,
    /// What is secret in it.
    secrets: Vec<Secret>,
}

impl Exchange {
    pub(super) fn get(purpose: Purpose, url: impl Into<String>) -> Self {
        let (headers, secrets) = (Vec::new(), Vec::new());
        Exchange { purpose, url: url.into(), typed: false, headers, body: None, secrets }
    }

    /// A form that is filled in by [`Self::field`].
    pub(super) fn form(purpose: Purpose, url: impl Into<String>) -> Self {
        let body = Some(("application/x-www-form-urlencoded", Secret::default()));
        Exchange { body, ..Self::get(purpose, url) }
    }

    pub(super) fn json(purpose: Purpose, url: impl Into<String>, body: &serde_json::Value) -> Self {
        Exchange { body: Some(("application/json", body.to_string().into())), ..Self::get(purpose, url) }
    }

    /// Says that the URL was not learned from the network.
    pub(super) fn typed(mut self) -> Self {
        self.typed = true;
        self
    }

    pub(super) fn field(&mut self, name: &str, value: &str) {
        if let Some((_, form)) = &mut self.body {
            let mut text = form.expose().to_owned();
            form::append(&mut text, name, value);
            *form = text.into();
        }
    }

    /// A field that nobody may read.
    pub(super) fn secret(&mut self, name: &str, value: &str) {
        self.field(name, value);
        self.hide(value);
    }

    /// Says that this, which is in it, is secret.
    pub(super) fn hide(&mut self, secret: &str) {
        self.secrets.push(secret.into());
    }

    /// A refusal without what was sent: some authorization servers repeat it, and refusals are shown.
    pub(super) fn without_secrets(&self, mut refusal: Reply) -> Reply {
        for secret in self.secrets.iter().map(Secret::expose).filter(|secret| !secret.is_empty()) {
            if let Some(text) = std::str::from_utf8(&refusal.body).ok().filter(|text| text.contains(secret)) {
                refusal.body = text.replace(secret, "…").into_bytes();
            }
        }
        refusal
    }

    pub(super) fn header(&mut self, name: &'static str, value: &str) {
        self.headers.push((name, value.into()));
    }

    /// What it is for.
    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// `GET`, or `POST` if it has a body. What is posted must not be repeated elsewhere: redirects are not followed.
    pub(super) fn method(&self) -> &'static str {
        if self.body.is_some() { "POST" } else { "GET" }
    }

    /// Where it goes.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the URL comes from the settings and not from the network.
    pub(super) fn is_typed(&self) -> bool {
        self.typed
    }

    /// Headers beside those that every request has.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&'static str, &Secret)> {
        self.headers.iter().map(|(name, value)| (*name, value))
    }

    /// The content type and the body.
    pub(super) fn body(&self) -> Option<(&'static str, &Secret)> {
        self.body.as_ref().map(|(content_type, body)| (*content_type, body))
    }
}

/// Without anything that may be secret.
impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Exchange({}: {} {})",
            self.purpose,
            self.method(),
            self.url.split('?').next().unwrap_or_default()
        )
    }
}

/// What came back.
#[derive(Clone)]
pub(super) struct Reply {
    /// The status of HTTP.
    pub(super) status: u16,
    /// The body.
    pub(super) body: Vec<u8>,
    /// The header `DPoP-Nonce`.
    pub(super) nonce: Option<String>,
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether it says that something went wrong, whatever its status is.
    pub(super) fn has_error(&self) -> bool {
        self.body.windows(7).any(|part| part == br#""error""#)
    }

    /// Whether there is nothing, as opposed to something broken.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.status, 400 | 401 | 403 | 404 | 405 | 406 | 410)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({}, {} bytes)", self.status, self.body.len())
    }
}

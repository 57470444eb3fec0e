//! HTTP requests and responses of the OAuth flow, as data; the runner sends them.

use std::fmt;

use crate::auth::form_urlencoded;
use crate::auth::secret::Secret;

/// Purpose of an HTTP request of the OAuth flow, such as client registration or a token request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Protected resource metadata (RFC 9728).
    ResourceMetadata,
    /// Authorization server metadata (RFC 8414, `OpenID` Connect Discovery).
    ServerMetadata,
    /// Dynamic client registration (RFC 7591).
    Registration,
    /// Token request.
    Token,
    /// Token exchange with an identity provider (RFC 8693).
    Assertion,
    /// Token revocation (RFC 7009).
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

/// HTTP request that the OAuth flow wants to be sent.
#[derive(Clone)]
pub(in crate::auth) struct FlowRequest {
    purpose: Purpose,
    url: String,
    is_configured: bool,
    headers: Vec<(&'static str, Secret)>,
    body: Option<(&'static str, Secret)>,
    /// Secret values in the request, which are redacted in error responses.
    secrets: Vec<Secret>,
}

impl FlowRequest {
    pub(in crate::auth) fn get(purpose: Purpose, url: impl Into<String>) -> Self {
        let (headers, secrets) = (Vec::new(), Vec::new());
        FlowRequest { purpose, url: url.into(), is_configured: false, headers, body: None, secrets }
    }

    /// Creates a form request; [`Self::field`] adds its fields.
    pub(in crate::auth) fn form(purpose: Purpose, url: impl Into<String>) -> Self {
        let body = Some(("application/x-www-form-urlencoded", Secret::default()));
        FlowRequest { body, ..Self::get(purpose, url) }
    }

    pub(in crate::auth) fn json(purpose: Purpose, url: impl Into<String>, body: &serde_json::Value) -> Self {
        FlowRequest { body: Some(("application/json", body.to_string().into())), ..Self::get(purpose, url) }
    }

    /// Marks the URL of the request as configured, not discovered from the network.
    pub(in crate::auth) fn configured(mut self) -> Self {
        self.is_configured = true;
        self
    }

    pub(in crate::auth) fn field(&mut self, name: &str, value: &str) {
        if let Some((_, form)) = &mut self.body {
            let mut text = form.expose().to_owned();
            form_urlencoded::append(&mut text, name, value);
            *form = text.into();
        }
    }

    /// Adds a form field with a secret value, which is redacted in error responses.
    pub(in crate::auth) fn secret_field(&mut self, name: &str, value: &str) {
        self.field(name, value);
        self.mark_secret(value);
    }

    /// Marks a value in the request as secret.
    pub(in crate::auth) fn mark_secret(&mut self, secret: &str) {
        self.secrets.push(secret.into());
    }

    /// Redacts secrets of the request from an error response: some authorization servers echo them, and errors are
    /// shown.
    pub(in crate::auth) fn redact(&self, mut refusal: FlowResponse) -> FlowResponse {
        for secret in self.secrets.iter().map(Secret::expose).filter(|secret| !secret.is_empty()) {
            if let Some(text) = std::str::from_utf8(&refusal.body).ok().filter(|text| text.contains(secret)) {
                refusal.body = text.replace(secret, "…").into_bytes();
            }
        }
        refusal
    }

    pub(in crate::auth) fn header(&mut self, name: &'static str, value: &str) {
        self.headers.push((name, value.into()));
    }

    /// Returns the purpose of the request, such as fetching metadata or a token.
    pub(in crate::auth) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns `POST` if the request has a body, else `GET`. Redirects of a `POST` are not followed, so that its
    /// secrets are not sent elsewhere.
    pub(in crate::auth) fn method(&self) -> &'static str {
        if self.body.is_some() { "POST" } else { "GET" }
    }

    /// Returns the URL of the request.
    pub(in crate::auth) fn url(&self) -> &str {
        &self.url
    }

    /// Returns whether the URL comes from the configuration and not from the network.
    pub(in crate::auth) fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Returns the headers that this request needs in addition to the usual ones.
    pub(in crate::auth) fn headers(&self) -> impl Iterator<Item = (&'static str, &Secret)> {
        self.headers.iter().map(|(name, value)| (*name, value))
    }

    /// Returns the content type and body of the request.
    pub(in crate::auth) fn body(&self) -> Option<(&'static str, &Secret)> {
        self.body.as_ref().map(|(content_type, body)| (*content_type, body))
    }
}

/// Prints nothing that may be secret.
impl fmt::Debug for FlowRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "FlowRequest({}: {} {})",
            self.purpose,
            self.method(),
            self.url.split('?').next().unwrap_or_default()
        )
    }
}

/// HTTP response that the OAuth flow receives for one of its requests.
#[derive(Clone)]
pub(in crate::auth) struct FlowResponse {
    /// HTTP status of the response.
    pub(in crate::auth) status: u16,
    /// Body of the response.
    pub(in crate::auth) body: Vec<u8>,
    /// Value of the `DPoP-Nonce` header of the response.
    pub(in crate::auth) nonce: Option<String>,
}

impl FlowResponse {
    pub(in crate::auth) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns whether the body has an `error` member, regardless of the status.
    pub(in crate::auth) fn has_error(&self) -> bool {
        self.body.windows(7).any(|part| part == br#""error""#)
    }

    /// Returns whether the response shows that the document does not exist, as opposed to a failing server.
    pub(in crate::auth) fn is_missing(&self) -> bool {
        matches!(self.status, 400 | 401 | 403 | 404 | 405 | 406 | 410)
    }
}

impl fmt::Debug for FlowResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowResponse({}, {} bytes)", self.status, self.body.len())
    }
}

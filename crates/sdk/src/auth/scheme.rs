//! Authorization schemes: credentials of requests, and the handling of rejections.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap};
use http::{HeaderName, HeaderValue};

use super::challenge::Challenge;
use super::error::{AuthError, AuthErrorKind};
use super::secret::Secret;
use super::{AuthFuture, boxed};
use crate::egress::{Egress, Target};

/// HTTP request of the client for which an authorization scheme supplies credentials.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// HTTP method: `POST`, `GET` or `DELETE`.
    pub method: &'static str,
    /// URL that the request is sent to.
    pub target: &'a Target,
    /// MCP server that the client is connected to. It differs from `target` only for HTTP+SSE.
    pub server: &'a Target,
    /// Egress for additional requests, for example to the authorization server.
    pub egress: &'a Egress,
    /// Whether no caller waits for the request, such as the stream for server notifications.
    pub is_background: bool,
}

/// Headers that authenticate one request to a server.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Headers to add to the request. Mark their values as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Number that identifies these credentials in a later [`AuthRejection`].
    pub generation: u64,
}

/// Response (401 or 403) with which a server rejected the credentials of a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuthRejection {
    /// HTTP status of the rejection: 401, or 403 if scopes are missing.
    pub status: u16,
    /// Challenge with which the server rejected the request.
    pub challenge: Challenge,
    /// Number of the rejected credentials ([`Credentials::generation`]).
    pub generation: u64,
}

/// Authorization scheme of a client: provides the credentials of each request, and handles rejections. Implemented by
/// [`OAuth`](super::OAuth), [`Bearer`], [`ApiKey`] and [`Basic`].
pub trait Authorize: Send + Sync + 'static {
    /// Returns the headers that authenticate this request, for example `Authorization`.
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials>;

    /// Handles the rejection of a request by the server, for example by refreshing a token. Returns whether to resend
    /// it; a request is resent a few times at most.
    fn on_rejected<'a>(&'a self, _request: Request<'a>, _refusal: AuthRejection) -> AuthFuture<'a, bool> {
        boxed(async { Ok(false) })
    }

    /// Receives the status and headers of each response, and the [`generation`](Credentials::generation) of the
    /// credentials that its request was sent with.
    fn on_response(&self, _request: Request<'_>, _generation: u64, _status: u16, _headers: &HeaderMap) {}
}

impl<T: Authorize + ?Sized> Authorize for Arc<T> {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        (**self).credentials(request)
    }

    fn on_rejected<'a>(&'a self, request: Request<'a>, refusal: AuthRejection) -> AuthFuture<'a, bool> {
        (**self).on_rejected(request, refusal)
    }

    fn on_response(&self, request: Request<'_>, generation: u64, status: u16, headers: &HeaderMap) {
        (**self).on_response(request, generation, status, headers);
    }
}

/// Fixed bearer token with which a client authenticates.
#[derive(Debug, Clone)]
pub struct Bearer(Secret);

/// API key that a client sends in a header of any name.
#[derive(Debug, Clone)]
pub struct ApiKey {
    header: String,
    key: Secret,
}

/// User name and password, sent as HTTP Basic authentication.
#[derive(Debug, Clone)]
pub struct Basic {
    name: String,
    password: Secret,
}

impl Bearer {
    /// Creates a token that is sent as `Authorization: Bearer …`.
    pub fn new(token: impl Into<Secret>) -> Self {
        Bearer(token.into())
    }
}

impl ApiKey {
    /// Creates an API key that is sent in this header.
    pub fn new(header: impl Into<String>, key: impl Into<Secret>) -> Self {
        ApiKey { header: header.into(), key: key.into() }
    }
}

impl Basic {
    /// Creates credentials that are sent as `Authorization: Basic …`.
    pub fn new(name: impl Into<String>, password: impl Into<Secret>) -> Self {
        Basic { name: name.into(), password: password.into() }
    }
}

impl Authorize for Bearer {
    fn credentials<'a>(&'a self, _: Request<'a>) -> AuthFuture<'a, Credentials> {
        boxed(async { single_header(AUTHORIZATION, &format!("Bearer {}", self.0.expose())) })
    }
}

impl Authorize for ApiKey {
    fn credentials<'a>(&'a self, _: Request<'a>) -> AuthFuture<'a, Credentials> {
        boxed(async {
            let setup_error = |problem: String| AuthError::new(AuthErrorKind::Setup, problem);
            let (name, value) = crate::transport::http::validate_header(&self.header, self.key.expose())
                .map_err(setup_error)?;
            Ok(Credentials { headers: vec![(name, value)], generation: 0 })
        })
    }
}

impl Authorize for Basic {
    fn credentials<'a>(&'a self, _: Request<'a>) -> AuthFuture<'a, Credentials> {
        boxed(async {
            if self.name.contains(':') {
                let text = "the user name of `Basic` must not contain `:`";
                return Err(AuthError::new(AuthErrorKind::Setup, text));
            }
            let pair = format!("{}:{}", self.name, self.password.expose());
            single_header(AUTHORIZATION, &format!("Basic {}", STANDARD.encode(pair)))
        })
    }
}

fn single_header(name: HeaderName, value: &str) -> Result<Credentials, AuthError> {
    Ok(Credentials { headers: vec![(name, header_value(value)?)], generation: 0 })
}

/// Creates a sensitive header value, which `Debug` does not print.
pub(super) fn header_value(text: &str) -> Result<HeaderValue, AuthError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        AuthError::new(AuthErrorKind::Setup, "the token contains characters that are not allowed in a header")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

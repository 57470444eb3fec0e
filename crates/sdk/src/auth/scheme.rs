//! How requests say who sends them, and what happens when a server is not content with that.

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

/// A request that is about to be sent.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// `POST`, `GET` or `DELETE`.
    pub method: &'static str,
    /// Where it goes.
    pub target: &'a Target,
    /// The server that the client is connected to. It is elsewhere than `target` only for HTTP+SSE.
    pub server: &'a Target,
    /// What other requests are to be sent with.
    pub egress: &'a Egress,
    /// Whether nobody waits for it, as for a stream that is opened in case the server has something to say.
    pub is_background: bool,
}

/// What a request is sent with.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Headers. Mark their values as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Says which credentials these are, if the server refuses them.
    pub mark: u64,
}

/// A server's answer to credentials that it does not take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refusal {
    /// 401, or 403 if more is wanted.
    pub status: u16,
    /// What it wants.
    pub challenge: Challenge,
    /// The [`Credentials::mark`] of what it refused.
    pub mark: u64,
}

/// Says who asks. [`OAuth`](super::OAuth), [`Bearer`], [`ApiKey`] and [`Basic`] do; others can be written.
pub trait Authorize: Send + Sync + 'static {
    /// What this request is sent with.
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials>;

    /// The server refused a request. Whether it should be sent once more: that is done a few times at most.
    fn refused<'a>(&'a self, _request: Request<'a>, _refusal: Refusal) -> AuthFuture<'a, bool> {
        boxed(async { Ok(false) })
    }

    /// A request that was sent with the credentials of this [`mark`](Credentials::mark) was answered, with this status
    /// and these headers.
    fn answered(&self, _request: Request<'_>, _mark: u64, _status: u16, _headers: &HeaderMap) {}
}

impl<T: Authorize + ?Sized> Authorize for Arc<T> {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        (**self).credentials(request)
    }

    fn refused<'a>(&'a self, request: Request<'a>, refusal: Refusal) -> AuthFuture<'a, bool> {
        (**self).refused(request, refusal)
    }

    fn answered(&self, request: Request<'_>, mark: u64, status: u16, headers: &HeaderMap) {
        (**self).answered(request, mark, status, headers);
    }
}

/// A token that somebody else got.
#[derive(Debug, Clone)]
pub struct Bearer(Secret);

/// A key in a header of any name.
#[derive(Debug, Clone)]
pub struct ApiKey {
    header: String,
    key: Secret,
}

/// A name and a password.
#[derive(Debug, Clone)]
pub struct Basic {
    name: String,
    password: Secret,
}

impl Bearer {
    /// Sends `Authorization: Bearer …`.
    pub fn new(token: impl Into<Secret>) -> Self {
        Bearer(token.into())
    }
}

impl ApiKey {
    /// Sends the key in this header.
    pub fn new(header: impl Into<String>, key: impl Into<Secret>) -> Self {
        ApiKey { header: header.into(), key: key.into() }
    }
}

impl Basic {
    /// Sends `Authorization: Basic …`.
    pub fn new(name: impl Into<String>, password: impl Into<Secret>) -> Self {
        Basic { name: name.into(), password: password.into() }
    }
}

impl Authorize for Bearer {
    fn credentials<'a>(&'a self, _: Request<'a>) -> AuthFuture<'a, Credentials> {
        boxed(async { with(AUTHORIZATION, &format!("Bearer {}", self.0.expose())) })
    }
}

impl Authorize for ApiKey {
    fn credentials<'a>(&'a self, _: Request<'a>) -> AuthFuture<'a, Credentials> {
        boxed(async {
            let wrong = |what: String| AuthError::new(AuthErrorKind::Setup, what);
            let (name, value) =
                crate::transport::http::checked(&self.header, self.key.expose()).map_err(wrong)?;
            Ok(Credentials { headers: vec![(name, value)], mark: 0 })
        })
    }
}

impl Authorize for Basic {
    fn credentials<'a>(&'a self, _: Request<'a>) -> AuthFuture<'a, Credentials> {
        boxed(async {
            if self.name.contains(':') {
                let text = "a name for `Basic` cannot have a `:`, which ends it";
                return Err(AuthError::new(AuthErrorKind::Setup, text));
            }
            let pair = format!("{}:{}", self.name, self.password.expose());
            with(AUTHORIZATION, &format!("Basic {}", STANDARD.encode(pair)))
        })
    }
}

fn with(name: HeaderName, value: &str) -> Result<Credentials, AuthError> {
    Ok(Credentials { headers: vec![(name, header_value(value)?)], mark: 0 })
}

/// A value that is not shown anywhere.
pub(super) fn header_value(text: &str) -> Result<HeaderValue, AuthError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        AuthError::new(AuthErrorKind::Setup, "the token has characters that a header cannot have")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

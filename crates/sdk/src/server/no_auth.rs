//! Stub of `auth` without the feature of that name: no server can authenticate clients by tokens.
#![expect(clippy::unused_async, reason = "with the feature it awaits keys")]

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderValue, StatusCode};

use super::Identity;

/// Placeholder for the OAuth configuration of an endpoint, without the feature `auth`; never constructed.
pub(crate) enum ProtectedResource {}

/// Placeholder for the rejection of an unauthenticated request, without the feature `auth`; never constructed.
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    pub(crate) challenges: Vec<HeaderValue>,
}

/// Placeholder for the identity of a verified token, without the feature `auth`; never constructed.
pub(crate) struct VerifiedToken {
    pub(crate) principal: Arc<str>,
    pub(crate) identity: Arc<Identity>,
}

impl ProtectedResource {
    pub(crate) async fn authenticate(&self, _: &Parts, _: Option<&str>) -> Result<VerifiedToken, Rejection> {
        match *self {}
    }

    pub(crate) fn check_scopes(&self, _: &Identity, _: &[String]) -> Result<(), Rejection> {
        match *self {}
    }

    pub(crate) fn time_left(&self, _: &Identity) -> Option<Duration> {
        match *self {}
    }

    pub(crate) fn strip_credentials(_: &mut Parts, _: &VerifiedToken) {}

    pub(crate) fn metadata_at(&self, _: &str) -> Option<&[u8]> {
        match *self {}
    }

    #[cfg(feature = "axum")]
    pub(crate) fn metadata_paths(&self) -> &[String] {
        match *self {}
    }
}

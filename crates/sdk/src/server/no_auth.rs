//! Stub of `auth` without the feature of that name: no server can authenticate clients by tokens.
#![expect(clippy::unused_async, reason = "with the feature it awaits keys")]

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderValue, StatusCode};

use super::Identity;

/// Placeholder without the feature `auth`; never constructed.
pub(crate) enum Resource {}

/// Placeholder without the feature `auth`; never constructed.
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    pub(crate) challenges: Vec<HeaderValue>,
}

/// Placeholder without the feature `auth`; never constructed.
pub(crate) struct Known {
    pub(crate) principal: Arc<str>,
    pub(crate) identity: Arc<Identity>,
}

impl Resource {
    pub(crate) async fn authenticate(&self, _: &Parts, _: Option<&str>) -> Result<Known, Rejection> {
        match *self {}
    }

    pub(crate) fn permit(&self, _: &Identity, _: &[String]) -> Result<(), Rejection> {
        match *self {}
    }

    pub(crate) fn time_left(&self, _: &Identity) -> Option<Duration> {
        match *self {}
    }

    pub(crate) fn consume(_: &mut Parts, _: &Known) {}

    pub(crate) fn document_at(&self, _: &str) -> Option<&[u8]> {
        match *self {}
    }

    #[cfg(feature = "axum")]
    pub(crate) fn paths(&self) -> &[String] {
        match *self {}
    }
}

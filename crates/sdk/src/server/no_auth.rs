//! Without the feature `auth` no server can be told whom to believe: there is nothing to ask.
#![expect(clippy::unused_async, reason = "with the feature it waits for keys")]

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderValue, StatusCode};

use super::Identity;

/// Nothing is one.
pub(crate) enum Resource {}

/// Nothing makes one.
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    pub(crate) challenges: Vec<HeaderValue>,
}

/// Nobody is.
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

//! Stub of `http` without the feature `http-server`: no request has headers.
#![expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with HTTP they read the request")]

use std::sync::Arc;

use linchpin_jsonrpc::Params;
use linchpin_protocol::model::RequestMeta;
use linchpin_protocol::{Error as ProtocolError, Revision};

use super::super::identity::Identity;
use super::Connection;

impl Connection {
    /// Returns whether the client is connected: without HTTP, always.
    pub(crate) fn is_attached(&self) -> bool {
        true
    }

    pub(super) fn with_http_of(self, _: &Connection) -> Self {
        self
    }

    pub(super) fn http_identity(&self) -> Option<&Arc<Identity>> {
        None
    }

    pub(super) fn claims_stateless(&self) -> bool {
        false
    }

    pub(crate) fn sessionless_revision(&self) -> Option<Revision> {
        None
    }

    pub(super) fn check_version_header(&self, _: &RequestMeta) -> Result<(), ProtocolError> {
        Ok(())
    }

    pub(super) fn check_headers(&self, _method: &str, _: &Params<'_>) -> Result<(), ProtocolError> {
        Ok(())
    }
}

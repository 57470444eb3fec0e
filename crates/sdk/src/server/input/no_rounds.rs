//! Stub of `rounds` without the feature of that name: no call can request input between two requests.

use std::sync::Arc;
use std::time::Instant;

use linchpin_jsonrpc::Params;
use linchpin_protocol::Revision;

use crate::server::BoxFuture;
use crate::server::connection::{Connection, Fresh, Invocation, Retry};
use crate::server::definitions::tool::ToolEntry;
use crate::server::request::scope::Scope;
use crate::server::request::work::Outcome;

/// Placeholder without the feature `rounds`; never constructed.
pub(crate) enum Binding {}

/// Placeholder without the feature `rounds`; never constructed.
pub(crate) enum Round {}

/// Ignores input responses: no call requests input.
#[expect(clippy::unnecessary_wraps, reason = "same signature with and without the feature")]
pub(crate) fn take_offers(_: &Scope<'_>, _: &Params<'_>) -> Result<(), linchpin_protocol::Error> {
    Ok(())
}

/// Never used: no call is replayed.
pub(crate) const LOST: &str = "";

/// Always `true`: no call is replayed.
pub(crate) fn may_begin(_: &Scope<'_>, _: &Arc<ToolEntry>) -> bool {
    true
}

#[derive(Default)]
pub(crate) struct Parking {}

impl Parking {
    #[expect(clippy::unused_self, reason = "same signature with and without the feature")]
    pub(crate) fn clear(&self) {}
}

#[expect(clippy::unused_self, reason = "same signature with and without the feature")]
impl Connection {
    pub(in crate::server) fn binding(&self, _: &Scope<'_>, _: &Params<'_>) -> Option<Binding> {
        None
    }

    pub(in crate::server) fn ask_round(
        &self,
        call: Invocation,
        _: Option<Instant>,
        _: Option<Round>,
    ) -> Outcome {
        drop(call);
        Outcome::from(Err(crate::Error::setup("the feature `rounds` is not enabled")))
    }

    pub(in crate::server) fn round_done(
        &self,
        outcome: Outcome,
        _: Revision,
        _: Option<&Arc<ToolEntry>>,
        _: Option<Round>,
    ) -> Outcome {
        outcome
    }

    pub(in crate::server) fn resume(&self, _: &Retry<'_>) -> Result<Option<BoxFuture<()>>, Fresh> {
        Err(Fresh)
    }
}

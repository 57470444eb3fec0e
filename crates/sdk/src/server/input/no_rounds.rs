//! Stub of `rounds` without the feature of that name: no call can request input between two requests.

use std::sync::Arc;
use std::time::Instant;

use linchpin_jsonrpc::Params;
use linchpin_protocol::Revision;

use crate::server::BoxFuture;
use crate::server::connection::{Connection, Invocation, NotARetry, RetryRequest};
use crate::server::definitions::tool::ToolEntry;
use crate::server::request::scope::RequestScope;
use crate::server::request::work::RequestOutcome;

/// Placeholder for the binding of a request state, without the feature `rounds`; never constructed.
pub(crate) enum StateBinding {}

/// Placeholder for the guard of a round trip, without the feature `rounds`; never constructed.
pub(crate) enum RoundGuard {}

/// Ignores input responses: no call requests input.
#[expect(clippy::unnecessary_wraps, reason = "same signature with and without the feature")]
pub(crate) fn take_early_responses(
    _: &RequestScope<'_>,
    _: &Params<'_>,
) -> Result<(), linchpin_protocol::Error> {
    Ok(())
}

/// Error text for a lost call; never used, since without the feature `rounds` no call is replayed.
pub(crate) const CALL_LOST: &str = "";

/// Always returns `true`: without the feature `rounds`, no call is replayed.
pub(crate) fn may_start(_: &RequestScope<'_>, _: &Arc<ToolEntry>) -> bool {
    true
}

#[derive(Default)]
pub(crate) struct ParkedCalls {}

impl ParkedCalls {
    #[expect(clippy::unused_self, reason = "same signature with and without the feature")]
    pub(crate) fn clear(&self) {}
}

#[expect(clippy::unused_self, reason = "same signature with and without the feature")]
impl Connection {
    pub(in crate::server) fn binding(&self, _: &RequestScope<'_>, _: &Params<'_>) -> Option<StateBinding> {
        None
    }

    pub(in crate::server) fn request_input(
        &self,
        call: Invocation,
        _: Option<Instant>,
        _: Option<RoundGuard>,
    ) -> RequestOutcome {
        drop(call);
        RequestOutcome::from(Err(crate::Error::setup("the feature `rounds` is not enabled")))
    }

    pub(in crate::server) fn finish_round(
        &self,
        outcome: RequestOutcome,
        _: Revision,
        _: Option<&Arc<ToolEntry>>,
        _: Option<RoundGuard>,
    ) -> RequestOutcome {
        outcome
    }

    pub(in crate::server) fn resume(&self, _: &RetryRequest<'_>) -> Result<Option<BoxFuture<()>>, NotARetry> {
        Err(NotARetry)
    }
}

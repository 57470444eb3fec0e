//! `Authorize` wrapper that records the sign-in steps and the kind of failure.

use std::sync::Arc;

use http::HeaderMap;
use linchpin::auth::{AuthFuture, AuthRejection, Authorize, Credentials, OAuth, Request};

use super::Trace;

/// OAuth authorizer that records its sign-in steps in the trace of `linchpin doctor`.
pub(crate) struct TracedAuthorizer {
    oauth: OAuth,
    trace: Arc<Trace>,
}

impl TracedAuthorizer {
    pub(crate) fn new(oauth: OAuth, trace: Arc<Trace>) -> Self {
        let trace_handle = trace.clone();
        TracedAuthorizer { oauth: oauth.on_step(move |step| trace_handle.record_sign_in_step(step)), trace }
    }

    fn record_failure<'a, T: 'a>(&'a self, work: AuthFuture<'a, T>) -> AuthFuture<'a, T> {
        Box::pin(async move {
            let first_step = self.trace.count();
            work.await.inspect_err(|error| self.trace.record_sign_in_failure(error.kind(), first_step))
        })
    }
}

impl Authorize for TracedAuthorizer {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        self.record_failure(self.oauth.credentials(request))
    }

    fn on_rejected<'a>(&'a self, request: Request<'a>, refusal: AuthRejection) -> AuthFuture<'a, bool> {
        self.record_failure(self.oauth.on_rejected(request, refusal))
    }

    fn on_response(&self, request: Request<'_>, generation: u64, status: u16, headers: &HeaderMap) {
        self.oauth.on_response(request, generation, status, headers);
    }
}

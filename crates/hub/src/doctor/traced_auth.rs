//! `Authorize` wrapper that records the sign-in steps and the kind of failure.

use std::sync::Arc;

use http::HeaderMap;
use linchpin::auth::{AuthFuture, Authorize, Credentials, OAuth, Refusal, Request};

use super::Trace;

/// OAuth authorizer that records its steps in a trace.
pub(crate) struct Watched {
    oauth: OAuth,
    trace: Arc<Trace>,
}

impl Watched {
    pub(crate) fn new(oauth: OAuth, trace: Arc<Trace>) -> Self {
        let told = trace.clone();
        Watched { oauth: oauth.on_step(move |step| told.sign_in(step)), trace }
    }

    fn noted<'a, T: 'a>(&'a self, work: AuthFuture<'a, T>) -> AuthFuture<'a, T> {
        Box::pin(async move {
            let begun = self.trace.count();
            work.await.inspect_err(|error| self.trace.ended(error.kind(), begun))
        })
    }
}

impl Authorize for Watched {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        self.noted(self.oauth.credentials(request))
    }

    fn refused<'a>(&'a self, request: Request<'a>, refusal: Refusal) -> AuthFuture<'a, bool> {
        self.noted(self.oauth.refused(request, refusal))
    }

    fn answered(&self, request: Request<'_>, mark: u64, status: u16, headers: &HeaderMap) {
        self.oauth.answered(request, mark, status, headers);
    }
}

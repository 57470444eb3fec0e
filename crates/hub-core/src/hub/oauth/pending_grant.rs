//! In-memory token store of one sign-in. The stored grant is replaced only after the server has accepted the new token.

use std::sync::{Arc, Mutex};

use linchpin::auth::{
    AuthError, AuthFuture, Authorize, Credentials, HeaderMap, OAuth, Refusal, Request, Scopes, Secret,
    TokenStore,
};

use crate::lock::lock;
use crate::secrets::redact::Tokens;

/// Token store of one sign-in: holds the new grant in memory until the server has accepted it.
pub(super) struct Meanwhile {
    /// Client registration and requested scopes of the previous grant, without its tokens.
    before: Option<Secret>,
    given: Mutex<Option<Secret>>,
    tokens: Arc<Tokens>,
}

impl Meanwhile {
    pub(super) fn new(before: Option<Secret>, tokens: Arc<Tokens>) -> Self {
        Meanwhile { before, given: Mutex::default(), tokens }
    }

    /// Returns the new grant.
    pub(super) fn given(&self) -> Option<Secret> {
        lock(&self.given).clone()
    }
}

impl TokenStore for Meanwhile {
    fn load<'a>(&'a self, _: &'a str) -> AuthFuture<'a, Option<Secret>> {
        Box::pin(async { Ok(lock(&self.given).clone().or_else(|| self.before.clone())) })
    }

    fn save<'a>(&'a self, _: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        Box::pin(async move {
            self.tokens.add(&record);
            *lock(&self.given) = Some(record);
            Ok(())
        })
    }

    fn remove<'a>(&'a self, _: &'a str) -> AuthFuture<'a, ()> {
        Box::pin(async {
            lock(&self.given).take();
            Ok(())
        })
    }
}

/// Reports whether the server accepts the token but requires more scopes for this request.
pub(super) fn is_too_little(refusal: &Refusal) -> bool {
    refusal.status == 403 && refusal.challenge.error.as_deref() == Some("insufficient_scope")
}

/// Authorizer that records whether the server accepts the new token. A request for more scopes is not a rejection.
pub(super) struct Proving {
    oauth: OAuth,
    refused: Mutex<Option<AuthError>>,
    wanted: Mutex<Scopes>,
}

impl Proving {
    pub(super) fn new(oauth: OAuth) -> Self {
        Proving { oauth, refused: Mutex::default(), wanted: Mutex::default() }
    }

    /// Returns the scopes that the server at `url` requires and that were not granted.
    pub(super) fn wanted(&self, url: &str) -> Scopes {
        let (wanted, granted) = (lock(&self.wanted).clone(), self.oauth.granted(url).unwrap_or_default());
        wanted.iter().filter(|scope| !granted.contains(scope)).map(str::to_owned).collect()
    }

    /// Returns the error of the rejected token.
    pub(super) fn refused(&self) -> Option<AuthError> {
        lock(&self.refused).clone()
    }
}

impl Authorize for Proving {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        self.oauth.credentials(request)
    }

    fn refused<'a>(&'a self, request: Request<'a>, refusal: Refusal) -> AuthFuture<'a, bool> {
        Box::pin(async move {
            if is_too_little(&refusal) {
                let mut wanted = lock(&self.wanted);
                let more = refusal.challenge.scope.unwrap_or_default();
                *wanted = wanted.iter().chain(more.iter()).collect();
                return Ok(false);
            }
            let done = self.oauth.refused(request, refusal).await;
            *lock(&self.refused) = done.as_ref().err().cloned();
            done
        })
    }

    fn answered(&self, request: Request<'_>, mark: u64, status: u16, headers: &HeaderMap) {
        self.oauth.answered(request, mark, status, headers);
    }
}

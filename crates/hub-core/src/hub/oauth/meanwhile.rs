//! What was given while somebody signs in, until the server has taken it: what there was before stays as it is so long.

use std::sync::{Arc, Mutex};

use linchpin::auth::{
    AuthError, AuthFuture, Authorize, Credentials, HeaderMap, OAuth, Refusal, Request, Scopes, Secret,
    TokenStore,
};

use crate::hidden::Tokens;
use crate::sync::lock;

/// Keeps what is given while somebody signs in: what there is stays until the server has taken the new one.
pub(super) struct Meanwhile {
    /// Who the client was, and what was asked for.
    before: Option<Secret>,
    given: Mutex<Option<Secret>>,
    tokens: Arc<Tokens>,
}

impl Meanwhile {
    pub(super) fn new(before: Option<Secret>, tokens: Arc<Tokens>) -> Self {
        Meanwhile { before, given: Mutex::default(), tokens }
    }

    /// What was given.
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

/// Whether a server takes the token, but not for this.
pub(super) fn is_too_little(refusal: &Refusal) -> bool {
    refusal.status == 403 && refusal.challenge.error.as_deref() == Some("insufficient_scope")
}

/// Whether the server takes what was given. That it wants more for something is no refusal.
pub(super) struct Proving {
    oauth: OAuth,
    refused: Mutex<Option<AuthError>>,
    wanted: Mutex<Scopes>,
}

impl Proving {
    pub(super) fn new(oauth: OAuth) -> Self {
        Proving { oauth, refused: Mutex::default(), wanted: Mutex::default() }
    }

    /// The scopes that the server at `url` wants and that were not granted.
    pub(super) fn wanted(&self, url: &str) -> Scopes {
        let (wanted, granted) = (lock(&self.wanted).clone(), self.oauth.granted(url).unwrap_or_default());
        wanted.iter().filter(|scope| !granted.contains(scope)).map(str::to_owned).collect()
    }

    /// Why it does not.
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

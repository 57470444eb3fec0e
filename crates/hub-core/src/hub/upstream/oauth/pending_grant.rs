//! In-memory token store of one sign-in. The stored grant is replaced only after the server has accepted the new token.

use std::sync::{Arc, Mutex};

use linchpin::auth::{
    AuthError, AuthFuture, AuthRejection, Authorize, Credentials, HeaderMap, OAuth, Request, Scopes, Secret,
    TokenStore,
};

use crate::lock::lock;
use crate::secrets::redact::IssuedTokens;

/// Token store of one sign-in: holds the new grant in memory until the server has accepted it.
pub(super) struct PendingGrant {
    /// Client registration and requested scopes of the previous grant, without its tokens.
    previous: Option<Secret>,
    new_grant: Mutex<Option<Secret>>,
    tokens: Arc<IssuedTokens>,
}

impl PendingGrant {
    pub(super) fn new(previous: Option<Secret>, tokens: Arc<IssuedTokens>) -> Self {
        PendingGrant { previous, new_grant: Mutex::default(), tokens }
    }

    /// Returns the OAuth grant that the sign-in obtained, if any.
    pub(super) fn new_grant(&self) -> Option<Secret> {
        lock(&self.new_grant).clone()
    }
}

impl TokenStore for PendingGrant {
    fn load<'a>(&'a self, _: &'a str) -> AuthFuture<'a, Option<Secret>> {
        Box::pin(async { Ok(lock(&self.new_grant).clone().or_else(|| self.previous.clone())) })
    }

    fn save<'a>(&'a self, _: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        Box::pin(async move {
            self.tokens.add(&record);
            *lock(&self.new_grant) = Some(record);
            Ok(())
        })
    }

    fn remove<'a>(&'a self, _: &'a str) -> AuthFuture<'a, ()> {
        Box::pin(async {
            lock(&self.new_grant).take();
            Ok(())
        })
    }
}

/// Reports whether the server accepts the token but requires more scopes for this request.
pub(super) fn is_insufficient_scope(rejection: &AuthRejection) -> bool {
    rejection.status == 403 && rejection.challenge.error.as_deref() == Some("insufficient_scope")
}

/// Authorizer that records whether the server accepts the new token. A request for more scopes is not a rejection.
pub(super) struct TokenProbe {
    oauth: OAuth,
    rejection: Mutex<Option<AuthError>>,
    required_scopes: Mutex<Scopes>,
}

impl TokenProbe {
    pub(super) fn new(oauth: OAuth) -> Self {
        TokenProbe { oauth, rejection: Mutex::default(), required_scopes: Mutex::default() }
    }

    /// Returns the scopes that the server at `url` requires and that were not granted.
    pub(super) fn missing_scopes(&self, url: &str) -> Scopes {
        let (required, granted) =
            (lock(&self.required_scopes).clone(), self.oauth.granted(url).unwrap_or_default());
        required.iter().filter(|scope| !granted.contains(scope)).map(str::to_owned).collect()
    }

    /// Returns the error with which the server rejected the new token, if it did.
    pub(super) fn rejection(&self) -> Option<AuthError> {
        lock(&self.rejection).clone()
    }
}

impl Authorize for TokenProbe {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        self.oauth.credentials(request)
    }

    fn on_rejected<'a>(&'a self, request: Request<'a>, rejection: AuthRejection) -> AuthFuture<'a, bool> {
        Box::pin(async move {
            if is_insufficient_scope(&rejection) {
                let mut required = lock(&self.required_scopes);
                let scopes = rejection.challenge.scope.unwrap_or_default();
                *required = required.iter().chain(scopes.iter()).collect();
                return Ok(false);
            }
            let done = self.oauth.on_rejected(request, rejection).await;
            *lock(&self.rejection) = done.as_ref().err().cloned();
            done
        })
    }

    fn on_response(&self, request: Request<'_>, generation: u64, status: u16, headers: &HeaderMap) {
        self.oauth.on_response(request, generation, status, headers);
    }
}

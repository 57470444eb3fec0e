//! Authorizer of the connections to one server, for one agent or shared. A rejected grant is not sent again: requests
//! fail at once with the command that signs in.

use std::sync::{Arc, Mutex};

use linchpin::auth::{
    AuthError, AuthErrorKind, AuthFuture, Authorize, Credentials, HeaderMap, OAuth, Refusal, Request, Scopes,
};

use super::grant_status::{Again, Place};
use super::grant_store::Grants;
use super::pending_grant::is_too_little;
use crate::lock::lock;
use crate::tool::pin::visible;

pub(super) struct Guarded {
    pub(super) oauth: OAuth,
    pub(super) grants: Arc<Grants>,
    pub(super) place: Place,
    /// Slug of the server, and the command that signs in to it.
    pub(super) slug: String,
    pub(super) command: String,
    pub(super) url: String,
    /// Rejection of the stored grant, as far as this hub knows it.
    pub(super) again: Mutex<Option<Again>>,
}

impl Guarded {
    /// Reloads the grant if a peer hub has stored another one, and fails if the current one was rejected.
    async fn look(&self) -> Result<(), AuthError> {
        let version = self.grants.version().await?;
        if self.grants.has_changed(version) {
            self.oauth.reload();
            let standing = self.place.read().await.map_err(|error| super::grant_store::failed(&error))?;
            *lock(&self.again) = standing.again;
        }
        match &*lock(&self.again) {
            Some(again) if again.version == version => {
                Err(AuthError::new(AuthErrorKind::Nobody, again.why.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Records that the grant of this version was rejected and only a new sign-in helps. Returns `true` for a retry if
    /// another grant was stored in the meantime.
    async fn over(&self, version: u64, error: &AuthError) -> Result<bool, AuthError> {
        let Guarded { slug, command, .. } = self;
        match self.grants.version().await? {
            0 => {
                let text = format!("not signed in to `{slug}`: sign in with `{command}`");
                return Err(AuthError::new(AuthErrorKind::Nobody, text));
            }
            now if now != version => return Ok(true),
            // Store nothing: the grant is still valid, and usable again once the configuration is restored.
            _ if self.grants.is_elsewhere() => {
                let text = format!(
                    "the sign-in to `{slug}` was for another URL, client or issuer: sign in again with `{command}`"
                );
                return Err(AuthError::new(AuthErrorKind::Nobody, text));
            }
            _ => {}
        }
        let why =
            format!("the sign-in to `{slug}` has expired or was revoked: sign in again with `{command}`");
        tracing::info!(server = slug, %error, "OAuth grant rejected; reauthorization required");
        let again = Again { version, why: why.clone() };
        *lock(&self.again) = Some(again.clone());
        let kept = self.place.change(|standing| standing.again.replace(again.clone()) != Some(again.clone()));
        if let Err(error) = kept.await {
            tracing::warn!(%error, "failed to store the rejection of an OAuth grant");
        }
        Err(AuthError::new(AuthErrorKind::Nobody, why))
    }

    /// Builds the error for a grant that lacks scopes, and stores the missing scopes for the next sign-in.
    async fn more(&self, wanted: &Scopes) -> AuthError {
        let Guarded { slug, command, .. } = self;
        let what = format!("the scope `{}`", visible(&wanted.to_string()));
        let granted = self.oauth.granted(&self.url).unwrap_or_default();
        if !wanted.is_empty() && granted.covers(wanted) {
            let text =
                format!("`{slug}` requires {what}, which the grant has: contact the operator of the server");
            return AuthError::new(AuthErrorKind::Scope, text);
        }
        if wanted.is_empty() {
            let text = format!(
                "`{slug}` requires more scopes but does not name them: ask the operator of the server which \
                 scopes it needs, set them, and sign in again with `{command}`"
            );
            return AuthError::new(AuthErrorKind::Scope, text);
        }
        if let Err(error) = self.place.change(|standing| standing.want(wanted.iter())).await {
            tracing::warn!(%error, "failed to store the missing scopes of an OAuth grant");
        }
        let text = format!("`{slug}` requires {what}: sign in again with `{command}`, which requests it");
        AuthError::new(AuthErrorKind::Scope, text)
    }
}

impl Authorize for Guarded {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        Box::pin(async move {
            self.look().await?;
            self.oauth.credentials(request).await
        })
    }

    fn refused<'a>(&'a self, request: Request<'a>, refusal: Refusal) -> AuthFuture<'a, bool> {
        Box::pin(async move {
            if is_too_little(&refusal) {
                return Err(self.more(&refusal.challenge.scope.unwrap_or_default()).await);
            }
            let version = self.grants.seen();
            match self.oauth.refused(request, refusal).await {
                Err(error) if error.kind() == AuthErrorKind::Nobody => self.over(version, &error).await,
                done => done,
            }
        })
    }

    fn answered(&self, request: Request<'_>, mark: u64, status: u16, headers: &HeaderMap) {
        self.oauth.answered(request, mark, status, headers);
    }
}

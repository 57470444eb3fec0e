//! The OAuth client of a server and an agent, as connections use it. What only a person can mend is said at once, with what to
//! do, and nothing is tried in vain: a grant that is over is shown to nobody again.

use std::sync::{Arc, Mutex};

use linchpin::auth::{
    AuthError, AuthErrorKind, AuthFuture, Authorize, Credentials, HeaderMap, OAuth, Refusal, Request, Scopes,
};

use super::grants::Grants;
use super::meanwhile::is_too_little;
use super::standing::{Again, Place};
use crate::pin::visible;
use crate::sync::lock;

pub(super) struct Guarded {
    pub(super) oauth: OAuth,
    pub(super) grants: Arc<Grants>,
    pub(super) place: Place,
    /// The short name of the server, and how to sign in there.
    pub(super) slug: String,
    pub(super) command: String,
    pub(super) url: String,
    /// As far as it is known here.
    pub(super) again: Mutex<Option<Again>>,
}

impl Guarded {
    /// What another hub has kept meanwhile counts.
    async fn look(&self) -> Result<(), AuthError> {
        let version = self.grants.version().await?;
        if self.grants.has_changed(version) {
            self.oauth.reload();
            let standing = self.place.read().await.map_err(|error| super::grants::failed(&error))?;
            *lock(&self.again) = standing.again;
        }
        match &*lock(&self.again) {
            Some(again) if again.version == version => {
                Err(AuthError::new(AuthErrorKind::Nobody, again.why.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Nothing but a person helps, as far as the grant of this version goes: one that came meanwhile is tried.
    async fn over(&self, version: u64, error: &AuthError) -> Result<bool, AuthError> {
        let Guarded { slug, command, .. } = self;
        match self.grants.version().await? {
            0 => {
                let text = format!("nobody has signed in to `{slug}`: sign in with `{command}`");
                return Err(AuthError::new(AuthErrorKind::Nobody, text));
            }
            now if now != version => return Ok(true),
            // Nothing is stored: the grant is valid, and is used again when the configuration is as it was.
            _ if self.grants.is_elsewhere() => {
                let text = format!(
                    "the sign-in to `{slug}` was for another URL, client or issuer: sign in again with `{command}`"
                );
                return Err(AuthError::new(AuthErrorKind::Nobody, text));
            }
            _ => {}
        }
        let why = format!("the sign-in to `{slug}` is over or was revoked: sign in again with `{command}`");
        tracing::info!(server = slug, %error, "a grant is not taken any more");
        let again = Again { version, why: why.clone() };
        *lock(&self.again) = Some(again.clone());
        let kept = self.place.change(|standing| standing.again.replace(again.clone()) != Some(again.clone()));
        if let Err(error) = kept.await {
            tracing::warn!(%error, "that a grant is over could not be kept");
        }
        Err(AuthError::new(AuthErrorKind::Nobody, why))
    }

    /// The grant does not go far enough.
    async fn more(&self, wanted: &Scopes) -> AuthError {
        let Guarded { slug, command, .. } = self;
        let what = format!("the scope `{}`", visible(&wanted.to_string()));
        let granted = self.oauth.granted(&self.url).unwrap_or_default();
        if !wanted.is_empty() && granted.covers(wanted) {
            let text =
                format!("`{slug}` wants {what} for this, and the grant has it: ask whoever runs the server");
            return AuthError::new(AuthErrorKind::Scope, text);
        }
        if wanted.is_empty() {
            let text = format!(
                "`{slug}` wants more than was granted for this, and does not say what: ask whoever runs the server which \
                 scopes it wants, set them, and sign in again with `{command}`"
            );
            return AuthError::new(AuthErrorKind::Scope, text);
        }
        if let Err(error) = self.place.change(|standing| standing.want(wanted.iter())).await {
            tracing::warn!(%error, "what a server wants could not be kept");
        }
        let text =
            format!("`{slug}` wants {what} for this: sign in again with `{command}`, which asks for it");
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

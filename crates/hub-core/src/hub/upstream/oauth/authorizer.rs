//! Authorizer of the connections to one server, for one agent or shared. A rejected grant is not sent again: requests
//! fail at once with the command that signs in.

use std::sync::{Arc, Mutex};

use linchpin::auth::{
    AuthError, AuthErrorKind, AuthFuture, AuthRejection, Authorize, Credentials, HeaderMap, OAuth, Request,
    Scopes,
};

use super::grant_status::{GrantStatusStore, ReauthorizationRequired};
use super::grant_store::GrantStore;
use super::pending_grant::is_insufficient_scope;
use crate::lock::lock;
use crate::text::escape_invisible;

pub(super) struct GrantAuthorizer {
    pub(super) oauth: OAuth,
    pub(super) grants: Arc<GrantStore>,
    pub(super) status: GrantStatusStore,
    /// Slug of the server, for error messages.
    pub(super) slug: String,
    /// Command that signs in to the server, for error messages.
    pub(super) sign_in_command: String,
    pub(super) url: String,
    /// Last known rejection of the stored grant, after which requests fail until a user signs in again.
    pub(super) rejection: Mutex<Option<ReauthorizationRequired>>,
}

impl GrantAuthorizer {
    /// Reloads the grant if a peer hub has stored another one, and fails if the current one was rejected.
    async fn check_grant(&self) -> Result<(), AuthError> {
        let version = self.grants.version().await?;
        if self.grants.replace_last_version(version) {
            self.oauth.reload();
            let status = self.status.read().await.map_err(|error| super::grant_store::store_error(&error))?;
            *lock(&self.rejection) = status.reauthorization;
        }
        match &*lock(&self.rejection) {
            Some(rejection) if rejection.version == version => {
                Err(AuthError::new(AuthErrorKind::SignInRequired, rejection.reason.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Records that the grant of this version was rejected and only a new sign-in helps. Returns `true` for a retry if
    /// another grant was stored in the meantime.
    async fn require_reauthorization(&self, version: u64, error: &AuthError) -> Result<bool, AuthError> {
        let GrantAuthorizer { slug, sign_in_command: command, .. } = self;
        match self.grants.version().await? {
            0 => {
                let text = format!("not signed in to `{slug}`: sign in with `{command}`");
                return Err(AuthError::new(AuthErrorKind::SignInRequired, text));
            }
            now if now != version => return Ok(true),
            // Store nothing: the grant is still valid, and usable again once the configuration is restored.
            _ if self.grants.is_bound_elsewhere() => {
                let text = format!(
                    "the sign-in to `{slug}` was for another URL, client or issuer: sign in again with `{command}`"
                );
                return Err(AuthError::new(AuthErrorKind::SignInRequired, text));
            }
            _ => {}
        }
        let reason =
            format!("the sign-in to `{slug}` has expired or was revoked: sign in again with `{command}`");
        tracing::info!(server = slug, %error, "OAuth grant rejected; reauthorization required");
        let rejection = ReauthorizationRequired { version, reason: reason.clone() };
        *lock(&self.rejection) = Some(rejection.clone());
        let stored = self
            .status
            .update(|status| status.reauthorization.replace(rejection.clone()) != Some(rejection.clone()));
        if let Err(error) = stored.await {
            tracing::warn!(%error, "failed to store the rejection of an OAuth grant");
        }
        Err(AuthError::new(AuthErrorKind::SignInRequired, reason))
    }

    /// Builds the error for a grant that lacks scopes, and stores the missing scopes for the next sign-in.
    async fn insufficient_scope_error(&self, required: &Scopes) -> AuthError {
        let GrantAuthorizer { slug, sign_in_command: command, .. } = self;
        let scope = format!("the scope `{}`", escape_invisible(&required.to_string()));
        let granted = self.oauth.granted(&self.url).unwrap_or_default();
        if !required.is_empty() && granted.covers(required) {
            let text =
                format!("`{slug}` requires {scope}, which the grant has: contact the operator of the server");
            return AuthError::new(AuthErrorKind::Scope, text);
        }
        if required.is_empty() {
            let text = format!(
                "`{slug}` requires more scopes but does not name them: ask the operator of the server which \
                 scopes it needs, set them, and sign in again with `{command}`"
            );
            return AuthError::new(AuthErrorKind::Scope, text);
        }
        if let Err(error) = self.status.update(|status| status.add_missing_scopes(required.iter())).await {
            tracing::warn!(%error, "failed to store the missing scopes of an OAuth grant");
        }
        let text = format!("`{slug}` requires {scope}: sign in again with `{command}`, which requests it");
        AuthError::new(AuthErrorKind::Scope, text)
    }
}

impl Authorize for GrantAuthorizer {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        Box::pin(async move {
            self.check_grant().await?;
            self.oauth.credentials(request).await
        })
    }

    fn on_rejected<'a>(&'a self, request: Request<'a>, rejection: AuthRejection) -> AuthFuture<'a, bool> {
        Box::pin(async move {
            if is_insufficient_scope(&rejection) {
                return Err(self
                    .insufficient_scope_error(&rejection.challenge.scope.unwrap_or_default())
                    .await);
            }
            let version = self.grants.last_version();
            match self.oauth.on_rejected(request, rejection).await {
                Err(error) if error.kind() == AuthErrorKind::SignInRequired => {
                    self.require_reauthorization(version, &error).await
                }
                done => done,
            }
        })
    }

    fn on_response(&self, request: Request<'_>, generation: u64, status: u16, headers: &HeaderMap) {
        self.oauth.on_response(request, generation, status, headers);
    }
}

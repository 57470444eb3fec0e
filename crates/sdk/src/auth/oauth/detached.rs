//! Detached authorization-code flow: the flow state is serialized at the redirect, so that any process can complete the
//! sign-in.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::OAuth;
use super::account::{AccountLocks, TokenAction, TokenOrigin};
use super::runner::{Runner, now};
use crate::auth::challenge::Challenge;
use crate::auth::error::{AuthError, AuthErrorKind, error_position};
use crate::auth::flow::authorization::AuthorizationRequest;
use crate::auth::flow::resource_metadata::ResourceMetadata;
use crate::auth::flow::server_metadata::{ServerMetadata, default_endpoints};
use crate::auth::flow::{Flow, FlowEvent, FlowInput, FlowStep};
use crate::auth::redirect::RedirectHandler;
use crate::auth::scheme::Request;
use crate::auth::scopes::Scopes;
use crate::auth::secret::Secret;
use crate::auth::store::record::{GrantOrigin, TokenRecord};
use crate::auth::{AuthFuture, boxed};
use crate::egress::{Egress, Target};
use crate::lock::lock;

/// State of a sign-in between the redirect and its completion by another process, as serialized.
#[derive(Serialize, Deserialize)]
struct DetachedFlow {
    /// Token record without tokens: issuer, resource and client identity.
    record: TokenRecord,
    pending: AuthorizationRequest,
    /// Whether the server accepts only key-bound tokens.
    dpop: bool,
}

impl Flow {
    /// Serializes the state of the OAuth flow that is needed to resume after the redirect.
    pub(in crate::auth) fn detach(&self) -> Result<Secret, AuthError> {
        let (FlowStep::Redirect(pending), Some(authority), Some(identity)) =
            (&self.step, &self.server_metadata, &self.identity)
        else {
            return Err(AuthError::new(
                AuthErrorKind::Setup,
                "the sign-in cannot be detached: it is not waiting for a redirect",
            ));
        };
        let origin = GrantOrigin {
            issuer: authority.issuer.clone(),
            resource: self.resource(),
            token_endpoint: authority.token_endpoint.clone(),
            revocation_endpoint: authority.revocation_endpoint.clone(),
            identity: identity.clone(),
        };
        let record = TokenRecord::new(origin, &self.scopes, self.key.clone());
        let dpop = self.resource_metadata.as_ref().is_some_and(|resource| resource.dpop);
        let text = serde_json::to_string(&DetachedFlow { record, pending: pending.clone(), dpop });
        text.map(Secret::from)
            .map_err(|_| AuthError::new(AuthErrorKind::Store, "the sign-in cannot be serialized"))
    }

    /// Restores an OAuth flow that waits for its redirect.
    fn resume_detached(start: FlowInput, flow_state: &Secret) -> Result<Self, AuthError> {
        let unreadable = |error: serde_json::Error| {
            let text = format!(
                "the stored state of this sign-in cannot be read ({}): sign in again",
                error_position(&error)
            );
            AuthError::new(AuthErrorKind::Store, text)
        };
        let DetachedFlow { record, pending, dpop } =
            serde_json::from_str(flow_state.expose()).map_err(unreadable)?;
        let record = TokenRecord::parse(&record.serialize()?)?; // parses the key
        let mut flow = Flow::new(start);
        flow.server_metadata = Some(ServerMetadata {
            issuer: record.issuer.clone(),
            token_endpoint: record.token_endpoint.clone(),
            revocation_endpoint: record.revocation_endpoint.clone(),
            ..default_endpoints("")
        });
        let resource = record.resource.clone();
        flow.resource_metadata =
            Some(ResourceMetadata { resource, authorization_servers: Vec::new(), scopes: None, dpop });
        flow.scopes = Scopes::parse(&record.requested);
        flow.key = record.key().cloned();
        flow.identity = Some(flow.input.profile.with_current_secret(record.identity));
        flow.step = FlowStep::Redirect(pending);
        Ok(flow)
    }
}

/// Redirect handler that passes the URL and the serialized flow on and does not wait for the user.
struct DetachedRedirect {
    uri: String,
    on_redirect: Box<dyn Fn(String, Secret) -> AuthFuture<'static, ()> + Send + Sync>,
}

impl RedirectHandler for DetachedRedirect {
    fn redirect_uri(&self) -> AuthFuture<'_, String> {
        boxed(async { Ok(self.uri.clone()) })
    }

    fn redirect(&self, url: String) -> AuthFuture<'_, String> {
        self.redirect_detached(url, Secret::default())
    }

    fn redirect_detached(&self, url: String, flow_state: Secret) -> AuthFuture<'_, String> {
        boxed(async {
            (self.on_redirect)(url, flow_state).await?;
            let text = "the user was redirected to sign in: retry when the sign-in has finished";
            Err(AuthError::new(AuthErrorKind::Redirected, text))
        })
    }
}

impl OAuth {
    /// Sets a handler that sends the user away without waiting: another process may complete the sign-in after the
    /// redirect. `on_redirect` receives the authorization URL and the flow state that [`Self::resume_sign_in`] needs
    /// later. The flow state is secret and can be used once.
    pub fn on_detached_redirect<F, Fut>(self, redirect_uri: impl Into<String>, on_redirect: F) -> Self
    where
        F: Fn(String, Secret) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), AuthError>> + Send + 'static,
    {
        let on_redirect = Box::new(move |url, flow_state| boxed(on_redirect(url, flow_state)));
        self.redirect_handler(DetachedRedirect { uri: redirect_uri.into(), on_redirect })
    }

    /// Completes a detached sign-in: exchanges the redirect URL `redirect_url` for a token for the server at `url` and
    /// stores it.
    pub async fn resume_sign_in(
        &self,
        url: &str,
        egress: &Egress,
        flow_state: &Secret,
        redirect_url: &str,
    ) -> Result<(), AuthError> {
        let (server, profile) = (parse_url(url)?, &self.config);
        let account = self.account_for(&server);
        let start = FlowInput {
            profile: profile.clone(),
            server: server.clone(),
            challenge: Challenge::default(),
            stored: None,
            can_redirect: false,
        };
        let mut flow = Flow::resume_detached(start, flow_state)?;
        let mut locks =
            AccountLocks { update: Some(account.update_lock.clone().lock_owned().await), sign_in: None };
        let attempt = account.current().1;
        let (server, account) = (&server, &*account);
        let mut runner =
            Runner { profile, server, egress, account, generation: attempt, lease: None, locks: &mut locks };
        let first = flow.next(FlowEvent::Redirect(redirect_url.to_owned()), now(profile));
        let Some(record) = runner.run(&mut flow, first).await? else { return Ok(()) };
        let _lease = profile.store.lock(&account.key).await?;
        profile.store.save(&account.key, record.serialize()?).await?;
        account.set_result(Some(Arc::new(record)), Some(TokenOrigin::SignIn), Ok(()));
        lock(&account.state).unsaved = None;
        Ok(())
    }

    /// Starts a sign-in to the server at `url` now, without waiting for a challenge.
    pub async fn sign_in(&self, url: &str, egress: &Egress) -> Result<(), AuthError> {
        let server = parse_url(url)?;
        let account = self.account_for(&server);
        let request =
            Request { method: "POST", target: &server, server: &server, egress, is_background: false };
        let generation = account.current().1;
        account
            .run_action(
                TokenAction::HandleChallenge(Challenge::default(), None),
                generation,
                &self.config,
                request,
                true,
            )
            .await
    }

    /// Returns the scopes granted for the server at `url`, as far as they are in memory; does not read the store.
    pub fn granted(&self, url: &str) -> Option<Scopes> {
        let record = self.account_for(&parse_url(url).ok()?).current().0?;
        record.access_token.as_ref().map(|_| Scopes::parse(&record.granted))
    }

    /// Reloads tokens from the store before their next use, after another process has changed it. A token that could
    /// not be stored stays in use until another process has stored one.
    pub fn reload(&self) {
        for account in lock(&self.accounts).values() {
            let mut live = lock(&account.state);
            (live.is_loaded, live.reloads) = (false, live.reloads + 1);
        }
    }
}

fn parse_url(url: &str) -> Result<Target, AuthError> {
    Target::configured(url).map_err(|error| AuthError::new(AuthErrorKind::Setup, error.to_string()))
}

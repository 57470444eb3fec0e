//! Detached authorization-code flow: the flow state is serialized at the redirect, so that any process can complete the
//! sign-in.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::OAuth;
use super::account::{Held, Source, Work};
use super::runner::{Runner, now};
use crate::auth::challenge::Challenge;
use crate::auth::error::{AuthError, AuthErrorKind, place};
use crate::auth::flow::authorization::Pending;
use crate::auth::flow::resource_metadata::ResourceMetadata;
use crate::auth::flow::server_metadata::{ServerMetadata, without_document};
use crate::auth::flow::{Event, Flow, Start, Step};
use crate::auth::redirect::Person;
use crate::auth::scheme::Request;
use crate::auth::scopes::Scopes;
use crate::auth::secret::Secret;
use crate::auth::store::record::{Origin, Record};
use crate::auth::{AuthFuture, boxed};
use crate::egress::{Egress, Target};
use crate::lock::lock;

/// Serialized state of a detached flow.
#[derive(Serialize, Deserialize)]
struct Away {
    /// The token record without tokens: issuer, resource and client identity.
    record: Record,
    pending: Pending,
    /// Whether the server accepts only key-bound tokens.
    dpop: bool,
}

impl Flow {
    /// Serializes the state that is needed to resume after the redirect.
    pub(in crate::auth) fn away(&self) -> Result<Secret, AuthError> {
        let (Step::Visiting(pending), Some(authority), Some(identity)) =
            (&self.step, &self.authority, &self.identity)
        else {
            return Err(AuthError::new(AuthErrorKind::Setup, "no redirect is pending"));
        };
        let origin = Origin {
            issuer: authority.issuer.clone(),
            resource: self.resource(),
            token_endpoint: authority.token_endpoint.clone(),
            revocation_endpoint: authority.revocation_endpoint.clone(),
            identity: identity.clone(),
        };
        let record = Record::new(origin, &self.scopes, self.key.clone());
        let dpop = self.resource.as_ref().is_some_and(|resource| resource.dpop);
        let text = serde_json::to_string(&Away { record, pending: pending.clone(), dpop });
        text.map(Secret::from)
            .map_err(|_| AuthError::new(AuthErrorKind::Store, "the sign-in cannot be serialized"))
    }

    /// Restores a flow that waits for its redirect.
    fn waiting(start: Start, rest: &Secret) -> Result<Self, AuthError> {
        let unreadable = |error: serde_json::Error| {
            let text =
                format!("the stored state of this sign-in cannot be read ({}): sign in again", place(&error));
            AuthError::new(AuthErrorKind::Store, text)
        };
        let Away { record, pending, dpop } = serde_json::from_str(rest.expose()).map_err(unreadable)?;
        let record = Record::read(&record.write()?)?; // parses the key
        let mut flow = Flow::new(start);
        flow.authority = Some(ServerMetadata {
            issuer: record.issuer.clone(),
            token_endpoint: record.token_endpoint.clone(),
            revocation_endpoint: record.revocation_endpoint.clone(),
            ..without_document("")
        });
        let resource = record.resource.clone();
        flow.resource =
            Some(ResourceMetadata { resource, authorization_servers: Vec::new(), scopes: None, dpop });
        flow.scopes = Scopes::read(&record.requested);
        flow.key = record.key().cloned();
        flow.identity = Some(flow.start.profile.known_as(record.identity));
        flow.step = Step::Visiting(pending);
        Ok(flow)
    }
}

/// Redirect handler that does not wait for the user.
struct Leaving {
    uri: String,
    leave: Box<dyn Fn(String, Secret) -> AuthFuture<'static, ()> + Send + Sync>,
}

impl Person for Leaving {
    fn redirect_uri(&self) -> AuthFuture<'_, String> {
        boxed(async { Ok(self.uri.clone()) })
    }

    fn visit(&self, url: String) -> AuthFuture<'_, String> {
        self.lead(url, Secret::default())
    }

    fn lead(&self, url: String, rest: Secret) -> AuthFuture<'_, String> {
        boxed(async {
            (self.leave)(url, rest).await?;
            let text = "the user was redirected to sign in: retry when the sign-in has finished";
            Err(AuthError::new(AuthErrorKind::Away, text))
        })
    }
}

impl OAuth {
    /// Sets a detached redirect handler for a redirect URI of the application. `leave` receives the authorization URL
    /// and the flow state that [`Self::come_back`] needs after the redirect. The flow state is secret and can be used
    /// once.
    pub fn leave<F, Fut>(self, redirect_uri: impl Into<String>, leave: F) -> Self
    where
        F: Fn(String, Secret) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), AuthError>> + Send + 'static,
    {
        let leave = Box::new(move |url, rest| boxed(leave(url, rest)));
        self.person(Leaving { uri: redirect_uri.into(), leave })
    }

    /// Completes a detached sign-in: exchanges the redirect URL `returned` for a token for the server at `url` and
    /// stores it.
    pub async fn come_back(
        &self,
        url: &str,
        egress: &Egress,
        rest: &Secret,
        returned: &str,
    ) -> Result<(), AuthError> {
        let (server, profile) = (typed(url)?, &self.profile);
        let account = self.account_of(&server);
        let start = Start {
            profile: profile.clone(),
            server: server.clone(),
            challenge: Challenge::default(),
            earlier: None,
            person: false,
        };
        let mut flow = Flow::waiting(start, rest)?;
        let mut held = Held { turn: Some(account.turn.clone().lock_owned().await), asking: None };
        let attempt = account.current().1;
        let (server, account) = (&server, &*account);
        let mut runner = Runner { profile, server, egress, account, attempt, lease: None, held: &mut held };
        let first = flow.next(Event::Returned(returned.to_owned()), now(profile));
        let Some(record) = runner.run(&mut flow, first).await? else { return Ok(()) };
        let _lease = profile.store.lock(&account.key).await?;
        profile.store.save(&account.key, record.write()?).await?;
        account.settle(Some(Arc::new(record)), Some(Source::SignIn), Ok(()));
        lock(&account.live).unkept = None;
        Ok(())
    }

    /// Starts a sign-in to the server at `url` now, without waiting for a challenge.
    pub async fn sign_in(&self, url: &str, egress: &Egress) -> Result<(), AuthError> {
        let server = typed(url)?;
        let account = self.account_of(&server);
        let request =
            Request { method: "POST", target: &server, server: &server, egress, is_background: false };
        let mark = account.current().1;
        account.work(Work::Answer(Challenge::default(), None), mark, &self.profile, request, true).await
    }

    /// Returns the scopes granted for the server at `url`, as far as they are in memory; does not read the store.
    pub fn granted(&self, url: &str) -> Option<Scopes> {
        let record = self.account_of(&typed(url).ok()?).current().0?;
        record.access_token.as_ref().map(|_| Scopes::read(&record.granted))
    }

    /// Reloads tokens from the store before their next use, after another process has changed it. A token that could
    /// not be stored stays in use until another process has stored one.
    pub fn reload(&self) {
        for account in lock(&self.accounts).values() {
            let mut live = lock(&account.live);
            (live.is_loaded, live.reloads) = (false, live.reloads + 1);
        }
    }
}

fn typed(url: &str) -> Result<Target, AuthError> {
    Target::typed(url).map_err(|error| AuthError::new(AuthErrorKind::Setup, error.to_string()))
}

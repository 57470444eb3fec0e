//! Signing in where nobody waits for the person: what is needed when they are back is written down, and whoever has it goes
//! on, in this process or another.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::{Held, Source, Work};
use super::authorize::Pending;
use super::challenge::Challenge;
use super::error::{AuthError, AuthErrorKind, place};
use super::flow::{Event, Flow, Start, Step};
use super::oauth::OAuth;
use super::person::Person;
use super::record::{Origin, Record};
use super::resource_metadata::ResourceMetadata;
use super::run::{Runner, now};
use super::scheme::Request;
use super::scopes::Scopes;
use super::secret::Secret;
use super::server_metadata::{ServerMetadata, without_document};
use super::{AuthFuture, boxed};
use crate::egress::{Egress, Target};
use crate::sync::lock;

/// A sign-in whose person is away.
#[derive(Serialize, Deserialize)]
struct Away {
    /// Who gives the token, for what and to whom; without one.
    record: Record,
    pending: Pending,
    /// Whether the server takes only tokens that are bound to the key.
    dpop: bool,
}

impl Flow {
    /// All that is needed to go on when the person is back.
    pub(super) fn away(&self) -> Result<Secret, AuthError> {
        let (Step::Visiting(pending), Some(authority), Some(identity)) =
            (&self.step, &self.authority, &self.identity)
        else {
            return Err(AuthError::new(AuthErrorKind::Setup, "nobody is away"));
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
            .map_err(|_| AuthError::new(AuthErrorKind::Store, "the sign-in cannot be written"))
    }

    /// A flow whose person is away.
    fn waiting(start: Start, rest: &Secret) -> Result<Self, AuthError> {
        let unreadable = |error: serde_json::Error| {
            let text =
                format!("what was kept of this sign-in cannot be read ({}): sign in again", place(&error));
            AuthError::new(AuthErrorKind::Store, text)
        };
        let Away { record, pending, dpop } = serde_json::from_str(rest.expose()).map_err(unreadable)?;
        let record = Record::read(&record.write()?)?; // with its key, ready for use
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

/// A host that does not wait.
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
            let text = "somebody is on their way to sign in: try again when they are back";
            Err(AuthError::new(AuthErrorKind::Away, text))
        })
    }
}

impl OAuth {
    /// People come back to a URL of the host's own, and nobody waits for them here: `leave` is given where they go, and
    /// what [`Self::come_back`] needs when they are back. That is secret, and is used once.
    pub fn leave<F, Fut>(self, redirect_uri: impl Into<String>, leave: F) -> Self
    where
        F: Fn(String, Secret) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), AuthError>> + Send + 'static,
    {
        let leave = Box::new(move |url, rest| boxed(leave(url, rest)));
        self.person(Leaving { uri: redirect_uri.into(), leave })
    }

    /// Somebody who left is back, at the URL `returned`: gets the token for the server at `url` and keeps it.
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

    /// Has somebody sign in to the server at `url` now, without waiting until it wants that.
    pub async fn sign_in(&self, url: &str, egress: &Egress) -> Result<(), AuthError> {
        let server = typed(url)?;
        let account = self.account_of(&server);
        let request =
            Request { method: "POST", target: &server, server: &server, egress, is_background: false };
        let mark = account.current().1;
        account.work(Work::Answer(Challenge::default(), None), mark, &self.profile, request, true).await
    }

    /// What was granted for the server at `url`, as far as it is known without asking the store.
    pub fn granted(&self, url: &str) -> Option<Scopes> {
        let record = self.account_of(&typed(url).ok()?).current().0?;
        record.access_token.as_ref().map(|_| Scopes::read(&record.granted))
    }

    /// Reads anew what is kept, before it is used again: for when another program has changed it. A token that could not be
    /// kept stays in use until another program has.
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

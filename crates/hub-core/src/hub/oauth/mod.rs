//! OAuth to upstream servers: sign-in at the server's authorization server, and grants that are stored encrypted,
//! shared or per agent. Tokens are refreshed on use, by one hub at a time.

mod authorizer;
mod callback;
mod grant_status;
mod grant_store;
mod pending_flows;
mod pending_grant;
mod sign_in;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin::auth::{OAuth, TokenStore};
use schemars::JsonSchema;
use serde::Serialize;

use self::authorizer::Guarded;
use self::grant_status::{Heard, Place};
use self::grant_store::Grants;
use super::Hub;
use super::credentials::{client_label, fits, grant_label};
use crate::actor::Scope;
use crate::agent::Agent;
use crate::connection::{Credential, Proof};
use crate::error::{self, Error, Result};
use crate::id::{AgentId, ServerId, TenantId};
use crate::lock::lock;
use crate::secrets::redact::Tokens;
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::Kind;
use crate::vault::Label;
use crate::vault::key_ring::Sealed;

pub use grant_status::Hop;
pub use pending_flows::Progress;
pub(super) use sign_in::CALLBACK;
pub use sign_in::{SignInView, state_in};

/// Client name that the consent page of an authorization server shows.
const NAME: &str = "Linchpin";

/// Owner of a grant: tenant, server and, for a grant per agent, the agent.
type Whose = (TenantId, ServerId, Option<AgentId>);

/// Authorizer of one grant, built for this version of the server.
#[derive(Clone)]
struct Known {
    version: u64,
    guarded: Arc<Guarded>,
    tokens: Arc<Tokens>,
}

/// In-memory OAuth state: authorizers and the trace that is not stored yet.
#[derive(Default)]
pub(super) struct Broker {
    /// One authorizer per grant, shared by all connections, so that a token is refreshed once.
    known: Mutex<HashMap<Whose, Known>>,
    heard: Arc<Heard>,
}

impl Broker {
    /// Drops the cached authorizer after the stored grant has changed.
    fn forget(&self, whose: Whose) {
        lock(&self.known).remove(&whose);
    }
}

/// Whether a grant exists and is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SignedIn {
    /// No grant is stored.
    No,
    /// The grant is usable.
    Yes,
    /// The grant was rejected: a user has to sign in again.
    Again,
}

/// Grant status of a server, as shown to users.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct StandingView {
    /// Whether a grant exists and is usable.
    pub signed_in: SignedIn,
    /// Scopes that the server requires and that were not granted.
    pub wanted: Vec<String>,
    /// Recommended action, if one is needed.
    pub advice: Option<String>,
    /// OAuth requests of recent sign-ins and refreshes, oldest first.
    pub hops: Vec<Hop>,
}

impl Hub {
    /// Returns the credential of a subject for a server with OAuth. A missing grant is reported only when the
    /// credential is used.
    pub(super) async fn grant_of(&self, scope: Scope, server: &Server) -> Result<Option<Credential>> {
        let agent = match (server.settings.credentials, scope.agent()) {
            (CredentialMode::Shared, _) => None,
            (CredentialMode::PerAgent, None) => return Ok(None),
            (CredentialMode::PerAgent, agent) => agent,
        };
        let whose = (scope.tenant(), server.id, agent);
        let id = grant_label(server, agent)?.id;
        let known = lock(&self.broker.known).get(&whose).cloned();
        let known = known.filter(|known| known.version == server.version);
        let known = if let Some(known) = known {
            known
        } else {
            let known = self.known(whose, server).await?;
            lock(&self.broker.known).insert(whose, known.clone());
            known
        };
        let proof = Proof::OAuth(known.guarded, known.tokens);
        Ok(Some(Credential { id, version: 0, proof }))
    }

    async fn known(&self, whose: Whose, server: &Server) -> Result<Known> {
        let tokens = Arc::new(Tokens::default());
        let grants = Arc::new(Grants::new(self, whose, server, tokens.clone())?);
        let guarded = Guarded {
            oauth: self.oauth(whose, server, grants.clone()).await?,
            grants,
            place: self.place(whose, server)?,
            slug: server.slug.as_str().to_owned(),
            command: self.command(whose, server).await?,
            url: server.transport.place().map(|place| place.url.clone()).unwrap_or_default(),
            again: Mutex::default(),
        };
        Ok(Known { version: server.version, guarded: Arc::new(guarded), tokens })
    }

    /// Returns the store of the grant status.
    fn place(&self, whose: Whose, server: &Server) -> Result<Place> {
        let (heard, store) = (self.broker.heard.clone(), self.store.clone());
        Ok(Place { heard, store, whose, id: grant_label(server, whose.2)?.id })
    }

    /// Returns the command that signs in to the server.
    async fn command(&self, (tenant, _, agent): Whose, server: &Server) -> Result<String> {
        let command = format!("linchpin server sign-in {}", server.slug.as_str());
        let Some(agent) = agent else { return Ok(command) };
        let agent = self.find::<Agent>(tenant, Kind::Agent, agent).await?;
        let name = agent.map_or_else(|| "NAME".to_owned(), |(agent, _)| agent.name);
        Ok(format!("{command} --agent \"{name}\""))
    }

    /// Reports whether a usable grant is stored.
    pub(super) async fn has_grant(
        &self,
        tenant: TenantId,
        server: &Server,
        agent: Option<AgentId>,
    ) -> Result<bool> {
        Ok(self.grant_version(tenant, &grant_label(server, agent)?).await?.is_some())
    }

    /// Returns the version of the grant with this binding, if it may be used.
    async fn grant_version(&self, tenant: TenantId, label: &Label) -> Result<Option<u64>> {
        let found = self.find::<Sealed>(tenant, Kind::Secret, label.id).await?;
        Ok(found.filter(|(stored, _)| fits(stored, label)).map(|(_, version)| version))
    }

    /// Builds the OAuth client of a server, without a redirect handler: it never sends a user to sign in.
    async fn oauth(&self, whose: Whose, server: &Server, store: impl TokenStore) -> Result<OAuth> {
        let (client_id, scopes, issuer) = settings(server)?;
        let (tenant, _, agent) = whose;
        let (world, clock) = (self.world.clone(), self.world.clone());
        let (place, tasks) = (self.place(whose, server)?, self.tasks.clone());
        let mut oauth = OAuth::new(NAME)
            .store(store)
            .account(agent.map(|agent| agent.to_string()).unwrap_or_default())
            .clock(move || world.now().into())
            .on_step(move |step| {
                if place.hear(Hop::new(clock.now(), step)) {
                    let place = place.clone();
                    tasks.start(async move { place.keep().await });
                }
            });
        if let Some(id) = client_id {
            let label = client_label(server)?;
            let found = self.keys.open(tenant, label.id).await?;
            // Never send the secret of another client to an authorization server.
            oauth = match found.filter(|(_, stored, _)| fits(stored, &label)) {
                Some((secret, ..)) => oauth.client_secret(id, secret),
                None => oauth.client(id),
            };
        }
        if !scopes.is_empty() {
            oauth = oauth.scopes(scopes);
        }
        if let Some(issuer) = issuer {
            oauth = oauth.issuer(issuer);
        }
        Ok(oauth)
    }

    /// Returns the OAuth requests of recent sign-ins and refreshes at a server, oldest first.
    pub async fn trace(&self, scope: Scope, name: &str, agent: Option<AgentId>) -> Result<Vec<Hop>> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        let place = self.place((scope.tenant(), server.id, agent), &server)?;
        Ok(place.read().await?.hops.into())
    }

    /// Returns the grant status of a server with the recommended action.
    pub async fn standing(&self, scope: Scope, name: &str, agent: Option<AgentId>) -> Result<StandingView> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        let whose = (scope.tenant(), server.id, agent);
        settings(&server)?;
        let place = self.place(whose, &server)?;
        let (standing, command) = (place.read().await?, self.command(whose, &server).await?);
        let grant = self.grant_version(whose.0, &grant_label(&server, agent)?).await?;
        let again = standing.again.filter(|again| grant == Some(again.version));
        let (signed_in, advice) = match (grant, again) {
            (None, _) => (SignedIn::No, Some(format!("sign in with `{command}`"))),
            (Some(_), Some(again)) => (SignedIn::Again, Some(again.why)),
            (Some(_), None) if standing.wanted.is_empty() => (SignedIn::Yes, None),
            (Some(_), None) => {
                let text = format!(
                    "some tools of the server require the scope `{}`: sign in again with `{command}`",
                    standing.wanted.join(" ")
                );
                (SignedIn::Yes, Some(text))
            }
        };
        Ok(StandingView { signed_in, wanted: standing.wanted, advice, hops: standing.hops.into() })
    }
}

/// Returns the client id, the scopes and the issuer configured for a server.
fn settings(server: &Server) -> Result<(Option<&String>, &[String], Option<&String>)> {
    if let Authentication::OAuth { client_id, scopes, issuer } = &server.settings.authentication {
        return Ok((client_id.as_ref(), scopes, issuer.as_ref()));
    }
    let text = format!(
        "`{}` does not use OAuth: set its `authentication` to `oauth` to sign in",
        server.slug.as_str()
    );
    Err(Error::new(error::Kind::Conflict, "not_oauth", text))
}

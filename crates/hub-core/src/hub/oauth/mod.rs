//! Servers that want OAuth: a person is led to the server's authorization server and back, and what was given there is kept,
//! sealed, for everybody or for one agent. It is renewed while it is used, by one hub at a time.

mod grants;
mod sign_in;
mod trace;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin::auth::OAuth;

use super::Hub;
use super::credentials::{client_label, grant_label};
use crate::connection::{Credential, Proof};
use crate::error::{self, Error, Result};
use crate::hidden::Tokens;
use crate::id::{AgentId, ServerId, TenantId};
use crate::scope::Scope;
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::{Key, Kind};
use crate::sync::lock;
use grants::Grants;

pub use sign_in::{Progress, SignInView};
pub use trace::Hop;

/// How the hub calls itself where people are asked whether to let it in.
const NAME: &str = "Linchpin";

/// Whose sign-in it is: everybody's at a server, or an agent's.
type Whose = (TenantId, ServerId, Option<AgentId>);

/// How a server is signed in to, as it is at this version.
#[derive(Clone)]
struct Known {
    version: u64,
    oauth: OAuth,
    tokens: Arc<Tokens>,
}

/// What is known of sign-ins.
#[derive(Default)]
pub(super) struct Broker {
    /// One for each, shared by all connections, so that a token is renewed once.
    known: Mutex<HashMap<Whose, Known>>,
    under_way: sign_in::UnderWay,
    traces: Arc<trace::Traces>,
}

impl Broker {
    /// What was kept is not what it was.
    fn forget(&self, whose: Whose) {
        lock(&self.known).remove(&whose);
    }
}

impl Hub {
    /// What a subject's requests carry to a server that wants OAuth. That nobody has signed in shows when it is used.
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
            let (oauth, tokens) = self.oauth(whose, server).await?;
            let known = Known { version: server.version, oauth, tokens };
            lock(&self.broker.known).insert(whose, known.clone());
            known
        };
        let proof = Proof::OAuth(known.oauth, known.tokens);
        Ok(Some(Credential { id, version: 0, proof }))
    }

    /// Whether somebody has signed in.
    pub(super) async fn has_grant(
        &self,
        tenant: TenantId,
        server: &Server,
        agent: Option<AgentId>,
    ) -> Result<bool> {
        let id = grant_label(server, agent)?.id;
        Ok(self.store.document(tenant, &Key::new(Kind::Secret, id)).await?.is_some())
    }

    /// How the hub signs in to a server, without anybody who could be asked.
    async fn oauth(&self, whose: Whose, server: &Server) -> Result<(OAuth, Arc<Tokens>)> {
        let Authentication::OAuth { client_id, scopes, issuer } = &server.settings.authentication else {
            let text = format!(
                "`{}` is not signed in to: its `authentication` is not `oauth`",
                server.slug.as_str()
            );
            return Err(Error::new(error::Kind::Conflict, "not_oauth", text));
        };
        let (tenant, _, agent) = whose;
        let tokens = Arc::new(Tokens::default());
        let world = self.world.clone();
        let (traces, clock) = (self.broker.traces.clone(), self.world.clone());
        let mut oauth = OAuth::new(NAME)
            .store(Grants::new(self, whose, server, tokens.clone())?)
            .account(agent.map(|agent| agent.to_string()).unwrap_or_default())
            .clock(move || world.now().into())
            .on_step(move |step| traces.add(whose, Hop::new(clock.now(), step)));
        if let Some(id) = client_id {
            let secret = self.keys.open(tenant, client_label(server)?.id).await?;
            oauth = match secret {
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
        Ok((oauth, tokens))
    }

    /// The hops of the last sign-ins and renewals at a server, the oldest first.
    pub async fn trace(&self, scope: Scope, name: &str, agent: Option<AgentId>) -> Result<Vec<Hop>> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        Ok(self.broker.traces.of((scope.tenant(), server.id, agent)))
    }
}

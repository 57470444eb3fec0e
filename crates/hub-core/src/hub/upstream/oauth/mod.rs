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

use self::authorizer::GrantAuthorizer;
use self::grant_status::{GrantStatusStore, TraceBuffer};
use self::grant_store::GrantStore;
use super::credentials::{client_binding, grant_binding, matches_binding};
use crate::actor::Actor;
use crate::agent::Agent;
use crate::connection::{AuthMaterial, ConnectionCredential};
use crate::error::{self, Error, Result};
use crate::hub::upstream::Upstream;
use crate::id::{AgentId, ServerId, TenantId};
use crate::lock::lock;
use crate::secrets::redact::IssuedTokens;
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::DocumentKind;
use crate::vault::SecretBinding;
use crate::vault::key_ring::SealedSecret;

pub use grant_status::AuthTraceEntry;
pub use pending_flows::SignInStatus;
pub(in crate::hub) use sign_in::CALLBACK;
pub use sign_in::{SignInView, state_in};

/// Client name that the consent page of an authorization server shows.
const CLIENT_NAME: &str = "Linchpin";

/// Owner of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct GrantOwner {
    tenant: TenantId,
    server: ServerId,
    /// Agent, if each agent has its own grant.
    agent: Option<AgentId>,
}

/// Authorizer of one OAuth grant, built for a certain version of the server's settings.
#[derive(Clone)]
struct CachedAuthorizer {
    version: u64,
    authorizer: Arc<GrantAuthorizer>,
    tokens: Arc<IssuedTokens>,
}

/// In-memory OAuth state: authorizers and the trace that is not stored yet.
#[derive(Default)]
pub(super) struct OAuthBroker {
    /// One authorizer per grant, shared by all connections, so that a token is refreshed once.
    authorizers: Mutex<HashMap<GrantOwner, CachedAuthorizer>>,
    trace_buffer: Arc<TraceBuffer>,
}

impl OAuthBroker {
    /// Drops the cached authorizer after the stored grant has changed.
    fn evict(&self, owner: GrantOwner) {
        lock(&self.authorizers).remove(&owner);
    }
}

/// Whether an OAuth grant for a server exists and is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantState {
    /// No grant is stored.
    None,
    /// An OAuth grant is stored and usable.
    Active,
    /// The OAuth grant was rejected: a user has to sign in again.
    ReauthorizationRequired,
}

/// Status of the OAuth grant for a server, as shown to users, with advice and recent requests.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GrantStatusView {
    /// Whether an OAuth grant for the server exists and is usable.
    pub state: GrantState,
    /// Scopes that the server requires and that were not granted.
    pub missing_scopes: Vec<String>,
    /// Recommended action of the user, if one is needed.
    pub advice: Option<String>,
    /// OAuth requests of recent sign-ins and refreshes, oldest first.
    pub trace: Vec<AuthTraceEntry>,
}

impl Upstream {
    /// Returns the OAuth credential with which a user or agent connects to a server. A missing grant is reported only
    /// when the credential is used.
    pub(super) async fn oauth_credential(
        &self,
        actor: Actor,
        server: &Server,
    ) -> Result<Option<ConnectionCredential>> {
        let agent = match (server.settings.credentials, actor.agent()) {
            (CredentialMode::Shared, _) => None,
            (CredentialMode::PerAgent, None) => return Ok(None),
            (CredentialMode::PerAgent, agent) => agent,
        };
        let owner = GrantOwner { tenant: actor.tenant(), server: server.id, agent };
        let id = grant_binding(server, agent)?.id;
        let cached = lock(&self.oauth_broker.authorizers).get(&owner).cloned();
        let cached = cached.filter(|cached| cached.version == server.version);
        let entry = if let Some(cached) = cached {
            cached
        } else {
            let built = self.build_authorizer(owner, server).await?;
            lock(&self.oauth_broker.authorizers).insert(owner, built.clone());
            built
        };
        let proof = AuthMaterial::OAuth(entry.authorizer, entry.tokens);
        Ok(Some(ConnectionCredential { id, version: 0, proof }))
    }

    async fn build_authorizer(&self, owner: GrantOwner, server: &Server) -> Result<CachedAuthorizer> {
        let tokens = Arc::new(IssuedTokens::default());
        let grants = Arc::new(GrantStore::new(&self.context, owner, server, tokens.clone())?);
        let guarded = GrantAuthorizer {
            oauth: self.oauth_client(owner, server, grants.clone()).await?,
            grants,
            status: self.status_store(owner, server)?,
            slug: server.slug.as_str().to_owned(),
            sign_in_command: self.sign_in_command(owner, server).await?,
            url: server.transport.remote().map(|endpoint| endpoint.url.clone()).unwrap_or_default(),
            rejection: Mutex::default(),
        };
        Ok(CachedAuthorizer { version: server.version, authorizer: Arc::new(guarded), tokens })
    }

    /// Returns the store of the OAuth grant status of a server.
    fn status_store(&self, owner: GrantOwner, server: &Server) -> Result<GrantStatusStore> {
        let (trace_buffer, store) = (self.oauth_broker.trace_buffer.clone(), self.context.store.clone());
        Ok(GrantStatusStore {
            buffer: trace_buffer,
            store,
            owner,
            id: grant_binding(server, owner.agent)?.id,
        })
    }

    /// Returns the `linchpin` command that signs in to the server, for messages.
    async fn sign_in_command(&self, owner: GrantOwner, server: &Server) -> Result<String> {
        let command = format!("linchpin server sign-in {}", server.slug.as_str());
        let Some(agent) = owner.agent else { return Ok(command) };
        let agent = self.context.load::<Agent>(owner.tenant, DocumentKind::Agent, agent).await?;
        let name = agent.map_or_else(|| "NAME".to_owned(), |(agent, _)| agent.name);
        Ok(format!("{command} --agent \"{name}\""))
    }

    /// Reports whether a usable OAuth grant for a server is stored.
    pub(in crate::hub) async fn has_grant(
        &self,
        tenant: TenantId,
        server: &Server,
        agent: Option<AgentId>,
    ) -> Result<bool> {
        Ok(self.grant_version(tenant, &grant_binding(server, agent)?).await?.is_some())
    }

    /// Returns the version of the stored OAuth grant if its binding matches the server, client and issuer.
    async fn grant_version(&self, tenant: TenantId, label: &SecretBinding) -> Result<Option<u64>> {
        let found = self.context.load::<SealedSecret>(tenant, DocumentKind::Secret, label.id).await?;
        Ok(found.filter(|(stored, _)| matches_binding(stored, label)).map(|(_, version)| version))
    }

    /// Builds the OAuth client of a server, without a redirect handler: it never sends a user to sign in.
    async fn oauth_client(
        &self,
        owner: GrantOwner,
        server: &Server,
        store: impl TokenStore,
    ) -> Result<OAuth> {
        let (client_id, scopes, issuer) = oauth_settings(server)?;
        let GrantOwner { tenant, agent, .. } = owner;
        let (platform, clock) = (self.context.platform.clone(), self.context.platform.clone());
        let (status_store, tasks) = (self.status_store(owner, server)?, self.context.tasks.clone());
        let mut oauth = OAuth::new(CLIENT_NAME)
            .store(store)
            .account(agent.map(|agent| agent.to_string()).unwrap_or_default())
            .clock(move || platform.now().into())
            .on_step(move |step| {
                if status_store.buffer_entry(AuthTraceEntry::new(clock.now(), step)) {
                    let status_store = status_store.clone();
                    tasks.spawn(async move { status_store.flush().await });
                }
            });
        if let Some(id) = client_id {
            let label = client_binding(server)?;
            let found = self.context.keys.open_secret(tenant, label.id).await?;
            // Never send the secret of another client to an authorization server.
            oauth = match found.filter(|(_, stored, _)| matches_binding(stored, &label)) {
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
    pub async fn trace(
        &self,
        actor: Actor,
        name: &str,
        agent: Option<AgentId>,
    ) -> Result<Vec<AuthTraceEntry>> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        let status_store =
            self.status_store(GrantOwner { tenant: actor.tenant(), server: server.id, agent }, &server)?;
        Ok(status_store.read().await?.trace.into())
    }

    /// Returns the grant status of a server with the recommended action.
    pub async fn grant_status(
        &self,
        actor: Actor,
        name: &str,
        agent: Option<AgentId>,
    ) -> Result<GrantStatusView> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        let owner = GrantOwner { tenant: actor.tenant(), server: server.id, agent };
        oauth_settings(&server)?;
        let status_store = self.status_store(owner, &server)?;
        let (status, command) = (status_store.read().await?, self.sign_in_command(owner, &server).await?);
        let grant = self.grant_version(owner.tenant, &grant_binding(&server, agent)?).await?;
        let reauthorization =
            status.reauthorization.filter(|reauthorization| grant == Some(reauthorization.version));
        let (state, advice) = match (grant, reauthorization) {
            (None, _) => (GrantState::None, Some(format!("sign in with `{command}`"))),
            (Some(_), Some(reauthorization)) => {
                (GrantState::ReauthorizationRequired, Some(reauthorization.reason))
            }
            (Some(_), None) if status.missing_scopes.is_empty() => (GrantState::Active, None),
            (Some(_), None) => {
                let text = format!(
                    "some tools of the server require the scope `{}`: sign in again with `{command}`",
                    status.missing_scopes.join(" ")
                );
                (GrantState::Active, Some(text))
            }
        };
        Ok(GrantStatusView {
            state,
            missing_scopes: status.missing_scopes,
            advice,
            trace: status.trace.into(),
        })
    }
}

/// Returns the client id, the scopes and the issuer configured for a server.
fn oauth_settings(server: &Server) -> Result<(Option<&String>, &[String], Option<&String>)> {
    if let Authentication::OAuth { client_id, scopes, issuer } = &server.settings.authentication {
        return Ok((client_id.as_ref(), scopes, issuer.as_ref()));
    }
    let text = format!(
        "`{}` does not use OAuth: set its `authentication` to `oauth` to sign in",
        server.slug.as_str()
    );
    Err(Error::new(error::ErrorKind::Conflict, "not_oauth", text))
}

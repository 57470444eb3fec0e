//! Sign-ins to upstream servers: start, status, redirect and sign-out.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::{AuthErrorKind, OAuth, Scopes, Secret};
use linchpin::server::web::decode_form;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::grant_store::GrantStore;
use super::pending_flows::{PendingRedirect, PendingSignIn, SignInStatus};
use super::pending_grant::PendingGrant;
use super::{AuthTraceEntry, GrantOwner, oauth_settings};
use crate::actor::Actor;
use crate::connection::{AuthMaterial, with_egress_hint};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::events::NewEvent;
use crate::hub::event_payloads;
use crate::hub::upstream::Upstream;
use crate::hub::upstream::connect::list_tools;
use crate::id::{AgentId, ServerId, TenantId};
use crate::lock::lock;
use crate::platform::random;
use crate::secrets::redact::IssuedTokens;
use crate::server::{CredentialMode, Server};
use crate::store::{Batch, DocumentKind};
use crate::text::escape_invisible;

/// Path of the OAuth callback.
pub(in crate::hub) const CALLBACK: &str = "/oauth/callback";
/// Time limit for finding the authorization server.
const DISCOVERY_TIMEOUT: Duration = Duration::from_mins(1);

/// OAuth sign-in to a server, as shown to the user who started it: URL and status.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SignInView {
    /// Id of the sign-in.
    pub id: String,
    /// Id of the server that the user signs in to.
    #[schemars(with = "String")]
    pub server: ServerId,
    /// Agent that the grant is for. Absent for a shared grant.
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentId>,
    /// URL at this hub that redirects to the authorization server.
    pub url: String,
    /// One-time `url` for browsers without a session, for local commands while no user has a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Status of the sign-in, such as waiting, done or failed.
    #[serde(flatten)]
    pub progress: SignInStatus,
    /// Why the sync after the sign-in failed; the grant is valid nevertheless.
    pub sync_error: Option<String>,
    /// Time at which the sign-in was started.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// OAuth requests of the sign-in, oldest first.
    pub trace: Vec<AuthTraceEntry>,
}

/// Returns the `state` parameter of a query.
pub fn state_in(query: &str) -> Option<String> {
    decode_form(query).find(|(name, _)| name == "state").map(|(_, state)| state.into_owned())
}

impl Upstream {
    /// Starts an OAuth sign-in to a server, for a shared grant or the grant of an agent. Returns the URL that the user
    /// has to open.
    pub async fn start_sign_in(
        &self,
        actor: Actor,
        name: &str,
        agent: Option<AgentId>,
    ) -> Result<SignInView> {
        actor.require_user()?;
        let (tenant, server) = (actor.tenant(), self.servers.find_server(actor.tenant(), name).await?);
        match (server.settings.credentials, agent) {
            (CredentialMode::Shared, Some(_)) => {
                let text = "must be absent, since all agents share the sign-in to this server: set its `credentials` to `per-agent` first";
                return Err(Error::invalid("agent", text));
            }
            (CredentialMode::PerAgent, None) => {
                return Err(Error::invalid(
                    "agent",
                    "must be set: each agent has its own sign-in to this server",
                ));
            }
            (CredentialMode::PerAgent, Some(agent)) => {
                self.context.require::<crate::agent::Agent>(tenant, DocumentKind::Agent, agent).await?;
            }
            (CredentialMode::Shared, None) => {}
        }
        let Some(callback) = self.context.options.callback.clone() else {
            let text =
                "this hub was started without a callback URL, so no sign-in can be completed in a browser";
            return Err(Error::new(error::ErrorKind::Unavailable, "no_callback", text));
        };
        let owner = GrantOwner { tenant, server: server.id, agent };
        let captured: Arc<Mutex<Option<(String, Secret)>>> = Arc::default();
        let (oauth, tokens) = self.oauth_for_reauthorization(owner, &server).await?;
        let oauth = {
            let captured = captured.clone();
            oauth.on_detached_redirect(callback, move |url, flow_state| {
                *lock(&captured) = Some((url, flow_state));
                async { Ok(()) }
            })
        };
        self.check_capacity(tenant, server.id).await?;
        let result = tokio::time::timeout(
            DISCOVERY_TIMEOUT,
            Box::pin(self.trigger_challenge(actor, &server, &oauth, tokens)),
        )
        .await;
        let captured = lock(&captured).take();
        let (progress, redirect) = match (captured, result) {
            (Some((url, flow_state)), _) => {
                let state = url.split_once('?').and_then(|(_, query)| state_in(query)).unwrap_or_default();
                (
                    SignInStatus::Waiting,
                    Some(PendingRedirect { url, state, flow_state: flow_state.expose().to_owned() }),
                )
            }
            (None, Ok(Ok(()))) => (SignInStatus::NotNeeded, None),
            (None, Ok(Err(error))) => (SignInStatus::Failed { error }, None),
            (None, Err(_)) => {
                let error =
                    format!("no authorization server was found within {DISCOVERY_TIMEOUT:?}: try again");
                (SignInStatus::Failed { error }, None)
            }
        };
        let id = Digest::from_bytes(random(&*self.context.platform)).to_string();
        let pending = PendingSignIn {
            server: server.id,
            agent,
            started_by: actor.subject().to_string(),
            created: self.context.platform.now(),
            progress,
            sync_error: None,
            redirect,
        };
        if pending.progress == SignInStatus::Waiting {
            self.save_pending(tenant, &server, &id, &pending, 0).await?;
        } else {
            self.record_sign_in_result(tenant, &id, &pending).await;
        }
        self.view_sign_in(tenant, &id, pending).await
    }

    /// Builds the OAuth client of a repeated sign-in: with the previous client registration, but without tokens. It
    /// requests the missing scopes as well.
    async fn oauth_for_reauthorization(
        &self,
        owner: GrantOwner,
        server: &Server,
    ) -> Result<(OAuth, Arc<IssuedTokens>)> {
        let tokens = Arc::new(IssuedTokens::default());
        let before = GrantStore::new(&self.context, owner, server, tokens.clone())?.without_tokens().await?;
        let store = PendingGrant::new(before, tokens.clone());
        let mut oauth = self.oauth_client(owner, server, store).await?;
        let mut missing_scopes = self.status_store(owner, server)?.read().await?.missing_scopes;
        if !missing_scopes.is_empty() {
            missing_scopes.extend(oauth_settings(server)?.1.iter().cloned());
            oauth = oauth.scopes(missing_scopes);
        }
        Ok((oauth, tokens))
    }

    /// Lists the tools of a server so that it sends an authentication challenge, which starts the sign-in. If it lists
    /// its tools without one, the sign-in is started explicitly, since calls may still require it.
    async fn trigger_challenge(
        &self,
        actor: Actor,
        server: &Server,
        oauth: &OAuth,
        tokens: Arc<IssuedTokens>,
    ) -> Result<(), String> {
        let proof = AuthMaterial::OAuth(Arc::new(oauth.clone()), tokens);
        let client = self.connections.connect_unpooled(actor, server, Some(&proof)).await;
        let client = client.map_err(|error| error.message().to_owned())?;
        let listed = list_tools(&client).await;
        client.close().await;
        listed.map_err(|error| escape_invisible(&with_egress_hint(&error.to_string())))?;
        let Some(endpoint) = server.transport.remote() else { return Ok(()) };
        match oauth.sign_in(&endpoint.url, &self.connections.egress(actor, server.id)).await {
            // No OAuth metadata can be loaded: no sign-in is needed.
            Err(error) if matches!(error.kind(), AuthErrorKind::Metadata | AuthErrorKind::Unreachable) => {
                Ok(())
            }
            done => done.map_err(|error| escape_invisible(&with_egress_hint(&error.to_string()))),
        }
    }

    /// Records the end of a sign-in in the audit and publishes an event.
    pub(super) async fn record_sign_in_result(&self, tenant: TenantId, id: &str, pending: &PendingSignIn) {
        let PendingSignIn { server, agent, started_by, progress, .. } = pending;
        let status = match progress {
            SignInStatus::Done => "done",
            SignInStatus::NotNeeded => "not needed",
            _ => "failed",
        };
        let mut entry =
            crate::audit::AuditEntry::new(self.context.platform.now(), started_by, "sign_in.finished")
                .with("server", server.to_string())
                .with("status", status);
        if let Some(agent) = agent {
            entry = entry.with("agent", agent.to_string());
        }
        let body = json!({ "sign_in": id, "server": server, "agent": agent, "status": status,
            "sync_error": pending.sync_error });
        let event = NewEvent::new("sign_in", body);
        if let Err(error) =
            self.context.store.commit(tenant, Batch::new().audit(entry).with_event(event.clone())).await
        {
            tracing::error!(%error, "failed to record the end of a sign-in in the audit");
            self.context.events.publish(tenant, event);
        }
    }

    /// Returns a sign-in that this user has started.
    pub async fn sign_in_view(&self, actor: Actor, id: &str) -> Result<SignInView> {
        let pending = self.own_sign_in(actor, id).await?;
        self.view_sign_in(actor.tenant(), id, pending).await
    }

    /// Returns the authorization URL, and the proof that the callback must present.
    pub async fn sign_in_redirect(&self, actor: Actor, id: &str) -> Result<(String, String)> {
        let pending = self.own_sign_in(actor, id).await?;
        let finished = || {
            Error::new(
                error::ErrorKind::Conflict,
                "sign_in_finished",
                "this sign-in has finished: start a new one",
            )
        };
        let redirect =
            pending.redirect.filter(|_| pending.progress == SignInStatus::Waiting).ok_or_else(finished)?;
        Ok((redirect.url, format!("{}.{id}", actor.tenant())))
    }

    async fn own_sign_in(&self, actor: Actor, id: &str) -> Result<PendingSignIn> {
        actor.require_user()?;
        let unknown = || Error::not_found("sign-in", crate::text::shorten(id));
        let found = self.load_pending(actor.tenant(), id).await?;
        let found = found.map(|(pending, _)| pending);
        let mut pending =
            found.filter(|pending| pending.started_by == actor.subject().to_string()).ok_or_else(unknown)?;
        if pending.progress == SignInStatus::Waiting && pending.is_expired(self.context.platform.now()) {
            let error = "the sign-in was not completed within ten minutes: start it again".to_owned();
            pending.progress = SignInStatus::Failed { error };
        }
        Ok(pending)
    }

    /// Deletes a grant and revokes its tokens, if the authorization server supports it. Returns whether there was a
    /// grant.
    pub async fn sign_out_of_server(
        self: &Arc<Self>,
        actor: Actor,
        name: &str,
        agent: Option<AgentId>,
    ) -> Result<bool> {
        actor.require_user()?;
        let (upstream, name) = (self.clone(), name.to_owned());
        self.context.detached(async move { upstream.delete_grant(actor, &name, agent).await }).await
    }

    async fn delete_grant(&self, actor: Actor, name: &str, agent: Option<AgentId>) -> Result<bool> {
        let (tenant, server) = (actor.tenant(), self.servers.find_server(actor.tenant(), name).await?);
        let owner = GrantOwner { tenant, server: server.id, agent };
        let oauth = self
            .oauth_client(owner, &server, GrantStore::new(&self.context, owner, &server, Arc::default())?)
            .await?;
        let Some(endpoint) = server.transport.remote() else { return Ok(false) };
        let entry = self.context.entry(actor, "grant.deleted").with("server", server.id.to_string());
        let entry = agent.iter().fold(entry, |entry, agent| entry.with("agent", agent.to_string()));
        self.context.store.commit(tenant, Batch::new().audit(entry)).await?;
        let revoked = oauth.sign_out(&endpoint.url, &self.connections.egress(actor, server.id)).await;
        self.reset_grant_status(owner, &server, &Scopes::default()).await;
        self.connections.close_server(tenant, server.id);
        self.context.events.publish(tenant, event_payloads::server(server.id, "credential"));
        revoked.map_err(|error| {
            Error::new(
                error::ErrorKind::Unavailable,
                "not_revoked",
                escape_invisible(&with_egress_hint(&error.to_string())),
            )
        })
    }

    pub(super) async fn view_sign_in(
        &self,
        tenant: TenantId,
        id: &str,
        pending: PendingSignIn,
    ) -> Result<SignInView> {
        let PendingSignIn { server, agent, progress, sync_error, created, .. } = pending;
        let found = self.servers.find_server(tenant, &server.to_string()).await?;
        let trace =
            self.status_store(GrantOwner { tenant, server, agent }, &found)?.read().await?.trace.into();
        let base = self.context.options.callback.as_deref().unwrap_or_default();
        let url = format!("{}/oauth/start/{id}", base.strip_suffix(CALLBACK).unwrap_or(base));
        Ok(SignInView {
            id: id.to_owned(),
            server,
            agent,
            url,
            link: None,
            progress,
            sync_error,
            created,
            trace,
        })
    }
}

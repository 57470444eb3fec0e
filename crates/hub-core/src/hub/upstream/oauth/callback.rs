//! OAuth callback: completes a pending sign-in on any hub of the cluster. The caller must present the proof that the
//! browser received when the sign-in was started.

use std::sync::Arc;

use linchpin::auth::{Scopes, Secret};

use super::GrantOwner;
use super::grant_store::GrantStore;
use super::pending_flows::{PendingRedirect, PendingSignIn, SignInStatus};
use super::pending_grant::{PendingGrant, TokenProbe};
use super::sign_in::{SignInView, state_in};
use crate::actor::{Actor, Subject};
use crate::connection::{AuthMaterial, with_egress_hint};
use crate::error::{self, Error, Result};
use crate::hub::event_payloads;
use crate::hub::upstream::Upstream;
use crate::hub::upstream::connect::list_tools;
use crate::id::TenantId;
use crate::secrets::redact::IssuedTokens;
use crate::server::Server;
use crate::text::escape_invisible;

fn no_pending_sign_in() -> Error {
    let text = "no matching sign-in is pending: start it again in this browser";
    Error::new(error::ErrorKind::NotFound, "unknown_sign_in", text)
}

impl Upstream {
    /// Completes a sign-in with the query of the OAuth redirect and returns its result.
    pub(in crate::hub) async fn complete_sign_in<S>(
        self: &Arc<Self>,
        query: &str,
        proof: &str,
        sync: impl FnOnce(Actor, Server) -> S + Send + 'static,
    ) -> Result<SignInView>
    where
        S: Future<Output = Result<()>> + Send,
    {
        let (tenant, id) = proof.split_once('.').ok_or_else(no_pending_sign_in)?;
        let tenant: TenantId = tenant.parse().map_err(|_| no_pending_sign_in())?;
        let (mut pending, version) = self.load_pending(tenant, id).await?.ok_or_else(no_pending_sign_in)?;
        let is_expired = pending.is_expired(self.context.platform.now());
        let is_match = |redirect: &PendingRedirect| {
            state_in(query).is_some_and(|state| Secret::new(state) == Secret::new(redirect.state.as_str()))
        };
        let redirect = pending
            .redirect
            .take_if(|redirect| is_match(redirect) && !is_expired)
            .ok_or_else(no_pending_sign_in)?;
        let server = self.servers.find_server(tenant, &pending.server.to_string()).await?;
        if !self.is_sign_in_current(tenant, &server, id).await? {
            let text = format!(
                "the URL, client or issuer of `{}` has changed since this sign-in was started: start it again",
                server.slug.as_str()
            );
            return Err(Error::new(error::ErrorKind::Conflict, "sign_in_outdated", text));
        }
        // Consume the pending sign-in before the token exchange: a second callback, here or at another hub, must fail.
        match self.save_pending(tenant, &server, id, &pending, version).await {
            Err(error) if error.kind() == error::ErrorKind::Conflict => return Err(no_pending_sign_in()),
            result => result?,
        }
        let callback = self.context.options.callback.as_deref().unwrap_or_default();
        let callback_url = format!("{callback}?{query}");
        let (upstream, id) = (self.clone(), id.to_owned());
        // Detached: the browser may disconnect before the exchange has finished. Boxed, as its state is large.
        self.context
            .detached(Box::pin(async move {
                match upstream.finish_sign_in(tenant, &server, &pending, &redirect, &callback_url).await {
                    Ok(missing_scopes) => {
                        pending.progress = SignInStatus::Done;
                        pending.sync_error = upstream
                            .sync_after_sign_in(tenant, &server, &pending, &missing_scopes, sync)
                            .await;
                    }
                    Err(error) => pending.progress = SignInStatus::Failed { error },
                }
                if let Err(error) = upstream.save_pending(tenant, &server, &id, &pending, version + 1).await {
                    tracing::warn!(%error, "failed to store the result of a sign-in");
                }
                upstream.record_sign_in_result(tenant, &id, &pending).await;
                upstream.view_sign_in(tenant, &id, pending).await
            }))
            .await
    }

    /// Exchanges the code for a token, tests it at the server and stores the grant. A token that the server rejects is
    /// not stored. Returns the scopes that the server still requires.
    async fn finish_sign_in(
        &self,
        tenant: TenantId,
        server: &Server,
        pending: &PendingSignIn,
        redirect: &PendingRedirect,
        callback_url: &str,
    ) -> Result<Scopes, String> {
        let text = |error: Error| error.message().to_owned();
        let owner = GrantOwner { tenant, server: server.id, agent: pending.agent };
        let tokens = Arc::new(IssuedTokens::default());
        let store = Arc::new(PendingGrant::new(None, tokens.clone()));
        let oauth = self.oauth_client(owner, server, store.clone()).await.map_err(text)?;
        let url = server.transport.remote().map(|endpoint| endpoint.url.clone()).unwrap_or_default();
        let actor = Actor::new(tenant, pending.started_by.parse().map_err(text)?);
        let (flow_state, egress) =
            (Secret::new(redirect.flow_state.as_str()), self.connections.egress(actor, server.id));
        if let Err(error) = oauth.resume_sign_in(&url, &egress, &flow_state, callback_url).await {
            let hint = match error.code() {
                Some("invalid_scope") => self.clear_missing_scopes(owner, server).await.map_err(text)?,
                _ => "",
            };
            return Err(escape_invisible(&with_egress_hint(&error.to_string())) + hint);
        }
        let probe = Arc::new(TokenProbe::new(oauth));
        if let Ok(client) = self
            .connections
            .connect_unpooled(actor, server, Some(&AuthMaterial::OAuth(probe.clone(), tokens.clone())))
            .await
        {
            drop(list_tools(&client).await); // other errors are reported by the sync
            client.close().await;
        }
        if let Some(error) = probe.rejection() {
            return Err(escape_invisible(&with_egress_hint(&error.to_string())));
        }
        let no_token = || "the authorization server returned no token: start the sign-in again".to_owned();
        let grant = store.new_grant().ok_or_else(no_token)?;
        GrantStore::new(&self.context, owner, server, tokens)
            .map_err(text)?
            .replace(&grant)
            .await
            .map_err(text)?;
        Ok(probe.missing_scopes(&url))
    }

    /// Clears the missing scopes after the authorization server has rejected them. Returns a note for the error text if
    /// there were any.
    async fn clear_missing_scopes(&self, owner: GrantOwner, server: &Server) -> Result<&'static str> {
        let status_store = self.status_store(owner, server)?;
        if status_store.read().await?.missing_scopes.is_empty() {
            return Ok("");
        }
        status_store.update(|status| !std::mem::take(&mut status.missing_scopes).is_empty()).await?;
        Ok(
            ": the additional scopes that the server required are not requested any more; start the sign-in again",
        )
    }

    /// Closes all connections to the server, which may use old tokens, and syncs its tools. Before the first sync of a
    /// server it waits, and returns the sync error; the sign-in succeeds nevertheless.
    async fn sync_after_sign_in<S: Future<Output = Result<()>> + Send>(
        &self,
        tenant: TenantId,
        server: &Server,
        pending: &PendingSignIn,
        missing_scopes: &Scopes,
        sync: impl FnOnce(Actor, Server) -> S,
    ) -> Option<String> {
        let owner = GrantOwner { tenant, server: server.id, agent: pending.agent };
        self.reset_grant_status(owner, server, missing_scopes).await;
        self.connections.close_server(tenant, server.id);
        self.context.events.publish(tenant, event_payloads::server(server.id, "credential"));
        let is_known = self
            .servers
            .contact(tenant, server.id)
            .await
            .is_ok_and(|(contact, _)| contact.last_synced.is_some());
        if is_known || !server.settings.enabled {
            self.schedule_sync(tenant, server.id);
            return None;
        }
        let subject = pending.agent.map_or(Subject::Hub, Subject::Agent);
        let synced = sync(Actor::new(tenant, subject), server.clone()).await;
        synced.err().map(|error| error.message().to_owned())
    }

    /// Resets the grant status after a sign-in or sign-out, except for the scopes that the server still requires.
    pub(super) async fn reset_grant_status(&self, owner: GrantOwner, server: &Server, missing: &Scopes) {
        self.oauth_broker.evict(owner);
        let reset = match self.status_store(owner, server) {
            Ok(status_store) => {
                let change = status_store.update(|status| {
                    let had_any = status.reauthorization.take().is_some() | !status.missing_scopes.is_empty();
                    status.missing_scopes.clear();
                    status.add_missing_scopes(missing.iter()) | had_any
                });
                change.await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = reset {
            tracing::warn!(%error, "failed to store the grant status");
        }
    }
}

//! OAuth callback: completes a pending sign-in on any hub of the cluster. The caller must present the proof that the
//! browser received when the sign-in was started.

use std::sync::Arc;

use linchpin::auth::{Scopes, Secret};

use super::Whose;
use super::grant_store::Grants;
use super::pending_flows::{Away, Progress, Waiting};
use super::pending_grant::{Meanwhile, Proving};
use super::sign_in::{SignInView, state_in};
use crate::actor::{Scope, Subject};
use crate::connection::{Proof, allowing};
use crate::error::{self, Error, Result};
use crate::hub::connect::list_tools;
use crate::hub::{Hub, event_payloads};
use crate::id::TenantId;
use crate::secrets::redact::Tokens;
use crate::server::Server;
use crate::tool::pin::visible;

fn unknown() -> Error {
    let text = "no matching sign-in is pending: start it again in this browser";
    Error::new(error::Kind::NotFound, "unknown_sign_in", text)
}

impl Hub {
    /// Completes a sign-in with the query of the OAuth redirect and returns its result.
    pub async fn return_from_sign_in(self: &Arc<Self>, query: &str, proof: &str) -> Result<SignInView> {
        let (tenant, id) = proof.split_once('.').ok_or_else(unknown)?;
        let tenant: TenantId = tenant.parse().map_err(|_| unknown())?;
        let (mut waiting, version) = self.find_waiting(tenant, id).await?.ok_or_else(unknown)?;
        let is_late = waiting.is_late(self.world.now());
        let fits = |away: &Away| {
            state_in(query).is_some_and(|state| Secret::new(state) == Secret::new(away.state.as_str()))
        };
        let away = waiting.away.take_if(|away| fits(away) && !is_late).ok_or_else(unknown)?;
        let server = self.find_server(tenant, &waiting.server.to_string()).await?;
        if !self.is_sign_in_current(tenant, &server, id).await? {
            let text = format!(
                "the URL, client or issuer of `{}` has changed since this sign-in was started: start it again",
                server.slug.as_str()
            );
            return Err(Error::new(error::Kind::Conflict, "sign_in_outdated", text));
        }
        // Consume the pending sign-in before the token exchange: a second callback, here or at another hub, must fail.
        match self.keep_waiting(tenant, &server, id, &waiting, version).await {
            Err(error) if error.kind() == error::Kind::Conflict => return Err(unknown()),
            kept => kept?,
        }
        let callback = self.options.callback.as_deref().unwrap_or_default();
        let returned = format!("{callback}?{query}");
        let (hub, id) = (self.clone(), id.to_owned());
        // Detached: the browser may disconnect before the exchange has finished.
        self.detached(async move {
            match hub.finish_sign_in(tenant, &server, &waiting, &away, &returned).await {
                Ok(wanted) => {
                    waiting.progress = Progress::Done;
                    waiting.sync_error = hub.look_after_sign_in(tenant, &server, &waiting, &wanted).await;
                }
                Err(error) => waiting.progress = Progress::Failed { error },
            }
            if let Err(error) = hub.keep_waiting(tenant, &server, &id, &waiting, version + 1).await {
                tracing::warn!(%error, "failed to store the result of a sign-in");
            }
            hub.sign_in_over(tenant, &id, &waiting).await;
            hub.view_sign_in(tenant, &id, waiting).await
        })
        .await
    }

    /// Exchanges the code for a token, tests it at the server and stores the grant. A token that the server rejects is
    /// not stored. Returns the scopes that the server still requires.
    async fn finish_sign_in(
        &self,
        tenant: TenantId,
        server: &Server,
        waiting: &Waiting,
        away: &Away,
        returned: &str,
    ) -> Result<Scopes, String> {
        let text = |error: Error| error.message().to_owned();
        let (whose, tokens) = ((tenant, server.id, waiting.agent), Arc::new(Tokens::default()));
        let store = Arc::new(Meanwhile::new(None, tokens.clone()));
        let oauth = self.oauth(whose, server, store.clone()).await.map_err(text)?;
        let url = server.transport.place().map(|place| place.url.clone()).unwrap_or_default();
        let scope = Scope::new(tenant, waiting.by.parse().map_err(text)?);
        let (rest, egress) = (Secret::new(away.rest.as_str()), self.connections.egress(scope, server.id));
        if let Err(error) = oauth.come_back(&url, &egress, &rest, returned).await {
            let but = match error.code() {
                Some("invalid_scope") => self.want_nothing(whose, server).await.map_err(text)?,
                _ => "",
            };
            return Err(visible(&allowing(&error.to_string())) + but);
        }
        let proving = Arc::new(Proving::new(oauth));
        if let Ok(client) = self
            .connections
            .try_out(scope, server, Some(&Proof::OAuth(proving.clone(), tokens.clone())))
            .await
        {
            drop(list_tools(&client).await); // other errors are reported by the sync
            client.close().await;
        }
        if let Some(error) = proving.refused() {
            return Err(visible(&allowing(&error.to_string())));
        }
        let nothing = || "the authorization server returned no token: start the sign-in again".to_owned();
        let given = store.given().ok_or_else(nothing)?;
        Grants::new(self, whose, server, tokens).map_err(text)?.replace(&given).await.map_err(text)?;
        Ok(proving.wanted(&url))
    }

    /// Clears the missing scopes after the authorization server has rejected them. Returns a note for the error text if
    /// there were any.
    async fn want_nothing(&self, whose: Whose, server: &Server) -> Result<&'static str> {
        let place = self.place(whose, server)?;
        if place.read().await?.wanted.is_empty() {
            return Ok("");
        }
        place.change(|standing| !std::mem::take(&mut standing.wanted).is_empty()).await?;
        Ok(
            ": the additional scopes that the server required are not requested any more; start the sign-in again",
        )
    }

    /// Closes connections with the old credential and syncs the tools. Before the first sync of a server it waits, and
    /// returns the sync error; the sign-in succeeds nevertheless.
    async fn look_after_sign_in(
        &self,
        tenant: TenantId,
        server: &Server,
        waiting: &Waiting,
        wanted: &Scopes,
    ) -> Option<String> {
        let whose = (tenant, server.id, waiting.agent);
        self.settled(whose, server, wanted).await;
        self.connections.end(tenant, server.id);
        self.events.publish(tenant, event_payloads::server(server.id, "credential"));
        let is_known =
            self.contact(tenant, server.id).await.is_ok_and(|(seen, _)| seen.last_synced.is_some());
        if is_known || !server.settings.enabled {
            self.look_soon(tenant, server.id);
            return None;
        }
        let subject = waiting.agent.map_or(Subject::Hub, Subject::Agent);
        let synced = self.sync(Scope::new(tenant, subject), server, true).await;
        synced.err().map(|error| error.message().to_owned())
    }

    /// Resets the grant status after a sign-in or sign-out, except for the scopes that the server still requires.
    pub(super) async fn settled(&self, whose: Whose, server: &Server, wanted: &Scopes) {
        self.broker.forget(whose);
        let settled = match self.place(whose, server) {
            Ok(place) => {
                let change = place.change(|standing| {
                    let had = standing.again.take().is_some() | !standing.wanted.is_empty();
                    standing.wanted.clear();
                    standing.want(wanted.iter()) | had
                });
                change.await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = settled {
            tracing::warn!(%error, "failed to store the grant status");
        }
    }
}

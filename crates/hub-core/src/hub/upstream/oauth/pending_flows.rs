//! Pending sign-ins: stored encrypted for ten minutes, so that the callback can be handled once by any hub on the same
//! store.

use jiff::{SignedDuration, Timestamp};
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::upstream::Upstream;
use crate::hub::upstream::credentials::{grant_binding, id_from_digest, matches_binding};
use crate::id::{AgentId, SecretId, ServerId, TenantId};
use crate::server::Server;
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange, StoredDocument};
use crate::vault::SecretBinding;
use crate::vault::key_ring::SealedSecret;

/// Kind of a pending sign-in in the vault.
const KIND_PENDING_SIGN_IN: &str = "oauth-sign-in";
/// Lifetime of a sign-in: for the callback, and for queries of its result.
const SIGN_IN_TTL: SignedDuration = SignedDuration::from_mins(10);
/// Maximum number of pending sign-ins of one server.
const MAX_PENDING_SIGN_INS: usize = 32;

/// Status of an OAuth sign-in that a user has started at the hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum SignInStatus {
    /// The user has not come back from the authorization server yet.
    Waiting,
    /// The sign-in is complete, and the OAuth grant is stored.
    Done,
    /// The server accepted the hub without authentication.
    NotNeeded,
    /// The sign-in failed.
    Failed {
        /// Why the sign-in failed.
        error: String,
    },
}

/// Sign-in of a user to a server, as stored encrypted for ten minutes.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingSignIn {
    pub(super) server: ServerId,
    pub(super) agent: Option<AgentId>,
    /// Subject that started the sign-in.
    #[serde(rename = "by")]
    pub(super) started_by: String,
    pub(super) created: Timestamp,
    pub(super) progress: SignInStatus,
    /// Why the sync after the sign-in failed.
    pub(super) sync_error: Option<String>,
    /// Redirect of the browser that the OAuth callback has to match. Removed when a callback consumes it.
    #[serde(rename = "away")]
    pub(super) redirect: Option<PendingRedirect>,
}

/// State of a sign-in between the redirect of the browser and the callback.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingRedirect {
    /// Authorization URL that the browser opens.
    pub(super) url: String,
    /// `state` parameter that the callback must carry.
    pub(super) state: String,
    /// Serialized state of the OAuth flow, with which it resumes after the redirect.
    #[serde(rename = "rest")]
    pub(super) flow_state: String,
}

impl PendingSignIn {
    /// Reports whether the sign-in has expired.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        now.duration_since(self.created) >= SIGN_IN_TTL
    }
}

/// Derives the id of the stored sign-in by a digest, so that a reader of the store cannot learn the id that continues
/// it.
fn pending_id(id: &str) -> SecretId {
    id_from_digest(Digest::of("linchpin sign-in").part(id).finish())
}

impl Upstream {
    /// Stores a pending sign-in in place of this version; version 0 creates it.
    pub(super) async fn save_pending(
        &self,
        tenant: TenantId,
        server: &Server,
        id: &str,
        pending: &PendingSignIn,
        version: u64,
    ) -> Result<()> {
        let label = SecretBinding {
            id: pending_id(id),
            kind: KIND_PENDING_SIGN_IN.to_owned(),
            ..grant_binding(server, pending.agent)?
        };
        let text = serde_json::to_string(pending).map_err(|error| {
            Error::new(
                error::ErrorKind::Internal,
                "record_unwritable",
                format!("failed to serialize the pending sign-in: {error}"),
            )
        })?;
        let record = self
            .context
            .keys
            .seal_secret(tenant, &label, &server.id.to_string(), &Secret::new(text), version)
            .await?;
        let require_server = StoreChange::RequireExists(DocumentKey::new(DocumentKind::Server, server.id));
        self.context.store.commit(tenant, Batch::new().change(require_server).change(record)).await
    }

    /// Reports whether the sign-in was started with the current URL, client and issuer of the server.
    pub(super) async fn is_sign_in_current(
        &self,
        tenant: TenantId,
        server: &Server,
        id: &str,
    ) -> Result<bool> {
        let label = SecretBinding {
            id: pending_id(id),
            kind: KIND_PENDING_SIGN_IN.to_owned(),
            ..grant_binding(server, None)?
        };
        let found = self.context.load::<SealedSecret>(tenant, DocumentKind::Secret, label.id).await?;
        Ok(found.is_some_and(|(stored, _)| matches_binding(&stored, &label)))
    }

    /// Loads a pending sign-in with its version.
    pub(super) async fn load_pending(
        &self,
        tenant: TenantId,
        id: &str,
    ) -> Result<Option<(PendingSignIn, u64)>> {
        self.load_pending_by_id(tenant, pending_id(id)).await
    }

    async fn load_pending_by_id(
        &self,
        tenant: TenantId,
        secret_id: SecretId,
    ) -> Result<Option<(PendingSignIn, u64)>> {
        let Some((text, _, version)) = self
            .context
            .keys
            .open_secret(tenant, secret_id)
            .await?
            .filter(|(_, sealed, _)| sealed.kind == KIND_PENDING_SIGN_IN)
        else {
            return Ok(None);
        };
        let damaged = |_| {
            Error::new(
                error::ErrorKind::Internal,
                "record_unreadable",
                "the pending sign-in is damaged: start it again",
            )
        };
        Ok(Some((serde_json::from_str(text.expose()).map_err(damaged)?, version)))
    }

    /// Fails if the server has too many pending sign-ins. Deletes expired ones first.
    pub(super) async fn check_capacity(&self, tenant: TenantId, server: ServerId) -> Result<()> {
        if self.prune_expired(tenant, server).await? >= MAX_PENDING_SIGN_INS {
            let text =
                format!("{MAX_PENDING_SIGN_INS} sign-ins are pending: finish one or wait until one expires");
            return Err(Error::new(error::ErrorKind::LimitExceeded, "too_many_sign_ins", text));
        }
        Ok(())
    }

    /// Deletes the expired sign-ins to all servers of a tenant.
    pub(in crate::hub) async fn prune_sign_ins(&self, tenant: TenantId) -> Result<()> {
        for server in self.servers.list_servers(tenant).await? {
            self.prune_expired(tenant, server.id).await?;
        }
        Ok(())
    }

    /// Deletes expired and unreadable sign-ins of a server. Returns the number of pending ones.
    async fn prune_expired(&self, tenant: TenantId, server: ServerId) -> Result<usize> {
        let (now, mut count) = (self.context.platform.now(), 0);
        for StoredDocument { document, .. } in
            self.context.load_documents(tenant, DocumentKind::Secret, Some(&server.to_string())).await?
        {
            let (key, secret_id) = (document.key.clone(), document.key.id.parse()?);
            if !document.parse_body::<SealedSecret>().is_ok_and(|sealed| sealed.kind == KIND_PENDING_SIGN_IN)
            {
                continue;
            }
            let pending = match self.load_pending_by_id(tenant, secret_id).await {
                Ok(None) => continue,
                Ok(Some((pending, _))) => Some(pending),
                Err(error) if matches!(error.code(), "record_unreadable" | "secret_unreadable") => {
                    tracing::warn!(%error, "deleting an unreadable pending sign-in");
                    None
                }
                Err(error) => return Err(error),
            };
            if pending.as_ref().is_none_or(|pending| pending.is_expired(now)) {
                self.context.delete_if_present(tenant, key).await?;
            } else if pending.is_some_and(|pending| pending.progress == SignInStatus::Waiting) {
                count += 1;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stored_names_of_a_pending_sign_in_stay() {
        let stored = json!({
            "server": ServerId::from_u128(1), "agent": null, "by": "user:1", "created": "2026-11-16T22:18:21Z",
            "progress": { "status": "waiting" }, "sync_error": null,
            "away": { "url": "https://as.example/authorize", "state": "abc", "rest": "{}" },
        });
        let pending: PendingSignIn = serde_json::from_value(stored.clone()).unwrap();
        let redirect = pending.redirect.as_ref().unwrap();
        assert_eq!((&*pending.started_by, &*redirect.flow_state), ("user:1", "{}"));
        assert_eq!(serde_json::to_value(&pending).unwrap(), stored);
    }
}

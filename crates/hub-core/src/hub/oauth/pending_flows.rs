//! Pending sign-ins: stored encrypted for ten minutes, so that the callback can be handled once by any hub on the same
//! store.

use jiff::{SignedDuration, Timestamp};
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::Hub;
use crate::hub::credentials::{fits, grant_label, id_of};
use crate::id::{AgentId, SecretId, ServerId, TenantId};
use crate::server::Server;
use crate::store::{Batch, Change, Key, Kind, Stored};
use crate::vault::Label;
use crate::vault::key_ring::Sealed;

/// Kind of a pending sign-in in the vault.
const KIND: &str = "oauth-sign-in";
/// Lifetime of a sign-in: for the callback, and for queries of its result.
const LIFE: SignedDuration = SignedDuration::from_mins(10);
/// Pending sign-ins per server.
const MOST: usize = 32;

/// Status of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Progress {
    /// The user has not come back from the authorization server yet.
    Waiting,
    /// The grant is stored.
    Done,
    /// The server accepted the hub without authentication.
    NotNeeded,
    /// The sign-in failed.
    Failed {
        /// Why it failed.
        error: String,
    },
}

/// Stored sign-in.
#[derive(Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) server: ServerId,
    pub(super) agent: Option<AgentId>,
    /// Subject that started it.
    pub(super) by: String,
    pub(super) created: Timestamp,
    pub(super) progress: Progress,
    /// Why the sync after the sign-in failed.
    pub(super) sync_error: Option<String>,
    /// State for the callback. Removed when the callback consumes it.
    pub(super) away: Option<Away>,
}

/// State between the redirect and the callback.
#[derive(Serialize, Deserialize)]
pub(super) struct Away {
    /// Authorization URL.
    pub(super) url: String,
    /// `state` parameter that the callback must carry.
    pub(super) state: String,
    /// Serialized flow state of the OAuth client.
    pub(super) rest: String,
}

impl Waiting {
    /// Reports whether the sign-in has expired.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        now.duration_since(self.created) >= LIFE
    }
}

/// Derives the id of the stored sign-in by a digest, so that a reader of the store cannot learn the id that continues
/// it.
fn place_of(id: &str) -> SecretId {
    id_of(Digest::of("linchpin sign-in").part(id).end())
}

impl Hub {
    /// Stores a sign-in in place of this version; version 0 creates it.
    pub(super) async fn keep_waiting(
        &self,
        tenant: TenantId,
        server: &Server,
        id: &str,
        waiting: &Waiting,
        version: u64,
    ) -> Result<()> {
        let label = Label { id: place_of(id), kind: KIND.to_owned(), ..grant_label(server, waiting.agent)? };
        let text = serde_json::to_string(waiting).map_err(|error| {
            Error::new(
                error::Kind::Internal,
                "not_written",
                format!("failed to serialize the pending sign-in: {error}"),
            )
        })?;
        let kept =
            self.keys.seal(tenant, &label, &server.id.to_string(), &Secret::new(text), version).await?;
        let is_there = Change::Need(Key::new(Kind::Server, server.id));
        self.store.commit(tenant, Batch::new().change(is_there).change(kept)).await
    }

    /// Reports whether the sign-in was started with the current URL, client and issuer of the server.
    pub(super) async fn is_sign_in_current(
        &self,
        tenant: TenantId,
        server: &Server,
        id: &str,
    ) -> Result<bool> {
        let label = Label { id: place_of(id), kind: KIND.to_owned(), ..grant_label(server, None)? };
        let found = self.find::<Sealed>(tenant, Kind::Secret, label.id).await?;
        Ok(found.is_some_and(|(stored, _)| fits(&stored, &label)))
    }

    /// Loads a sign-in with its version.
    pub(super) async fn find_waiting(&self, tenant: TenantId, id: &str) -> Result<Option<(Waiting, u64)>> {
        self.waiting_at(tenant, place_of(id)).await
    }

    async fn waiting_at(&self, tenant: TenantId, place: SecretId) -> Result<Option<(Waiting, u64)>> {
        let Some((text, _, version)) =
            self.keys.open(tenant, place).await?.filter(|(_, sealed, _)| sealed.kind == KIND)
        else {
            return Ok(None);
        };
        let damaged = |_| {
            Error::new(
                error::Kind::Internal,
                "not_readable",
                "the pending sign-in is damaged: start it again",
            )
        };
        Ok(Some((serde_json::from_str(text.expose()).map_err(damaged)?, version)))
    }

    /// Fails if the server has too many pending sign-ins. Deletes expired ones first.
    pub(super) async fn room_to_wait(&self, tenant: TenantId, server: ServerId) -> Result<()> {
        if self.forget_late(tenant, server).await? >= MOST {
            let text = format!("{MOST} sign-ins are pending: finish one or wait until one expires");
            return Err(Error::new(error::Kind::Exhausted, "too_many_sign_ins", text));
        }
        Ok(())
    }

    /// Deletes expired and unreadable sign-ins of a server. Returns the number of pending ones.
    pub(in crate::hub) async fn forget_late(&self, tenant: TenantId, server: ServerId) -> Result<usize> {
        let (now, mut count) = (self.world.now(), 0);
        for Stored { document, .. } in self.stored(tenant, Kind::Secret, Some(&server.to_string())).await? {
            let (key, place) = (document.key.clone(), document.key.id.parse()?);
            if !document.read::<Sealed>().is_ok_and(|sealed| sealed.kind == KIND) {
                continue;
            }
            let waiting = match self.waiting_at(tenant, place).await {
                Ok(None) => continue,
                Ok(Some((waiting, _))) => Some(waiting),
                Err(error) if matches!(error.code(), "not_readable" | "secret_unreadable") => {
                    tracing::warn!(%error, "deleting an unreadable pending sign-in");
                    None
                }
                Err(error) => return Err(error),
            };
            if waiting.as_ref().is_none_or(|waiting| waiting.is_late(now)) {
                self.forget(tenant, key).await?;
            } else if waiting.is_some_and(|waiting| waiting.progress == Progress::Waiting) {
                count += 1;
            }
        }
        Ok(count)
    }
}

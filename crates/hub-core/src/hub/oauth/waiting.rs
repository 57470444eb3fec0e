//! Sign-ins that were begun, as they are kept: sealed, for ten minutes, so that whoever is led away can come back to any hub on
//! the same store, once.

use jiff::{SignedDuration, Timestamp};
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::Hub;
use crate::hub::credentials::{fits, grant_label, id_of};
use crate::id::{AgentId, SecretId, ServerId, TenantId};
use crate::keys::Sealed;
use crate::server::Server;
use crate::store::{Batch, Change, Key, Kind, Stored};
use crate::vault::Label;

/// What they are called in the vault.
const KIND: &str = "oauth-sign-in";
/// How long somebody may be away, and how long one that is over can be asked about.
const LIFE: SignedDuration = SignedDuration::from_mins(10);
/// How many can be under way at a server.
const MOST: usize = 32;

/// How far a sign-in is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Progress {
    /// A person is to sign in.
    Waiting,
    /// It is done.
    Done,
    /// The server let the hub in without.
    NotNeeded,
    /// It did not work.
    Failed {
        /// Why not.
        error: String,
    },
}

/// A sign-in that was begun.
#[derive(Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) server: ServerId,
    pub(super) agent: Option<AgentId>,
    /// Who has begun it.
    pub(super) by: String,
    pub(super) created: Timestamp,
    pub(super) progress: Progress,
    /// Why the tools of the server could not be looked at when it was done.
    pub(super) sync_error: Option<String>,
    /// The person who is away; once they are back, nobody is.
    pub(super) away: Option<Away>,
}

/// A person who is away.
#[derive(Serialize, Deserialize)]
pub(super) struct Away {
    /// Where they are led to.
    pub(super) url: String,
    /// What they come back with.
    pub(super) state: String,
    /// What the OAuth client needs when they do.
    pub(super) rest: String,
}

impl Waiting {
    /// Whether nobody is waited for any more.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        now.duration_since(self.created) >= LIFE
    }
}

/// Whoever reads the store learns no id by which a sign-in could be gone on with.
fn place_of(id: &str) -> SecretId {
    id_of(Digest::of("linchpin sign-in").part(id).end())
}

impl Hub {
    /// Keeps a sign-in in place of the version before it. That one must be there, unless it is new.
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
            Error::new(error::Kind::Internal, "not_written", format!("a sign-in cannot be written: {error}"))
        })?;
        let kept =
            self.keys.seal(tenant, &label, &server.id.to_string(), &Secret::new(text), version).await?;
        let is_there = Change::Need(Key::new(Kind::Server, server.id));
        self.store.commit(tenant, Batch::new().change(is_there).change(kept)).await
    }

    /// Whether a sign-in was started with the URL, client and issuer that the server has now.
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

    /// A sign-in that was begun, and its version.
    pub(super) async fn find_waiting(&self, tenant: TenantId, id: &str) -> Result<Option<(Waiting, u64)>> {
        self.waiting_at(tenant, place_of(id)).await
    }

    async fn waiting_at(&self, tenant: TenantId, place: SecretId) -> Result<Option<(Waiting, u64)>> {
        let Some((text, _, version)) =
            self.keys.open(tenant, place).await?.filter(|(_, sealed, _)| sealed.kind == KIND)
        else {
            return Ok(None);
        };
        let damaged =
            |_| Error::new(error::Kind::Internal, "not_readable", "a sign-in that was begun is damaged");
        Ok(Some((serde_json::from_str(text.expose()).map_err(damaged)?, version)))
    }

    /// Makes room for another one at a server.
    pub(super) async fn room_to_wait(&self, tenant: TenantId, server: ServerId) -> Result<()> {
        if self.forget_late(tenant, server).await? >= MOST {
            let text = format!("{MOST} sign-ins are under way already: finish one of them first");
            return Err(Error::new(error::Kind::Exhausted, "too_many_sign_ins", text));
        }
        Ok(())
    }

    /// Forgets what is over for long at a server, and what nobody can read. How many are under way.
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
                    tracing::warn!(%error, "a sign-in that was begun is forgotten");
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

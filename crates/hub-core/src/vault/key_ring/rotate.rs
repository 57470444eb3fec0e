//! Rotation: a new root key wraps all tenant keys again; on request a new tenant key encrypts all secrets again.
//!
//! One rotation runs at a time: the lock beside the key file stops other processes on this machine, a lease in the
//! store stops hubs on other machines. A root key is removed only after every tenant key was opened with the new one.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::{Keys, ROUNDS, Sealed, damaged, decrypt, document, unusable, unwrap};
use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::hub::LOCAL;
use crate::id::TenantId;
use crate::lock::lock;
use crate::store::{Batch, Change, Document, Key, Kind, Stored};
use crate::text::{hex, unhex};
use crate::vault::{KeyFile, KeyFileLock, Label, TenantKey, Wrapped};

/// Time after which another hub takes over the lease of a rotation that has stopped.
const LEASE: SignedDuration = SignedDuration::from_secs(60);

/// Result of a rotation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Rotated {
    /// Tenant keys that the new root key wraps.
    pub tenants: usize,
    /// Secrets that were encrypted again with a new tenant key.
    pub secrets: usize,
    /// Secrets that could not be decrypted and were left unchanged.
    pub unreadable: usize,
}

impl Keys {
    /// Creates a new root key and wraps all tenant keys with it. With `data`, each tenant also gets a new key, and all
    /// its secrets are encrypted again with it; older tenant keys stay, since the call history is encrypted with them.
    pub async fn rotate(&self, data: bool) -> Result<Rotated> {
        // A separate copy of the file, so that tenant keys can be read during the rotation. The lock stops a second
        // rotation.
        let mut file = self.file.lock().await.clone();
        let file_lock = file.lock().map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => busy(),
            _ => not_written(&error),
        })?;
        file.reload().map_err(|error| unusable(&error))?;
        let mut lease = Lease::take(self).await?;
        let rotated = async {
            let mut rotated = Rotated {
                tenants: self.rotate_root(&mut file, &file_lock, &mut lease).await?,
                ..Rotated::default()
            };
            if data {
                for tenant in self.store.tenants().await? {
                    self.rotate_tenant(&file, tenant, &mut lease, &mut rotated).await?;
                }
            }
            Ok(rotated)
        };
        let rotated = rotated.await;
        lease.end().await;
        rotated
    }

    async fn rotate_root(
        &self,
        file: &mut KeyFile,
        file_lock: &KeyFileLock,
        lease: &mut Lease<'_>,
    ) -> Result<usize> {
        // Every key must open before the first change.
        for (wrapped, _) in self.every().await? {
            unwrap(file, &wrapped)?;
        }
        file.add(file_lock, &*self.world).map_err(|error| not_written(&error))?;
        let mut count = 0;
        // Repeated until a pass changes nothing: a tenant may be added during the rotation.
        for _ in 0..ROUNDS {
            let (done, left): (Vec<_>, Vec<_>) =
                self.every().await?.into_iter().partition(|(wrapped, _)| wrapped.root == file.root().id);
            if left.is_empty() {
                file.reload().map_err(|error| unusable(&error))?;
                done.iter().try_for_each(|(wrapped, _)| file.root().unwrap(wrapped).map(drop))?;
                file.forget(file_lock, &*self.world).map_err(|error| not_written(&error))?;
                return Ok(count);
            }
            for (wrapped, version) in left {
                lease.renew().await?;
                let again = file.root().wrap(&*self.world, &unwrap(file, &wrapped)?);
                let entry =
                    Entry::new(self.world.now(), "hub", "key.rotated").with("root", again.root.to_string());
                let batch = Batch::new().change(Change::Put { document: document(&again)?, version });
                self.store.commit(wrapped.tenant, batch.audit(entry)).await?;
                count += 1;
            }
        }
        Err(busy())
    }

    /// Reads every tenant key in the store, with its version.
    async fn every(&self) -> Result<Vec<(Wrapped, u64)>> {
        let mut all = Vec::new();
        for tenant in self.store.tenants().await? {
            all.extend(self.kept(tenant).await?);
        }
        Ok(all)
    }

    /// Creates a new key for a tenant, and encrypts all its secrets with it.
    async fn rotate_tenant(
        &self,
        file: &KeyFile,
        tenant: TenantId,
        lease: &mut Lease<'_>,
        rotated: &mut Rotated,
    ) -> Result<()> {
        let Some(keys) = self.add_newest(file, tenant).await? else { return Ok(()) };
        for stored in self.all(tenant, Kind::Secret).await? {
            lease.renew().await?;
            let id = stored.document.key.id.clone();
            match self.encrypt_again(tenant, &keys, stored).await {
                Ok(is_done) => rotated.secrets += usize::from(is_done),
                Err(error)
                    if error.kind() != error::Kind::Unavailable || error.code() == "secret_unreadable" =>
                {
                    tracing::warn!(secret.id = id, %error, "failed to encrypt a secret again; left unchanged");
                    rotated.unreadable += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates a new key for a tenant, which is used from now on. Returns all its keys, the newest last, or `None` if
    /// it had none.
    async fn add_newest(&self, file: &KeyFile, tenant: TenantId) -> Result<Option<Vec<TenantKey>>> {
        let _turn = self.file.lock().await; // a concurrent load would cache the previous keys
        let kept = self.kept(tenant).await?;
        let Some((last, _)) = kept.last() else { return Ok(None) };
        let (newest, wrapped) = file.root().make(&*self.world, tenant, last.number);
        self.add(tenant, &wrapped).await?;
        let mut keys = kept.iter().map(|(wrapped, _)| unwrap(file, wrapped)).collect::<Result<Vec<_>>>()?;
        keys.push(newest);
        lock(&self.open).keys.insert(tenant, keys.clone().into());
        Ok(Some(keys))
    }

    /// Encrypts a secret with the last of these keys. Returns `false` if it was removed.
    async fn encrypt_again(&self, tenant: TenantId, keys: &[TenantKey], mut stored: Stored) -> Result<bool> {
        let newest = keys.last().ok_or_else(|| damaged("a tenant key"))?;
        for _ in 0..ROUNDS {
            let Stored { document, version } = stored;
            let (key, kept) = (document.key.clone(), document.clone().read::<Sealed>()?);
            let id = key.id.parse().map_err(|_| damaged("a secret"))?;
            let label = Label { id, kind: kept.kind.clone(), bound_to: kept.bound_to.clone() };
            let bytes = unhex(&kept.bytes).ok_or_else(|| damaged("a secret"))?;
            let opened = decrypt(keys, &label, &bytes)?;
            let again = Sealed { bytes: hex(&newest.seal(&*self.world, &label, &opened)), ..kept };
            let document = Document { body: Document::new(key.clone(), &again)?.body, ..document };
            match self.store.commit(tenant, Batch::new().change(Change::Put { document, version })).await {
                Err(error) if matches!(error.kind(), error::Kind::Conflict | error::Kind::NotFound) => {}
                done => return done.map(|()| true),
            }
            match self.store.document(tenant, &key).await? {
                Some(now) => stored = now,
                None => return Ok(false),
            }
        }
        Err(busy())
    }
}

/// Lease on key rotation, held by one hub of a cluster at a time.
struct Lease<'a> {
    keys: &'a Keys,
    until: Timestamp,
    version: u64,
}

impl<'a> Lease<'a> {
    async fn take(keys: &'a Keys) -> Result<Self> {
        let now = keys.world.now();
        let found = keys.store.document(LOCAL, &lease_key()).await?;
        let (until, version) = found.map_or((None, 0), |Stored { document, version }| {
            (document.body["until"].as_str().and_then(|until| until.parse::<Timestamp>().ok()), version)
        });
        if until.is_some_and(|until| until > now) {
            return Err(busy());
        }
        let mut lease = Lease { keys, until: now, version };
        lease.renew().await?;
        Ok(lease)
    }

    /// Extends the lease after half of its time.
    async fn renew(&mut self) -> Result<()> {
        let now = self.keys.world.now();
        if now < self.until.saturating_sub(LEASE / 2).unwrap_or(now) {
            return Ok(());
        }
        let until = now.saturating_add(LEASE).unwrap_or(now);
        self.write(Some(until))
            .await
            .map_err(|error| if error.kind() == error::Kind::Conflict { busy() } else { error })?;
        self.until = until;
        Ok(())
    }

    async fn write(&mut self, until: Option<Timestamp>) -> Result<()> {
        let document = Document::new(lease_key(), &json!({ "until": until }))?;
        let change = Change::Put { document, version: self.version };
        self.keys.store.commit(LOCAL, Batch::new().change(change)).await?;
        self.version += 1;
        Ok(())
    }

    async fn end(mut self) {
        if let Err(error) = self.write(None).await {
            tracing::debug!(%error, "failed to release the key rotation lease; it will expire");
        }
    }
}

fn lease_key() -> Key {
    Key::new(Kind::Lease, "key-rotation")
}

fn busy() -> Error {
    let text = "the keys are being rotated by another hub or command: retry in a minute";
    Error::new(error::Kind::Conflict, "keys_busy", text)
}

fn not_written(error: &std::io::Error) -> Error {
    let text = format!("the key file cannot be written: {error}. It still contains every root key in use");
    Error::new(error::Kind::Unavailable, "key_file_unwritable", text)
}

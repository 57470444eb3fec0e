//! Rotation: a new root key wraps all tenant keys again; on request a new tenant key encrypts all secrets again.
//!
//! One rotation runs at a time: the lock beside the key file stops other processes on this machine, a lease in the
//! store stops hubs on other machines. A root key is removed only after every tenant key was opened with the new one.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::{
    KeyRing, MAX_ATTEMPTS, MSG_SECRET_DAMAGED, MSG_TENANT_KEY_DAMAGED, SealedSecret, damaged_error, decrypt,
    key_file_error, to_document, unwrap_key,
};
use crate::audit::AuditEntry;
use crate::error::{self, Error, Result};
use crate::hub::LOCAL;
use crate::id::TenantId;
use crate::lock::lock;
use crate::store::{Batch, Document, DocumentKey, DocumentKind, StoreChange, StoredDocument};
use crate::text::{hex, unhex};
use crate::vault::{KeyFile, KeyFileLock, SecretBinding, TenantKey, WrappedTenantKey};

/// Time after which another hub takes over the lease of a key rotation that has stopped.
const LEASE_TTL: SignedDuration = SignedDuration::from_secs(60);

/// What a rotation of the vault keys has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RotationSummary {
    /// Number of tenant keys that were encrypted with the new root key.
    pub tenants: usize,
    /// Number of secrets that were encrypted again with a new tenant key.
    pub secrets: usize,
    /// Number of secrets that could not be decrypted and were left unchanged.
    pub unreadable: usize,
}

impl KeyRing {
    /// Creates a new root key and wraps all tenant keys with it. With `data`, each tenant also gets a new key, and all
    /// its secrets are encrypted again with it; older tenant keys stay, since the call history is encrypted with them.
    pub async fn rotate(&self, data: bool) -> Result<RotationSummary> {
        // A separate copy of the file, so that tenant keys can be read during the rotation. The lock stops a second
        // rotation.
        let mut file = self.file.lock().await.clone();
        let file_lock = file.lock().map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => rotation_running(),
            _ => key_file_write_error(&error),
        })?;
        file.reload().map_err(|error| key_file_error(&error))?;
        let mut lease = RotationLease::acquire(self).await?;
        let rotated = async {
            let mut rotated = RotationSummary {
                tenants: self.rotate_root(&mut file, &file_lock, &mut lease).await?,
                ..RotationSummary::default()
            };
            if data {
                for tenant in self.store.tenants().await? {
                    self.rotate_tenant(&file, tenant, &mut lease, &mut rotated).await?;
                }
            }
            Ok(rotated)
        };
        let rotated = rotated.await;
        lease.release().await;
        rotated
    }

    async fn rotate_root(
        &self,
        file: &mut KeyFile,
        file_lock: &KeyFileLock,
        lease: &mut RotationLease<'_>,
    ) -> Result<usize> {
        // Every key must open before the first change.
        for (wrapped, _) in self.list_wrapped().await? {
            unwrap_key(file, &wrapped)?;
        }
        file.add_root(file_lock, &*self.platform).map_err(|error| key_file_write_error(&error))?;
        let mut count = 0;
        // Repeated until a pass changes nothing: a tenant may be added during the rotation.
        for _ in 0..MAX_ATTEMPTS {
            let (done, left): (Vec<_>, Vec<_>) = self
                .list_wrapped()
                .await?
                .into_iter()
                .partition(|(wrapped, _)| wrapped.root == file.root().id);
            if left.is_empty() {
                file.reload().map_err(|error| key_file_error(&error))?;
                done.iter().try_for_each(|(wrapped, _)| file.root().unwrap(wrapped).map(drop))?;
                file.remove_old_roots(file_lock, &*self.platform)
                    .map_err(|error| key_file_write_error(&error))?;
                return Ok(count);
            }
            for (wrapped, version) in left {
                lease.renew().await?;
                let rewrapped = file.root().wrap(&*self.platform, &unwrap_key(file, &wrapped)?);
                let entry = AuditEntry::new(self.platform.now(), "hub", "key.rewrapped")
                    .with("root", rewrapped.root.to_string());
                let batch =
                    Batch::new().change(StoreChange::Put { document: to_document(&rewrapped)?, version });
                self.store.commit(wrapped.tenant, batch.audit(entry)).await?;
                count += 1;
            }
        }
        Err(rotation_running())
    }

    /// Reads every tenant key in the store, with its version.
    async fn list_wrapped(&self) -> Result<Vec<(WrappedTenantKey, u64)>> {
        let mut all = Vec::new();
        for tenant in self.store.tenants().await? {
            all.extend(self.load_wrapped(tenant).await?);
        }
        Ok(all)
    }

    /// Creates a new key for a tenant, and encrypts all its secrets with it.
    async fn rotate_tenant(
        &self,
        file: &KeyFile,
        tenant: TenantId,
        lease: &mut RotationLease<'_>,
        rotated: &mut RotationSummary,
    ) -> Result<()> {
        let Some(keys) = self.add_newest(file, tenant).await? else { return Ok(()) };
        for stored in self.list_all(tenant, DocumentKind::Secret).await? {
            lease.renew().await?;
            let id = stored.document.key.id.clone();
            match self.encrypt_again(tenant, &keys, stored).await {
                Ok(is_done) => rotated.secrets += usize::from(is_done),
                Err(error)
                    if error.kind() != error::ErrorKind::Unavailable
                        || error.code() == "secret_unreadable" =>
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
        let _guard = self.file.lock().await; // a concurrent load would cache the previous keys
        let stored = self.load_wrapped(tenant).await?;
        let Some((last, _)) = stored.last() else { return Ok(None) };
        let (newest, wrapped) = file.root().create_tenant_key(&*self.platform, tenant, last.number);
        self.insert(tenant, &wrapped).await?;
        let mut keys =
            stored.iter().map(|(wrapped, _)| unwrap_key(file, wrapped)).collect::<Result<Vec<_>>>()?;
        keys.push(newest);
        lock(&self.cache).keys.insert(tenant, keys.clone().into());
        Ok(Some(keys))
    }

    /// Encrypts a stored secret again, with the last of these keys. Returns `false` if it was removed.
    async fn encrypt_again(
        &self,
        tenant: TenantId,
        keys: &[TenantKey],
        mut stored: StoredDocument,
    ) -> Result<bool> {
        let newest = keys.last().ok_or_else(|| damaged_error(MSG_TENANT_KEY_DAMAGED))?;
        for _ in 0..MAX_ATTEMPTS {
            let StoredDocument { document, version } = stored;
            let (key, sealed) = (document.key.clone(), document.clone().parse_body::<SealedSecret>()?);
            let id = key.id.parse().map_err(|_| damaged_error(MSG_SECRET_DAMAGED))?;
            let label = SecretBinding { id, kind: sealed.kind.clone(), bound_to: sealed.bound_to.clone() };
            let bytes = unhex(&sealed.bytes).ok_or_else(|| damaged_error(MSG_SECRET_DAMAGED))?;
            let plaintext = decrypt(keys, &label, &bytes)?;
            let resealed =
                SealedSecret { bytes: hex(&newest.seal(&*self.platform, &label, &plaintext)), ..sealed };
            let document = Document { body: Document::new(key.clone(), &resealed)?.body, ..document };
            match self.store.commit(tenant, Batch::new().change(StoreChange::Put { document, version })).await
            {
                Err(error)
                    if matches!(error.kind(), error::ErrorKind::Conflict | error::ErrorKind::NotFound) => {}
                done => return done.map(|()| true),
            }
            match self.store.document(tenant, &key).await? {
                Some(now) => stored = now,
                None => return Ok(false),
            }
        }
        Err(rotation_running())
    }
}

/// Lease on key rotation, so that only one hub of a cluster rotates at a time.
struct RotationLease<'a> {
    keys: &'a KeyRing,
    expires_at: Timestamp,
    version: u64,
}

impl<'a> RotationLease<'a> {
    async fn acquire(keys: &'a KeyRing) -> Result<Self> {
        let now = keys.platform.now();
        let found = keys.store.document(LOCAL, &lease_key()).await?;
        let (until, version) = found.map_or((None, 0), |StoredDocument { document, version }| {
            (document.body["until"].as_str().and_then(|until| until.parse::<Timestamp>().ok()), version)
        });
        if until.is_some_and(|until| until > now) {
            return Err(rotation_running());
        }
        let mut lease = RotationLease { keys, expires_at: now, version };
        lease.renew().await?;
        Ok(lease)
    }

    /// Extends the lease of the key rotation once half of its time has passed.
    async fn renew(&mut self) -> Result<()> {
        let now = self.keys.platform.now();
        if now < self.expires_at.saturating_sub(LEASE_TTL / 2).unwrap_or(now) {
            return Ok(());
        }
        let until = now.saturating_add(LEASE_TTL).unwrap_or(now);
        self.write(Some(until)).await.map_err(|error| {
            if error.kind() == error::ErrorKind::Conflict { rotation_running() } else { error }
        })?;
        self.expires_at = until;
        Ok(())
    }

    async fn write(&mut self, until: Option<Timestamp>) -> Result<()> {
        let document = Document::new(lease_key(), &json!({ "until": until }))?;
        let change = StoreChange::Put { document, version: self.version };
        self.keys.store.commit(LOCAL, Batch::new().change(change)).await?;
        self.version += 1;
        Ok(())
    }

    async fn release(mut self) {
        if let Err(error) = self.write(None).await {
            tracing::debug!(%error, "failed to release the key rotation lease; it will expire");
        }
    }
}

fn lease_key() -> DocumentKey {
    DocumentKey::new(DocumentKind::Lease, "key-rotation")
}

fn rotation_running() -> Error {
    let text = "the keys are being rotated by another hub or command: retry in a minute";
    Error::new(error::ErrorKind::Conflict, "keys_busy", text)
}

fn key_file_write_error(error: &std::io::Error) -> Error {
    let text = format!("the key file cannot be written: {error}. It still contains every root key in use");
    Error::new(error::ErrorKind::Unavailable, "key_file_unwritable", text)
}

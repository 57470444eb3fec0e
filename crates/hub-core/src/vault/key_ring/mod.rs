//! Tenant keys, wrapped by the root keys of the key file, and the secrets that they encrypt.
//!
//! The newest key of a tenant encrypts; all of them decrypt. Rotation is in `rotate.rs`.

mod rotate;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::audit::AuditEntry;
use crate::error::{self, Error, Result};
use crate::hub::LOCAL;
use crate::id::{SecretId, TenantId};
use crate::lock::lock;
use crate::platform::Platform;
use crate::secrets::hub_secrets::HubSecrets;
use crate::store::{
    Batch, CacheScope, Document, DocumentKey, DocumentKind, Invalidation, MAX_PAGE_SIZE, PageRequest, Store,
    StoreChange, StoredDocument,
};
use crate::text::{hex, unhex};
use crate::vault::{KeyFile, KeyFileError, SecretBinding, TenantKey, WrappedTenantKey};

pub use rotate::RotationSummary;

/// Maximum number of attempts to change tenant keys, or a secret, while another hub changes them.
const MAX_ATTEMPTS: usize = 10;
/// Message for a stored secret that cannot be decoded.
const MSG_SECRET_DAMAGED: &str = "a secret in the database is damaged: restore a backup";
/// Message for a stored tenant key that cannot be decoded.
const MSG_TENANT_KEY_DAMAGED: &str = "a tenant key in the database is damaged: restore a backup";
/// Error code of a key file without the required root key.
const WRONG_KEY_FILE: &str = "wrong_key_file";

/// Access to the secrets of the vault: decrypts tenant keys with the root keys, and secrets with the tenant keys.
pub struct KeyRing {
    store: Arc<dyn Store>,
    platform: Arc<dyn Platform>,
    file: tokio::sync::Mutex<KeyFile>,
    hub_secrets: Arc<HubSecrets>,
    cache: Arc<Mutex<KeyCache>>,
}

/// Cache of the decrypted tenant keys.
#[derive(Default)]
struct KeyCache {
    keys: HashMap<TenantId, Arc<[TenantKey]>>,
    /// Tenants whose keys another hub has changed since they were read.
    outdated: HashSet<TenantId>,
    /// Number of changes of keys by other hubs. Keys that were read before one are not cached after it.
    changes: u64,
}

impl KeyCache {
    /// Marks cached tenant keys as outdated that a peer hub has changed. `None` invalidates all keys.
    fn invalidate(&mut self, changed: Invalidation<'_>) {
        match changed {
            Some((tenant, CacheScope::Document(key))) if key.kind == DocumentKind::TenantKey => {
                self.outdated.insert(tenant);
            }
            Some(_) => return,
            None => self.outdated.extend(self.keys.keys()),
        }
        self.changes += 1;
    }
}

/// Tenant key as stored: encrypted with a root key.
#[derive(Serialize, Deserialize)]
struct WrappedKeyRecord {
    number: u32,
    root: u64,
    sealed: String,
}

/// Secret of the vault as stored: encrypted, with its kind and binding.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SealedSecret {
    /// Kind of the secret, such as `bearer`.
    pub kind: String,
    /// Origin or issuer to which the secret may be sent.
    pub bound_to: String,
    /// Encrypted secret in hexadecimal.
    bytes: String,
}

impl KeyRing {
    /// Creates the key ring with the root keys of this file.
    pub fn new(store: Arc<dyn Store>, platform: Arc<dyn Platform>, file: KeyFile) -> Self {
        let (hub_secrets, cache) = (file.hub_secrets().clone(), Arc::<Mutex<KeyCache>>::default());
        if let Some(shared) = store.shared() {
            let key_cache = cache.clone();
            shared.on_invalidation(move |invalidation| lock(&key_cache).invalidate(invalidation));
        }
        KeyRing { store, platform, file: tokio::sync::Mutex::new(file), hub_secrets, cache }
    }

    /// Returns the secrets of the hub, which are redacted in the results of servers.
    pub(crate) fn hub_secrets(&self) -> &Arc<HubSecrets> {
        &self.hub_secrets
    }

    /// Returns the encryption keys of a tenant, the newest last. Creates the first key if there is none.
    pub async fn tenant_keys(&self, tenant: TenantId) -> Result<Arc<[TenantKey]>> {
        let (cached, is_outdated) = {
            let mut open = lock(&self.cache);
            (open.keys.get(&tenant).cloned(), open.outdated.remove(&tenant))
        };
        let cached = match cached {
            Some(keys) if !is_outdated => return Ok(keys),
            cached => cached,
        };
        match (self.load(tenant).await, cached) {
            // A peer hub has rotated the keys, and its key file is not on this machine yet.
            (Err(error), Some(keys)) if error.code() == WRONG_KEY_FILE => {
                tracing::warn!(%error, "failed to read a new tenant key; using the previous one");
                Ok(keys)
            }
            (Err(error), Some(_)) => {
                lock(&self.cache).outdated.insert(tenant);
                Err(error)
            }
            (loaded, _) => loaded,
        }
    }

    /// Loads the keys of a tenant from the store.
    async fn load(&self, tenant: TenantId) -> Result<Arc<[TenantKey]>> {
        let mut file = self.file.lock().await;
        let changes = lock(&self.cache).changes;
        let mut stored = self.load_wrapped(tenant).await?;
        if stored.is_empty() {
            self.create_first(&mut file, tenant).await?;
            stored = self.load_wrapped(tenant).await?;
        }
        if stored.iter().any(|(wrapped, _)| file.find_root(wrapped.root).is_none()) {
            // The root key was rotated. The file may have lost the previous root key by now, so that the keys are read
            // after it.
            file.reload().map_err(|error| key_file_error(&error))?;
            stored = self.load_wrapped(tenant).await?;
        }
        let keys: Arc<[_]> =
            stored.iter().map(|(wrapped, _)| unwrap_key(&file, wrapped)).collect::<Result<_>>()?;
        if keys.is_empty() {
            return Err(damaged_error(MSG_TENANT_KEY_DAMAGED));
        }
        let mut open = lock(&self.cache);
        if open.changes == changes {
            open.keys.insert(tenant, keys.clone());
        }
        drop(open);
        Ok(keys)
    }

    /// Creates the first key of a tenant, wrapped by a root key that no rotation has removed.
    async fn create_first(&self, file: &mut KeyFile, tenant: TenantId) -> Result<()> {
        file.reload().map_err(|error| key_file_error(&error))?;
        let (key, mut wrapped) = file.root().create_tenant_key(&*self.platform, tenant, 0);
        match self.insert(tenant, &wrapped).await {
            Err(error) if error.kind() == error::ErrorKind::Conflict => return Ok(()), // a peer hub was first
            added => added?,
        }
        // A rotation that listed the tenants before this one was added removes the root key. It has written its own
        // root key to the file, or, with a file of its own on another machine, wrapped the first tenant's key with it.
        for version in 1.. {
            file.reload().map_err(|error| key_file_error(&error))?;
            let first = self.load_wrapped(LOCAL).await?;
            if let Some((unknown, _)) = first.iter().find(|(first, _)| file.find_root(first.root).is_none()) {
                // Unless a rotation at a peer hub has wrapped the key again: that hub may have used it already.
                let key = to_document(&wrapped)?.key;
                let batch = Batch::new().change(StoreChange::RequireVersions(vec![(key.clone(), version)]));
                match self.store.commit(tenant, batch.change(StoreChange::Delete(key))).await {
                    Err(error)
                        if matches!(
                            error.kind(),
                            error::ErrorKind::Conflict | error::ErrorKind::NotFound
                        ) => {}
                    done => done?,
                }
                return unwrap_key(file, unknown).map(drop);
            }
            if file.root().id == wrapped.root {
                break;
            }
            wrapped = file.root().wrap(&*self.platform, &key);
            let change = StoreChange::Put { document: to_document(&wrapped)?, version };
            match self.store.commit(tenant, Batch::new().change(change)).await {
                Err(error) if error.kind() == error::ErrorKind::Conflict => break, // the rotation has wrapped the key
                done => done?,
            }
        }
        Ok(())
    }

    /// Stores the wrapped form of a new tenant key.
    async fn insert(&self, tenant: TenantId, wrapped: &WrappedTenantKey) -> Result<()> {
        let entry = AuditEntry::new(self.platform.now(), "hub", "key.created").with("number", wrapped.number);
        let batch = Batch::new().change(StoreChange::Put { document: to_document(wrapped)?, version: 0 });
        self.store.commit(tenant, batch.audit(entry)).await
    }

    /// Reads all keys of a tenant with their versions, the newest last.
    async fn load_wrapped(&self, tenant: TenantId) -> Result<Vec<(WrappedTenantKey, u64)>> {
        let found = self.list_all(tenant, DocumentKind::TenantKey).await?;
        found.into_iter().map(|stored| from_document(tenant, stored)).collect()
    }

    async fn list_all(&self, tenant: TenantId, kind: DocumentKind) -> Result<Vec<StoredDocument>> {
        let (mut all, mut paging) = (Vec::new(), PageRequest { after: None, limit: MAX_PAGE_SIZE });
        loop {
            let page = self.store.documents(tenant, kind, None, &paging).await?;
            all.extend(page.items);
            paging.after = page.next;
            if paging.after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Encrypts a secret, or a part of a call record, with the newest key of a tenant.
    pub async fn encrypt(&self, tenant: TenantId, label: &SecretBinding, text: &[u8]) -> Result<Vec<u8>> {
        let keys = self.tenant_keys(tenant).await?;
        let newest = keys.last().ok_or_else(|| damaged_error(MSG_TENANT_KEY_DAMAGED))?;
        Ok(newest.seal(&*self.platform, label, text))
    }

    /// Decrypts a secret, or a part of a call record, with the key of the tenant that was used for encryption.
    pub async fn decrypt(
        &self,
        tenant: TenantId,
        label: &SecretBinding,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>> {
        let keys = self.tenant_keys(tenant).await?;
        match decrypt(&keys, label, sealed) {
            Err(error) => {
                // A peer hub may have created a newer key.
                let loaded = self.load(tenant).await?;
                if loaded.len() == keys.len() { Err(error) } else { decrypt(&loaded, label, sealed) }
            }
            opened => opened,
        }
    }

    /// Encrypts a secret and returns the change that stores it. `version` is the stored version that it replaces.
    pub async fn seal_secret(
        &self,
        tenant: TenantId,
        label: &SecretBinding,
        parent: &str,
        secret: &Secret,
        version: u64,
    ) -> Result<StoreChange> {
        let sealed = self.encrypt(tenant, label, secret.expose().as_bytes()).await?;
        let SecretBinding { id, kind, bound_to } = label.clone();
        let body = SealedSecret { kind, bound_to, bytes: hex(&sealed) };
        let document = Document::new(DocumentKey::new(DocumentKind::Secret, id), &body)?.with_parent(parent);
        Ok(StoreChange::Put { document, version })
    }

    /// Reads and decrypts a secret of the vault. Returns it with its record and version.
    pub async fn open_secret(
        &self,
        tenant: TenantId,
        id: SecretId,
    ) -> Result<Option<(Secret, SealedSecret, u64)>> {
        let Some(StoredDocument { document, version }) =
            self.store.document(tenant, &DocumentKey::new(DocumentKind::Secret, id)).await?
        else {
            return Ok(None);
        };
        let stored: SealedSecret = document.parse_body()?;
        let label = SecretBinding { id, kind: stored.kind.clone(), bound_to: stored.bound_to.clone() };
        let bytes = unhex(&stored.bytes).ok_or_else(|| damaged_error(MSG_SECRET_DAMAGED))?;
        let opened = self.decrypt(tenant, &label, &bytes).await?;
        let text = std::str::from_utf8(&opened).map_err(|_| damaged_error(MSG_SECRET_DAMAGED))?;
        Ok(Some((Secret::new(text), stored, version)))
    }
}

/// Verifies that a stored tenant key can be decrypted with this key file.
pub(crate) fn verify_opens(file: &KeyFile, tenant: TenantId, stored: StoredDocument) -> Result<()> {
    unwrap_key(file, &from_document(tenant, stored)?.0).map(drop)
}

/// Decrypts a secret with the newest matching key.
fn decrypt(keys: &[TenantKey], label: &SecretBinding, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let mut opened = Err(damaged_error(MSG_TENANT_KEY_DAMAGED));
    for key in keys.iter().rev() {
        opened = key.open(label, sealed);
        if opened.is_ok() {
            break;
        }
    }
    opened
}

fn unwrap_key(file: &KeyFile, wrapped: &WrappedTenantKey) -> Result<TenantKey> {
    let root = file.find_root(wrapped.root).ok_or_else(|| {
        let text = "the key file does not have the root key that the tenant keys are encrypted with: use the key file of this \
                    hub; if another hub has rotated the key, copy the key file of that hub";
        Error::new(error::ErrorKind::Unavailable, WRONG_KEY_FILE, text)
    })?;
    root.unwrap(wrapped)
}

fn to_document(wrapped: &WrappedTenantKey) -> Result<Document> {
    let WrappedTenantKey { number, root, sealed, .. } = wrapped;
    let stored = WrappedKeyRecord { number: *number, root: *root, sealed: hex(sealed) };
    Document::new(DocumentKey::new(DocumentKind::TenantKey, format!("{number:010}")), &stored)
}

fn from_document(tenant: TenantId, stored: StoredDocument) -> Result<(WrappedTenantKey, u64)> {
    let WrappedKeyRecord { number, root, sealed } = stored.document.parse_body()?;
    let sealed = unhex(&sealed).ok_or_else(|| damaged_error(MSG_TENANT_KEY_DAMAGED))?;
    Ok((WrappedTenantKey { tenant, number, root, sealed }, stored.version))
}

fn key_file_error(error: &KeyFileError) -> Error {
    Error::new(error::ErrorKind::Unavailable, "key_file_unusable", error.to_string())
}

fn damaged_error(text: &'static str) -> Error {
    Error::new(error::ErrorKind::Internal, "record_unreadable", text)
}

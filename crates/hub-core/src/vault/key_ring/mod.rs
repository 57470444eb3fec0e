//! Tenant keys, wrapped by the root keys of the key file, and the secrets that they encrypt.
//!
//! The newest key of a tenant encrypts; all of them decrypt. Rotation is in `rotate.rs`.

mod rotate;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::hub::LOCAL;
use crate::id::{SecretId, TenantId};
use crate::lock::lock;
use crate::platform::World;
use crate::secrets::hub_secrets::OwnSecrets;
use crate::store::{About, Batch, Change, Changed, Document, Key, Kind, MOST_ON_PAGE, Paging, Store, Stored};
use crate::text::{hex, unhex};
use crate::vault::{KeyFile, KeyFileError, Label, TenantKey, Wrapped};

pub use rotate::Rotated;

/// Maximum number of attempts when another hub changes the same document.
const ROUNDS: usize = 10;
/// Error code of a key file without the required root key.
const WRONG_FILE: &str = "wrong_key_file";

/// Tenant keys of a hub and the secrets that they encrypt.
pub struct Keys {
    store: Arc<dyn Store>,
    world: Arc<dyn World>,
    file: tokio::sync::Mutex<KeyFile>,
    own: Arc<OwnSecrets>,
    open: Arc<Mutex<Open>>,
}

/// Cache of the tenant keys.
#[derive(Default)]
struct Open {
    keys: HashMap<TenantId, Arc<[TenantKey]>>,
    /// Tenants whose keys another hub has changed since they were read.
    outdated: HashSet<TenantId>,
    /// Number of changes by other hubs. Keys that were read before one are not cached after it.
    changes: u64,
}

impl Open {
    /// Handles an invalidation by a peer hub. `None` invalidates all keys.
    fn changed(&mut self, changed: Changed<'_>) {
        match changed {
            Some((tenant, About::One(key))) if key.kind == Kind::TenantKey => {
                self.outdated.insert(tenant);
            }
            Some(_) => return,
            None => self.outdated.extend(self.keys.keys()),
        }
        self.changes += 1;
    }
}

/// Wrapped tenant key as stored.
#[derive(Serialize, Deserialize)]
struct Kept {
    number: u32,
    root: u64,
    sealed: String,
}

/// Encrypted secret as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sealed {
    /// Kind of the secret, such as `bearer`.
    pub kind: String,
    /// Origin or issuer to which the secret may be sent.
    pub bound_to: String,
    /// Encrypted secret in hexadecimal.
    bytes: String,
}

impl Keys {
    /// Creates the key ring with the root keys of this file.
    pub fn new(store: Arc<dyn Store>, world: Arc<dyn World>, file: KeyFile) -> Self {
        let (own, open) = (file.own_secrets().clone(), Arc::<Mutex<Open>>::default());
        if let Some(shared) = store.shared() {
            let open = open.clone();
            shared.listen(move |what| lock(&open).changed(what));
        }
        Keys { store, world, file: tokio::sync::Mutex::new(file), own, open }
    }

    /// Returns the secrets of the hub, which are redacted in the results of servers.
    pub(crate) fn own_secrets(&self) -> &Arc<OwnSecrets> {
        &self.own
    }

    /// Returns the keys of a tenant, the newest last. Creates the first key if there is none.
    pub async fn of(&self, tenant: TenantId) -> Result<Arc<[TenantKey]>> {
        let (cached, is_outdated) = {
            let mut open = lock(&self.open);
            (open.keys.get(&tenant).cloned(), open.outdated.remove(&tenant))
        };
        let cached = match cached {
            Some(keys) if !is_outdated => return Ok(keys),
            cached => cached,
        };
        match (self.load(tenant).await, cached) {
            // A peer hub has rotated the keys, and its key file is not on this machine yet.
            (Err(error), Some(keys)) if error.code() == WRONG_FILE => {
                tracing::warn!(%error, "failed to read a new tenant key; using the previous one");
                Ok(keys)
            }
            (Err(error), Some(_)) => {
                lock(&self.open).outdated.insert(tenant);
                Err(error)
            }
            (loaded, _) => loaded,
        }
    }

    /// Loads the keys of a tenant from the store.
    async fn load(&self, tenant: TenantId) -> Result<Arc<[TenantKey]>> {
        let mut file = self.file.lock().await;
        let changes = lock(&self.open).changes;
        let mut kept = self.kept(tenant).await?;
        if kept.is_empty() {
            self.make_first(&mut file, tenant).await?;
            kept = self.kept(tenant).await?;
        }
        if kept.iter().any(|(wrapped, _)| file.find(wrapped.root).is_none()) {
            // The root key was rotated. The file may have lost the previous root key by now, so that the keys are read
            // after it.
            file.reload().map_err(|error| unusable(&error))?;
            kept = self.kept(tenant).await?;
        }
        let keys: Arc<[_]> = kept.iter().map(|(wrapped, _)| unwrap(&file, wrapped)).collect::<Result<_>>()?;
        if keys.is_empty() {
            return Err(damaged("a tenant key"));
        }
        let mut open = lock(&self.open);
        if open.changes == changes {
            open.keys.insert(tenant, keys.clone());
        }
        drop(open);
        Ok(keys)
    }

    /// Creates the first key of a tenant, wrapped by a root key that no rotation has removed.
    async fn make_first(&self, file: &mut KeyFile, tenant: TenantId) -> Result<()> {
        file.reload().map_err(|error| unusable(&error))?;
        let (key, mut wrapped) = file.root().make(&*self.world, tenant, 0);
        match self.add(tenant, &wrapped).await {
            Err(error) if error.kind() == error::Kind::Conflict => return Ok(()), // a peer hub was first
            added => added?,
        }
        // A rotation that listed the tenants before this one was added removes the root key. It has written its own
        // root key to the file, or, with a file of its own on another machine, wrapped the first tenant's key with it.
        for version in 1.. {
            file.reload().map_err(|error| unusable(&error))?;
            let first = self.kept(LOCAL).await?;
            if let Some((unknown, _)) = first.iter().find(|(first, _)| file.find(first.root).is_none()) {
                // Unless a rotation at a peer hub has wrapped the key again: that hub may have used it already.
                let key = document(&wrapped)?.key;
                let batch = Batch::new().change(Change::Same(vec![(key.clone(), version)]));
                match self.store.commit(tenant, batch.change(Change::Remove(key))).await {
                    Err(error) if matches!(error.kind(), error::Kind::Conflict | error::Kind::NotFound) => {}
                    done => done?,
                }
                return unwrap(file, unknown).map(drop);
            }
            if file.root().id == wrapped.root {
                break;
            }
            wrapped = file.root().wrap(&*self.world, &key);
            let change = Change::Put { document: document(&wrapped)?, version };
            match self.store.commit(tenant, Batch::new().change(change)).await {
                Err(error) if error.kind() == error::Kind::Conflict => break, // the rotation has wrapped the key
                done => done?,
            }
        }
        Ok(())
    }

    /// Stores a new tenant key.
    async fn add(&self, tenant: TenantId, wrapped: &Wrapped) -> Result<()> {
        let entry = Entry::new(self.world.now(), "hub", "key.made").with("number", wrapped.number);
        let batch = Batch::new().change(Change::Put { document: document(wrapped)?, version: 0 });
        self.store.commit(tenant, batch.audit(entry)).await
    }

    /// Reads all keys of a tenant with their versions, the newest last.
    async fn kept(&self, tenant: TenantId) -> Result<Vec<(Wrapped, u64)>> {
        let found = self.all(tenant, Kind::TenantKey).await?;
        found.into_iter().map(|stored| read(tenant, stored)).collect()
    }

    async fn all(&self, tenant: TenantId, kind: Kind) -> Result<Vec<Stored>> {
        let (mut all, mut paging) = (Vec::new(), Paging { after: None, limit: MOST_ON_PAGE });
        loop {
            let page = self.store.documents(tenant, kind, None, &paging).await?;
            all.extend(page.items);
            paging.after = page.next;
            if paging.after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Encrypts with the newest key of a tenant.
    pub async fn encrypt(&self, tenant: TenantId, label: &Label, text: &[u8]) -> Result<Vec<u8>> {
        let keys = self.of(tenant).await?;
        let newest = keys.last().ok_or_else(|| damaged("a tenant key"))?;
        Ok(newest.seal(&*self.world, label, text))
    }

    /// Decrypts with the key of the tenant that was used for encryption.
    pub async fn decrypt(
        &self,
        tenant: TenantId,
        label: &Label,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>> {
        let keys = self.of(tenant).await?;
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
    pub async fn seal(
        &self,
        tenant: TenantId,
        label: &Label,
        parent: &str,
        secret: &Secret,
        version: u64,
    ) -> Result<Change> {
        let sealed = self.encrypt(tenant, label, secret.expose().as_bytes()).await?;
        let Label { id, kind, bound_to } = label.clone();
        let body = Sealed { kind, bound_to, bytes: hex(&sealed) };
        let document = Document::new(Key::new(Kind::Secret, id), &body)?.of(parent);
        Ok(Change::Put { document, version })
    }

    /// Reads and decrypts a secret. Returns it with its record and version.
    pub async fn open(&self, tenant: TenantId, id: SecretId) -> Result<Option<(Secret, Sealed, u64)>> {
        let Some(Stored { document, version }) =
            self.store.document(tenant, &Key::new(Kind::Secret, id)).await?
        else {
            return Ok(None);
        };
        let kept: Sealed = document.read()?;
        let label = Label { id, kind: kept.kind.clone(), bound_to: kept.bound_to.clone() };
        let bytes = unhex(&kept.bytes).ok_or_else(|| damaged("a secret"))?;
        let opened = self.decrypt(tenant, &label, &bytes).await?;
        let text = std::str::from_utf8(&opened).map_err(|_| damaged("a secret"))?;
        Ok(Some((Secret::new(text), kept, version)))
    }
}

/// Verifies that a stored tenant key opens with this file.
pub(crate) fn opens(file: &KeyFile, tenant: TenantId, stored: Stored) -> Result<()> {
    unwrap(file, &read(tenant, stored)?.0).map(drop)
}

/// Decrypts with the newest matching key.
fn decrypt(keys: &[TenantKey], label: &Label, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let mut opened = Err(damaged("a tenant key"));
    for key in keys.iter().rev() {
        opened = key.open(label, sealed);
        if opened.is_ok() {
            break;
        }
    }
    opened
}

fn unwrap(file: &KeyFile, wrapped: &Wrapped) -> Result<TenantKey> {
    let root = file.find(wrapped.root).ok_or_else(|| {
        let text = "the key file does not have the root key that the tenant keys are encrypted with: use the key file of this \
                    hub; if another hub has rotated the key, copy the key file of that hub";
        Error::new(error::Kind::Unavailable, WRONG_FILE, text)
    })?;
    root.unwrap(wrapped)
}

fn document(wrapped: &Wrapped) -> Result<Document> {
    let Wrapped { number, root, sealed, .. } = wrapped;
    let kept = Kept { number: *number, root: *root, sealed: hex(sealed) };
    Document::new(Key::new(Kind::TenantKey, format!("{number:010}")), &kept)
}

fn read(tenant: TenantId, stored: Stored) -> Result<(Wrapped, u64)> {
    let Kept { number, root, sealed } = stored.document.read()?;
    let sealed = unhex(&sealed).ok_or_else(|| damaged("a tenant key"))?;
    Ok((Wrapped { tenant, number, root, sealed }, stored.version))
}

fn unusable(error: &KeyFileError) -> Error {
    Error::new(error::Kind::Unavailable, "key_file_unusable", error.to_string())
}

fn damaged(what: &str) -> Error {
    Error::new(error::Kind::Internal, "not_readable", format!("{what} is damaged: restore a backup"))
}

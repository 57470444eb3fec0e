//! The keys of tenants, opened with the root key when they are needed; and secrets, as they are kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};

use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::id::{SecretId, TenantId};
use crate::store::{Batch, Change, Document, Key, Kind, Paging, Store, Stored};
use crate::sync::lock;
use crate::text::{hex, unhex};
use crate::vault::{KeyFile, Label, TenantKey, Wrapped};
use crate::world::World;

/// All keys.
pub struct Keys {
    store: Arc<dyn Store>,
    world: Arc<dyn World>,
    file: tokio::sync::Mutex<KeyFile>,
    open: Mutex<HashMap<TenantId, TenantKey>>,
}

/// The key of a tenant, as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    number: u32,
    root: u32,
    sealed: String,
}

/// A secret, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sealed {
    /// What it is.
    pub kind: String,
    /// Where it may be sent.
    pub bound_to: String,
    /// The secret, sealed, as hexadecimal digits.
    bytes: String,
}

const PAGE: usize = 100;

impl Keys {
    /// With the keys in this file.
    pub fn new(store: Arc<dyn Store>, world: Arc<dyn World>, file: KeyFile) -> Self {
        Keys { store, world, file: tokio::sync::Mutex::new(file), open: Mutex::default() }
    }

    /// The key of a tenant. The first time, one is made.
    pub async fn of(&self, tenant: TenantId) -> Result<TenantKey> {
        if let Some(key) = lock(&self.open).get(&tenant) {
            return Ok(key.clone());
        }
        let file = self.file.lock().await;
        if self.kept(tenant).await?.is_empty() {
            let (_, wrapped) = file.root().make(&*self.world, tenant, 0);
            let entry = Entry::new(self.world.now(), "hub", "key.made").with("number", wrapped.number);
            let batch = Batch::new().change(Change::Put { document: document(&wrapped)?, version: 0 });
            match self.store.commit(tenant, batch.audit(entry)).await {
                Err(error) if error.kind() != error::Kind::Conflict => return Err(error),
                _ => {} // or another hub was first
            }
        }
        let (wrapped, _) = self.kept(tenant).await?.pop().ok_or_else(|| damaged("the key of a tenant"))?;
        let key = unwrap(&file, &wrapped)?;
        lock(&self.open).insert(tenant, key.clone());
        Ok(key)
    }

    /// All keys of a tenant, the newest last.
    async fn kept(&self, tenant: TenantId) -> Result<Vec<(Wrapped, u64)>> {
        let paging = Paging { after: None, limit: PAGE };
        let found = self.store.documents(tenant, Kind::TenantKey, None, &paging).await?;
        found.items.into_iter().map(|stored| read(tenant, stored)).collect()
    }

    /// Makes a new root key and seals the keys of all tenants with it. What was begun before is finished. How many keys
    /// were sealed again.
    pub async fn rotate(&self) -> Result<usize> {
        let mut file = self.file.lock().await;
        file.add(&*self.world).map_err(|error| not_written(&error))?;
        let mut count = 0;
        for tenant in self.store.tenants().await? {
            for (wrapped, version) in self.kept(tenant).await? {
                if wrapped.root == file.root().number {
                    continue;
                }
                let again = file.root().wrap(&*self.world, &unwrap(&file, &wrapped)?);
                let entry = Entry::new(self.world.now(), "hub", "key.rotated").with("root", again.root);
                let batch = Batch::new().change(Change::Put { document: document(&again)?, version });
                self.store.commit(tenant, batch.audit(entry)).await?;
                count += 1;
            }
        }
        file.forget(&*self.world).map_err(|error| not_written(&error))?;
        Ok(count)
    }

    /// A secret as it is to be kept: which, and the change that keeps it in place of an older one.
    pub async fn seal(
        &self,
        tenant: TenantId,
        label: &Label,
        parent: &str,
        secret: &Secret,
        version: u64,
    ) -> Result<Change> {
        let sealed = self.of(tenant).await?.seal(&*self.world, label, secret.expose().as_bytes());
        let Label { id, kind, bound_to } = label.clone();
        let body = Sealed { kind, bound_to, bytes: hex(&sealed) };
        let document = Document::new(Key::new(Kind::Secret, id), &body)?.of(parent);
        Ok(Change::Put { document, version })
    }

    /// Opens a secret that is kept, and says which version of it this is.
    pub async fn open(&self, tenant: TenantId, id: SecretId) -> Result<Option<(Secret, Sealed, u64)>> {
        let Some(Stored { document, version }) =
            self.store.document(tenant, &Key::new(Kind::Secret, id)).await?
        else {
            return Ok(None);
        };
        let kept: Sealed = document.read()?;
        let label = Label { id, kind: kept.kind.clone(), bound_to: kept.bound_to.clone() };
        let bytes = unhex(&kept.bytes).ok_or_else(|| damaged("a secret"))?;
        let opened = self.of(tenant).await?.open(&label, &bytes)?;
        let text = std::str::from_utf8(&opened).map_err(|_| damaged("a secret"))?;
        Ok(Some((Secret::new(text), kept, version)))
    }
}

/// Whether the key of a tenant, as it is kept, opens with this file.
pub(crate) fn opens(file: &KeyFile, tenant: TenantId, stored: Stored) -> Result<()> {
    unwrap(file, &read(tenant, stored)?.0).map(drop)
}

fn unwrap(file: &KeyFile, wrapped: &Wrapped) -> Result<TenantKey> {
    let root = file.find(wrapped.root).ok_or_else(|| {
        let text = "the key file does not have the key that everything was sealed with: give the file that this hub used";
        Error::new(error::Kind::Unavailable, "wrong_key_file", text)
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
    let sealed = unhex(&sealed).ok_or_else(|| damaged("the key of a tenant"))?;
    Ok((Wrapped { tenant, number, root, sealed }, stored.version))
}

fn not_written(error: &std::io::Error) -> Error {
    let text = format!("the key file cannot be written: {error}; nothing was changed");
    Error::new(error::Kind::Unavailable, "key_file_unwritable", text)
}

fn damaged(what: &str) -> Error {
    Error::new(error::Kind::Internal, "not_readable", format!("{what} is damaged: restore a backup"))
}

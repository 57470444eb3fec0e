//! Signed heads of the audit, advanced as the audit grows. A head is never moved to a history that does not contain it;
//! only a restore, or a user who accepts the history, replaces it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::spawn_blocking;

use crate::audit::head_file::{HeadFile, SignedHead};
use crate::audit::{AuditEntry, ChainHead};
use crate::error::{self, Error, Result};
use crate::hub::audit::Audit;
use crate::hub::audit::history_check::ACCEPTED;
use crate::hub::{LOCAL, document, list_segments, upsert};
use crate::id::TenantId;
use crate::platform::{SystemPlatform, random};
use crate::store::{Batch, DocumentKey, DocumentKind, MAX_PAGE_SIZE, Store};
use crate::text::hex;

/// State of the signed audit head of each tenant: signed by this process, or not part of the stored history.
#[derive(Default)]
pub(in crate::hub) struct Heads {
    states: tokio::sync::Mutex<HashMap<TenantId, HeadState>>,
    /// Whether the last attempt to sign the chain heads failed. A failure is logged once.
    has_failed: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
enum HeadState {
    /// Last head that this process has signed.
    Signed(ChainHead),
    /// The audit chain does not contain the signed head. The head is not moved.
    Diverged,
}

/// Returns the id of a store, if it has one.
pub(in crate::hub) async fn store_id(store: &dyn Store) -> Result<Option<String>> {
    let found = store.document(LOCAL, &key()).await?;
    Ok(found.and_then(|found| found.document.body["id"].as_str().map(str::to_owned)))
}

fn key() -> DocumentKey {
    DocumentKey::new(DocumentKind::StoreId, "store")
}

impl Audit {
    /// Signs the audit chain heads of all tenants. Must run before the hub serves requests: from then on, a history
    /// without a checkpoint or a head has lost entries.
    pub async fn sign(&self) -> Result<()> {
        if self.context.options.heads.as_ref().is_some_and(|file| file.is_in_data_dir) {
            tracing::warn!(
                "the signed head of the audit is in the data directory and does not protect against an older copy of that directory"
            );
        }
        for tenant in self.context.store.tenants().await? {
            self.checkpoint(tenant).await?;
            self.move_head(tenant).await;
        }
        Ok(())
    }

    /// Signs the current audit chain and all documents of all tenants, even if the chain does not contain the signed
    /// head and documents were changed by another program, and records that in the audit.
    pub async fn accept(&self) -> Result<()> {
        let tenants = self.context.store.tenants().await?;
        let mut documents = HashMap::new();
        for tenant in &tenants {
            documents.insert(*tenant, self.set_codes(*tenant, true).await?);
        }
        self.context.documents.require_codes();
        for tenant in tenants {
            let documents = documents[&tenant];
            let entry = AuditEntry::new(self.context.platform.now(), "hub", ACCEPTED);
            let entry = if documents > 0 { entry.with("documents", documents) } else { entry };
            let entry = match self.load_signed_head(tenant).await? {
                Some(SignedHead { head, .. }) => {
                    entry.with("signed_head", head.number).with("signed_hash", head.hash.to_string())
                }
                None => entry,
            };
            self.context.store.commit(tenant, Batch::new().audit(entry)).await?;
            self.checkpoint(tenant).await?;
            self.replace_head(tenant).await?;
        }
        Ok(())
    }

    /// Signs the current chain head of a tenant without checking that the chain contains the previous signed head.
    pub(in crate::hub) async fn replace_head(&self, tenant: TenantId) -> Result<()> {
        let Some(file) = &self.context.options.heads else { return Ok(()) };
        let mut states = self.heads.states.lock().await;
        let now = self.context.store.audit_head(tenant).await?;
        self.write_head(file, tenant, now).await?;
        states.insert(tenant, HeadState::Signed(now));
        Ok(())
    }

    /// Advances the signed head of a tenant to the end of its audit. A failure is retried on the next tick.
    pub(in crate::hub) async fn move_head(&self, tenant: TenantId) {
        match self.try_move_head(tenant).await {
            Ok(()) => self.heads.has_failed.store(false, Ordering::Relaxed),
            Err(error) => {
                if !self.heads.has_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(tenant.id = %tenant, %error, "failed to store the signed head of the audit; retrying");
                }
            }
        }
    }

    async fn try_move_head(&self, tenant: TenantId) -> Result<()> {
        let Some(file) = &self.context.options.heads else { return Ok(()) };
        let mut states = self.heads.states.lock().await;
        let now = self.context.store.audit_head(tenant).await?;
        let last = match states.get(&tenant) {
            Some(HeadState::Diverged) => return Ok(()),
            Some(HeadState::Signed(head)) if *head == now => return Ok(()),
            Some(HeadState::Signed(head)) => Some(*head),
            None => match self.load_signed_head(tenant).await? {
                Some(found) if found.store != self.ensure_store_id().await? => {
                    log_diverged_head(
                        tenant,
                        found.head,
                        "the signed head of the audit belongs to another database",
                    );
                    states.insert(tenant, HeadState::Diverged);
                    return Ok(());
                }
                Some(found) if self.has_late_entry(tenant, &found).await? => {
                    log_diverged_head(
                        tenant,
                        found.head,
                        "another program has added entries after the signed head",
                    );
                    states.insert(tenant, HeadState::Diverged);
                    return Ok(());
                }
                found => found.map(|found| found.head),
            },
        };
        match last {
            Some(last) if !self.contains(tenant, now, last).await? => {
                log_diverged_head(tenant, last, "the history does not contain the signed head of the audit");
                states.insert(tenant, HeadState::Diverged);
                return Ok(());
            }
            None if now.number == 0 => return Ok(()),
            None => {
                tracing::info!(tenant.id = %tenant, entries = now.number, path = %file.path.display(), "signed the first head of the audit");
            }
            Some(_) => {}
        }
        self.write_head(file, tenant, now).await?;
        states.insert(tenant, HeadState::Signed(now));
        Ok(())
    }

    /// Returns the signed audit chain head of a tenant from the head file, if there is one.
    pub(super) async fn load_signed_head(&self, tenant: TenantId) -> Result<Option<SignedHead>> {
        let Some(file) = &self.context.options.heads else { return Ok(None) };
        let id = store_id(&*self.context.store).await?;
        file.find(id.as_deref(), tenant, self.signer.public_key())
    }

    /// Returns whether an entry after the signed head was not written by a hub.
    async fn has_late_entry(&self, tenant: TenantId, signed: &SignedHead) -> Result<bool> {
        let (mut after, authenticator) = (signed.head.number, self.signer.authenticator());
        loop {
            let rows = self.context.store.audit_entries(tenant, after, MAX_PAGE_SIZE).await?;
            let Some(last) = rows.last() else { return Ok(false) };
            after = last.number;
            let is_late = |row| authenticator.check_entry(row).is_some_and(|is_right| !is_right);
            if rows.iter().any(|row| is_late(row) || (signed.has_codes && row.code.is_none())) {
                return Ok(true);
            }
        }
    }

    /// Reports whether the audit chain that ends at `now` contains the chain head `head`. One entry suffices: each
    /// includes the digest of all before it.
    async fn contains(&self, tenant: TenantId, now: ChainHead, head: ChainHead) -> Result<bool> {
        let Some(before) = head.number.checked_sub(1) else { return Ok(true) };
        if now.number <= head.number {
            return Ok(now == head);
        }
        let row = self.context.store.audit_entries(tenant, before, 1).await?.pop();
        if let Some(row) = row.filter(|row| row.number == head.number) {
            return Ok(row.hash == head.hash);
        }
        // The entry may have been archived.
        let key = self.signer.public_key();
        let segments = list_segments(&*self.context.store, tenant).await?;
        Ok(segments.iter().any(|one| (one.first..=one.last).contains(&head.number) && one.is_signed_by(key)))
    }

    async fn write_head(&self, file: &HeadFile, tenant: TenantId, head: ChainHead) -> Result<()> {
        let store = self.ensure_store_id().await?;
        let (now, has_codes) = (self.context.platform.now(), self.context.documents.requires_codes());
        let signed = file.sign(&self.signer, &store, tenant, head, (now, has_codes));
        let (file, name) = (file.clone(), file.path.display().to_string());
        let write_result = spawn_blocking(move || file.append(&signed, &SystemPlatform)).await;
        write_result.map_err(std::io::Error::other).and_then(|result| result).map_err(|error| {
            let text = format!("failed to write the signed head of the audit to `{name}`: {error}. Set another file with `head` below `[audit]`");
            Error::new(error::ErrorKind::Unavailable, "head_unwritable", text)
        })
    }

    /// Returns the id of the store, created on first use.
    async fn ensure_store_id(&self) -> Result<String> {
        if let Some(id) = store_id(&*self.context.store).await? {
            return Ok(id);
        }
        let id = hex(&random::<16>(&*self.context.platform));
        let document = document(DocumentKind::StoreId, key().id, &serde_json::json!({ "id": id }))?;
        match self.context.store.commit(LOCAL, Batch::new().change(upsert(document, 0))).await {
            Err(error) if error.kind() == error::ErrorKind::Conflict => {} // another hub created it
            done => done?,
        }
        Ok(store_id(&*self.context.store).await?.unwrap_or(id))
    }
}

fn log_diverged_head(tenant: TenantId, head: ChainHead, reason: &str) {
    tracing::error!(
        tenant.id = %tenant,
        signed_head = head.number,
        "{reason}; it is not moved. Run `linchpin audit verify`; after a restore that you made yourself, run `linchpin audit accept`"
    );
}

//! Signed heads of the audit, advanced as the audit grows. A head is never moved to a history that does not contain it;
//! only a restore, or a user who accepts the history, replaces it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::spawn_blocking;

use crate::audit::head_file::{HeadFile, SignedHead};
use crate::audit::{AuditEntry, ChainHead, StoredAuditEntry};
use crate::error::{self, Error, Result};
use crate::hub::audit::Audit;
use crate::hub::{LOCAL, document, list_segments, upsert};
use crate::id::TenantId;
use crate::platform::{SystemPlatform, random};
use crate::store::{Batch, DocumentKey, DocumentKind, Store};
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
    /// Last head that this process has signed, and the number of the entry from which on all entries have codes.
    Signed(ChainHead, Option<u64>),
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
            self.move_head(tenant).await;
            self.checkpoint(tenant).await?;
        }
        Ok(())
    }

    /// Signs the current audit chain and all documents of all tenants, even if the chain does not contain the signed
    /// head and documents were changed by another program, and records that in the audit.
    pub async fn accept(&self) -> Result<()> {
        let tenants = self.context.store.tenants().await?;
        for tenant in &tenants {
            self.context.keys.tenant_keys(*tenant).await?; // with a wrong key file, nothing must be signed
        }
        for tenant in &tenants {
            let tenant = *tenant;
            let documents = self.set_codes(tenant, true).await?;
            let entry = AuditEntry::new(self.context.platform.now(), "hub", "audit.accepted");
            let entry = if documents > 0 { entry.with("documents", documents) } else { entry };
            let entry = match self.load_signed_head(tenant).await? {
                Some(SignedHead { head, .. }) => {
                    entry.with("signed_head", head.number).with("signed_hash", head.hash.to_string())
                }
                None => entry,
            };
            self.context.store.commit(tenant, Batch::new().audit(entry)).await?;
        }
        self.context.documents.require_codes();
        for tenant in tenants {
            self.checkpoint(tenant).await?;
            self.replace_head(tenant).await?;
        }
        Ok(())
    }

    /// Signs the current chain head of a tenant without checking that the chain contains the previous signed head. All
    /// later entries must have codes.
    pub(in crate::hub) async fn replace_head(&self, tenant: TenantId) -> Result<()> {
        let Some(file) = &self.context.options.heads else { return Ok(()) };
        let mut states = self.heads.states.lock().await;
        let now = self.context.store.audit_head(tenant).await?;
        let codes_from = self.write_head(file, tenant, now, None).await?;
        states.insert(tenant, HeadState::Signed(now, codes_from));
        Ok(())
    }

    /// Returns whether the audit of a tenant does not contain its signed head, or has entries of another program.
    pub(super) async fn has_diverged(&self, tenant: TenantId) -> bool {
        matches!(self.heads.states.lock().await.get(&tenant), Some(HeadState::Diverged))
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
            Some(HeadState::Signed(head, _)) if *head == now => return Ok(()),
            Some(HeadState::Signed(head, codes_from)) => Some((*head, *codes_from)),
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
                found => found.map(|found| (found.head, found.codes_from)),
            },
        };
        match last {
            Some((last, _)) if !self.contains(tenant, now, last).await? => {
                log_diverged_head(tenant, last, "the history does not contain the signed head of the audit");
                states.insert(tenant, HeadState::Diverged);
                return Ok(());
            }
            Some((last, codes_from)) if self.has_late_entry(tenant, last, now, codes_from).await? => {
                log_diverged_head(tenant, last, "another program has added entries after the signed head");
                states.insert(tenant, HeadState::Diverged);
                return Ok(());
            }
            None if now.number == 0 => return Ok(()),
            None => {
                tracing::info!(tenant.id = %tenant, entries = now.number, path = %file.path.display(), "signed the first head of the audit");
            }
            Some(_) => {}
        }
        let codes_from = last.and_then(|(_, codes_from)| codes_from);
        let codes_from = self.write_head(file, tenant, now, codes_from).await?;
        states.insert(tenant, HeadState::Signed(now, codes_from));
        Ok(())
    }

    /// Returns the signed audit chain head of a tenant from the head file, if there is one.
    pub(super) async fn load_signed_head(&self, tenant: TenantId) -> Result<Option<SignedHead>> {
        let Some(file) = &self.context.options.heads else { return Ok(None) };
        let id = store_id(&*self.context.store).await?;
        file.find(id.as_deref(), tenant, self.signer.public_key())
    }

    /// Returns whether an entry after the signed head was not written by a hub. The first and the last entry suffice: a
    /// hub appends only to an entry with a code, unless no entry has one.
    async fn has_late_entry(
        &self,
        tenant: TenantId,
        last: ChainHead,
        now: ChainHead,
        codes_from: Option<u64>,
    ) -> Result<bool> {
        let Some(codes_from) = codes_from else { return Ok(false) };
        for number in [last.number.max(codes_from - 1), now.number.saturating_sub(1)] {
            let row = self.context.store.audit_entries(tenant, number, 1).await?.pop();
            let is_authentic =
                |row: &StoredAuditEntry| self.signer.authenticator().check_entry(row) == Some(true);
            if row.is_some_and(|row| row.number >= codes_from && !is_authentic(&row)) {
                return Ok(true);
            }
        }
        Ok(false)
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

    /// Signs a head and writes it to the file. Returns the number of the entry from which on all entries have codes:
    /// `codes_from` or, if it is not known yet, that of the next entry.
    async fn write_head(
        &self,
        file: &HeadFile,
        tenant: TenantId,
        head: ChainHead,
        codes_from: Option<u64>,
    ) -> Result<Option<u64>> {
        let store = self.ensure_store_id().await?;
        let next = Some(head.number + 1).filter(|_| self.context.documents.requires_codes());
        let codes_from = codes_from.or(next);
        let signed = file.sign(&self.signer, &store, tenant, head, (self.context.platform.now(), codes_from));
        let (file, name) = (file.clone(), file.path.display().to_string());
        let write_result = spawn_blocking(move || file.append(&signed, &SystemPlatform)).await;
        write_result.map_err(std::io::Error::other).and_then(|result| result).map(|()| codes_from).map_err(|error| {
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

//! Authentication of documents at startup, and their verification.

use std::collections::HashSet;

use super::Audit;
use crate::audit::{AuditEntry, StoredAuditEntry};
use crate::error::{self, Result};
use crate::hub::{LOCAL, LOCAL_USER};
use crate::id::TenantId;
use crate::store::{
    Batch, DocumentKey, DocumentKind, Store, StoreAuthenticator, StoreChange, StoreLayer as _,
    StoredDocument, for_each_document,
};

/// Maximum number of documents that one commit gives a code to.
const MAX_DOCUMENTS_PER_COMMIT: usize = 100;

impl Audit {
    /// Gives codes to the documents that an earlier version has stored without them, unless the signed head beside the
    /// keys requires codes. From then on, a document without a code is refused.
    pub(in crate::hub) async fn authenticate_documents(&self) -> Result<()> {
        if self.load_signed_head(LOCAL).await?.is_none_or(|head| head.codes_from.is_none()) {
            self.set_initial_codes().await?;
        }
        self.context.documents.require_codes();
        Ok(())
    }

    /// Gives codes to all documents, if the built-in user has none. That user comes last: its code shows that all
    /// documents have one.
    pub(in crate::hub) async fn set_initial_codes(&self) -> Result<()> {
        let key = DocumentKey::new(DocumentKind::User, LOCAL_USER);
        let user = self.unchecked_store().document(LOCAL, &key).await?;
        if user.is_some_and(|user| user.document.code.is_some()) {
            return Ok(());
        }
        let others = self.context.store.tenants().await?.into_iter().filter(|tenant| *tenant != LOCAL);
        for tenant in others.chain([LOCAL]) {
            self.set_missing_codes(tenant).await?;
        }
        Ok(())
    }

    /// Gives a code to the documents of a tenant without one, and records their number in the audit.
    async fn set_missing_codes(&self, tenant: TenantId) -> Result<()> {
        let documents = self.set_codes(tenant, false).await?;
        if documents > 0 {
            let entry = AuditEntry::new(self.context.platform.now(), "hub", "documents.authenticated");
            let entry = entry.with("documents", documents);
            self.context.store.commit(tenant, Batch::new().audit(entry)).await?;
        }
        Ok(())
    }

    /// Gives a code to the documents of a tenant without one, and with `accept` to those with a wrong one. Returns their
    /// number.
    pub(super) async fn set_codes(&self, tenant: TenantId, accept: bool) -> Result<u64> {
        let mut count = 0;
        loop {
            let mut changes = self.context.documents.missing_codes(tenant, accept).await?;
            changes.sort_by_key(is_user);
            if changes.is_empty() {
                return Ok(count);
            }
            for changes in changes.chunks(MAX_DOCUMENTS_PER_COMMIT) {
                let batch = Batch { changes: changes.to_vec(), ..Batch::new() };
                match self.context.store.commit(tenant, batch).await {
                    Ok(()) => count += changes.len() as u64,
                    // Another hub has changed one of them: find out which still have no code.
                    Err(error) if error.kind() == error::ErrorKind::Conflict => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Returns the store without the check of documents, for their verification.
    pub(super) fn unchecked_store(&self) -> &dyn Store {
        self.context.documents.inner()
    }
}

fn is_user(change: &StoreChange) -> bool {
    matches!(change, StoreChange::Put { document, .. } if document.key.kind == DocumentKind::User)
}

/// Documents whose removal the audit records. A copy of such a document with its code can be put back into the database.
#[derive(Debug, Clone, Default)]
pub(super) struct RemovedDocuments(HashSet<DocumentKey>);

impl RemovedDocuments {
    /// Adds the document that an audit entry records as removed.
    pub(super) fn add(&mut self, entry: &StoredAuditEntry) {
        let (kind, field) = match &*entry.action {
            "token.revoked" => (DocumentKind::Token, "token"),
            "approval_rule.revoked" | "approval_rule.expired" => (DocumentKind::ApprovalRule, "rule"),
            "agent.removed" => (DocumentKind::Agent, "agent"),
            "user.removed" => (DocumentKind::User, "user"),
            "server.removed" => (DocumentKind::Server, "server"),
            _ => return,
        };
        let fields = serde_json::from_str::<serde_json::Value>(&entry.fields).unwrap_or_default();
        self.0.extend(fields[field].as_str().map(|id| DocumentKey::new(kind, id)));
    }
}

/// Result of the verification of the documents of a tenant.
#[derive(Debug, Default)]
pub(super) struct DocumentReport {
    /// Number of documents with the right code.
    pub(super) authentic: u64,
    /// Number of documents without a code.
    pub(super) without_code: u64,
    /// Description of the first document without a code.
    pub(super) first_without_code: Option<String>,
    /// Description of the first document that another program has changed or put back.
    pub(super) damage: Option<String>,
}

impl DocumentReport {
    fn add_damage(&mut self, document: &str, what: &str) {
        let damage = || format!("{document} was {what} in the database by another program");
        self.damage.get_or_insert_with(damage);
    }

    /// Verifies the code of each document of a tenant.
    pub(super) async fn verify(
        store: &dyn Store,
        tenant: TenantId,
        authenticator: &StoreAuthenticator,
        removed: &RemovedDocuments,
    ) -> Result<Self> {
        let mut report = DocumentReport::default();
        let add = |stored: StoredDocument| {
            let describe = || stored.document.describe();
            match authenticator.check_document(tenant, &stored) {
                None => {
                    report.without_code += 1;
                    report.first_without_code.get_or_insert_with(describe);
                }
                Some(true) if removed.0.contains(&stored.document.key) => {
                    report.add_damage(&describe(), "put back");
                }
                Some(true) => report.authentic += 1,
                Some(false) => report.add_damage(&describe(), "added or changed"),
            }
        };
        for_each_document(store, tenant, add).await?;
        Ok(report)
    }
}

//! Store layer that authenticates documents: each stored document has a code that only a hub with the key file can
//! compute. A document that another program added or changed in the database is refused when it is read.
//!
//! Tenant keys have no code: they are encrypted with the root key, which authenticates them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use super::{
    Batch, DocumentKey, DocumentKind, DocumentStore, MAX_PAGE_SIZE, Page, PageRequest, Store,
    StoreAuthenticator, StoreChange, StoreLayer, StoredDocument,
};
use crate::error::{self, Error, Result};
use crate::id::TenantId;

/// Code of the error about a document that another program has added or changed in the database.
pub const DOCUMENT_TAMPERED: &str = "document_tampered";

/// Store layer that sets the codes of the documents and audit entries that it commits, and checks those of the documents
/// that it reads.
pub struct AuthenticatedStore {
    inner: Arc<dyn Store>,
    authenticator: Arc<StoreAuthenticator>,
    requires_codes: AtomicBool,
}

impl AuthenticatedStore {
    /// Creates a layer that reads documents without a code until [`Self::require_codes`].
    pub fn new(inner: Arc<dyn Store>, authenticator: Arc<StoreAuthenticator>) -> Self {
        AuthenticatedStore { inner, authenticator, requires_codes: AtomicBool::new(false) }
    }

    /// Refuses documents without a code from now on.
    pub fn require_codes(&self) {
        self.requires_codes.store(true, Ordering::Release);
    }

    /// Returns whether documents without a code are refused.
    pub fn requires_codes(&self) -> bool {
        self.requires_codes.load(Ordering::Acquire)
    }

    /// Returns the changes that give a code to all documents of a tenant without one. With `accept`, also to the
    /// documents with a wrong code.
    pub async fn missing_codes(&self, tenant: TenantId, accept: bool) -> Result<Vec<StoreChange>> {
        let mut changes = Vec::new();
        let add = |stored: StoredDocument| {
            let is_missing = match self.authenticator.check_document(tenant, &stored) {
                None => true,
                Some(is_right) => accept && !is_right,
            };
            if is_missing {
                let StoredDocument { document, version } = stored;
                changes.push(StoreChange::Put { document, version });
            }
        };
        for_each_document(&*self.inner, tenant, add).await?;
        Ok(changes)
    }

    fn check(&self, tenant: TenantId, stored: &StoredDocument) -> Result<()> {
        let is_accepted = has_no_code(stored.document.key.kind)
            || self.authenticator.check_document(tenant, stored).unwrap_or(!self.requires_codes());
        is_accepted.then_some(()).ok_or_else(|| {
            let text = format!(
                "{} was changed in the database by another program: restore a backup or, if you made the change, stop \
                 the hub and run `linchpin audit accept`",
                stored.document.describe()
            );
            Error::new(error::ErrorKind::Unavailable, DOCUMENT_TAMPERED, text)
        })
    }

    fn check_found(&self, tenant: TenantId, found: Option<StoredDocument>) -> Result<Option<StoredDocument>> {
        found.iter().try_for_each(|stored| self.check(tenant, stored))?;
        Ok(found)
    }
}

/// Passes each document of a tenant to `on_document`, except those of kinds without codes.
pub async fn for_each_document(
    store: &dyn Store,
    tenant: TenantId,
    mut on_document: impl FnMut(StoredDocument) + Send,
) -> Result<()> {
    for kind in DocumentKind::ALL.into_iter().filter(|kind| !has_no_code(*kind)) {
        let mut paging = PageRequest { after: None, limit: MAX_PAGE_SIZE };
        loop {
            let Page { items, next } = store.documents(tenant, kind, None, &paging).await?;
            items.into_iter().for_each(&mut on_document);
            paging.after = next;
            if paging.after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn has_no_code(kind: DocumentKind) -> bool {
    kind == DocumentKind::TenantKey
}

impl StoreLayer for AuthenticatedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }
}

#[async_trait]
impl Store for AuthenticatedStore {
    async fn commit(&self, tenant: TenantId, mut batch: Batch) -> Result<()> {
        for change in &mut batch.changes {
            if let StoreChange::Put { document, version } = change
                && !has_no_code(document.key.kind)
            {
                document.code = Some(self.authenticator.document_code(tenant, document, *version + 1));
            }
        }
        batch.authenticator = Some(self.authenticator.clone());
        batch.requires_authentic_head = self.requires_codes();
        self.inner.commit(tenant, batch).await
    }
}

#[async_trait]
impl DocumentStore for AuthenticatedStore {
    async fn document(&self, tenant: TenantId, key: &DocumentKey) -> Result<Option<StoredDocument>> {
        self.check_found(tenant, self.inner.document(tenant, key).await?)
    }

    async fn document_in_any_tenant(&self, key: &DocumentKey) -> Result<Option<(TenantId, StoredDocument)>> {
        let found = self.inner.document_in_any_tenant(key).await?;
        found.iter().try_for_each(|(tenant, stored)| self.check(*tenant, stored))?;
        Ok(found)
    }

    async fn document_by_name(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        name: &str,
    ) -> Result<Option<StoredDocument>> {
        self.check_found(tenant, self.inner.document_by_name(tenant, kind, name).await?)
    }

    async fn documents(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
        paging: &PageRequest,
    ) -> Result<Page<StoredDocument>> {
        let page = self.inner.documents(tenant, kind, parent, paging).await?;
        page.items.iter().try_for_each(|stored| self.check(tenant, stored))?;
        Ok(page)
    }

    async fn tenants(&self) -> Result<Vec<TenantId>> {
        self.inner.tenants().await
    }
}

//! Document authentication: each stored document has a code that only a hub with the key file can compute. A document
//! that another program added or changed in the database is refused when it is read.
//!
//! Tenant keys have no code: they are encrypted with the root key, which authenticates them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ring::hmac;
use serde_json::json;

use super::{
    Batch, Document, DocumentKey, DocumentKind, DocumentStore, MAX_PAGE_SIZE, Page, PageRequest, Store,
    StoreChange, StoreLayer, StoredDocument,
};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::TenantId;

/// Code of the error about a document that another program has added or changed in the database.
pub const DOCUMENT_TAMPERED: &str = "document_tampered";

/// Authenticator that computes and checks the codes of documents, with a key derived from the key file.
#[derive(Debug, Clone)]
pub struct DocumentAuthenticator(hmac::Key);

impl DocumentAuthenticator {
    /// Derives the key of the codes from the seed of the audit key.
    pub fn new(audit_seed: &[u8; 32]) -> Self {
        let seed = hmac::Key::new(hmac::HMAC_SHA256, audit_seed);
        let derived = hmac::sign(&seed, b"linchpin document key 1");
        DocumentAuthenticator(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// Computes the code of a document that is stored with this version.
    pub fn code(&self, tenant: TenantId, document: &Document, version: u64) -> Digest {
        let tag = hmac::sign(&self.0, digest(tenant, document, version).bytes());
        Digest::from_bytes(tag.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes"))
    }

    /// Returns whether the code of a stored document is right; `None` if the document has no code.
    pub fn check(&self, tenant: TenantId, stored: &StoredDocument) -> Option<bool> {
        let StoredDocument { document, version } = stored;
        let code = document.code?;
        Some(hmac::verify(&self.0, digest(tenant, document, *version).bytes(), code.bytes()).is_ok())
    }
}

fn digest(tenant: TenantId, document: &Document, version: u64) -> Digest {
    let Document { key: DocumentKey { kind, id }, name, parent, body, code: _ } = document;
    Digest::of("linchpin document")
        .json(&json!([tenant, kind, id, name, parent, version]))
        .json(body)
        .finish()
}

/// Store layer that sets the code of each document that it commits, and checks the code of each that it reads.
pub struct AuthenticatedStore {
    inner: Arc<dyn Store>,
    authenticator: DocumentAuthenticator,
    requires_codes: AtomicBool,
}

impl AuthenticatedStore {
    /// Creates a layer that reads documents without a code until [`Self::require_codes`].
    pub fn new(inner: Arc<dyn Store>, authenticator: DocumentAuthenticator) -> Self {
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
            let is_missing = match self.authenticator.check(tenant, &stored) {
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
            || self.authenticator.check(tenant, stored).unwrap_or(!self.requires_codes());
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

/// Passes each document of a tenant that has a code to `on_document`.
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
                document.code = Some(self.authenticator.code(tenant, document, *version + 1));
            }
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const ADA: TenantId = TenantId::from_u128(1);

    fn authenticator() -> DocumentAuthenticator {
        DocumentAuthenticator::new(&[7; 32])
    }

    fn stored(body: Value) -> StoredDocument {
        let key = DocumentKey::new(DocumentKind::Agent, "a");
        let document = Document::new(key, &body).unwrap().with_name("helper").with_parent("p");
        let code = Some(authenticator().code(ADA, &document, 3));
        StoredDocument { document: Document { code, ..document }, version: 3 }
    }

    #[test]
    fn each_part_of_a_document_is_authenticated() {
        let (one, authenticator) = (stored(json!({"mode": "ask"})), authenticator());
        assert_eq!(authenticator.check(ADA, &one), Some(true));
        assert_eq!(authenticator.check(TenantId::from_u128(2), &one), Some(false));
        assert_eq!(DocumentAuthenticator::new(&[8; 32]).check(ADA, &one), Some(false));
        assert_eq!(authenticator.check(ADA, &StoredDocument { version: 2, ..one.clone() }), Some(false));
        let document = &one.document;
        let key = |kind, id: &str| DocumentKey::new(kind, id);
        for changed in [
            Document { key: key(DocumentKind::User, "a"), ..document.clone() },
            Document { key: key(DocumentKind::Agent, "b"), ..document.clone() },
            Document { name: None, ..document.clone() },
            Document { name: Some("p".into()), parent: Some("helper".into()), ..document.clone() },
            Document { parent: None, ..document.clone() },
            Document { parent: Some(String::new()), ..document.clone() },
            Document { body: json!({"mode": "auto"}), ..document.clone() },
        ] {
            let changed = StoredDocument { document: changed, version: 3 };
            assert_eq!(authenticator.check(ADA, &changed), Some(false), "{changed:?}");
        }
        let without = Document { code: None, ..document.clone() };
        assert_eq!(authenticator.check(ADA, &StoredDocument { document: without, version: 3 }), None);
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            any::<f64>().prop_map(|number| json!(number)),
            any::<u64>().prop_map(|number| json!(number)),
            any::<i64>().prop_map(|number| json!(number)),
        ];
        prop_oneof![number, ".*".prop_map(Value::from), Just(Value::Null)].prop_recursive(3, 20, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map(".*", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_document_is_authentic_after_a_round_trip_through_the_database(body in json_value()) {
            let mut one = stored(body);
            one.document.body = serde_json::from_str(&one.document.body.to_string()).unwrap();
            prop_assert_eq!(authenticator().check(ADA, &one), Some(true));
        }
    }
}

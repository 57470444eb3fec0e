//! Authentication codes of documents and audit entries: HMAC-SHA256 with a key that is derived from the key file.

use ring::hmac;
use serde_json::json;

use super::{Document, DocumentKey, StoredDocument};
use crate::audit::StoredAuditEntry;
use crate::digest::Digest;
use crate::id::TenantId;

/// Authenticator that computes and checks the codes of documents and audit entries.
#[derive(Debug, Clone)]
pub struct StoreAuthenticator(hmac::Key);

impl StoreAuthenticator {
    /// Derives the key of the codes from the seed of the audit key.
    pub fn new(audit_seed: &[u8; 32]) -> Self {
        let seed = hmac::Key::new(hmac::HMAC_SHA256, audit_seed);
        let derived = hmac::sign(&seed, b"linchpin store key 1");
        StoreAuthenticator(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// Computes the code of a document that is stored with this version.
    pub fn document_code(&self, tenant: TenantId, document: &Document, version: u64) -> Digest {
        self.code(&digest(tenant, document, version))
    }

    /// Returns whether the code of a stored document is right; `None` if the document has no code.
    pub fn check_document(&self, tenant: TenantId, stored: &StoredDocument) -> Option<bool> {
        let StoredDocument { document, version } = stored;
        let code = document.code?;
        Some(self.is_code(&digest(tenant, document, *version), &code))
    }

    /// Computes the code of an audit entry from its hash, which covers the entry and all before it.
    pub fn entry_code(&self, hash: &Digest) -> Digest {
        self.code(hash)
    }

    /// Returns whether the code of an audit entry is right; `None` if the entry has no code.
    pub fn check_entry(&self, entry: &StoredAuditEntry) -> Option<bool> {
        entry.code.map(|code| self.is_entry_code(&entry.hash, &code))
    }

    /// Returns whether this is the code of the audit entry with this hash.
    pub fn is_entry_code(&self, hash: &Digest, code: &Digest) -> bool {
        self.is_code(hash, code)
    }

    /// Computes the code of a digest. Digests of documents and of entries never match, so that one key suffices.
    fn code(&self, digest: &Digest) -> Digest {
        let tag = hmac::sign(&self.0, digest.bytes());
        Digest::from_bytes(tag.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes"))
    }

    fn is_code(&self, digest: &Digest, code: &Digest) -> bool {
        hmac::verify(&self.0, digest.bytes(), code.bytes()).is_ok()
    }
}

fn digest(tenant: TenantId, document: &Document, version: u64) -> Digest {
    let Document { key: DocumentKey { kind, id }, name, parent, body, code: _ } = document;
    Digest::of("linchpin document")
        .json(&json!([tenant, kind, id, name, parent, version]))
        .json(body)
        .finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::store::DocumentKind;

    const ADA: TenantId = TenantId::from_u128(1);

    fn authenticator() -> StoreAuthenticator {
        StoreAuthenticator::new(&[7; 32])
    }

    fn stored(body: &Value) -> StoredDocument {
        let key = DocumentKey::new(DocumentKind::Agent, "a");
        let document = Document::new(key, body).unwrap().with_name("helper").with_parent("p");
        let code = Some(authenticator().document_code(ADA, &document, 3));
        StoredDocument { document: Document { code, ..document }, version: 3 }
    }

    #[test]
    fn each_part_of_a_document_is_authenticated() {
        let (one, authenticator) = (stored(&json!({"mode": "ask"})), authenticator());
        assert_eq!(authenticator.check_document(ADA, &one), Some(true));
        assert_eq!(authenticator.check_document(TenantId::from_u128(2), &one), Some(false));
        assert_eq!(StoreAuthenticator::new(&[8; 32]).check_document(ADA, &one), Some(false));
        assert_eq!(
            authenticator.check_document(ADA, &StoredDocument { version: 2, ..one.clone() }),
            Some(false)
        );
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
            assert_eq!(authenticator.check_document(ADA, &changed), Some(false), "{changed:?}");
        }
        let without = Document { code: None, ..document.clone() };
        assert_eq!(
            authenticator.check_document(ADA, &StoredDocument { document: without, version: 3 }),
            None
        );
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
            let mut one = stored(&body);
            one.document.body = serde_json::from_str(&one.document.body.to_string()).unwrap();
            prop_assert_eq!(authenticator().check_document(ADA, &one), Some(true));
        }
    }
}

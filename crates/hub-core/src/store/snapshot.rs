//! Snapshot items: the records of a store, as written to backups.

use serde::{Deserialize, Serialize};

use super::{Approval, CallRecord, StoredDocument};
use crate::audit::{Checkpoint, StoredAuditEntry};
use crate::id::TenantId;

/// Record of a store snapshot, with its tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotItem {
    /// Tenant that the record belongs to.
    pub tenant: TenantId,
    /// Document, call, approval, audit entry or checkpoint.
    #[serde(rename = "what")]
    pub value: SnapshotValue,
}

/// Record of a store snapshot: a document, call, approval, audit entry or checkpoint. A record follows all records that
/// it refers to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotValue {
    /// Document.
    Document(StoredDocument),
    /// Call record.
    Call(Box<CallRecord>),
    /// Approval.
    Approval(Approval),
    /// Audit entry.
    Entry(StoredAuditEntry),
    /// Checkpoint of the audit.
    Checkpoint(Checkpoint),
}

/// Serialization of bytes as base64.
pub(crate) mod bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        STANDARD.encode(bytes).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }

    /// Serialization of optional bytes as base64.
    pub(crate) mod maybe {
        use super::{Deserializer, Serializer};

        #[derive(serde::Serialize, serde::Deserialize)]
        struct Bytes(#[serde(with = "super")] Vec<u8>);

        #[expect(clippy::ref_option, reason = "the signature is given by serde")]
        pub(crate) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
            serde::Serialize::serialize(&bytes.clone().map(Bytes), to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
            let bytes: Option<Bytes> = serde::Deserialize::deserialize(from)?;
            Ok(bytes.map(|Bytes(bytes)| bytes))
        }
    }
}

//! What a copy of a store is made of: everything that is kept, one by one, as it can be written down.

use serde::{Deserialize, Serialize};

use super::{Approval, Call, Stored};
use crate::audit::{Checkpoint, Row};
use crate::id::TenantId;

/// One thing that is kept, and whose it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Copied {
    /// Whose.
    pub tenant: TenantId,
    /// What.
    pub what: What,
}

/// What is kept. Whatever refers to something comes after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A document.
    Document(Stored),
    /// A call.
    Call(Box<Call>),
    /// A question to a person.
    Approval(Approval),
    /// An entry of the audit.
    Entry(Row),
    /// How far the audit went.
    Checkpoint(Checkpoint),
}

/// Bytes as text.
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

    /// The same for what may not be there.
    pub(crate) mod maybe {
        use super::{Deserializer, Serializer};

        #[derive(serde::Serialize, serde::Deserialize)]
        struct Bytes(#[serde(with = "super")] Vec<u8>);

        #[expect(clippy::ref_option, reason = "serde asks for it")]
        pub(crate) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
            serde::Serialize::serialize(&bytes.clone().map(Bytes), to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
            let bytes: Option<Bytes> = serde::Deserialize::deserialize(from)?;
            Ok(bytes.map(|Bytes(bytes)| bytes))
        }
    }
}

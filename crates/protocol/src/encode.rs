//! Encoder that writes the model as JSON of one revision.
//!
//! Each field names the feature that introduced it and is omitted in revisions without that feature. Fields are omitted
//! nowhere else.

use std::collections::BTreeMap;

use linchpin_jsonrpc::string::{self, write_string};
use linchpin_jsonrpc::write;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::version::{Feature, Revision};

/// Output buffer for JSON, and the protocol revision in which values are encoded.
pub struct Encoder<'a> {
    /// Buffer to which the JSON is appended.
    pub out: &'a mut Vec<u8>,
    /// Revision that messages are encoded for.
    pub revision: Revision,
}

/// Value that can be encoded as JSON of any revision.
pub trait Encode {
    /// Appends the value as JSON.
    fn encode(&self, to: &mut Encoder<'_>);

    /// Reports whether a field with this value is omitted.
    fn is_absent(&self) -> bool {
        false
    }
}

/// Encodes a value as JSON text of `revision`.
pub fn to_vec(value: &(impl Encode + ?Sized), revision: Revision) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut Encoder { out: &mut out, revision });
    out
}

/// Encodes a value as a JSON tree of `revision`, for tests and storage.
pub fn to_value(value: &(impl Encode + ?Sized), revision: Revision) -> Value {
    serde_json::from_slice(&to_vec(value, revision)).expect("encoders write valid JSON")
}

impl Encoder<'_> {
    /// Writes a JSON object. `fields` writes its members.
    pub fn object(&mut self, fields: impl FnOnce(&mut Fields<'_, '_>)) {
        self.out.push(b'{');
        fields(&mut Fields { encoder: self, first: true });
        self.out.push(b'}');
    }

    /// Writes a JSON array.
    pub fn array<T: Encode>(&mut self, items: impl IntoIterator<Item = T>) {
        self.out.push(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            item.encode(self);
        }
        self.out.push(b']');
    }
}

/// Writer of the members of one JSON object, which omits members that the revision does not have.
pub struct Fields<'a, 'b> {
    encoder: &'a mut Encoder<'b>,
    first: bool,
}

impl<'b> Fields<'_, 'b> {
    /// Returns the protocol revision that the message is encoded for.
    pub fn revision(&self) -> Revision {
        self.encoder.revision
    }

    /// Writes a member of the JSON object unless its value is absent. The key must not need escaping.
    pub fn field(&mut self, key: &'static str, value: &(impl Encode + ?Sized)) {
        if !value.is_absent() {
            self.key(key);
            value.encode(self.encoder);
        }
    }

    /// Writes a member of the JSON object with an arbitrary key.
    pub fn member(&mut self, key: &str, value: &(impl Encode + ?Sized)) {
        if !std::mem::take(&mut self.first) {
            self.encoder.out.push(b',');
        }
        write_string(key, self.encoder.out);
        self.encoder.out.push(b':');
        value.encode(self.encoder);
    }

    /// Writes a member of the JSON object if the revision has `feature`.
    pub fn field_since(&mut self, feature: Feature, key: &'static str, value: &(impl Encode + ?Sized)) {
        if self.encoder.revision.has(feature) {
            self.field(key, value);
        }
    }

    /// Writes a member of the JSON object with the value that `write` appends.
    pub fn field_with(&mut self, key: &'static str, write: impl FnOnce(&mut Encoder<'b>)) {
        self.key(key);
        write(self.encoder);
    }

    /// Writes all members of a map into the JSON object.
    pub fn members(&mut self, members: &Map<String, Value>) {
        for (key, value) in members {
            self.member(key, value);
        }
    }

    fn key(&mut self, key: &'static str) {
        let out = &mut *self.encoder.out;
        out.extend_from_slice(if std::mem::take(&mut self.first) { b"\"" } else { b",\"" });
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, to: &mut Encoder<'_>) {
        (**self).encode(to);
    }

    fn is_absent(&self) -> bool {
        (**self).is_absent()
    }
}

impl<T: Encode + ?Sized> Encode for Box<T> {
    fn encode(&self, to: &mut Encoder<'_>) {
        (**self).encode(to);
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            Some(value) => value.encode(to),
            None => to.out.extend_from_slice(b"null"),
        }
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.array(self);
    }
}

impl<T: Encode> Encode for BTreeMap<String, T> {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| {
            for (key, value) in self {
                fields.member(key, value);
            }
        });
    }
}

impl Encode for str {
    fn encode(&self, to: &mut Encoder<'_>) {
        write_string(self, to.out);
    }
}

impl Encode for String {
    fn encode(&self, to: &mut Encoder<'_>) {
        write_string(self, to.out);
    }
}

impl Encode for bool {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.out.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl Encode for i64 {
    fn encode(&self, to: &mut Encoder<'_>) {
        write::integer(*self, to.out);
    }
}

impl Encode for u64 {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.out.extend_from_slice(self.to_string().as_bytes());
    }
}

impl Encode for f64 {
    fn encode(&self, to: &mut Encoder<'_>) {
        write::value(&Value::from(*self), to.out);
    }
}

impl Encode for Value {
    fn encode(&self, to: &mut Encoder<'_>) {
        write::value(self, to.out);
    }
}

impl Encode for Map<String, Value> {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| fields.members(self));
    }
}

impl Encode for RawValue {
    fn encode(&self, to: &mut Encoder<'_>) {
        let start = to.out.len();
        to.out.extend_from_slice(self.get().as_bytes());
        string::replace_line_breaks(&mut to.out[start..]);
    }
}

impl Encode for Revision {
    fn encode(&self, to: &mut Encoder<'_>) {
        self.as_str().encode(to);
    }
}

/// Declares types of the model. Each field declares its name on the wire and, unless all revisions have it, the feature
/// that introduced it. Decoding (serde) and encoding per revision are derived from this.
///
/// Optional fields are `Option`s and omitted if `None`. Decoding ignores unknown members.
macro_rules! model {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident : $type:ty = $key:literal $(since $feature:ident)? ),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
        #[serde(expecting = "an object")]
        pub struct $name {
            $( $(#[$field_meta])* #[serde(rename = $key)] pub $field: $type, )*
        }

        impl $crate::encode::Encode for $name {
            fn encode(&self, to: &mut $crate::encode::Encoder<'_>) {
                to.object(|fields| self.encode_fields(fields));
            }
        }

        impl $name {
            /// Appends the members without the braces, to embed them in another object.
            #[allow(clippy::allow_attributes, dead_code, unused_variables, reason = "not every type is embedded or has fields")]
            pub(crate) fn encode_fields(&self, fields: &mut $crate::encode::Fields<'_, '_>) {
                $( $crate::encode::model!(@field fields, self.$field, $key $(, $feature)?); )*
            }
        }
    )*};
    (@field $fields:ident, $value:expr, $key:literal) => { $fields.field($key, &$value) };
    (@field $fields:ident, $value:expr, $key:literal, $feature:ident) => {
        $fields.field_since($crate::version::Feature::$feature, $key, &$value)
    };
}

/// Declares an enum whose variants are strings on the wire.
macro_rules! words {
    ($( $(#[$meta:meta])* pub enum $name:ident { $( $(#[$variant_meta:meta])* $variant:ident = $word:literal ),* $(,)? } )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $( $(#[$variant_meta])* $variant ),* }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                $name::find(&word).ok_or_else(|| serde::de::Error::unknown_variant(&word, &[$( $word ),*]))
            }
        }

        impl $name {
            /// Returns the JSON string for this value.
            pub const fn as_str(self) -> &'static str {
                match self { $( $name::$variant => $word ),* }
            }

            /// Returns the value that this JSON string stands for.
            pub fn find(word: &str) -> Option<Self> {
                match word { $( $word => Some($name::$variant), )* _ => None }
            }
        }

        impl $crate::encode::Encode for $name {
            fn encode(&self, to: &mut $crate::encode::Encoder<'_>) {
                self.as_str().encode(to);
            }
        }
    )*};
}

pub(crate) use {model, words};

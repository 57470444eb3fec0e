//! SHA-256 digests over delimited parts. JSON is digested in canonical form, so that member order and spacing do not
//! matter.

use std::fmt::{self, Write as _};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::text::{hex, unhex};

/// SHA-256 digest of delimited parts, as used for fingerprints, keys and hash chains.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Builder of a [`Digest`], to which the parts are added one by one.
#[derive(Clone)]
pub struct DigestBuilder(Sha256);

impl Digest {
    /// Starts the computation of a SHA-256 digest. `purpose` separates domains: digests of different purposes never
    /// match.
    pub fn of(purpose: &str) -> DigestBuilder {
        DigestBuilder(Sha256::new()).part(purpose)
    }

    /// Returns the bytes of the digest.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Creates a digest value from its 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Digest(bytes)
    }
}

impl DigestBuilder {
    /// Adds a part to the digest. The length is digested with it, so that parts cannot run into each other.
    #[must_use]
    pub fn part(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.add(bytes.as_ref());
        self
    }

    /// Adds a part to the digest in place; see [`Self::part`].
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    /// Adds a JSON value in canonical form to the digest.
    #[must_use]
    pub fn json(self, value: &Value) -> Self {
        self.part(canonical(value))
    }

    /// Returns the SHA-256 digest of all parts added so far.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        let bytes = unhex(&text).and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(Digest)
            .ok_or_else(|| serde::de::Error::custom("must be a digest of 64 lowercase hexadecimal digits"))
    }
}

/// Returns JSON in canonical form: members sorted by name, no white space. Numbers stay as they are, so that `1` and
/// `1.0` differ.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            out.push('{');
            for (index, (name, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(name, out);
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Value::String(text) => write_string(text, out),
        plain => write!(out, "{plain}").expect("writing to a string never fails"),
    }
}

fn write_string(text: &str, out: &mut String) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.extend(["\"", text, "\""]);
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_are_told_apart() {
        let digest_of = |parts: &[&str]| parts.iter().fold(Digest::of("x"), DigestBuilder::part).finish();
        assert_ne!(digest_of(&["ab", "c"]), digest_of(&["a", "bc"]));
        assert_ne!(digest_of(&["ab"]), digest_of(&["ab", ""]));
        assert_ne!(Digest::of("x").finish(), Digest::of("y").finish());
        assert_eq!(digest_of(&["a"]).to_string().len(), 64);
    }

    #[test]
    fn json_counts_by_what_it_says() {
        let one: Value = serde_json::from_str(r#"{"b":[1,{"d":"\u00e9","c":null}],"a":true}"#).unwrap();
        assert_eq!(canonical(&one), r#"{"a":true,"b":[1,{"c":null,"d":"é"}]}"#);
        assert_ne!(canonical(&json!(1)), canonical(&json!(1.0)));
        assert_ne!(canonical(&json!("1")), canonical(&json!(1)));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_says_the_same(value in any_json()) {
            let text = canonical(&value);
            let again: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&again, &value);
            prop_assert_eq!(canonical(&again), text);
        }
    }
}

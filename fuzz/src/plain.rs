//! A second opinion on JSON: `serde_json`'s reading, without what `serde_json::Value` adds to it.
//!
//! `Value` gives a meaning of its own to an object whose first key is the private name of `RawValue`: it reads the
//! string behind that key as JSON. [`Plain`] builds the same tree and takes that key as any other.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A JSON value as it is written; of two equal keys the last one counts.
pub(crate) struct Plain(pub(crate) Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Build)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Plain, E> {
        Ok(Plain(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Plain, A::Error> {
        let mut array = Vec::new();
        while let Some(Plain(element)) = elements.next_element()? {
            array.push(element);
        }
        Ok(Plain(array.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Plain, A::Error> {
        let mut object = Map::new();
        while let Some((key, Plain(value))) = members.next_entry()? {
            object.insert(key, value);
        }
        Ok(Plain(object.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_private_key_of_serde_json_is_a_key_like_any_other() {
        let text = r#"{"$serde_json::private::RawValue":"{\"b\":2}"}"#;
        let Plain(plain) = serde_json::from_str(text).expect("the text is JSON");
        assert_eq!(plain.to_string(), text);
        let value: Value = serde_json::from_str(text).expect("the text is JSON");
        assert_eq!(value.to_string(), r#"{"b":2}"#, "serde_json has changed: Plain may go");
        let number = r#"{"$serde_json::private::RawValue":1}"#;
        assert!(
            serde_json::from_str::<Plain>(number).is_ok() && serde_json::from_str::<Value>(number).is_err()
        );
    }
}

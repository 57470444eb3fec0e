//! Request ids: strings and integers.

use std::borrow::Cow;
use std::fmt;

use crate::string::write_string;

/// Id of a JSON-RPC request: an integer or a string. Parsing rejects `null`, fractions and other JSON values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Id<'a> {
    /// Integer id.
    Number(i64),
    /// String id, unescaped.
    String(Cow<'a, str>),
}

impl Id<'_> {
    /// Returns the id as an owned value, which does not borrow from the message.
    pub fn into_owned(self) -> Id<'static> {
        match self {
            Id::Number(number) => Id::Number(number),
            Id::String(text) => Id::String(Cow::Owned(text.into_owned())),
        }
    }

    /// Appends the id as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Id::Number(number) => crate::write::integer(*number, out),
            Id::String(text) => write_string(text, out),
        }
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => write!(f, "{number}"),
            Id::String(text) => f.write_str(text),
        }
    }
}

impl From<i64> for Id<'_> {
    fn from(number: i64) -> Self {
        Id::Number(number)
    }
}

impl<'a> From<&'a str> for Id<'a> {
    fn from(text: &'a str) -> Self {
        Id::String(Cow::Borrowed(text))
    }
}

impl<'de> serde::Deserialize<'de> for Id<'static> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Id<'static>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Id<'static>, E> {
                Ok(Id::Number(number))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Id<'static>, E> {
                i64::try_from(number)
                    .map(Id::Number)
                    .map_err(|_| E::custom("the integer does not fit into 64 bits"))
            }

            fn visit_str<E>(self, text: &str) -> Result<Id<'static>, E> {
                Ok(Id::String(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

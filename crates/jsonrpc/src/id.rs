//! Request ids: a string or an integer, nothing else.

use std::borrow::Cow;
use std::fmt;

use crate::string::write_string;

/// The id of a request. `null`, fractions and other JSON values are refused while parsing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Id<'a> {
    /// An integer.
    Number(i64),
    /// A string, unescaped.
    String(Cow<'a, str>),
}

impl Id<'_> {
    /// The same id, free of the line it came from.
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

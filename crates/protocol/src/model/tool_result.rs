//! Decoding of tool results on the client side, and their conversion to text or types.

use std::fmt;

use linchpin_jsonrpc::from_checked;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{CallToolResult, Content, Meta, StructuredContent, key};
use crate::wire::{InvalidValue, decode};

/// Reason why a tool result cannot be converted to a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolResultError {
    /// The tool failed; contains its error text for the model.
    Failed(String),
    /// The structured content or, without it, the text does not match the requested Rust type.
    TypeMismatch(String),
}

impl fmt::Display for ToolResultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolResultError::Failed(text) => write!(f, "the tool failed: {text}"),
            ToolResultError::TypeMismatch(reason) => {
                write!(f, "the result does not match the requested type: {reason}")
            }
        }
    }
}

impl std::error::Error for ToolResultError {}

/// JSON object that wraps a structured result of another type, for revisions that support only objects.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrappedValue<'a> {
    #[serde(borrow)]
    result: &'a RawValue,
}

/// Tool result as received by a client.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ReceivedResult {
    content: Vec<Content>,
    structured_content: Option<StructuredContent>,
    is_error: Option<bool>,
    #[serde(rename = "_meta", default)]
    meta: MetaWithoutIdentity,
}

/// Metadata without the server identity, which every result of the stateless era contains.
#[derive(Default)]
struct MetaWithoutIdentity(Option<Meta>);

impl<'de> Deserialize<'de> for MetaWithoutIdentity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = MetaWithoutIdentity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MetaWithoutIdentity, A::Error> {
                let mut others = None;
                while let Some(MetaKey(name)) = map.next_key()? {
                    match name {
                        Some(name) => {
                            others.get_or_insert_with(Meta::new).insert(name, map.next_value()?);
                        }
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(MetaWithoutIdentity(others))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// Key of a metadata member; `None` for the server identity, which is skipped.
struct MetaKey(Option<String>);

impl<'de> Deserialize<'de> for MetaKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = MetaKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<MetaKey, E> {
                Ok(MetaKey((name != key::SERVER_INFO).then(|| name.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl CallToolResult {
    /// Decodes a received result from text that the scanner has accepted. The server identity, which every result of
    /// the stateless era contains, is omitted from the metadata.
    pub fn decode_received(text: &str) -> Result<Self, InvalidValue> {
        let ReceivedResult { content, structured_content, is_error, meta } = decode(text)?;
        Ok(CallToolResult { content, structured_content, is_error, meta: meta.0 })
    }

    /// Returns the text blocks of the tool result, joined by newlines.
    pub fn to_text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
    }

    /// Converts the result to a value: from the structured content or, without it, from the text as JSON. Text that is
    /// not JSON can be converted to a `String`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ToolResultError> {
        if self.is_error == Some(true) {
            return Err(ToolResultError::Failed(self.to_text()));
        }
        let mismatch = |reason: String| ToolResultError::TypeMismatch(reason);
        if let Some(structured) = &self.structured_content {
            let json = structured.json.get();
            return from_checked(json).or_else(|error| {
                match serde_json::from_str::<WrappedValue<'_>>(json) {
                    Ok(wrapped) => from_checked(wrapped.result.get()).map_err(|error| mismatch(error.reason)),
                    Err(_) => Err(mismatch(error.reason)),
                }
            });
        }
        let text = self.to_text();
        serde_json::from_str(&text).or_else(|error| {
            let as_text = serde_json::Value::String(text);
            T::deserialize(as_text).map_err(|_| mismatch(error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn result(value: Value) -> CallToolResult {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn values_come_from_wherever_they_are() {
        let text = |text: &str| result(json!({ "content": [{ "type": "text", "text": text }] }));
        assert_eq!(text("3").parse::<i64>(), Ok(3));
        assert_eq!(text("hello").parse::<String>(), Ok("hello".into()));
        assert_eq!(text("\"quoted\"").parse::<String>(), Ok("quoted".into()));
        assert!(text("hello").parse::<i64>().unwrap_err().to_string().contains("requested type"));
        let structured = |value: Value| result(json!({ "content": [], "structuredContent": value }));
        assert_eq!(structured(json!(3)).parse::<i64>(), Ok(3));
        assert_eq!(structured(json!({ "result": 3 })).parse::<i64>(), Ok(3));
        assert_eq!(structured(json!({ "result": 3 })).parse::<Value>(), Ok(json!({ "result": 3 })));
        let failed = result(json!({ "content": [{ "type": "text", "text": "no" }], "isError": true }));
        assert_eq!(failed.parse::<i64>(), Err(ToolResultError::Failed("no".into())));
    }
}

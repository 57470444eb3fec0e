//! Typed values from string arguments: prompt arguments and template variables are strings on the wire, but a handler
//! may take numbers or booleans.

use std::collections::BTreeMap;

use linchpin_protocol::wire::{InvalidValue, decode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::derived_schema::DerivedSchema;
use super::validator::Validator;

/// How the text of a string argument becomes JSON: as a string, or parsed as a number or boolean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StringFieldKind {
    Text,
    Json,
}

/// Argument of a handler that is parsed from a string.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) required: bool,
    kind: StringFieldKind,
}

/// Decoder of typed arguments from strings, for prompts and resource templates.
pub(crate) struct StringArgs {
    pub(crate) fields: Vec<Field>,
    validator: Option<Validator>,
}

impl StringArgs {
    /// Creates the decoder of string arguments for a schema. Fails if one of its fields cannot be parsed from a string.
    pub(crate) fn new(derived: &DerivedSchema) -> Result<Self, String> {
        Ok(StringArgs { fields: fields(&derived.schema)?, validator: Validator::for_typed(derived)? })
    }

    /// Decodes string arguments into the argument type of a handler.
    pub(crate) fn decode<T: DeserializeOwned>(
        &self,
        texts: &BTreeMap<String, String>,
    ) -> Result<T, InvalidValue> {
        let value = |(name, text): (&String, &String)| {
            let field = self.fields.iter().find(|field| field.name == *name);
            let simple = field.map_or(StringFieldKind::Text, |field| field.kind);
            let value = match (simple, serde_json::from_str(text)) {
                (StringFieldKind::Json, Ok(value @ (Value::Number(_) | Value::Bool(_)))) => value,
                _ => Value::String(text.clone()), // decoding reports the expected type
            };
            (name.clone(), value)
        };
        let object = Value::Object(texts.iter().map(value).collect());
        if let Some(check) = &self.validator {
            check.check(&object).map_err(|reason| InvalidValue { path: String::new(), reason })?;
        }
        decode(&object.to_string())
    }
}

/// Returns the properties of an object schema, whose values arrive as strings.
fn fields(schema: &Value) -> Result<Vec<Field>, String> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|item| item == name));
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(Vec::new()) };
    let field = |(name, property): (&String, &Value)| {
        let simple = match property.get("type").and_then(Value::as_str) {
            Some("string") => StringFieldKind::Text,
            Some("integer" | "number" | "boolean") => StringFieldKind::Json,
            _ => {
                return Err(format!(
                    "the field `{name}` must be a string, a number, a boolean or an enum of strings"
                ));
            }
        };
        let text = |key: &str| property.get(key).and_then(Value::as_str).map(str::to_owned);
        let (title, description) = (text("title"), text("description"));
        Ok(Field { name: name.clone(), title, description, required: is_required(name), kind: simple })
    };
    properties.iter().map(field).collect()
}

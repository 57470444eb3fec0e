//! JSON Schema dialects and the keywords that contain subschemas.

use serde_json::Value;

/// Dialect of JSON Schema that a schema is written in. Draft-06 is treated as draft-07, which only adds to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Dialect {
    Draft07,
    Draft201909,
    #[default]
    Draft202012,
}

impl Dialect {
    pub(crate) fn from_uri(name: &Value) -> Result<Self, String> {
        let Some(name) = name.as_str() else { return Err("$schema must be a string".into()) };
        let address = name.trim_end_matches('#');
        let address = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
        match address.and_then(|address| address.strip_prefix("json-schema.org/")) {
            Some("draft/2020-12/schema" | "schema") => Ok(Self::Draft202012),
            Some("draft/2019-09/schema") => Ok(Self::Draft201909),
            Some("draft-07/schema" | "draft-06/schema") => Ok(Self::Draft07),
            _ => Err(format!("the dialect {name:?} is not supported: use 2020-12, 2019-09 or draft-07")),
        }
    }
}

/// Form in which a schema keyword contains subschemas: one, a list, either of them, or by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubschemaShape {
    One,
    Many,
    OneOrMany,
    Named,
}

pub(crate) fn subschema_shape(keyword: &str) -> Option<SubschemaShape> {
    match keyword {
        "additionalProperties"
        | "propertyNames"
        | "contains"
        | "not"
        | "if"
        | "then"
        | "else"
        | "additionalItems"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Some(SubschemaShape::One),
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Some(SubschemaShape::Many),
        "items" => Some(SubschemaShape::OneOrMany),
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
        | "dependencies" => Some(SubschemaShape::Named),
        _ => None,
    }
}

/// Reports whether a keyword does not affect validation. A subschema with only such keywords and a `$ref` is equivalent
/// to the target of the reference.
pub(crate) fn is_annotation(keyword: &str) -> bool {
    matches!(
        keyword,
        "title"
            | "description"
            | "default"
            | "examples"
            | "$comment"
            | "deprecated"
            | "readOnly"
            | "writeOnly"
    )
}

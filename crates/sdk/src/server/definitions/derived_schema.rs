//! JSON Schemas derived from Rust types: generation, cleanup, and which constraints decoding already enforces.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Derives the JSON Schema of a handler's input from its type.
pub(crate) fn input_schema<T: JsonSchema>() -> DerivedSchema {
    let mut schema = derive_schema::<T>(SchemaSettings::draft2020_12().for_deserialize());
    let unproven = find_unenforced(&schema, "");
    clean_up(&mut schema);
    let exact = schema.clone();
    drop_null(&mut schema);
    DerivedSchema { schema, decoding_schema: exact, unenforced: unproven }
}

/// Derives the JSON Schema of a handler's output from its type.
pub(crate) fn output_schema<T: JsonSchema>() -> DerivedSchema {
    let mut schema = derive_schema::<T>(SchemaSettings::draft2020_12().for_serialize());
    let unproven = find_unenforced(&schema, "");
    clean_up(&mut schema);
    DerivedSchema { decoding_schema: schema.clone(), schema, unenforced: unproven }
}

/// JSON Schema derived from a Rust type, with the path of the first constraint that decoding does not enforce.
pub struct DerivedSchema {
    /// JSON Schema that clients see.
    pub(crate) schema: Value,
    /// Schema of the values that the Rust type accepts: the published schema, plus `null` for optional values.
    pub(crate) decoding_schema: Value,
    pub(crate) unenforced: Option<String>,
}

fn derive_schema<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("title"); // the name of the Rust type means nothing to a model
    }
    schema
}

/// Removes number formats, which are specific to Rust, and writes the schema `true` as an empty object, because older
/// revisions allow only objects.
fn clean_up(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut()
        && object.get("format").and_then(Value::as_str).is_some_and(|format| bounds(format).is_some())
    {
        object.remove("format");
    }
    for_each_subschema(schema, &mut |subschema| {
        if *subschema == Value::Bool(true) {
            *subschema = Value::Object(Map::new());
        }
        clean_up(subschema);
    });
}

/// Removes `null` from optional properties: models fill in everything that a schema offers, and an optional argument
/// should be omitted instead.
fn drop_null(schema: &mut Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut() {
            let Some(object) = property.as_object_mut() else { continue };
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [single] = &types[..] {
                    let single = single.clone();
                    object.insert("type".into(), single);
                }
            }
            if let Some(Value::Array(choices)) = object.get_mut("enum") {
                choices.retain(|choice| !choice.is_null());
            }
            if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
                if let [Value::Object(single)] = &choices[..] {
                    let single = single.clone();
                    object.remove("anyOf");
                    for (key, value) in single {
                        object.entry(key).or_insert(value);
                    }
                }
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
        }
    }
    for_each_subschema(schema, &mut drop_null);
}

const SCHEMA_KEYWORDS: [&str; 7] = ["items", "additionalProperties", "contains", "not", "if", "then", "else"];
const SCHEMA_LIST_KEYWORDS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const SCHEMA_MAP_KEYWORDS: [&str; 4] = ["properties", "$defs", "patternProperties", "dependentSchemas"];

fn for_each_subschema(schema: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    let Some(object) = schema.as_object_mut() else { return };
    for (key, value) in object {
        match value {
            Value::Array(list) if SCHEMA_LIST_KEYWORDS.contains(&&**key) => {
                list.iter_mut().for_each(&mut *visit);
            }
            Value::Object(map) if SCHEMA_MAP_KEYWORDS.contains(&&**key) => {
                map.values_mut().for_each(&mut *visit);
            }
            Value::Object(_) | Value::Bool(_) if SCHEMA_KEYWORDS.contains(&&**key) => visit(value),
            _ => {}
        }
    }
}

/// Returns the path of the first schema keyword that decoding into the Rust type does not enforce.
fn find_unenforced(schema: &Value, path: &str) -> Option<String> {
    let object = schema.as_object()?;
    for (key, value) in object {
        let pointer = || format!("{path}/{key}");
        let found = match &**key {
            "$schema" | "$id" | "$ref" | "$comment" | "title" | "description" | "default" | "examples"
            | "type" | "required" | "enum" | "const" | "deprecated" | "readOnly" | "writeOnly" | "format" => {
                None
            }
            "minimum" | "maximum" => (!is_type_bound(object, key, value)).then(pointer),
            "minItems" | "maxItems" => {
                let fixed = object.get("prefixItems").and_then(Value::as_array).map(Vec::len);
                (fixed.is_none_or(|length| value.as_u64() != u64::try_from(length).ok())).then(pointer)
            }
            "items" | "additionalProperties" => find_unenforced(value, &pointer()),
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => value.as_array().and_then(|list| {
                list.iter()
                    .enumerate()
                    .find_map(|(index, item)| find_unenforced(item, &format!("{}/{index}", pointer())))
            }),
            "properties" | "$defs" => value.as_object().and_then(|map| {
                map.iter().find_map(|(name, item)| find_unenforced(item, &format!("{}/{name}", pointer())))
            }),
            _ if key.starts_with("x-") => None,
            _ => Some(pointer()),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns whether a bound only restates the range of the Rust number type.
fn is_type_bound(schema: &Map<String, Value>, key: &str, value: &Value) -> bool {
    let natural = schema.get("format").and_then(Value::as_str).and_then(bounds);
    let Some((least, greatest)) = natural else { return false };
    let bound = if key == "minimum" { least } else { greatest };
    bound.is_some_and(|bound| value.as_f64() == Some(bound))
}

/// Returns the minimum and maximum that schemars writes for a Rust number format.
fn bounds(format: &str) -> Option<(Option<f64>, Option<f64>)> {
    Some(match format {
        "uint8" => (Some(0.0), Some(255.0)),
        "uint16" => (Some(0.0), Some(65_535.0)),
        "int8" => (Some(-128.0), Some(127.0)),
        "int16" => (Some(-32_768.0), Some(32_767.0)),
        "uint" | "uint32" | "uint64" | "uint128" => (Some(0.0), None),
        "int" | "int32" | "int64" | "int128" | "float" | "double" => (None, None),
        _ => return None,
    })
}

/// Returns whether a hand-written input schema accepts every object.
pub(crate) fn is_any_object(schema: &Value) -> bool {
    let plain = ["$schema", "$id", "$comment", "title", "description", "type", "examples"];
    let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    schema.as_object().is_some_and(|object| {
        object.iter().all(|(key, value)| plain.contains(&&**key) || (key == "properties" && empty(value)))
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Plain {
        /// How many
        count: u8,
        ratio: f64,
        name: Option<String>,
        tags: Vec<String>,
        kind: Option<Kind>,
        anything: Value,
        pair: (i64, bool),
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Small,
        Large,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Bounded {
        #[schemars(range(min = 1, max = 10))]
        count: u8,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Patterned {
        #[schemars(length(min = 1))]
        name: Option<String>,
    }

    #[test]
    fn a_plain_struct_is_tidy_and_proven() {
        let typed = input_schema::<Plain>();
        assert_eq!(typed.unenforced, None);
        assert_eq!(
            typed.schema,
            json!({
                "type": "object",
                "properties": {
                    "count": {"description": "How many", "type": "integer", "minimum": 0, "maximum": 255},
                    "ratio": {"type": "number"},
                    "name": {"type": "string"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "kind": {"type": "string", "enum": ["small", "large"]},
                    "anything": {},
                    "pair": {
                        "type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}],
                        "minItems": 2, "maxItems": 2
                    },
                },
                "required": ["count", "ratio", "tags", "anything", "pair"],
            })
        );
        let keys: Vec<_> = typed.schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            ["count", "ratio", "name", "tags", "kind", "anything", "pair"],
            "in the author's order"
        );
    }

    #[test]
    fn constraints_that_decoding_cannot_prove_are_found() {
        assert_eq!(input_schema::<Bounded>().unenforced.unwrap(), "/properties/count/minimum");
        assert_eq!(input_schema::<Patterned>().unenforced.unwrap(), "/properties/name/minLength");
    }
}

//! Short descriptions of JSON Schemas: type, choices and default of a parameter.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::terminal::{first_paragraph, truncate};

/// Maximum number of `$ref` references followed for one parameter.
const MAX_REFERENCES: usize = 8;
/// Maximum nesting depth of types in the displayed type of a parameter. Recursive schemas would never end without it
/// and [`MAX_UNION_TYPES`].
const MAX_DEPTH: usize = 3;
/// Maximum number of types listed for one union.
const MAX_UNION_TYPES: usize = 8;
/// Maximum number of choices of an enum parameter that are listed.
const MAX_CHOICES: usize = 12;

/// Parameter of a tool, as `linchpin inspect` shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) required: bool,
    /// Description, choices and default.
    pub(super) description: String,
}

/// Returns the parameters that an object schema describes, in order, for display. Descriptions are cut to `max_width`
/// columns.
pub(super) fn parameters(schema: &Value, max_width: usize) -> Vec<Parameter> {
    let required: HashSet<&str> = schema["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let parameter = |(name, property): (&String, &Value)| {
        let required = required.contains(&**name);
        Parameter {
            name: name.clone(),
            kind: type_name(property, schema, MAX_DEPTH),
            required,
            description: describe(property, schema, max_width),
        }
    };
    properties.iter().map(parameter).collect()
}

fn describe(property: &Value, root: &Value, max_width: usize) -> String {
    let resolved = resolve(property, root, MAX_REFERENCES);
    let description = property["description"].as_str().or_else(|| resolved["description"].as_str());
    let description = description.map(|text| truncate(&first_paragraph(text), max_width));
    let mut parts: Vec<String> = description.into_iter().collect();
    let choices = choices(resolved, root).or_else(|| choices(&resolved["items"], root));
    if let Some(choices) = choices.filter(|choices| !choices.is_empty()) {
        let more = if choices.len() > MAX_CHOICES { ", …" } else { "" };
        let named: Vec<&str> = choices.iter().take(MAX_CHOICES).map(|choice| &**choice).collect();
        parts.push(format!("One of: {}{more}", named.join(", ")));
    }
    if let Some(default) = property.get("default").filter(|default| !default.is_null()) {
        parts.push(format!("Default: {}", truncate(&plain_text(default), max_width)));
    }
    let mut text = String::new();
    for part in parts {
        let end = if text.is_empty() || text.ends_with(['.', '!', '?', ':', '…']) { "" } else { "." };
        text = format!("{text}{end}{}{part}", if text.is_empty() { "" } else { " " });
    }
    text
}

/// Returns the values that a schema enumerates.
fn choices(schema: &Value, root: &Value) -> Option<Vec<String>> {
    let schema = resolve(schema, root, MAX_REFERENCES);
    if let Some(values) = schema["enum"].as_array() {
        return Some(values.iter().filter(|value| !value.is_null()).map(plain_text).collect());
    }
    let options = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array())?;
    let named = options.iter().filter(|option| option["type"] != "null");
    named.map(|option| resolve(option, root, MAX_REFERENCES).get("const").map(plain_text)).collect()
}

fn resolve<'a>(schema: &'a Value, root: &'a Value, depth: usize) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
    match target.and_then(|pointer| root.pointer(pointer)) {
        Some(target) if depth > 0 => resolve(target, root, depth - 1),
        _ => schema,
    }
}

/// Returns a short name of the type that a JSON Schema describes, for display.
fn type_name(schema: &Value, root: &Value, depth: usize) -> String {
    let schema = resolve(schema, root, depth);
    let Some(depth) = depth.checked_sub(1) else { return "any".into() };
    let Some(members) = schema.as_object() else { return "any".into() };
    let kinds: Vec<&str> = match &members.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect()
        }
        _ => Vec::new(),
    };
    match kinds[..] {
        ["array"] => match members.get("items") {
            Some(items) => {
                let item = type_name(items, root, depth);
                if item.contains(' ') { format!("({item})[]") } else { format!("{item}[]") }
            }
            None => "array".into(),
        },
        [one @ ("integer" | "number")] => format!("{one}{}", format_range(members)),
        ["string"] => members
            .get("format")
            .and_then(Value::as_str)
            .map_or("string".into(), |format| format!("string, {format}")),
        [] => alternatives(members, root, depth),
        _ => kinds.join(" | "),
    }
}

fn alternatives(members: &Map<String, Value>, root: &Value, depth: usize) -> String {
    let type_of = |value: &Value| match value {
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        _ => "any",
    };
    let options = |key: &str| members.get(key).and_then(Value::as_array);
    let mut kinds: Vec<String> = Vec::new();
    let mut add = |kind: String| {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    };
    if let Some(value) = members.get("const") {
        add(type_of(value).to_owned());
    }
    for value in options("enum").into_iter().flatten() {
        add(type_of(value).to_owned());
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        let named = options(key).into_iter().flatten().filter(|option| option["type"] != "null");
        named.take(MAX_UNION_TYPES).for_each(|option| add(type_name(option, root, depth)));
    }
    if kinds.is_empty() { "any".into() } else { kinds.join(" | ") }
}

fn format_range(members: &Map<String, Value>) -> String {
    let bound = |key: &str| members.get(key).filter(|bound| bound.is_number());
    let (min, max) = (bound("minimum"), bound("maximum"));
    match (min, max, bound("exclusiveMinimum"), bound("exclusiveMaximum")) {
        (Some(min), Some(max), ..) => format!(" {min}…{max}"),
        (Some(min), ..) => format!(" ≥ {min}"),
        (None, Some(max), ..) => format!(" ≤ {max}"),
        (.., Some(min), _) => format!(" > {min}"),
        (.., Some(max)) => format!(" < {max}"),
        _ => String::new(),
    }
}

fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_in_a_word_or_two() {
        let root = json!({
            "$defs": {
                "Size": { "enum": ["small", "large"] },
                "Loop": { "type": "array", "items": { "$ref": "#/$defs/Loop" } },
            }
        });
        let cases = [
            (json!({ "type": "string" }), "string"),
            (json!({ "type": "string", "format": "date" }), "string, date"),
            (json!({ "type": ["integer", "null"], "minimum": 1, "maximum": 9 }), "integer 1…9"),
            (json!({ "type": "number", "exclusiveMinimum": 0 }), "number > 0"),
            (json!({ "type": "array", "items": { "type": "number", "minimum": 0 } }), "(number ≥ 0)[]"),
            (json!({ "type": "array" }), "array"),
            (json!({ "$ref": "#/$defs/Size" }), "string"),
            (
                json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }, { "type": "null" }] }),
                "integer | string",
            ),
            (json!({ "type": ["string", "number"] }), "string | number"),
            (json!({ "oneOf": [{ "const": "a" }, { "const": "b" }] }), "string"),
            (json!({ "$ref": "#/$defs/Loop" }), "any[][][][][][][][]"),
            (json!({ "$ref": "#/nowhere" }), "any"),
            (json!(true), "any"),
        ];
        for (schema, expected) in cases {
            assert_eq!(type_name(&schema, &root, MAX_REFERENCES), expected, "{schema}");
        }
    }

    #[test]
    fn parameters_say_what_they_take() {
        let schema = json!({
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": { "enum": ["s", "l"], "description": "How large", "default": "s" },
                "tags": { "type": "array", "items": { "enum": ["x"] }, "description": "Any." },
            },
        });
        let [size, tags] = &parameters(&schema, 20)[..] else { panic!("two") };
        assert_eq!((&*size.description, size.required), ("How large. One of: s, l. Default: s", true));
        assert_eq!((&*tags.description, tags.required, &*tags.kind), ("Any. One of: x", false, "string[]"));
        assert!(parameters(&json!({}), 20).is_empty());
    }

    #[test]
    fn what_refers_to_itself_many_times_has_an_end() {
        let itself = vec![json!({ "$ref": "#/properties/c" }); 100];
        let schema = json!({ "type": "object", "properties": { "c": { "anyOf": itself } } });
        assert_eq!(parameters(&schema, 20)[0].kind, "any");
    }
}

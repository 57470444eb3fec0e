//! `x-mcp-header` annotations in the input schema of a tool: they select the parameters that are mirrored into
//! headers. A tool that breaks one of the rules is invalid as a whole; clients skip it.

use serde_json::{Map, Value};

const KEYWORD: &str = "x-mcp-header";
/// Maximum number of annotations of a tool: more would bloat the head of every request.
const MAX_HEADERS: usize = 32;
const MAX_DEPTH: usize = 128;

/// Schema keywords whose members are named by the author, such as `properties`: these names are not keywords.
const MAP_KEYWORDS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Schema keywords that contain values, not schemas, so that no annotation can be below them.
const VALUE_KEYWORDS: [&str; 5] = ["const", "enum", "default", "examples", "required"];

/// Tool parameter that `x-mcp-header` selects: its path in the arguments, and its header name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeaderAnnotation {
    /// Property names from the root to the parameter.
    pub path: Vec<String>,
    /// Header name after `Mcp-Param-`.
    pub name: String,
}

/// Returns all header annotations of a tool's input schema. The error names the violation and its position.
pub(crate) fn find_annotations(schema: &Value) -> Result<Vec<HeaderAnnotation>, String> {
    let mut search = AnnotationSearch { found: Vec::new(), pointer: Vec::new() };
    search.schema(schema, Some(&mut Vec::new()))?;
    Ok(search.found)
}

struct AnnotationSearch<'a> {
    found: Vec<HeaderAnnotation>,
    /// Keys from the root of the schema to the current position, for error messages.
    pointer: Vec<&'a str>,
}

/// Names of the properties from the root of an input schema to a subschema; `None` if another keyword than `properties`
/// is on the way.
type Path<'p, 'a> = Option<&'p mut Vec<&'a str>>;

impl<'a> AnnotationSearch<'a> {
    fn schema(&mut self, schema: &'a Value, mut path: Path<'_, 'a>) -> Result<(), String> {
        if self.pointer.len() > MAX_DEPTH {
            return Err(format!("the schema is nested more than {MAX_DEPTH} levels deep"));
        }
        match schema {
            Value::Object(object) => {
                if let Some(name) = object.get(KEYWORD) {
                    self.annotation(object, name, path.as_deref().map(Vec::as_slice))?;
                }
                for (key, value) in object.iter().filter(|(key, _)| *key != KEYWORD) {
                    self.enter(key, |search| search.keyword(key, value, path.as_deref_mut()))?;
                }
                Ok(())
            }
            Value::Array(list) => list.iter().try_for_each(|element| self.schema(element, None)),
            _ => Ok(()),
        }
    }

    fn keyword(&mut self, key: &str, value: &'a Value, mut path: Path<'_, 'a>) -> Result<(), String> {
        match value {
            _ if VALUE_KEYWORDS.contains(&key) => Ok(()),
            Value::Object(members) if MAP_KEYWORDS.contains(&key) => {
                for (name, schema) in members {
                    let mut path = path.as_deref_mut().filter(|_| key == "properties");
                    if let Some(path) = &mut path {
                        path.push(name);
                    }
                    self.enter(name, |search| search.schema(schema, path.as_deref_mut()))?;
                    if let Some(path) = path {
                        path.pop();
                    }
                }
                Ok(())
            }
            _ => self.schema(value, None),
        }
    }

    fn enter(
        &mut self,
        key: &'a str,
        search: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.pointer.push(key);
        let outcome = search(self);
        self.pointer.pop();
        outcome
    }

    fn annotation(
        &mut self,
        schema: &Map<String, Value>,
        name: &Value,
        path: Option<&[&str]>,
    ) -> Result<(), String> {
        let invalid = |reason: &str| {
            let pointer = match &self.pointer[..] {
                [] => "the root".to_owned(),
                pointer => format!("/{}", pointer.join("/")),
            };
            Err(format!("the `{KEYWORD}` at {pointer} of the input schema is invalid: {reason}"))
        };
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return invalid(
                "the annotation is not on a parameter: the path from the root must consist of `properties` only",
            );
        };
        let Some(name) = name.as_str() else { return invalid("the name of the header must be a string") };
        if name.is_empty() {
            return invalid("the name of the header is empty");
        }
        if !name.bytes().all(is_token) {
            return invalid("the name of the header must consist of letters, digits and !#$%&'*+-.^_`|~");
        }
        if !is_primitive(schema.get("type")) {
            return invalid("the type of the parameter must be `string`, `integer` or `boolean`");
        }
        if let Some(other) = self.found.iter().find(|other| other.name.eq_ignore_ascii_case(name)) {
            return invalid(&format!("the parameter `{}` already has this header", other.path.join(".")));
        }
        if self.found.len() == MAX_HEADERS {
            return invalid(&format!("the tool exceeds the limit of {MAX_HEADERS} headers per tool"));
        }
        let path = path.iter().map(|&step| step.to_owned()).collect();
        self.found.push(HeaderAnnotation { path, name: name.to_owned() });
        Ok(())
    }
}

/// Returns whether values of a JSON Schema type can be sent in a header. `null` is allowed as an alternative: it equals
/// an absent parameter.
fn is_primitive(kind: Option<&Value>) -> bool {
    let is_allowed = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    match kind {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(is_allowed) && kinds.iter().all(|kind| is_allowed(kind) || kind == "null")
        }
        Some(kind) => is_allowed(kind),
        None => false,
    }
}

/// Returns whether a byte is allowed in a header name.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Annotates a parameter of the input schema with the name of the HTTP header that mirrors it. The error lists the
/// existing parameters.
pub(crate) fn annotate(schema: &mut Value, parameter: &str, name: &str) -> Result<(), String> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let parameters: Vec<_> = properties.iter().flat_map(|properties| properties.keys()).cloned().collect();
    if let Some(Value::Object(property)) = properties.and_then(|properties| properties.get_mut(parameter)) {
        property.insert(KEYWORD.into(), name.into());
        return Ok(());
    }
    let parameters = match &parameters[..] {
        [] => "the tool has no parameters".to_owned(),
        parameters => format!("its parameters are `{}`", parameters.join("`, `")),
    };
    Err(format!(
        "the header `{name}` is for the parameter `{parameter}`, which the tool does not have: {parameters}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(schema: &Value) -> Result<Vec<String>, String> {
        find_annotations(schema).map(|found| {
            found.into_iter().map(|found| format!("{}={}", found.path.join("."), found.name)).collect()
        })
    }

    fn property(schema: &Value) -> Result<Vec<String>, String> {
        names(&json!({"type": "object", "properties": {"a": schema}}))
    }

    fn refused(schema: &Value) -> String {
        names(schema).expect_err(&schema.to_string())
    }

    #[test]
    fn parameters_at_any_depth_of_properties() {
        let schema = json!({"type": "object", "required": ["region"], "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "dry": {"type": ["boolean", "null"], "x-mcp-header": "Dry-Run"},
            "where": {"type": "object", "properties": {
                "tenant": {"type": "integer", "x-mcp-header": "t!#$%&'*+.^_`|~1"},
                "other": {"type": "number"},
            }},
        }});
        assert_eq!(
            names(&schema).unwrap(),
            ["region=Region", "dry=Dry-Run", "where.tenant=t!#$%&'*+.^_`|~1"]
        );
        assert_eq!(names(&json!({"type": "object"})).unwrap(), [""; 0]);
        assert_eq!(names(&json!(true)).unwrap(), [""; 0]);
    }

    #[test]
    fn a_parameter_or_a_value_may_have_the_name_of_the_keyword() {
        let named = json!({"properties": {"x-mcp-header": {"type": "string", "x-mcp-header": "A"}}});
        assert_eq!(names(&named).unwrap(), ["x-mcp-header=A"]);
        for keyword in ["const", "default"] {
            assert!(property(&json!({keyword: {"x-mcp-header": "A"}})).unwrap().is_empty(), "{keyword}");
        }
        for keyword in ["enum", "examples"] {
            assert!(property(&json!({keyword: [{"x-mcp-header": "A"}]})).unwrap().is_empty(), "{keyword}");
        }
    }

    #[test]
    fn names_are_tokens() {
        for name in ["", " ", "a b", "a\r\n", "a:b", "\u{1}", "é", "a/b", "(a)", "a\0"] {
            let schema = json!({"type": "string", "x-mcp-header": name});
            let text = property(&schema).expect_err(name);
            assert!(text.starts_with("the `x-mcp-header` at /properties/a of the input schema "), "{text}");
        }
        for name in [json!(1), json!(null), json!(["A"]), json!(true)] {
            let text = property(&json!({"type": "string", "x-mcp-header": name})).unwrap_err();
            assert!(text.ends_with("must be a string"), "{text}");
        }
    }

    #[test]
    fn names_are_unique_whatever_their_case() {
        let schema = json!({"properties": {
            "a": {"type": "string", "x-mcp-header": "Region"},
            "b": {"properties": {"c": {"type": "string", "x-mcp-header": "rEGION"}}},
        }});
        assert_eq!(
            refused(&schema),
            "the `x-mcp-header` at /properties/b/properties/c of the input schema is invalid: the parameter \
             `a` already has this header"
        );
    }

    #[test]
    fn only_types_that_fit_into_a_header() {
        for kind in
            [json!("number"), json!("object"), json!("array"), json!("null"), json!(["string", "number"])]
        {
            let text = property(&json!({"type": kind, "x-mcp-header": "A"})).expect_err(&kind.to_string());
            assert!(text.contains("the type of the parameter must be"), "{text}");
        }
        assert!(property(&json!({"enum": ["a"], "x-mcp-header": "A"})).is_err());
        assert!(property(&json!({"type": ["null"], "x-mcp-header": "A"})).is_err());
        assert!(property(&json!({"type": [], "x-mcp-header": "A"})).is_err());
    }

    #[test]
    fn only_properties_lead_to_a_parameter() {
        let leaf = json!({"type": "string", "x-mcp-header": "A"});
        let object = json!({"type": "object", "properties": {"x": leaf}});
        for schema in [&leaf, &object] {
            for keyword in [
                "items",
                "additionalProperties",
                "not",
                "if",
                "then",
                "else",
                "contains",
                "$ref",
                "unknown",
                "x-own",
            ] {
                refused(&json!({keyword: schema}));
                assert!(property(&json!({keyword: schema})).is_err(), "{keyword}");
            }
            for keyword in ["oneOf", "anyOf", "allOf", "prefixItems", "items"] {
                refused(&json!({keyword: [schema]}));
                refused(&json!({keyword: [[{"properties": {"a": schema}}]]}));
            }
            for keyword in ["$defs", "definitions", "patternProperties", "dependentSchemas"] {
                refused(&json!({keyword: {"x": schema}}));
                refused(&json!({keyword: {"properties": schema}}));
            }
        }
        let text = refused(&leaf);
        assert!(
            text.starts_with(
                "the `x-mcp-header` at the root of the input schema is invalid: the annotation is not on"
            ),
            "{text}"
        );
    }

    #[test]
    fn there_is_a_most() {
        let many = |count: usize| {
            let properties: Map<String, Value> = (0..count)
                .map(|n| (format!("p{n}"), json!({"type": "string", "x-mcp-header": format!("H{n}")})))
                .collect();
            names(&json!({"properties": properties}))
        };
        assert_eq!(many(MAX_HEADERS).unwrap().len(), MAX_HEADERS);
        assert!(many(MAX_HEADERS + 1).unwrap_err().ends_with("exceeds the limit of 32 headers per tool"));
        let mut deep = json!({});
        for _ in 0..1000 {
            deep = json!({"not": deep});
        }
        assert!(refused(&deep).contains("nested"));
    }

    #[test]
    fn marking_names_the_parameters_there_are() {
        let mut schema = json!({"properties": {"a": {"type": "string"}, "b": {}}});
        annotate(&mut schema, "a", "A").unwrap();
        assert_eq!(schema["properties"]["a"], json!({"type": "string", "x-mcp-header": "A"}));
        assert_eq!(
            annotate(&mut schema, "c", "C").unwrap_err(),
            "the header `C` is for the parameter `c`, which the tool does not have: its parameters are `a`, `b`"
        );
        assert!(
            annotate(&mut json!({"type": "object"}), "c", "C")
                .unwrap_err()
                .ends_with(": the tool has no parameters")
        );
    }
}

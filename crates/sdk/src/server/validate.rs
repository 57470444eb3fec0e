//! Checks against a JSON Schema, for what decoding does not prove. Without the feature `validate` there is no
//! checker, and a schema that needs one is refused when it is registered.

use serde_json::Value;

use super::schema::Typed;

/// A checker for one schema.
///
/// Compiling a schema costs tens of microseconds, and the first one milliseconds: a schema that cannot fail to
/// compile, because it is [`plain`], is compiled when it is first needed, and every other when it is registered.
pub(crate) struct Validator {
    #[cfg(feature = "validate")]
    schema: Value,
    #[cfg(feature = "validate")]
    compiled: std::sync::OnceLock<Result<jsonschema::Validator, String>>,
}

/// What a schema may cost: deeper or larger ones are refused.
#[cfg(feature = "validate")]
const MAX_DEPTH: usize = 32;
#[cfg(feature = "validate")]
const MAX_VALUES: usize = 20_000;

impl Validator {
    /// A checker for a schema made from a type, if the type leaves something unproven.
    pub(crate) fn for_typed(typed: &Typed) -> Result<Option<Self>, String> {
        match &typed.unproven {
            None => Ok(None),
            Some(place) => Self::new(&typed.exact, place).map(Some),
        }
    }

    /// A checker for what a type proves but for one thing: a number that is not finite becomes `null` in JSON.
    /// Without the feature there is none.
    pub(crate) fn for_nulls(typed: &Typed) -> Option<Self> {
        if cfg!(feature = "validate") { Self::new(&typed.exact, "").ok() } else { None }
    }

    #[cfg(feature = "validate")]
    pub(crate) fn new(schema: &Value, _: &str) -> Result<Self, String> {
        let mut values = 0;
        if !is_bounded(schema, 0, &mut values) {
            return Err(format!(
                "the schema is deeper than {MAX_DEPTH} levels or holds more than {MAX_VALUES} values"
            ));
        }
        let validator = Self { schema: schema.clone(), compiled: std::sync::OnceLock::new() };
        if !plain::is_plain(schema) {
            validator.compiled().as_ref().map_err(String::clone)?;
        }
        Ok(validator)
    }

    #[cfg(feature = "validate")]
    fn compiled(&self) -> &Result<jsonschema::Validator, String> {
        self.compiled.get_or_init(|| {
            let options = jsonschema::options()
                .with_pattern_options(jsonschema::PatternOptions::regex().size_limit(1 << 20));
            options
                .build(&self.schema)
                .map_err(|error| format!("the schema is not valid at \"{}\": {error}", error.instance_path()))
        })
    }

    #[cfg(not(feature = "validate"))]
    pub(crate) fn new(_: &Value, place: &str) -> Result<Self, String> {
        Err(format!(
            "its schema has a constraint that decoding cannot prove ({place}): turn on the feature `validate` of \
             linchpin, or leave the constraint out"
        ))
    }

    /// The first few faults of a value, each with its place.
    #[cfg(feature = "validate")]
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let compiled = self.compiled().as_ref().map_err(String::clone)?;
        let faults: Vec<String> = compiled.iter_errors(value).take(5).map(|error| describe(&error)).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    #[cfg(not(feature = "validate"))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "the same face with and without the feature"
    )]
    pub(crate) fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(feature = "validate")]
fn describe(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let place = if path.is_empty() { "/".to_owned() } else { path };
    let mut reason = error.to_string();
    if reason.len() > 300 {
        reason.truncate(reason.floor_char_boundary(300));
        reason.push('…');
    }
    format!("at {place}: {reason}")
}

#[cfg(feature = "validate")]
fn is_bounded(value: &Value, depth: usize, values: &mut usize) -> bool {
    *values += 1;
    let nested = |inner: &Value, values: &mut usize| is_bounded(inner, depth + 1, values);
    *values <= MAX_VALUES
        && match value {
            Value::Array(list) => depth < MAX_DEPTH && list.iter().all(|inner| nested(inner, values)),
            Value::Object(map) => depth < MAX_DEPTH && map.values().all(|inner| nested(inner, values)),
            _ => true,
        }
}

/// Schemas that use only common keywords, each with a value of the right kind.
#[cfg(feature = "validate")]
mod plain {
    use serde_json::Value;

    pub(super) fn is_plain(schema: &Value) -> bool {
        schema
            .as_object()
            .is_some_and(|object| object.iter().all(|(key, value)| is_plain_keyword(key, value)))
    }

    fn is_plain_keyword(key: &str, value: &Value) -> bool {
        match key {
            "title" | "description" => value.is_string(),
            "default" | "examples" | "const" => true,
            "type" => value.as_str().is_some_and(is_type),
            "properties" => value.as_object().is_some_and(|map| map.values().all(is_plain)),
            "items" => is_plain(value),
            "additionalProperties" => value.is_boolean() || is_plain(value),
            "required" => {
                is_distinct(value) && value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
            }
            "enum" => is_distinct(value),
            "minimum" | "maximum" => value.is_number(),
            "minLength" | "maxLength" | "minItems" | "maxItems" => value.is_u64(),
            _ => false,
        }
    }

    fn is_type(name: &str) -> bool {
        matches!(name, "object" | "array" | "string" | "number" | "integer" | "boolean" | "null")
    }

    fn is_distinct(value: &Value) -> bool {
        value.as_array().is_some_and(|list| {
            (1..=100).contains(&list.len())
                && list.iter().enumerate().all(|(index, item)| !list[..index].contains(item))
        })
    }
}

#[cfg(all(test, feature = "validate"))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_broken_schema_is_refused_when_it_is_registered() {
        for (schema, word) in [
            (json!({"type": "object", "properties": {"a": {"type": "strnig"}}}), "strnig"),
            (json!({"type": "object", "properties": {"a": {"minimum": "x"}}}), "minimum"),
            (json!({"type": "object", "required": ["a", "a"]}), "required"),
            (json!({"type": "object", "properties": {"a": {"pattern": "("}}}), "pattern"),
            (json!({"$ref": "https://example.com/schema"}), "example.com"),
        ] {
            let error = Validator::new(&schema, "").err().unwrap_or_default();
            assert!(error.contains(word), "{schema}: {error}");
        }
        let mut deep = json!({});
        for _ in 0..40 {
            deep = json!({"items": deep});
        }
        assert!(Validator::new(&deep, "").err().unwrap().contains("deeper than 32"));
    }

    #[test]
    fn plain_schemas_are_compiled_when_they_are_needed_and_never_fail_then() {
        let schema = json!({
            "type": "object",
            "description": "d",
            "properties": {
                "key": {"type": "string", "minLength": 1},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "fields": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                "order": {"type": "string", "enum": ["asc", "desc"]}
            },
            "required": ["key"],
            "additionalProperties": false
        });
        let validator = Validator::new(&schema, "").unwrap();
        assert!(validator.compiled.get().is_none());
        assert_eq!(validator.check(&json!({"key": "k", "limit": 5})), Ok(()));
        let faults = validator.check(&json!({"limit": 0, "order": "up"})).unwrap_err();
        assert!(faults.contains("at /limit: 0 is less than the minimum of 1"), "{faults}");
        assert!(
            faults.contains("at /order:") && faults.contains("\"key\" is a required property"),
            "{faults}"
        );
    }
}

//! JSON Schema validation of arguments and results, for constraints that decoding does not enforce. Without the feature
//! `validate` there is no validator, and a schema that needs one is rejected at registration.

use serde_json::Value;

use super::derived_schema::DerivedSchema;

/// Compiled JSON Schema that checks arguments, structured results and elicited content.
pub(crate) struct Validator {
    #[cfg(feature = "validate")]
    schema: linchpin_schema::Schema,
}

impl Validator {
    /// Returns a validator for a derived schema, if decoding into the Rust type does not enforce all of it.
    pub(crate) fn for_typed(derived: &DerivedSchema) -> Result<Option<Self>, String> {
        match &derived.unenforced {
            None => Ok(None),
            Some(path) => Self::new(&derived.decoding_schema, path).map(Some),
        }
    }

    /// Returns a validator for a schema that its Rust type enforces with one exception: a number that is not finite
    /// becomes `null` in JSON. Returns `None` without the feature `validate`, or if the schema does
    /// not compile.
    pub(crate) fn for_non_finite(derived: &DerivedSchema) -> Option<Self> {
        if cfg!(feature = "validate") { Self::new(&derived.decoding_schema, "").ok() } else { None }
    }

    #[cfg(feature = "validate")]
    pub(crate) fn new(schema: &Value, _: &str) -> Result<Self, String> {
        match linchpin_schema::Schema::compile(schema) {
            Ok(schema) => Ok(Self { schema }),
            Err(fault) => Err(format!("the schema is invalid at \"{}\": {}", fault.path(), fault.reason())),
        }
    }

    #[cfg(not(feature = "validate"))]
    pub(crate) fn new(_: &Value, place: &str) -> Result<Self, String> {
        Err(format!(
            "its schema has a constraint that decoding does not enforce ({place}): enable the feature `validate` of \
             linchpin, or remove the constraint"
        ))
    }

    /// Validates arguments or a structured result against its schema. The error lists up to five violations with their
    /// positions.
    #[cfg(feature = "validate")]
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let faults = self.schema.errors(value, 5);
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    #[cfg(not(feature = "validate"))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "same signature with and without the feature"
    )]
    pub(crate) fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
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
        for _ in 0..70 {
            deep = json!({"items": deep});
        }
        assert!(Validator::new(&deep, "").err().unwrap().contains("deeper than 64"));
    }

    #[test]
    fn the_first_faults_are_said_together() {
        let schema = json!({
            "type": "object",
            "properties": {
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "order": {"type": "string", "enum": ["asc", "desc"]},
                "fields": {"type": "array", "items": {"type": "string"}}
            },
            "required": ["key"],
        });
        let validator = Validator::new(&schema, "").unwrap();
        assert_eq!(validator.check(&json!({"key": "k", "limit": 5})), Ok(()));
        let expected = "at /limit: 0 is less than the minimum of 1; at /order: \"up\" is not one of \"asc\" or \"desc\"; \
            at /: \"key\" is a required property";
        assert_eq!(validator.check(&json!({"limit": 0, "order": "up"})), Err(expected.to_owned()));
        let many = validator.check(&json!({"key": "k", "fields": [1, 2, 3, 4, 5, 6, 7]})).unwrap_err();
        assert_eq!(many.matches("is not of type").count(), 5, "{many}");
    }
}

//! Tables of schemas and values, checked by this crate and by another validator.

use linchpin_schema::Schema;
use serde_json::Value;

/// Compiles a schema and checks valid and invalid values.
pub(crate) fn table(schema: &Value, valid: &[Value], invalid: &[Value]) {
    let ours = Schema::compile(schema).unwrap_or_else(|fault| panic!("{schema}: {fault}"));
    let other = jsonschema::options().should_validate_formats(false).build(schema);
    let other = other.unwrap_or_else(|error| panic!("{schema}: {error}"));
    for (values, expected) in [(valid, true), (invalid, false)] {
        for value in values {
            assert_eq!(ours.is_valid(value), expected, "{schema} {value}");
            assert_eq!(ours.check(value).is_ok(), expected, "{schema} {value}");
            assert_eq!(ours.errors(value, 50).is_empty(), expected, "{schema} {value}");
            assert_eq!(other.is_valid(value), expected, "the other validator: {schema} {value}");
        }
    }
}

//! Checks against a JSON Schema, for what decoding does not prove. Without the feature `validate` there is no
//! checker, and a schema that needs one is refused when it is registered.

use serde_json::Value;

use super::schema::Typed;

/// A compiled schema.
pub(crate) struct Validator {
    #[cfg(feature = "validate")]
    compiled: jsonschema::Validator,
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
            Some(place) => Self::new(&typed.schema, place).map(Some),
        }
    }

    #[cfg(feature = "validate")]
    pub(crate) fn new(schema: &Value, _: &str) -> Result<Self, String> {
        let mut values = 0;
        if !is_bounded(schema, 0, &mut values) {
            return Err(format!("the schema is deeper than {MAX_DEPTH} levels or holds more than {MAX_VALUES} values"));
        }
        let options = jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex());
        match options.build(schema) {
            Ok(compiled) => Ok(Self { compiled }),
            Err(error) => Err(format!("the schema is not valid at \"{}\": {error}", error.instance_path())),
        }
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
        let faults: Vec<String> = self.compiled.iter_errors(value).take(5).map(|error| describe(&error)).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    #[cfg(not(feature = "validate"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same face with and without the feature")]
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

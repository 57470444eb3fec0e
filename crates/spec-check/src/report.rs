//! Formatting of the errors that a check against the specification found.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;

const MAX_ERRORS: usize = 5;

/// Formats the first validation errors with their locations; `Ok` if there are none.
pub(crate) fn report<'a>(errors: impl Iterator<Item = ValidationError<'a>>) -> Result<(), String> {
    let faults: Vec<String> = errors.take(MAX_ERRORS).map(|error| describe(&error)).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// Formats a schema validation error with its location. Of an `anyOf`, only the branch with the fewest errors is
/// reported.
fn describe(error: &ValidationError<'_>) -> String {
    if let ValidationErrorKind::AnyOf { context } = error.kind()
        && let Some(nearest) =
            context.iter().filter(|branch| !branch.is_empty()).min_by_key(|branch| branch.len())
    {
        return nearest.iter().take(MAX_ERRORS).map(describe).collect::<Vec<_>>().join("; ");
    }
    let path = error.instance_path().to_string();
    if path.is_empty() { error.to_string() } else { format!("at {path}: {error}") }
}

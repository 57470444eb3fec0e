//! JSON Schema validator for the schemas of tools. Supports 2020-12 (the default without `$schema`), draft-07, and
//! 2019-09 without `$recursiveRef`.
//!
//! A schema is compiled once into numbered nodes with resolved references. Validation borrows everything and allocates
//! only for error messages. Everything is bounded: depth, number of subschemas, patterns and the work of one
//! validation. Nothing is ever fetched: a `$ref` to another document is an error.
//!
//! `format` and the `content…` keywords are annotations: they never reject a value.
//!
//! ```
//! use linchpin_schema::Schema;
//! use serde_json::json;
//!
//! let schema = Schema::compile(&json!({
//!     "type": "object",
//!     "properties": {"limit": {"type": "integer", "minimum": 1}},
//!     "required": ["limit"],
//! }))?;
//! assert!(schema.is_valid(&json!({"limit": 5})));
//! let error = schema.check(&json!({"limit": 0})).unwrap_err();
//! assert_eq!(error.to_string(), "at /limit: 0 is less than the minimum of 1");
//! # Ok::<(), linchpin_schema::ValidationError>(())
//! ```

mod budget;
mod compile;
mod dialect;
mod equal;
mod error;
mod evaluated;
mod index;
mod node;
mod number;
mod pattern;
mod uri;
mod validate;

use serde_json::Value;

use self::error::truncate_reason;
use self::node::{Id, Node};
use self::validate::Validation;
pub use error::ValidationError;

/// Compiled JSON Schema, which validates values.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    root: Id,
    /// Whether the schema contains a `$dynamicRef` whose target depends on the dynamic scope.
    dynamic: bool,
    max_work: u64,
}

/// Limits on the size of a schema and on the work of one validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum nesting depth of subschemas, never more than 256. Default: 64.
    pub depth: usize,
    /// Maximum number of subschemas of a schema. Default: 2,000.
    pub subschemas: usize,
    /// Maximum size of all compiled patterns together, in bytes. Default: 8 MiB. A single pattern is limited to 1 MiB.
    pub patterns: usize,
    /// Maximum number of steps of work of one validation. Default: 10,000,000. A step is roughly one evaluated value or
    /// keyword, or one byte matched against a small pattern.
    pub max_steps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 64, subschemas: 2_000, patterns: 8 << 20, max_steps: 10_000_000 }
    }
}

impl Schema {
    /// Compiles a schema with the default limits.
    pub fn compile(schema: &Value) -> Result<Self, ValidationError> {
        Self::compile_within(schema, Limits::default())
    }

    /// Compiles a schema with the given limits.
    pub fn compile_within(schema: &Value, limits: Limits) -> Result<Self, ValidationError> {
        compile::compile(schema, limits).map_err(|ValidationError { path, reason }| ValidationError {
            path,
            reason: truncate_reason(reason),
        })
    }

    /// Reports whether a value is valid under the schema. A value that exceeds the limits is not valid.
    pub fn is_valid(&self, value: &Value) -> bool {
        Validation::without_errors(self).finish(value).is_empty()
    }

    /// Validates a value against the schema and returns the first error.
    pub fn check(&self, value: &Value) -> Result<(), ValidationError> {
        self.errors(value, 1).pop().map_or(Ok(()), Err)
    }

    /// Validates a value and returns up to `max` errors. An invalid value has at least one error, even if `max` is 0.
    pub fn errors(&self, value: &Value, max: usize) -> Vec<ValidationError> {
        Validation::new(self, max.max(1)).finish(value)
    }
}

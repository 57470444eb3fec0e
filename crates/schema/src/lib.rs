//! JSON Schema, for the schemas of tools: 2020-12, which is meant where a schema says nothing, draft-07, and what of
//! 2019-09 does not need `$recursiveRef`.
//!
//! A schema is compiled once into numbered nodes, references resolved. A check then borrows everything and allocates
//! only to say what is wrong. Everything is bounded: depth, subschemas, patterns, and the work of one check. Nothing
//! is ever fetched: a `$ref` that leaves the document is a fault.
//!
//! `format` and the `content…` keywords are annotations: they refuse nothing.
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
//! let fault = schema.check(&json!({"limit": 0})).unwrap_err();
//! assert_eq!(fault.to_string(), "at /limit: 0 is less than the minimum of 1");
//! # Ok::<(), linchpin_schema::Fault>(())
//! ```

mod compile;
mod dialect;
mod equal;
mod fault;
mod index;
mod node;
mod number;
mod pattern;
mod run;
mod seen;
mod uri;
mod work;

use serde_json::Value;

pub use fault::Fault;
use fault::cut;
use node::{Id, Node};
use run::Run;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    root: Id,
    /// Whether some `$dynamicRef` depends on the way to it.
    dynamic: bool,
    work: u64,
}

/// What a schema may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Subschemas in subschemas.
    pub depth: usize,
    /// Subschemas in all.
    pub subschemas: usize,
    /// Bytes of all compiled patterns together. One pattern never takes more than 1 MiB.
    pub patterns: usize,
    /// Steps of one check: about one for each value and keyword that is looked at, and for each byte that a small
    /// pattern reads.
    pub work: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 64, subschemas: 2_000, patterns: 8 << 20, work: 10_000_000 }
    }
}

impl Schema {
    /// Compiles a schema within the default limits.
    pub fn compile(schema: &Value) -> Result<Self, Fault> {
        Self::compile_within(schema, Limits::default())
    }

    /// Compiles a schema.
    pub fn compile_within(schema: &Value, limits: Limits) -> Result<Self, Fault> {
        compile::compile(schema, limits).map_err(|Fault { path, reason }| Fault { path, reason: cut(reason) })
    }

    /// Whether a value fits. A value that cannot be checked within the limits does not.
    pub fn is_valid(&self, value: &Value) -> bool {
        Run::quiet(self).finish(value).is_empty()
    }

    /// The first fault of a value.
    pub fn check(&self, value: &Value) -> Result<(), Fault> {
        self.faults(value, 1).pop().map_or(Ok(()), Err)
    }

    /// Up to `max` faults of a value, at least one if it does not fit.
    pub fn faults(&self, value: &Value, max: usize) -> Vec<Fault> {
        Run::new(self, max.max(1)).finish(value)
    }
}

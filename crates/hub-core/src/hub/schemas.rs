//! What tools take, compiled once for each schema.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin::schema::Schema;
use serde_json::Value;

use crate::digest::Digest;
use crate::sync::lock;
use crate::tool::Tool;

/// How many are remembered.
const MOST: usize = 1_000;
/// How many faults are told.
const FAULTS: usize = 5;

/// Compiled schemas, by what they say: whose they are makes no difference.
#[derive(Default)]
pub(super) struct Schemas(Mutex<HashMap<Digest, Arc<Schema>>>);

impl Schemas {
    /// Whether arguments are what a tool takes.
    pub(super) fn check(&self, tool: &Tool, arguments: &Value) -> Result<(), String> {
        let Some(schema) = tool.input_schema() else { return Ok(()) };
        let faults = self.compiled(schema)?.faults(arguments, FAULTS);
        if faults.is_empty() {
            return Ok(());
        }
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        Err(format!("the arguments do not fit the tool: {}", faults.join("; ")))
    }

    fn compiled(&self, schema: &Value) -> Result<Arc<Schema>, String> {
        let digest = Digest::of("linchpin schema").json(schema).end();
        if let Some(known) = lock(&self.0).get(&digest) {
            return Ok(known.clone());
        }
        let compiled =
            Schema::compile(schema).map_err(|fault| format!("the schema of the tool is broken: {fault}"))?;
        let compiled = Arc::new(compiled);
        let mut known = lock(&self.0);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(digest, compiled.clone());
        Ok(compiled)
    }
}

//! Cache of compiled input schemas, against which the arguments of calls are validated.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin::schema::Schema;
use serde_json::Value;

use crate::digest::Digest;
use crate::lock::lock;
use crate::tool::ToolRecord;

/// Maximum number of cached input schemas.
const MAX_SCHEMAS: usize = 1_000;
/// Maximum number of validation errors reported for one call.
const MAX_FAULTS: usize = 5;

/// Compiled input schemas of tools by their digest, shared by all servers.
#[derive(Default)]
pub(in crate::hub) struct SchemaCache(Mutex<HashMap<Digest, Arc<Schema>>>);

/// Compiled input schema of a tool, `None` if the tool has none, or why it cannot be compiled.
pub(in crate::hub) struct InputSchema(Result<Option<Arc<Schema>>, String>);

impl InputSchema {
    /// Validates arguments against the schema.
    pub(in crate::hub) fn check(&self, arguments: &Value) -> Result<(), String> {
        let Some(schema) = self.0.as_ref().map_err(Clone::clone)? else { return Ok(()) };
        let faults = schema.errors(arguments, MAX_FAULTS);
        if faults.is_empty() {
            return Ok(());
        }
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        Err(format!("the arguments do not match the input schema of the tool: {}", faults.join("; ")))
    }
}

impl SchemaCache {
    /// Returns the compiled input schema of a tool.
    pub(in crate::hub) fn input_schema(&self, tool: &ToolRecord) -> InputSchema {
        InputSchema(tool.input_schema().map(|schema| self.get_or_compile(schema)).transpose())
    }

    fn get_or_compile(&self, schema: &Value) -> Result<Arc<Schema>, String> {
        let digest = Digest::of("linchpin schema").json(schema).finish();
        if let Some(cached) = lock(&self.0).get(&digest) {
            return Ok(cached.clone());
        }
        let compiled = Schema::compile(schema)
            .map_err(|fault| format!("the input schema of the tool is invalid: {fault}"))?;
        let compiled = Arc::new(compiled);
        let mut cache = lock(&self.0);
        if cache.len() >= MAX_SCHEMAS {
            cache.clear();
        }
        cache.insert(digest, compiled.clone());
        Ok(compiled)
    }
}

//! Validation of structured results against the output schemas of listed tools.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin_protocol::model::{CallToolResult, Tool};
use serde_json::Value;

use super::ClientError;
use crate::lock::lock;
use crate::server::Validator;

/// Output schemas of the tools that the server has listed, against which results are validated.
#[derive(Default)]
pub(crate) struct OutputSchemas(Mutex<HashMap<String, Arc<OutputSchema>>>);

enum OutputSchema {
    Valid(Validator),
    /// The output schema cannot be compiled, for this reason.
    Unusable(String),
}

impl OutputSchemas {
    /// Stores the output schemas of listed tools, to validate results of calls.
    pub(crate) fn insert(&self, tools: &[Tool]) {
        let mut schemas = lock(&self.0);
        for tool in tools {
            let output = tool.output_schema.as_ref().map(|schema| {
                match Validator::new(&schema.0, "output schema of the tool") {
                    Ok(validator) => OutputSchema::Valid(validator),
                    Err(reason) => OutputSchema::Unusable(reason),
                }
            });
            match output {
                Some(output) => schemas.insert(tool.name.clone(), Arc::new(output)),
                None => schemas.remove(&tool.name),
            };
        }
    }

    /// Removes all output schemas, after the tool list has changed.
    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Validates a result against the output schema of its tool.
    pub(crate) fn validate(
        &self,
        server: &str,
        tool: &str,
        result: &CallToolResult,
    ) -> Result<(), ClientError> {
        let Some(output) = lock(&self.0).get(tool).cloned() else { return Ok(()) };
        if result.is_error == Some(true) {
            return Ok(());
        }
        let mismatch = |fault: String| ClientError::BadResult { tool: tool.to_owned(), reason: fault };
        let Some(structured) = &result.structured_content else {
            return Err(mismatch("the result has no structured content".into()));
        };
        match &*output {
            OutputSchema::Valid(validator) => {
                let value: Value = serde_json::from_str(structured.json.get())
                    .map_err(|error| mismatch(error.to_string()))?;
                validator.check(&value).map_err(mismatch)
            }
            OutputSchema::Unusable(reason) => {
                tracing::warn!(
                    server,
                    tool,
                    reason,
                    "result of a tool not validated: its output schema is unusable"
                );
                Ok(())
            }
        }
    }
}

//! Structured results, held against the output schemas that the server announced.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin_protocol::model::{CallToolResult, Tool};
use serde_json::Value;

use super::ClientError;
use crate::server::Validator;
use crate::sync::lock;

/// The output schemas of tools that were listed.
#[derive(Default)]
pub(crate) struct Outputs(Mutex<HashMap<String, Arc<Output>>>);

enum Output {
    Checked(Validator),
    /// There is a schema, and it cannot be used; the text says why.
    Unusable(String),
}

impl Outputs {
    /// Remembers what tools promise.
    pub(crate) fn note(&self, tools: &[Tool]) {
        let mut known = lock(&self.0);
        for tool in tools {
            let output = tool.output_schema.as_ref().map(|schema| {
                match Validator::new(&schema.0, "its output schema") {
                    Ok(validator) => Output::Checked(validator),
                    Err(reason) => Output::Unusable(reason),
                }
            });
            match output {
                Some(output) => known.insert(tool.name.clone(), Arc::new(output)),
                None => known.remove(&tool.name),
            };
        }
    }

    /// The tools have changed: what was promised no longer counts.
    pub(crate) fn forget(&self) {
        lock(&self.0).clear();
    }

    /// Whether a result keeps the promise of its tool.
    pub(crate) fn check(&self, server: &str, tool: &str, result: &CallToolResult) -> Result<(), ClientError> {
        let Some(output) = lock(&self.0).get(tool).cloned() else { return Ok(()) };
        if result.is_error == Some(true) {
            return Ok(());
        }
        let bad = |fault: String| ClientError::BadResult { tool: tool.to_owned(), fault };
        let Some(structured) = &result.structured_content else {
            return Err(bad("it has no structured content".into()));
        };
        match &*output {
            Output::Checked(validator) => {
                let value: Value =
                    serde_json::from_str(structured.json.get()).map_err(|error| bad(error.to_string()))?;
                validator.check(&value).map_err(bad)
            }
            Output::Unusable(reason) => {
                tracing::warn!(server, tool, reason, "a result was not checked");
                Ok(())
            }
        }
    }
}

//! Mirrored parameters of the tools that a server has listed, for the `Mcp-Param-*` headers of calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin_protocol::model::Tool;

use super::connection::HttpConnection;
use crate::http::param_headers::ParamHeaders;
use crate::lock::lock;
use crate::transport::PerRequestTransport;

/// Maximum number of tools whose parameter headers are stored.
const MAX_TOOLS: usize = 10_000;

/// Mirrored parameters of each tool, for the `Mcp-Param-*` headers of its calls. Most tools have none and are not
/// stored.
#[derive(Default)]
pub(super) struct ToolHeaderMap(Mutex<HashMap<String, Arc<ParamHeaders>>>);

impl ToolHeaderMap {
    pub(super) fn find(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        lock(&self.0).get(tool).cloned()
    }

    fn insert(&self, tool: &Tool) -> Result<(), String> {
        let mirror = ParamHeaders::from_schema(&tool.input_schema);
        let mut known = lock(&self.0);
        if known.len() >= MAX_TOOLS && !known.contains_key(&tool.name) {
            known.clear(); // a call without its headers is rejected, which lists the tools again
        }
        match mirror {
            Ok(mirror) if !mirror.is_empty() => known.insert(tool.name.clone(), Arc::new(mirror)),
            Ok(_) => known.remove(&tool.name),
            Err(reason) => {
                known.remove(&tool.name);
                return Err(reason);
            }
        };
        Ok(())
    }
}

impl PerRequestTransport for HttpConnection {
    fn accept_tool(&self, tool: &Tool) -> Result<(), String> {
        let outcome = self.tool_headers.insert(tool);
        if let Err(reason) = &outcome {
            self.report_diagnostic(|| format!("skipped the tool `{}`: {reason}", tool.name));
        }
        outcome
    }
}

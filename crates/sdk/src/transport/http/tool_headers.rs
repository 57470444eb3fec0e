//! Parameter headers of listed tools.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linchpin_protocol::model::Tool;

use super::connection::Link;
use crate::http::param_headers::Mirror;
use crate::lock::lock;
use crate::transport::Carrier;

/// Maximum number of stored tools.
const MAX_TOOLS: usize = 10_000;

/// Parameter headers by tool name. Most tools have none and are not stored.
#[derive(Default)]
pub(super) struct Mirrors(Mutex<HashMap<String, Arc<Mirror>>>);

impl Mirrors {
    pub(super) fn find(&self, tool: &str) -> Option<Arc<Mirror>> {
        lock(&self.0).get(tool).cloned()
    }

    fn note(&self, tool: &Tool) -> Result<(), String> {
        let mirror = Mirror::of(&tool.input_schema);
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

impl Carrier for Link {
    fn admit(&self, tool: &Tool) -> Result<(), String> {
        let noted = self.mirrors.note(tool);
        if let Err(reason) = &noted {
            self.diagnose(|| format!("skipped the tool `{}`: {reason}", tool.name));
        }
        noted
    }
}

//! Tool list of a server before it is stored: the usable tools, and the skipped ones with the reasons.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use linchpin::Revision;
use linchpin::client::{self, Listing};
use linchpin::encode::to_value;
use serde_json::Value;

use crate::secrets::redact::Redactor;
use crate::tool::SkippedTool;

/// Maximum length of a tool name.
const MAX_TOOL_NAME_LEN: usize = 1_000;
/// Maximum size of one tool definition, in bytes of JSON.
const MAX_DEFINITION_BYTES: usize = 128 << 10;
/// Maximum size of all tool definitions of one server, in bytes of JSON.
const MAX_LISTING_BYTES: usize = 32 << 20;
/// Maximum number of skipped tools that are reported.
const MAX_REPORTED_SKIPPED: usize = 100;

/// Moves the tools that the hub would not use to the skipped ones. For commands that connect to a server themselves.
pub fn usable_tools(mut tools: Listing<linchpin::model::Tool>) -> Listing<linchpin::model::Tool> {
    let mut listed = ToolListing::from_listing(tools.clone(), &Redactor::default());
    let mut usable = std::mem::take(&mut listed.tools);
    tools.items.retain(|tool| {
        let is_used =
            usable.get(&tool.name).is_some_and(|definitions| definitions.contains(&definition(tool)));
        if is_used {
            usable.remove(&tool.name);
        }
        is_used
    });
    let skipped =
        listed.skipped.iter().map(|left| client::SkippedEntry::new(&left.name, left.reason.as_str()));
    tools.skipped = skipped.collect();
    tools
}

/// Tools that a server lists, redacted and checked, before a sync stores them.
#[derive(Default)]
pub(in crate::hub) struct ToolListing {
    /// Tool definitions with secrets redacted, by tool name. If agents see different ones, all of them.
    pub(in crate::hub) tools: BTreeMap<String, Vec<Value>>,
    skipped: BTreeSet<SkippedTool>,
    size: usize,
    /// Whether the list covers all subjects, so that tools missing from it were removed.
    pub(in crate::hub) is_complete: bool,
    /// Whether the list covers one of several subjects, so that known tools of others stay unchanged.
    pub(in crate::hub) is_partial: bool,
}

impl ToolListing {
    /// Creates the tool listing of one subject.
    pub(in crate::hub) fn from_listing(tools: Listing<linchpin::model::Tool>, redactor: &Redactor) -> Self {
        let mut listed = ToolListing::default();
        listed.add(tools, redactor);
        listed
    }

    /// Adds the tools that the server lists for one subject. Tools that others have listed stay.
    pub(in crate::hub) fn add(&mut self, tools: Listing<linchpin::model::Tool>, redactor: &Redactor) {
        for left in tools.skipped {
            self.skip(&left.name, left.reason, redactor);
        }
        let mut names = HashSet::new();
        for tool in tools.items {
            // Redact first: users must review exactly the definition that is pinned.
            let definition = redactor.redact(definition(&tool));
            let size = definition.to_string().len();
            let rejected = self.skip_reason(&tool.name, size, redactor);
            // A skipped tool must not hide another one of the same name.
            if let Some(reason) = rejected {
                self.skip(&tool.name, reason, redactor);
                continue;
            }
            if !names.insert(tool.name.clone()) {
                self.skip(&tool.name, "the list contains another tool of this name".to_owned(), redactor);
                continue;
            }
            let definitions = self.tools.entry(tool.name).or_default();
            if !definitions.contains(&definition) {
                self.size += size;
                definitions.push(definition);
            }
        }
    }

    /// Returns why the hub skips a listed tool, or `None` if it can be used.
    fn skip_reason(&self, name: &str, size: usize, redactor: &Redactor) -> Option<String> {
        if name.chars().count() > MAX_TOOL_NAME_LEN {
            return Some(format!("its name has more than {MAX_TOOL_NAME_LEN} characters"));
        }
        if redactor.redact_text(name.to_owned()) != name {
            return Some("its name contains a secret of the server".to_owned());
        }
        if size > MAX_DEFINITION_BYTES {
            return Some(format!("its definition has {size} bytes; the limit is {MAX_DEFINITION_BYTES}"));
        }
        let exceeds_limit = self.size + size > MAX_LISTING_BYTES;
        exceeds_limit.then(|| {
            format!("with it, the tool definitions of the server would exceed {MAX_LISTING_BYTES} bytes")
        })
    }

    fn skip(&mut self, name: &str, reason: String, redactor: &Redactor) {
        let [name, reason] = [name.to_owned(), reason].map(|text| redactor.redact_text(text));
        self.skipped.insert(SkippedTool::new(&name, &reason));
    }

    /// Returns the names of the listed tools.
    pub(in crate::hub) fn names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    /// Returns the skipped tools to report, with the reasons.
    pub(in crate::hub) fn skipped(&self) -> Vec<SkippedTool> {
        self.skipped.iter().take(MAX_REPORTED_SKIPPED).cloned().collect()
    }
}

/// Returns the definition of a tool as the hub stores it, including `execution`, which the latest revision does not
/// have.
fn definition(tool: &linchpin::model::Tool) -> Value {
    let mut definition = to_value(tool, Revision::LATEST);
    if let Some(execution) = &tool.execution {
        definition["execution"] = to_value(execution, Revision::LATEST);
    }
    definition
}

#[cfg(test)]
mod tests {
    use linchpin::model::Tool;
    use serde_json::json;

    use super::*;

    fn tool(description: &str) -> Tool {
        let tool = json!({ "name": "a", "description": description, "inputSchema": { "type": "object" } });
        serde_json::from_str(&tool.to_string()).unwrap()
    }

    #[test]
    fn of_two_tools_of_one_name_the_one_that_is_small_enough_is_used() {
        let mut tools = Listing::default();
        tools.items.extend([tool(&"x".repeat(MAX_DEFINITION_BYTES)), tool("small"), tool("second")]);
        let usable = usable_tools(tools);
        let used: Vec<_> = usable.items.iter().map(|tool| tool.description.as_deref()).collect();
        assert_eq!(used, [Some("small")]);
        assert_eq!(usable.skipped.len(), 2, "{:?}", usable.skipped);
    }
}

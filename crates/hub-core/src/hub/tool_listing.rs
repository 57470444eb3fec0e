//! Tool list of a server before it is stored: the usable tools, and the skipped ones with the reasons.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use linchpin::Revision;
use linchpin::client::{self, Listing};
use linchpin::encode::to_value;
use serde_json::Value;

use crate::secrets::redact::Hidden;
use crate::tool::LeftOut;

/// Maximum length of a tool name.
const LONGEST_NAME: usize = 1_000;
/// Maximum size of one tool definition, and of all definitions of a server, as JSON bytes.
const LARGEST: usize = 128 << 10;
const LARGEST_LIST: usize = 32 << 20;
/// Maximum number of skipped tools that are reported.
const MOST_LEFT_OUT: usize = 100;

/// Moves the tools that the hub would not use to the skipped ones. For commands that connect to a server themselves.
pub fn usable_tools(mut tools: Listing<linchpin::model::Tool>) -> Listing<linchpin::model::Tool> {
    let mut listed = Listed::of(tools.clone(), &Hidden::default());
    let mut used = std::mem::take(&mut listed.tools);
    tools.items.retain(|tool| {
        let is_used = used.get(&tool.name).is_some_and(|used| used.contains(&definition(tool)));
        if is_used {
            used.remove(&tool.name);
        }
        is_used
    });
    let left_out = listed.left_out.iter().map(|left| client::LeftOut::new(&left.name, left.reason.as_str()));
    tools.left_out = left_out.collect();
    tools
}

/// Tools that a server lists.
#[derive(Default)]
pub(super) struct Listed {
    /// Redacted definitions by name. If agents see different ones, all of them.
    pub(super) tools: BTreeMap<String, Vec<Value>>,
    left_out: BTreeSet<LeftOut>,
    size: usize,
    /// Whether the list covers all subjects, so that tools missing from it were removed.
    pub(super) is_whole: bool,
    /// Whether the list covers one of several subjects, so that known tools of others stay unchanged.
    pub(super) is_of_one: bool,
}

impl Listed {
    /// Creates the list of one subject.
    pub(super) fn of(tools: Listing<linchpin::model::Tool>, hidden: &Hidden) -> Self {
        let mut listed = Listed::default();
        listed.add(tools, hidden);
        listed
    }

    /// Adds the list of one subject. Tools that others have listed stay.
    pub(super) fn add(&mut self, tools: Listing<linchpin::model::Tool>, hidden: &Hidden) {
        for left in tools.left_out {
            self.leave_out(&left.name, left.reason, hidden);
        }
        let mut names = HashSet::new();
        for tool in tools.items {
            // Redact first: users must review exactly the definition that is pinned.
            let definition = hidden.hide(definition(&tool));
            let size = definition.to_string().len();
            let refused = self.refusal(&tool.name, size, hidden);
            // A skipped tool must not hide another one of the same name.
            if let Some(reason) = refused {
                self.leave_out(&tool.name, reason, hidden);
                continue;
            }
            if !names.insert(tool.name.clone()) {
                self.leave_out(&tool.name, "the list contains another tool of this name".to_owned(), hidden);
                continue;
            }
            let known = self.tools.entry(tool.name).or_default();
            if !known.contains(&definition) {
                self.size += size;
                known.push(definition);
            }
        }
    }

    /// Returns why a tool cannot be used.
    fn refusal(&self, name: &str, size: usize, hidden: &Hidden) -> Option<String> {
        if name.chars().count() > LONGEST_NAME {
            return Some(format!("its name has more than {LONGEST_NAME} characters"));
        }
        if hidden.hide_in(name.to_owned()) != name {
            return Some("its name contains a secret of the server".to_owned());
        }
        if size > LARGEST {
            return Some(format!("its definition has {size} bytes; the limit is {LARGEST}"));
        }
        let is_over = self.size + size > LARGEST_LIST;
        is_over.then(|| format!("the definitions of all tools exceed {LARGEST_LIST} bytes"))
    }

    fn leave_out(&mut self, name: &str, reason: String, hidden: &Hidden) {
        let [name, reason] = [name.to_owned(), reason].map(|text| hidden.hide_in(text));
        self.left_out.insert(LeftOut::new(&name, &reason));
    }

    /// Returns the names of the tools.
    pub(super) fn names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    /// Returns the skipped tools.
    pub(super) fn left_out(&self) -> Vec<LeftOut> {
        self.left_out.iter().take(MOST_LEFT_OUT).cloned().collect()
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
        tools.items.extend([tool(&"x".repeat(LARGEST)), tool("small"), tool("second")]);
        let usable = usable_tools(tools);
        let used: Vec<_> = usable.items.iter().map(|tool| tool.description.as_deref()).collect();
        assert_eq!(used, [Some("small")]);
        assert_eq!(usable.left_out.len(), 2, "{:?}", usable.left_out);
    }
}

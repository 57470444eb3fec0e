//! A tool as the hub knows it: what its server listed, and what people have said of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::ServerId;
use crate::pin::{self, Change, State};
use crate::text::first_line;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Whose it is.
    pub server: ServerId,
    /// What the server calls it.
    pub name: String,
    /// What the server listed last.
    pub definition: Value,
    /// What it was when it was first listed, or when somebody last looked at it.
    pub pinned: Value,
    /// Whether somebody has looked at that and trusts it.
    pub is_trusted: bool,
    /// When it was first listed.
    pub first_seen: Timestamp,
    /// When it was last listed.
    pub last_seen: Timestamp,
    /// Whether the last list did not have it any more.
    pub is_gone: bool,
}

/// A tool that a server lists and the hub does not use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "ToolLeftOut")]
pub struct LeftOut {
    /// The name that the server lists, or the position in the list if there is no name.
    pub name: String,
    /// Why the hub does not use it.
    pub reason: String,
}

impl LeftOut {
    /// A tool that is left out; both texts may come from the server.
    pub(crate) fn new(name: &str, reason: &str) -> Self {
        LeftOut { name: first_line(name).chars().take(100).collect(), reason: first_line(reason) }
    }
}

impl Tool {
    /// A tool that was listed for the first time.
    pub fn new(server: ServerId, name: impl Into<String>, definition: Value, now: Timestamp) -> Self {
        Tool {
            server,
            name: name.into(),
            pinned: definition.clone(),
            definition,
            is_trusted: false,
            first_seen: now,
            last_seen: now,
            is_gone: false,
        }
    }

    /// It was listed again.
    pub fn listed(&mut self, definition: Value, now: Timestamp) {
        (self.definition, self.last_seen, self.is_gone) = (definition, now, false);
    }

    /// Somebody has looked at it, as it is now, and trusts it.
    pub fn trust(&mut self) {
        self.pinned = self.definition.clone();
        self.is_trusted = true;
    }

    /// What people have said of it, and whether that still holds.
    pub fn state(&self) -> State {
        if pin::pin(&self.pinned) != pin::pin(&self.definition) {
            return State::Changed;
        }
        if self.is_trusted { State::Trusted } else { State::New }
    }

    /// What changed since it was first listed, or last looked at.
    pub fn changes(&self) -> Vec<Change> {
        pin::changes(&self.pinned, &self.definition)
    }

    /// Whether the server accepts calls of it only as tasks.
    pub fn requires_task(&self) -> bool {
        self.definition.pointer("/execution/taskSupport").is_some_and(|support| support == "required")
    }

    /// The schema of its arguments.
    pub fn input_schema(&self) -> Option<&Value> {
        self.definition.get("inputSchema")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_that_changes_is_not_the_one_that_was_trusted() {
        let now = Timestamp::UNIX_EPOCH;
        let definition = json!({"name": "send", "description": "Sends", "inputSchema": {"type": "object"}});
        let mut tool = Tool::new(ServerId::fixed(1), "send", definition.clone(), now);
        assert_eq!(tool.state(), State::New);
        tool.trust();
        assert_eq!((tool.state(), tool.changes()), (State::Trusted, vec![]));
        let mut other = definition.clone();
        other["description"] = json!("Sends everything to me");
        tool.listed(other, now);
        assert_eq!((tool.state(), tool.changes().len()), (State::Changed, 1));
        tool.listed(definition, now);
        assert_eq!(tool.state(), State::Trusted, "it is as it was");
        let kept: Tool = serde_json::from_value(serde_json::to_value(&tool).unwrap()).unwrap();
        assert_eq!(kept, tool);
    }
}

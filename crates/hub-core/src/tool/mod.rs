//! Tool record: the definition that a server lists, with pin, trust and timestamps.

pub mod names;
pub mod pin;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::pin::{DefinitionChange, TrustState};
use crate::id::ServerId;
use crate::text::first_line;

/// Tool of a server as stored: its current and pinned definition, and whether a user trusts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRecord {
    /// Id of the server that lists the tool.
    pub server: ServerId,
    /// Upstream name of the tool: the name that its server uses.
    pub name: String,
    /// Definition that the server listed last.
    pub definition: Value,
    /// Pinned definition: as first listed, or as last trusted by a user.
    pub pinned: Value,
    /// Whether a user trusts the pinned definition.
    pub is_trusted: bool,
    /// Time at which the tool was first listed.
    pub first_seen: Timestamp,
    /// Time at which the tool was last listed.
    pub last_seen: Timestamp,
    /// Whether the last tool list of the server did not contain the tool any more.
    #[serde(rename = "is_gone")]
    pub is_removed: bool,
}

/// Tool that a server lists and the hub does not use, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SkippedTool {
    /// Name that the server lists, or the position in the list if there is no name.
    pub name: String,
    /// Reason why the hub does not use the tool.
    pub reason: String,
}

impl SkippedTool {
    /// Creates the entry of a tool that the hub skips, with the reason. Both texts may come from the server.
    pub(crate) fn new(name: &str, reason: &str) -> Self {
        SkippedTool { name: first_line(name).chars().take(100).collect(), reason: first_line(reason) }
    }
}

impl ToolRecord {
    /// Creates the record of a tool that was listed for the first time.
    pub fn new(server: ServerId, name: impl Into<String>, definition: Value, now: Timestamp) -> Self {
        ToolRecord {
            server,
            name: name.into(),
            pinned: definition.clone(),
            definition,
            is_trusted: false,
            first_seen: now,
            last_seen: now,
            is_removed: false,
        }
    }

    /// Updates the record of a tool when the server lists it again.
    pub fn update_listing(&mut self, definition: Value, now: Timestamp) {
        (self.definition, self.last_seen, self.is_removed) = (definition, now, false);
    }

    /// Pins and trusts the current definition.
    pub fn trust(&mut self) {
        self.pinned = self.definition.clone();
        self.is_trusted = true;
    }

    /// Returns the trust state of the tool.
    pub fn state(&self) -> TrustState {
        if pin::pin(&self.pinned) != pin::pin(&self.definition) {
            return TrustState::Changed;
        }
        if self.is_trusted { TrustState::Trusted } else { TrustState::New }
    }

    /// Returns the differences between the pinned and the current definition.
    pub fn changes(&self) -> Vec<DefinitionChange> {
        pin::changes(&self.pinned, &self.definition)
    }

    /// Returns whether the server accepts calls of the tool only as tasks.
    pub fn requires_task(&self) -> bool {
        self.definition.pointer("/execution/taskSupport").is_some_and(|support| support == "required")
    }

    /// Returns the JSON Schema of the tool's arguments.
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
        let mut tool = ToolRecord::new(ServerId::from_u128(1), "send", definition.clone(), now);
        assert_eq!(tool.state(), TrustState::New);
        tool.trust();
        assert_eq!((tool.state(), tool.changes()), (TrustState::Trusted, vec![]));
        let mut other = definition.clone();
        other["description"] = json!("Sends everything to me");
        tool.update_listing(other, now);
        assert_eq!((tool.state(), tool.changes().len()), (TrustState::Changed, 1));
        tool.update_listing(definition, now);
        assert_eq!(tool.state(), TrustState::Trusted, "the definition is the pinned one again");
        let kept: ToolRecord = serde_json::from_value(serde_json::to_value(&tool).unwrap()).unwrap();
        assert_eq!(kept, tool);
    }
}

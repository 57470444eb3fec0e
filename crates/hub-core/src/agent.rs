//! Agents: programs with an identity, a tool selection, an approval mode and tokens of their own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, ServerId};

/// Approval mode of an agent: which tool calls require the approval of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// No call requires approval.
    Auto,
    /// Every call requires approval.
    #[default]
    AlwaysAsk,
    /// Every call requires approval, except calls of tools that a user has trusted and that are also on the agent's
    /// list of trusted tools.
    TrustedOnly,
}

/// What an agent may use of one server, and which of its tools need no approval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ServerAccess {
    /// Names of the tools that the agent may call, without resources and prompts. Default: all tools, resources and
    /// prompts.
    pub tools: Option<Vec<String>>,
    /// Names of the tools that need no approval in the mode `trusted-only`, once a user has trusted them.
    pub trusted: Vec<String>,
}

/// Agent: identity, instructions, tool selection and approval mode, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Id of the agent.
    pub id: AgentId,
    /// Display name.
    pub name: String,
    /// System instructions for the model of the agent.
    pub instructions: String,
    /// Name of the model, stored for information; the hub calls no model.
    pub model: Option<String>,
    /// Servers that the agent may use, each with the selected tools.
    pub servers: BTreeMap<ServerId, ServerAccess>,
    /// Approval mode.
    pub approval: ApprovalMode,
    /// Whether the agent is enabled and may use servers at all.
    pub enabled: bool,
    /// Rate limit: calls, reads and prompts per minute. Default: unlimited.
    #[serde(default)]
    pub calls_per_minute: Option<u32>,
    /// Concurrency limit: calls in flight. Default: unlimited.
    #[serde(default, rename = "calls_at_once")]
    pub max_concurrent_calls: Option<u32>,
    /// Time at which the agent was created.
    pub created: Timestamp,
    /// Time of the last change of the agent.
    pub updated: Timestamp,
}

impl Agent {
    /// Returns whether the agent may use a tool.
    pub fn may_use(&self, server: ServerId, tool: &str) -> bool {
        let selected = |selection: &ServerAccess| {
            selection.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
        };
        self.enabled && self.servers.get(&server).is_some_and(selected)
    }

    /// Returns whether the agent may use the complete server: all tools, resources and prompts.
    pub fn has_full_access(&self, server: ServerId) -> bool {
        self.enabled && self.servers.get(&server).is_some_and(|selection| selection.tools.is_none())
    }

    /// Returns whether a tool is on the agent's list of trusted tools.
    pub fn trusts(&self, server: ServerId, tool: &str) -> bool {
        self.servers.get(&server).is_some_and(|selection| selection.trusted.iter().any(|name| name == tool))
    }
}

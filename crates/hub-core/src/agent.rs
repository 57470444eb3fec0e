//! Agents: programs with an identity, a tool selection, an approval mode and tokens of their own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, ServerId};
use crate::uri_pattern;

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

/// Selection of all resources or prompts of a server.
const ALL: &str = "*";

/// What an agent may use of one server, and which of its tools need no approval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ServerAccess {
    /// Names of the tools that the agent may call. Default: all tools.
    pub tools: Option<Vec<String>>,
    /// URIs of the resources that the agent may read. A URI that ends with `*` selects all URIs with this prefix, and
    /// `{name}` stands for a part without `/`. Default: all resources, or none if `tools` is set.
    #[serde(default)]
    pub resources: Option<Vec<String>>,
    /// Names of the prompts that the agent may use; `*` selects all. Default: all prompts, or none if `tools` is set.
    #[serde(default)]
    pub prompts: Option<Vec<String>>,
    /// Names of the tools that need no approval in the mode `trusted-only`, once a user has trusted them.
    pub trusted: Vec<String>,
}

impl ServerAccess {
    /// Returns whether a list of selected resources or prompts has a match. A missing list selects everything, or
    /// nothing if tools are selected one by one.
    fn selects(&self, list: Option<&[String]>, is_match: impl FnMut(&String) -> bool) -> bool {
        list.map_or(self.tools.is_none(), |items| items.iter().any(is_match))
    }
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
    /// Whether the client of the agent may ask its own user to approve a call. Not for agents of earlier versions, which
    /// were added without this choice.
    #[serde(default)]
    pub client_approvals: bool,
    /// Time at which the agent was created.
    pub created: Timestamp,
    /// Time of the last change of the agent.
    pub updated: Timestamp,
}

impl Agent {
    /// Returns what the agent may use of a server, unless the agent is disabled.
    fn access(&self, server: ServerId) -> Option<&ServerAccess> {
        self.servers.get(&server).filter(|_| self.enabled)
    }

    /// Returns whether the agent may use a tool.
    pub fn may_use(&self, server: ServerId, tool: &str) -> bool {
        let selected = |access: &ServerAccess| {
            access.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
        };
        self.access(server).is_some_and(selected)
    }

    /// Returns whether the agent may read a resource of a server.
    pub fn may_read(&self, server: ServerId, uri: &str) -> bool {
        let is_match = |pattern: &String| uri_pattern::matches(pattern, uri);
        self.access(server).is_some_and(|access| access.selects(access.resources.as_deref(), is_match))
    }

    /// Returns whether the agent may read all resources of a template that a server lists.
    pub fn may_read_template(&self, server: ServerId, template: &str) -> bool {
        let is_match = |pattern: &String| uri_pattern::covers_template(pattern, template);
        self.access(server).is_some_and(|access| access.selects(access.resources.as_deref(), is_match))
    }

    /// Returns whether the agent may read any resource of a server.
    pub fn may_read_any(&self, server: ServerId) -> bool {
        self.access(server).is_some_and(|access| access.selects(access.resources.as_deref(), |_| true))
    }

    /// Returns whether the agent may use a prompt of a server.
    pub fn may_render(&self, server: ServerId, prompt: &str) -> bool {
        let is_match = |name: &String| name == ALL || name == prompt;
        self.access(server).is_some_and(|access| access.selects(access.prompts.as_deref(), is_match))
    }

    /// Returns whether the agent may use any prompt of a server.
    pub fn may_render_any(&self, server: ServerId) -> bool {
        self.access(server).is_some_and(|access| access.selects(access.prompts.as_deref(), |_| true))
    }

    /// Returns whether a tool is on the agent's list of trusted tools.
    pub fn trusts(&self, server: ServerId, tool: &str) -> bool {
        self.servers.get(&server).is_some_and(|selection| selection.trusted.iter().any(|name| name == tool))
    }
}

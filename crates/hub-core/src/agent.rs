//! An agent: a program that acts for people, within what they allow it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, ServerId};

/// When a person is asked before a tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// Never.
    Auto,
    /// Always.
    #[default]
    AlwaysAsk,
    /// Unless the tool is on the agent's list.
    TrustedOnly,
}

/// What of a server an agent may use: the whole server, or some of its tools.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Selection {
    /// These tools, and nothing else of the server. Default: all tools, resources and prompts.
    pub tools: Option<Vec<String>>,
    /// Those for which nobody is asked where the agent only trusts some.
    pub trusted: Vec<String>,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// What people call it.
    pub name: String,
    /// What it is told before anything else.
    pub instructions: String,
    /// The model that it uses, if the hub runs it.
    pub model: Option<String>,
    /// The servers that it may use, and what of each.
    pub servers: BTreeMap<ServerId, Selection>,
    /// When a person is asked.
    pub approval: ApprovalMode,
    /// Whether it may do anything.
    pub enabled: bool,
    /// How many calls, reads and prompts a minute it may make; as many as it wants without it.
    #[serde(default)]
    pub calls_per_minute: Option<u32>,
    /// How many of its calls may be under way at once.
    #[serde(default)]
    pub calls_at_once: Option<u32>,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
}

impl Agent {
    /// Whether it may use a tool at all.
    pub fn may_use(&self, server: ServerId, tool: &str) -> bool {
        let selected = |selection: &Selection| {
            selection.tools.as_ref().is_none_or(|tools| tools.iter().any(|known| known == tool))
        };
        self.enabled && self.servers.get(&server).is_some_and(selected)
    }

    /// Whether it was granted the whole server: all tools, resources and prompts.
    pub fn has_whole(&self, server: ServerId) -> bool {
        self.enabled && self.servers.get(&server).is_some_and(|selection| selection.tools.is_none())
    }

    /// Whether it is on its list of trusted tools.
    pub fn trusts(&self, server: ServerId, tool: &str) -> bool {
        self.servers.get(&server).is_some_and(|selection| selection.trusted.iter().any(|known| known == tool))
    }
}

//! Capabilities that clients and servers declare to each other.

use serde_json::{Map, Value};

use super::TasksCapability;
use crate::encode::model;

/// Extension identifiers: the keys of `extensions` in the capabilities of clients and servers.
pub mod extension {
    /// Identifier of the tasks extension in capabilities. It has no settings.
    pub const TASKS: &str = "io.modelcontextprotocol/tasks";
    /// Identifier of the skills extension in capabilities. The settings of a server are
    /// [`SkillsSettings`](super::super::SkillsSettings).
    pub const SKILLS: &str = "io.modelcontextprotocol/skills";
}

model! {
    /// Capabilities that a client declares to servers, such as elicitation and sampling.
    #[derive(Default)]
    pub struct ClientCapabilities {
        /// Whether the client supports elicitation.
        elicitation: Option<ElicitationCapability> = "elicitation" since Elicitation,
        /// Whether the client supports sampling.
        sampling: Option<SamplingCapability> = "sampling",
        /// Whether the client supports `roots/list`.
        roots: Option<RootsCapability> = "roots",
        /// Whether the client can run requests as tasks (core tasks).
        tasks: Option<TasksCapability> = "tasks" since CoreTasks,
        /// Extensions and their settings, by identifier.
        extensions: Option<Map<String, Value>> = "extensions" since Extensions,
        /// Non-standard capabilities.
        experimental: Option<Map<String, Value>> = "experimental",
    }

    /// Elicitation modes that a client supports.
    #[derive(Default)]
    pub struct ElicitationCapability {
        /// Support for elicitation with a form. Also supported if neither mode is present.
        form: Option<Value> = "form" since UrlElicitation,
        /// Whether the client supports elicitation by URL.
        url: Option<Value> = "url" since UrlElicitation,
    }

    /// Sampling features that a client supports.
    #[derive(Default)]
    pub struct SamplingCapability {
        /// Context inclusion: the server may ask for context of MCP servers in the prompt.
        context: Option<Value> = "context" since SamplingTools,
        /// Whether the client supports tools in sampling requests.
        tools: Option<Value> = "tools" since SamplingTools,
    }

    /// Roots capability of a client: whether it notifies servers of changes of its roots.
    #[derive(Default)]
    pub struct RootsCapability {
        /// Whether the client sends `notifications/roots/list_changed`.
        list_changed: Option<bool> = "listChanged" since Sessions,
    }

    /// Capabilities that a server declares to clients, such as tools and resources.
    #[derive(Default)]
    pub struct ServerCapabilities {
        /// Present if the server offers tools.
        tools: Option<ListCapability> = "tools",
        /// Present if the server offers resources.
        resources: Option<ResourcesCapability> = "resources",
        /// Present if the server offers prompts.
        prompts: Option<ListCapability> = "prompts",
        /// Whether the server supports argument completion.
        completions: Option<Map<String, Value>> = "completions" since CompletionsCapability,
        /// Whether the server sends log messages.
        logging: Option<Map<String, Value>> = "logging",
        /// Whether the server can run requests as tasks (core tasks).
        tasks: Option<TasksCapability> = "tasks" since CoreTasks,
        /// Extensions and their settings, by identifier.
        extensions: Option<Map<String, Value>> = "extensions" since Extensions,
        /// Non-standard capabilities.
        experimental: Option<Map<String, Value>> = "experimental",
    }

    /// Tools or prompts capability of a server: whether it notifies clients of changes of the list.
    #[derive(Default)]
    pub struct ListCapability {
        /// Whether the server sends a notification when the list changes.
        list_changed: Option<bool> = "listChanged",
    }

    /// Resources capability of a server: whether clients can subscribe, and whether list changes are notified.
    #[derive(Default)]
    pub struct ResourcesCapability {
        /// Whether clients can subscribe to updates of a resource.
        subscribe: Option<bool> = "subscribe",
        /// Whether the server sends a notification when the list changes.
        list_changed: Option<bool> = "listChanged",
    }
}

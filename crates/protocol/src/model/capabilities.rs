//! What each side can do.

use serde_json::{Map, Value};

use super::TasksCapability;
use crate::encode::model;

/// The identifiers of extensions: keys of the map of extensions in the capabilities of both sides.
pub mod extension {
    /// Tasks. There are no settings.
    pub const TASKS: &str = "io.modelcontextprotocol/tasks";
    /// Skills. A server's settings are [`SkillsSettings`](super::super::SkillsSettings).
    pub const SKILLS: &str = "io.modelcontextprotocol/skills";
}

model! {
    /// What a client can do.
    #[derive(Default)]
    pub struct ClientCapabilities {
        /// It can ask its user.
        elicitation: Option<ElicitationCapability> = "elicitation" since Elicitation,
        /// It can ask a model.
        sampling: Option<SamplingCapability> = "sampling",
        /// It can name the folders it works in.
        roots: Option<RootsCapability> = "roots",
        /// Tasks, as one revision has them in its core.
        tasks: Option<TasksCapability> = "tasks" since CoreTasks,
        /// Extensions by identifier, with their settings.
        extensions: Option<Map<String, Value>> = "extensions" since Extensions,
        /// Anything that is no part of the protocol.
        experimental: Option<Map<String, Value>> = "experimental",
    }

    /// How a client can ask its user.
    #[derive(Default)]
    pub struct ElicitationCapability {
        /// By a form; so also when nothing is said.
        form: Option<Value> = "form" since UrlElicitation,
        /// By a URL to visit.
        url: Option<Value> = "url" since UrlElicitation,
    }

    /// How a client can ask a model.
    #[derive(Default)]
    pub struct SamplingCapability {
        /// With context of servers.
        context: Option<Value> = "context" since SamplingTools,
        /// With tools.
        tools: Option<Value> = "tools" since SamplingTools,
    }

    /// How a client names its folders.
    #[derive(Default)]
    pub struct RootsCapability {
        /// It tells when they change.
        list_changed: Option<bool> = "listChanged" since Sessions,
    }

    /// What a server can do.
    #[derive(Default)]
    pub struct ServerCapabilities {
        /// It has tools.
        tools: Option<ListCapability> = "tools",
        /// It has resources.
        resources: Option<ResourcesCapability> = "resources",
        /// It has prompts.
        prompts: Option<ListCapability> = "prompts",
        /// It completes arguments.
        completions: Option<Map<String, Value>> = "completions" since CompletionsCapability,
        /// It sends log messages.
        logging: Option<Map<String, Value>> = "logging",
        /// Tasks, as one revision has them in its core.
        tasks: Option<TasksCapability> = "tasks" since CoreTasks,
        /// Extensions by identifier, with their settings.
        extensions: Option<Map<String, Value>> = "extensions" since Extensions,
        /// Anything that is no part of the protocol.
        experimental: Option<Map<String, Value>> = "experimental",
    }

    /// A list that clients can ask for.
    #[derive(Default)]
    pub struct ListCapability {
        /// The server tells when it changes.
        list_changed: Option<bool> = "listChanged",
    }

    /// Resources that clients can ask for.
    #[derive(Default)]
    pub struct ResourcesCapability {
        /// The server tells when a single resource changes, to those who asked.
        subscribe: Option<bool> = "subscribe",
        /// The server tells when the list changes.
        list_changed: Option<bool> = "listChanged",
    }
}

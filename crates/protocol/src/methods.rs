//! The table of all methods: name, direction, and which revisions have it.

use crate::version::{Feature, Revision};

/// Who sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The client, to the server.
    ToServer,
    /// The server, to the client.
    ToClient,
    /// Either.
    Both,
}

macro_rules! methods {
    ($( $(#[$meta:meta])* $variant:ident = $name:literal $kind:ident $direction:ident $feature:ident; )*) => {
        /// A method of the protocol, request or notification.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method { $( $(#[$meta])* $variant, )* }

        impl Method {
            /// All of them, in the order of the table.
            pub const ALL: &[Method] = &[$( Method::$variant ),*];

            /// The name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $( Method::$variant => $name, )* }
            }

            /// The method with this name. The old spelling of `notifications/initialized` is known too.
            pub fn find(name: &str) -> Option<Method> {
                match name {
                    $( $name => Some(Method::$variant), )*
                    "initialized" => Some(Method::Initialized),
                    _ => None,
                }
            }

            /// Whether it wants an answer.
            pub const fn is_request(self) -> bool {
                match self { $( Method::$variant => methods!(@$kind), )* }
            }

            /// Who sends it.
            pub const fn direction(self) -> Direction {
                match self { $( Method::$variant => Direction::$direction, )* }
            }

            /// Whether its result may be questions to the client, to be answered by sending it again (stateless era).
            pub const fn takes_input(self) -> bool {
                matches!(self, Method::CallTool | Method::ReadResource | Method::GetPrompt)
            }

            /// The parameter that names what it is about, which clients repeat in a header (stateless era).
            pub const fn named_by(self) -> Option<&'static str> {
                match self {
                    Method::CallTool | Method::GetPrompt => Some("name"),
                    Method::ReadResource => Some("uri"),
                    Method::GetTask | Method::UpdateTask | Method::CancelTask => Some("taskId"),
                    _ => None,
                }
            }

            /// Whether a revision has it.
            pub fn is_in(self, revision: Revision) -> bool {
                revision.has(match self { $( Method::$variant => Feature::$feature, )* })
            }
        }
    };
    (@request) => { true };
    (@notification) => { false };
}

// `Extensions` marks what exists only where an extension was agreed on. `Tasks` marks what one revision has in its
// core and later ones in an extension.
methods! {
    /// Opens a session.
    Initialize = "initialize" request ToServer Sessions;
    /// The session is open.
    Initialized = "notifications/initialized" notification ToServer Sessions;
    /// Are you there?
    Ping = "ping" request Both Sessions;
    /// Who are you and what do you speak?
    Discover = "server/discover" request ToServer Stateless;
    /// A page of tools.
    ListTools = "tools/list" request ToServer Always;
    /// Call a tool.
    CallTool = "tools/call" request ToServer Always;
    /// Tools came or went.
    ToolsChanged = "notifications/tools/list_changed" notification ToClient Always;
    /// A page of resources.
    ListResources = "resources/list" request ToServer Always;
    /// A page of resource templates.
    ListResourceTemplates = "resources/templates/list" request ToServer Always;
    /// Read a resource.
    ReadResource = "resources/read" request ToServer Always;
    /// Watch a resource.
    Subscribe = "resources/subscribe" request ToServer Sessions;
    /// Stop watching it.
    Unsubscribe = "resources/unsubscribe" request ToServer Sessions;
    /// Resources came or went.
    ResourcesChanged = "notifications/resources/list_changed" notification ToClient Always;
    /// A resource changed.
    ResourceUpdated = "notifications/resources/updated" notification ToClient Always;
    /// Open a stream of notifications.
    Listen = "subscriptions/listen" request ToServer Stateless;
    /// What that stream will carry.
    ListenAcknowledged = "notifications/subscriptions/acknowledged" notification ToClient Stateless;
    /// A page of prompts.
    ListPrompts = "prompts/list" request ToServer Always;
    /// Fill in a prompt.
    GetPrompt = "prompts/get" request ToServer Always;
    /// Prompts came or went.
    PromptsChanged = "notifications/prompts/list_changed" notification ToClient Always;
    /// Complete an argument.
    Complete = "completion/complete" request ToServer Always;
    /// The least level of log messages that a session wants.
    SetLevel = "logging/setLevel" request ToServer Sessions;
    /// A log message.
    Log = "notifications/message" notification ToClient Always;
    /// How far a request has come.
    Progress = "notifications/progress" notification Both Always;
    /// A request is no longer wanted.
    Cancelled = "notifications/cancelled" notification Both Always;
    /// Ask the client's model. In the stateless era it travels inside results.
    CreateMessage = "sampling/createMessage" request ToClient Always;
    /// Ask the client's user. In the stateless era it travels inside results.
    Elicit = "elicitation/create" request ToClient Elicitation;
    /// The user has been where the URL led.
    ElicitationComplete = "notifications/elicitation/complete" notification ToClient ElicitationIds;
    /// Ask for the client's folders. In the stateless era it travels inside results.
    ListRoots = "roots/list" request ToClient Always;
    /// The client's folders changed.
    RootsChanged = "notifications/roots/list_changed" notification ToServer Sessions;
    /// A task's state; in the extension its result too.
    GetTask = "tasks/get" request Both Tasks;
    /// Answers to a task's questions (tasks extension).
    UpdateTask = "tasks/update" request ToServer Extensions;
    /// Give up a task.
    CancelTask = "tasks/cancel" request Both Tasks;
    /// A task's result (tasks in the core).
    GetTaskPayload = "tasks/result" request Both CoreTasks;
    /// A page of tasks (tasks in the core).
    ListTasks = "tasks/list" request Both CoreTasks;
    /// A task has changed (tasks in the core).
    TaskStatus = "notifications/tasks/status" notification Both CoreTasks;
    /// A task has changed (tasks extension).
    TaskUpdated = "notifications/tasks" notification ToClient Extensions;
    /// A page of skills (skills extension).
    ListSkills = "skills/list" request ToServer Extensions;
    /// A skill (skills extension).
    GetSkill = "skills/get" request ToServer Extensions;
    /// What is in a folder of resources (skills extension).
    ReadResourceDirectory = "resources/directory/read" request ToServer Extensions;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for &method in Method::ALL {
            assert_eq!(Method::find(method.name()), Some(method));
            assert_eq!(method.is_request(), !method.name().starts_with("notifications/"));
        }
        assert_eq!(Method::find("initialized"), Some(Method::Initialized));
        assert_eq!(Method::find("tools/Call"), None);
    }
}

//! Table of all methods: name, direction and revisions.

use crate::version::{Feature, Revision};

/// Whether a method is sent by clients, by servers, or by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    ToServer,
    /// From server to client.
    ToClient,
    /// In both directions.
    Both,
}

macro_rules! methods {
    ($( $(#[$meta:meta])* $variant:ident = $name:literal $kind:ident $direction:ident $feature:ident; )*) => {
        /// Method of the protocol, such as `tools/call`: a request or notification.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method { $( $(#[$meta])* $variant, )* }

        impl Method {
            /// All methods, in the order of the table.
            pub const ALL: &[Method] = &[$( Method::$variant ),*];

            /// Returns the method name as sent in messages.
            pub const fn name(self) -> &'static str {
                match self { $( Method::$variant => $name, )* }
            }

            /// Returns the method with this name, such as `tools/call`. Also accepts `initialized`, the old spelling of
            /// `notifications/initialized`.
            pub fn find(name: &str) -> Option<Method> {
                match name {
                    $( $name => Some(Method::$variant), )*
                    "initialized" => Some(Method::Initialized),
                    _ => None,
                }
            }

            /// Reports whether the method is a request.
            pub const fn is_request(self) -> bool {
                match self { $( Method::$variant => methods!(@$kind), )* }
            }

            /// Returns whether clients, servers or both may send the method.
            pub const fn direction(self) -> Direction {
                match self { $( Method::$variant => Direction::$direction, )* }
            }

            /// Reports whether the result of the method may be an `input_required` result (stateless era).
            pub const fn supports_input_requests(self) -> bool {
                matches!(self, Method::CallTool | Method::ReadResource | Method::GetPrompt)
            }

            /// Returns the parameter that clients repeat in the `Mcp-Name` header (stateless era).
            pub const fn name_parameter(self) -> Option<&'static str> {
                match self {
                    Method::CallTool | Method::GetPrompt => Some("name"),
                    Method::ReadResource => Some("uri"),
                    Method::GetTask | Method::UpdateTask | Method::CancelTask => Some("taskId"),
                    _ => None,
                }
            }

            /// Reports whether a revision has the method.
            pub fn exists_in(self, revision: Revision) -> bool {
                revision.has(match self { $( Method::$variant => Feature::$feature, )* })
            }
        }
    };
    (@request) => { true };
    (@notification) => { false };
}

// `Extensions`: available only if the extension was negotiated. `Tasks`: part of the core in one revision, an extension
// in later ones.
methods! {
    /// Opens a session.
    Initialize = "initialize" request ToServer Sessions;
    /// Completes the handshake of a session.
    Initialized = "notifications/initialized" notification ToServer Sessions;
    /// Checks whether the peer responds.
    Ping = "ping" request Both Sessions;
    /// Requests the identity, supported versions and capabilities of the server.
    Discover = "server/discover" request ToServer Stateless;
    /// Lists tools, one page at a time.
    ListTools = "tools/list" request ToServer Always;
    /// Calls a tool.
    CallTool = "tools/call" request ToServer Always;
    /// The list of tools has changed.
    ToolsChanged = "notifications/tools/list_changed" notification ToClient Always;
    /// Lists resources, one page at a time.
    ListResources = "resources/list" request ToServer Always;
    /// Lists resource templates, one page at a time.
    ListResourceTemplates = "resources/templates/list" request ToServer Always;
    /// Reads a resource.
    ReadResource = "resources/read" request ToServer Always;
    /// Subscribes to updates of a resource.
    Subscribe = "resources/subscribe" request ToServer Sessions;
    /// Unsubscribes from updates of a resource.
    Unsubscribe = "resources/unsubscribe" request ToServer Sessions;
    /// The list of resources has changed.
    ResourcesChanged = "notifications/resources/list_changed" notification ToClient Always;
    /// A resource has changed.
    ResourceUpdated = "notifications/resources/updated" notification ToClient Always;
    /// Opens a stream of notifications.
    Listen = "subscriptions/listen" request ToServer Stateless;
    /// Acknowledges a stream with the notifications that it will carry.
    ListenAcknowledged = "notifications/subscriptions/acknowledged" notification ToClient Stateless;
    /// Lists prompts, one page at a time.
    ListPrompts = "prompts/list" request ToServer Always;
    /// Gets a prompt with its arguments filled in.
    GetPrompt = "prompts/get" request ToServer Always;
    /// The list of prompts has changed.
    PromptsChanged = "notifications/prompts/list_changed" notification ToClient Always;
    /// Completes an argument.
    Complete = "completion/complete" request ToServer Always;
    /// Sets the minimum level of log messages of a session.
    SetLevel = "logging/setLevel" request ToServer Sessions;
    /// Log message.
    Log = "notifications/message" notification ToClient Always;
    /// Progress of a request.
    Progress = "notifications/progress" notification Both Always;
    /// Cancels a request.
    Cancelled = "notifications/cancelled" notification Both Always;
    /// Requests a completion from the client's model. In the stateless era it is carried in results.
    CreateMessage = "sampling/createMessage" request ToClient Always;
    /// Requests input from the client's user. In the stateless era it is carried in results.
    Elicit = "elicitation/create" request ToClient Elicitation;
    /// The user has completed a URL elicitation.
    ElicitationComplete = "notifications/elicitation/complete" notification ToClient ElicitationIds;
    /// Lists the client's roots. In the stateless era it is carried in results.
    ListRoots = "roots/list" request ToClient Always;
    /// The list of the client's roots has changed.
    RootsChanged = "notifications/roots/list_changed" notification ToServer Sessions;
    /// Gets the status of a task; in the extension also its result.
    GetTask = "tasks/get" request Both Tasks;
    /// Sends responses to the input requests of a task (tasks extension).
    UpdateTask = "tasks/update" request ToServer Extensions;
    /// Cancels a task.
    CancelTask = "tasks/cancel" request Both Tasks;
    /// Gets the result of a task (core tasks).
    GetTaskPayload = "tasks/result" request Both CoreTasks;
    /// Lists tasks, one page at a time (core tasks).
    ListTasks = "tasks/list" request Both CoreTasks;
    /// The status of a task has changed (core tasks).
    TaskStatus = "notifications/tasks/status" notification Both CoreTasks;
    /// The status of a task has changed (tasks extension).
    TaskUpdated = "notifications/tasks" notification ToClient Extensions;
    /// Lists skills, one page at a time (skills extension).
    ListSkills = "skills/list" request ToServer Extensions;
    /// Gets a skill (skills extension).
    GetSkill = "skills/get" request ToServer Extensions;
    /// Lists the content of a resource directory (skills extension).
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

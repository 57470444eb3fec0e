//! Permissions of callers. Each REST route declares the one that it needs, and an actor has it or lacks it.

use std::fmt;

macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident, $text:literal;)*) => {
        /// Permission for a group of operations, named `noun:verb`. Users have all permissions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Permission {
            $($(#[$doc])* $name,)*
        }

        impl Permission {
            /// All permissions.
            pub const ALL: &[Permission] = &[$(Permission::$name,)*];

            /// Returns the name of the permission in the API document and in errors.
            pub fn name(self) -> &'static str {
                match self {
                    $(Permission::$name => $text,)*
                }
            }
        }
    };
}

permissions! {
    /// See the status, the metrics and the events of the hub.
    HubRead, "hub:read";
    /// See the identity of the caller.
    SessionRead, "session:read";
    /// End the session of the caller.
    SessionEnd, "session:end";
    /// Create login links.
    LoginLinksCreate, "login-links:create";
    /// See servers with their settings and status.
    ServersRead, "servers:read";
    /// Add, change and remove servers.
    ServersWrite, "servers:write";
    /// Connect to servers, and test and sync them.
    ServersConnect, "servers:connect";
    /// See the metadata of credentials and grants.
    CredentialsRead, "credentials:read";
    /// Store and delete credentials and environment secrets, sign in and sign out.
    CredentialsWrite, "credentials:write";
    /// List and read resources.
    ResourcesRead, "resources:read";
    /// List and render prompts.
    PromptsRead, "prompts:read";
    /// See and export tools.
    ToolsRead, "tools:read";
    /// Trust tool definitions.
    ToolsTrust, "tools:trust";
    /// Call tools.
    ToolsCall, "tools:call";
    /// See calls.
    CallsRead, "calls:read";
    /// Cancel calls.
    CallsCancel, "calls:cancel";
    /// See approvals.
    ApprovalsRead, "approvals:read";
    /// Approve and deny calls.
    ApprovalsDecide, "approvals:decide";
    /// See approval rules.
    ApprovalRulesRead, "approval-rules:read";
    /// Create and revoke approval rules, also with an approval.
    ApprovalRulesWrite, "approval-rules:write";
    /// See agents.
    AgentsRead, "agents:read";
    /// Add, change and remove agents.
    AgentsWrite, "agents:write";
    /// See API tokens without their secrets.
    TokensRead, "tokens:read";
    /// Issue and revoke API tokens.
    TokensWrite, "tokens:write";
    /// See users.
    UsersRead, "users:read";
    /// Add and remove users, and set passwords.
    UsersWrite, "users:write";
    /// See, verify and export the audit.
    AuditRead, "audit:read";
    /// Rotate the keys of the vault.
    KeysRotate, "keys:rotate";
}

impl Permission {
    /// Returns whether agents have the permission. What an agent sees and calls also depends on its selection.
    pub fn is_of_agents(self) -> bool {
        matches!(
            self,
            Permission::SessionRead
                | Permission::ResourcesRead
                | Permission::PromptsRead
                | Permission::ToolsRead
                | Permission::ToolsCall
                | Permission::CallsRead
                | Permission::CallsCancel
        )
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_nouns_with_a_verb() {
        let names: HashSet<_> = Permission::ALL.iter().map(|permission| permission.name()).collect();
        assert_eq!(names.len(), Permission::ALL.len());
        for name in names {
            let (noun, verb) = name.split_once(':').unwrap();
            let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            assert!(!noun.is_empty() && !verb.is_empty() && is_word(noun) && is_word(verb), "{name}");
        }
    }
}

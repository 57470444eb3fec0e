//! Policy decisions: whether a call is allowed, requires approval or is denied. Each decision has a reason, which the
//! audit records.

use serde_json::Value;

use crate::actor::Subject;
use crate::agent::{Agent, ApprovalMode};
use crate::digest::Digest;
use crate::id::ServerId;
use crate::server::Server;
use crate::tool::ToolRecord;
use crate::tool::pin::TrustState;

/// Version of the policy rules, which an approval is bound to: a change of the rules invalidates earlier approvals.
const POLICY_VERSION: &str = "1";

/// Decision of the policy whether a tool call is allowed, requires approval or is denied, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDecision {
    /// The call is allowed.
    Allow(PolicyReason),
    /// The call requires the approval of a user.
    RequireApproval(PolicyReason),
    /// The call is denied.
    Deny(PolicyReason),
}

/// Reason why the policy allows a tool call, requires approval for it, or denies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyReason {
    /// A user makes the call, which implies approval.
    OwnCall,
    /// The approval mode of the agent is `auto`.
    AgentAuto,
    /// The tool is trusted, unchanged, and on the agent's list of trusted tools.
    AgentTrusts,
    /// An approval rule of a user covers the call.
    ApprovalRule,
    /// The approval mode of the agent is `always-ask`.
    AgentAlwaysAsks,
    /// The tool is not trusted by a user, or not on the agent's list of trusted tools.
    NotTrusted,
    /// The server is disabled.
    ServerDisabled,
    /// The tool definition has changed since it was pinned.
    ToolChanged,
    /// The server does not list the tool any more.
    ToolRemoved,
    /// The tool is not selected for the agent.
    NotSelected,
}

impl PolicyReason {
    /// Returns the stable code of the reason, for programs and the audit.
    pub fn code(self) -> &'static str {
        match self {
            PolicyReason::OwnCall => "own_call",
            PolicyReason::AgentAuto => "agent_auto",
            PolicyReason::AgentTrusts => "agent_trusts",
            PolicyReason::ApprovalRule => "approval_rule",
            PolicyReason::AgentAlwaysAsks => "agent_asks",
            PolicyReason::NotTrusted => "not_trusted",
            PolicyReason::ServerDisabled => "server_disabled",
            PolicyReason::ToolChanged => "tool_changed",
            PolicyReason::ToolRemoved => "tool_gone",
            PolicyReason::NotSelected => "not_selected",
        }
    }

    /// Returns the reason of a policy decision as text for users and models.
    pub fn text(self) -> &'static str {
        match self {
            PolicyReason::OwnCall => "the caller is a user, who needs no approval",
            PolicyReason::AgentAuto => "the agent needs no approval",
            PolicyReason::AgentTrusts => "the agent trusts this tool",
            PolicyReason::ApprovalRule => "an approval rule covers the call",
            PolicyReason::AgentAlwaysAsks => "the agent requires approval of every call",
            PolicyReason::NotTrusted => {
                "the tool is not trusted, or not on the agent's list of trusted tools"
            }
            PolicyReason::ServerDisabled => "the server is disabled: enable it first",
            PolicyReason::ToolChanged => {
                "the tool definition has changed: a user must review the changes and trust the tool again"
            }
            PolicyReason::ToolRemoved => "the server no longer has this tool",
            PolicyReason::NotSelected => "the tool is not selected for this agent",
        }
    }
}

/// Caller of a tool, about whose call the policy decides: a user, or an agent with its settings.
#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// A user calls the tool.
    User,
    /// This agent calls the tool.
    Agent(&'a Agent),
}

/// Evaluates the policy for a call of a tool in this trust state.
pub fn evaluate(caller: Caller<'_>, server: &Server, tool: &ToolRecord, state: TrustState) -> PolicyDecision {
    // First, so that an agent learns nothing about tools that are not selected for it.
    if let Caller::Agent(agent) = caller
        && !agent.may_use(server.id, &tool.name)
    {
        return PolicyDecision::Deny(PolicyReason::NotSelected);
    }
    if !server.settings.enabled {
        return PolicyDecision::Deny(PolicyReason::ServerDisabled);
    }
    if tool.is_removed {
        return PolicyDecision::Deny(PolicyReason::ToolRemoved);
    }
    if state == TrustState::Changed {
        return PolicyDecision::Deny(PolicyReason::ToolChanged);
    }
    let agent = match caller {
        Caller::User => return PolicyDecision::Allow(PolicyReason::OwnCall),
        Caller::Agent(agent) => agent,
    };
    match agent.approval {
        ApprovalMode::Auto => PolicyDecision::Allow(PolicyReason::AgentAuto),
        ApprovalMode::AlwaysAsk => PolicyDecision::RequireApproval(PolicyReason::AgentAlwaysAsks),
        // A tool that no user has reviewed requires approval, even if it is on the list.
        ApprovalMode::TrustedOnly if state == TrustState::Trusted && agent.trusts(server.id, &tool.name) => {
            PolicyDecision::Allow(PolicyReason::AgentTrusts)
        }
        ApprovalMode::TrustedOnly => PolicyDecision::RequireApproval(PolicyReason::NotTrusted),
    }
}

/// Returns the digest of policy version, subject, server, tool definition and arguments that an approval is bound to.
/// The approval is invalid for any other call.
pub fn approval_binding(subject: Subject, server: ServerId, pin: Digest, arguments: &Value) -> Digest {
    Digest::of("linchpin approval")
        .part(POLICY_VERSION)
        .part(subject.to_string())
        .part(server.to_string())
        .part(pin.bytes())
        .json(arguments)
        .finish()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::agent::ServerAccess;
    use crate::id::{AgentId, UserId};
    use crate::server::{RemoteEndpoint, ServerSettings, Transport};
    use crate::tool::names::Slug;
    use crate::tool::pin::pin;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn server() -> Server {
        Server {
            id: ServerId::from_u128(1),
            slug: Slug::new("files").unwrap(),
            settings: ServerSettings::with_name("Files"),
            transport: Transport::Http(RemoteEndpoint {
                url: "https://a.example".into(),
                headers: BTreeMap::new(),
            }),
            is_configured: false,
            is_undeclared: false,
            version: 1,
            created: NOW,
            updated: NOW,
        }
    }

    fn tool() -> ToolRecord {
        let definition = json!({"name": "read", "inputSchema": {"type": "object"}});
        let mut tool = ToolRecord::new(ServerId::from_u128(1), "read", definition, NOW);
        tool.trust();
        tool
    }

    fn agent(approval: ApprovalMode, trusted: &[&str]) -> Agent {
        let trusted = trusted.iter().map(|name| (*name).to_owned()).collect();
        let selection = ServerAccess {
            tools: Some(vec!["read".into(), "write".into()]),
            trusted,
            ..ServerAccess::default()
        };
        Agent {
            id: AgentId::from_u128(1),
            name: "Ada".into(),
            instructions: String::new(),
            model: None,
            servers: BTreeMap::from([(ServerId::from_u128(1), selection)]),
            approval,
            enabled: true,
            calls_per_minute: None,
            max_concurrent_calls: None,
            client_approvals: true,
            created: NOW,
            updated: NOW,
        }
    }

    #[test]
    fn every_reason_has_its_own_code_and_text() {
        use PolicyReason::{
            AgentAlwaysAsks, AgentAuto, AgentTrusts, ApprovalRule, NotSelected, NotTrusted, OwnCall,
            ServerDisabled, ToolChanged, ToolRemoved,
        };
        let reasons = [
            OwnCall,
            AgentAuto,
            AgentTrusts,
            ApprovalRule,
            AgentAlwaysAsks,
            NotTrusted,
            ServerDisabled,
            ToolChanged,
            ToolRemoved,
            NotSelected,
        ];
        let codes: BTreeSet<_> = reasons.into_iter().map(PolicyReason::code).collect();
        let texts: BTreeSet<_> = reasons.into_iter().map(PolicyReason::text).collect();
        assert_eq!((codes.len(), texts.len()), (reasons.len(), reasons.len()));
        assert!(texts.iter().all(|text| text.starts_with("the ") || text.starts_with("an ")), "{texts:?}");
    }

    #[test]
    fn who_may_do_what() {
        use ApprovalMode::{AlwaysAsk, Auto, TrustedOnly};
        let (auto, asks) = (agent(Auto, &[]), agent(AlwaysAsk, &["read"]));
        let (some, none) = (agent(TrustedOnly, &["read"]), agent(TrustedOnly, &["write"]));
        let mut disabled_agent = agent(Auto, &[]);
        disabled_agent.enabled = false;
        let mut no_servers = agent(Auto, &[]);
        no_servers.servers.clear();
        let (server, tool) = (server(), tool());
        let decide =
            |agent: &Agent, tool: &ToolRecord| evaluate(Caller::Agent(agent), &server, tool, tool.state());
        assert_eq!(
            evaluate(Caller::User, &server, &tool, tool.state()),
            PolicyDecision::Allow(PolicyReason::OwnCall)
        );
        assert_eq!(decide(&auto, &tool), PolicyDecision::Allow(PolicyReason::AgentAuto));
        assert_eq!(decide(&asks, &tool), PolicyDecision::RequireApproval(PolicyReason::AgentAlwaysAsks));
        assert_eq!(decide(&some, &tool), PolicyDecision::Allow(PolicyReason::AgentTrusts));
        assert_eq!(decide(&none, &tool), PolicyDecision::RequireApproval(PolicyReason::NotTrusted));
        assert_eq!(decide(&disabled_agent, &tool), PolicyDecision::Deny(PolicyReason::NotSelected));
        assert_eq!(decide(&no_servers, &tool), PolicyDecision::Deny(PolicyReason::NotSelected));
        let new = ToolRecord { is_trusted: false, ..tool.clone() };
        assert_eq!(
            decide(&some, &new),
            PolicyDecision::RequireApproval(PolicyReason::NotTrusted),
            "no user has reviewed it"
        );
        let other = ToolRecord { name: "delete".into(), ..tool.clone() };
        assert_eq!(decide(&auto, &other), PolicyDecision::Deny(PolicyReason::NotSelected));
        let mut changed = tool.clone();
        changed.definition["description"] = json!("other");
        let gone = ToolRecord { is_removed: true, ..tool.clone() };
        let mut disabled = server.clone();
        disabled.settings.enabled = false;
        for caller in [Caller::User, Caller::Agent(&auto), Caller::Agent(&some)] {
            assert_eq!(
                evaluate(caller, &server, &changed, changed.state()),
                PolicyDecision::Deny(PolicyReason::ToolChanged)
            );
            assert_eq!(
                evaluate(caller, &server, &gone, gone.state()),
                PolicyDecision::Deny(PolicyReason::ToolRemoved)
            );
            assert_eq!(
                evaluate(caller, &disabled, &tool, tool.state()),
                PolicyDecision::Deny(PolicyReason::ServerDisabled)
            );
        }
        for tool in [&changed, &gone] {
            assert_eq!(
                evaluate(Caller::Agent(&no_servers), &disabled, tool, tool.state()),
                PolicyDecision::Deny(PolicyReason::NotSelected)
            );
        }
    }

    #[test]
    fn an_approval_is_for_exactly_one_thing() {
        let (definition, arguments) = (tool().definition, json!({"path": "/a", "n": 1}));
        let (ada, bob) = (Subject::Agent(AgentId::from_u128(1)), Subject::Agent(AgentId::from_u128(2)));
        let binding = approval_binding(ada, ServerId::from_u128(1), pin(&definition), &arguments);
        assert_eq!(
            approval_binding(ada, ServerId::from_u128(1), pin(&definition), &json!({"n": 1, "path": "/a"})),
            binding
        );
        let mut other = definition.clone();
        other["description"] = json!("other");
        let others = [
            approval_binding(bob, ServerId::from_u128(1), pin(&definition), &arguments),
            approval_binding(
                Subject::User(UserId::from_u128(1)),
                ServerId::from_u128(1),
                pin(&definition),
                &arguments,
            ),
            approval_binding(ada, ServerId::from_u128(2), pin(&definition), &arguments),
            approval_binding(ada, ServerId::from_u128(1), pin(&other), &arguments),
            approval_binding(ada, ServerId::from_u128(1), pin(&definition), &json!({"path": "/b", "n": 1})),
            approval_binding(ada, ServerId::from_u128(1), pin(&definition), &json!({"path": "/a", "n": "1"})),
            approval_binding(
                ada,
                ServerId::from_u128(1),
                pin(&definition),
                &json!({"path": "/a", "n": 1, "x": null}),
            ),
        ];
        for (index, one) in others.iter().enumerate() {
            assert!(*one != binding && !others[..index].contains(one), "{index}");
        }
    }
}

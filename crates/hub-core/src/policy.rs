//! Policy decisions: whether a call is allowed, requires approval or is denied. Each decision has a reason, which the
//! audit records.

use serde_json::Value;

use crate::actor::Subject;
use crate::agent::{Agent, ApprovalMode};
use crate::digest::Digest;
use crate::id::ServerId;
use crate::server::Server;
use crate::tool::Tool;
use crate::tool::pin::{State, pin};

/// Policy version. It changes with the rules below, so that approvals under other rules become invalid.
const RULES: &str = "1";

/// Policy decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call is allowed.
    Allow(Reason),
    /// The call requires the approval of a user.
    Ask(Reason),
    /// The call is denied.
    Deny(Reason),
}

/// Reason of a policy decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A user makes the call, which implies approval.
    OwnCall,
    /// The approval mode of the agent is `auto`.
    AgentAuto,
    /// The tool is trusted, unchanged, and on the agent's list of trusted tools.
    AgentTrusts,
    /// The approval mode of the agent is `always-ask`.
    AgentAsks,
    /// The tool is not trusted by a user, or not on the agent's list of trusted tools.
    NotTrusted,
    /// The server is disabled.
    ServerDisabled,
    /// The tool definition has changed since it was pinned.
    ToolChanged,
    /// The server does not list the tool any more.
    ToolGone,
    /// The tool is not selected for the agent.
    NotSelected,
}

impl Reason {
    /// Returns the stable code, for programs and the audit.
    pub fn code(self) -> &'static str {
        match self {
            Reason::OwnCall => "own_call",
            Reason::AgentAuto => "agent_auto",
            Reason::AgentTrusts => "agent_trusts",
            Reason::AgentAsks => "agent_asks",
            Reason::NotTrusted => "not_trusted",
            Reason::ServerDisabled => "server_disabled",
            Reason::ToolChanged => "tool_changed",
            Reason::ToolGone => "tool_gone",
            Reason::NotSelected => "not_selected",
        }
    }

    /// Returns the text for users and models.
    pub fn text(self) -> &'static str {
        match self {
            Reason::OwnCall => "called by a user",
            Reason::AgentAuto => "the agent needs no approval",
            Reason::AgentTrusts => "the agent trusts this tool",
            Reason::AgentAsks => "the agent requires approval of every call",
            Reason::NotTrusted => "the tool is not trusted, or not on the agent's list of trusted tools",
            Reason::ServerDisabled => "the server is disabled: enable it first",
            Reason::ToolChanged => {
                "the tool definition has changed: a user must review the changes and trust the tool again"
            }
            Reason::ToolGone => "the server no longer has this tool",
            Reason::NotSelected => "the tool is not selected for this agent",
        }
    }
}

/// Caller of a tool, as the policy sees it.
#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// Authenticated user.
    Person,
    /// Agent.
    Agent(&'a Agent),
}

/// Evaluates the policy for a call.
pub fn decide(caller: Caller<'_>, server: &Server, tool: &Tool) -> Verdict {
    // First, so that an agent learns nothing about tools that are not selected for it.
    if let Caller::Agent(agent) = caller
        && !agent.may_use(server.id, &tool.name)
    {
        return Verdict::Deny(Reason::NotSelected);
    }
    if !server.settings.enabled {
        return Verdict::Deny(Reason::ServerDisabled);
    }
    if tool.is_gone {
        return Verdict::Deny(Reason::ToolGone);
    }
    let state = tool.state();
    if state == State::Changed {
        return Verdict::Deny(Reason::ToolChanged);
    }
    let agent = match caller {
        Caller::Person => return Verdict::Allow(Reason::OwnCall),
        Caller::Agent(agent) => agent,
    };
    match agent.approval {
        ApprovalMode::Auto => Verdict::Allow(Reason::AgentAuto),
        ApprovalMode::AlwaysAsk => Verdict::Ask(Reason::AgentAsks),
        // A tool that no user has reviewed requires approval, even if it is on the list.
        ApprovalMode::TrustedOnly if state == State::Trusted && agent.trusts(server.id, &tool.name) => {
            Verdict::Allow(Reason::AgentTrusts)
        }
        ApprovalMode::TrustedOnly => Verdict::Ask(Reason::NotTrusted),
    }
}

/// Returns the digest that an approval is bound to. The approval is invalid for any other call.
pub fn binding(subject: Subject, server: ServerId, definition: &Value, arguments: &Value) -> Digest {
    Digest::of("linchpin approval")
        .part(RULES)
        .part(subject.to_string())
        .part(server.to_string())
        .part(pin(definition).bytes())
        .json(arguments)
        .end()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::agent::Selection;
    use crate::id::{AgentId, UserId};
    use crate::server::{Remote, Settings, Transport};
    use crate::tool::names::Slug;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn server() -> Server {
        Server {
            id: ServerId::fixed(1),
            slug: Slug::new("files").unwrap(),
            settings: Settings::named("Files"),
            transport: Transport::Http(Remote { url: "https://a.example".into(), headers: BTreeMap::new() }),
            is_from_file: false,
            has_left_file: false,
            version: 1,
            created: NOW,
            updated: NOW,
        }
    }

    fn tool() -> Tool {
        let definition = json!({"name": "read", "inputSchema": {"type": "object"}});
        let mut tool = Tool::new(ServerId::fixed(1), "read", definition, NOW);
        tool.trust();
        tool
    }

    fn agent(approval: ApprovalMode, trusted: &[&str]) -> Agent {
        let trusted = trusted.iter().map(|name| (*name).to_owned()).collect();
        let selection = Selection { tools: Some(vec!["read".into(), "write".into()]), trusted };
        Agent {
            id: AgentId::fixed(1),
            name: "Ada".into(),
            instructions: String::new(),
            model: None,
            servers: BTreeMap::from([(ServerId::fixed(1), selection)]),
            approval,
            enabled: true,
            calls_per_minute: None,
            calls_at_once: None,
            created: NOW,
            updated: NOW,
        }
    }

    #[test]
    fn who_may_do_what() {
        use ApprovalMode::{AlwaysAsk, Auto, TrustedOnly};
        let (auto, asks) = (agent(Auto, &[]), agent(AlwaysAsk, &["read"]));
        let (some, none) = (agent(TrustedOnly, &["read"]), agent(TrustedOnly, &["write"]));
        let mut off = agent(Auto, &[]);
        off.enabled = false;
        let mut elsewhere = agent(Auto, &[]);
        elsewhere.servers.clear();
        let (server, tool) = (server(), tool());
        let of = |agent: &Agent, tool: &Tool| decide(Caller::Agent(agent), &server, tool);
        assert_eq!(decide(Caller::Person, &server, &tool), Verdict::Allow(Reason::OwnCall));
        assert_eq!(of(&auto, &tool), Verdict::Allow(Reason::AgentAuto));
        assert_eq!(of(&asks, &tool), Verdict::Ask(Reason::AgentAsks));
        assert_eq!(of(&some, &tool), Verdict::Allow(Reason::AgentTrusts));
        assert_eq!(of(&none, &tool), Verdict::Ask(Reason::NotTrusted));
        assert_eq!(of(&off, &tool), Verdict::Deny(Reason::NotSelected));
        assert_eq!(of(&elsewhere, &tool), Verdict::Deny(Reason::NotSelected));
        let new = Tool { is_trusted: false, ..tool.clone() };
        assert_eq!(of(&some, &new), Verdict::Ask(Reason::NotTrusted), "no user has reviewed it");
        let other = Tool { name: "delete".into(), ..tool.clone() };
        assert_eq!(of(&auto, &other), Verdict::Deny(Reason::NotSelected));
        let mut changed = tool.clone();
        changed.definition["description"] = json!("other");
        let gone = Tool { is_gone: true, ..tool.clone() };
        let mut disabled = server.clone();
        disabled.settings.enabled = false;
        for caller in [Caller::Person, Caller::Agent(&auto), Caller::Agent(&some)] {
            assert_eq!(decide(caller, &server, &changed), Verdict::Deny(Reason::ToolChanged));
            assert_eq!(decide(caller, &server, &gone), Verdict::Deny(Reason::ToolGone));
            assert_eq!(decide(caller, &disabled, &tool), Verdict::Deny(Reason::ServerDisabled));
        }
        for tool in [&changed, &gone] {
            assert_eq!(
                decide(Caller::Agent(&elsewhere), &disabled, tool),
                Verdict::Deny(Reason::NotSelected)
            );
        }
    }

    #[test]
    fn an_approval_is_for_exactly_one_thing() {
        let (definition, arguments) = (tool().definition, json!({"path": "/a", "n": 1}));
        let (ada, bob) = (Subject::Agent(AgentId::fixed(1)), Subject::Agent(AgentId::fixed(2)));
        let own = binding(ada, ServerId::fixed(1), &definition, &arguments);
        assert_eq!(binding(ada, ServerId::fixed(1), &definition, &json!({"n": 1, "path": "/a"})), own);
        let mut other = definition.clone();
        other["description"] = json!("other");
        let others = [
            binding(bob, ServerId::fixed(1), &definition, &arguments),
            binding(Subject::User(UserId::fixed(1)), ServerId::fixed(1), &definition, &arguments),
            binding(ada, ServerId::fixed(2), &definition, &arguments),
            binding(ada, ServerId::fixed(1), &other, &arguments),
            binding(ada, ServerId::fixed(1), &definition, &json!({"path": "/b", "n": 1})),
            binding(ada, ServerId::fixed(1), &definition, &json!({"path": "/a", "n": "1"})),
            binding(ada, ServerId::fixed(1), &definition, &json!({"path": "/a", "n": 1, "x": null})),
        ];
        for (index, one) in others.iter().enumerate() {
            assert!(*one != own && !others[..index].contains(one), "{index}");
        }
    }
}

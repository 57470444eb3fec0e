//! Planning of calls: the tool is found, the policy is evaluated, and nothing is stored or sent yet.

use std::sync::Arc;

use jiff::Timestamp;

use super::admit::CallRequest;
use super::arguments::CallArguments;
use super::handle::CallerChannel;
use super::rules::rule_key;
use super::target::CallTarget;
use crate::actor::Actor;
use crate::audit::AuditEntry;
use crate::digest::Digest;
use crate::error::Result;
use crate::events::NewEvent;
use crate::hub::calls::Calls;
use crate::hub::calls::limits::{CallRate, ConsumedLimits};
use crate::hub::identity::snapshots::AgentSnapshot;
use crate::hub::registry::tools::sync::tool_id;
use crate::id::{ApprovalRuleId, CallId};
use crate::policy::{self, Caller, PolicyDecision, PolicyReason};
use crate::store::{CallRecord, CallStatus, DocumentKey, DocumentKind, StoreChange};
use crate::trace_context::TraceContext;

/// Call whose tool is found and whose policy decision is made, before it is executed.
pub(in crate::hub) struct PlannedCall {
    pub(in crate::hub) id: CallId,
    pub(in crate::hub) target: Arc<CallTarget>,
    /// Calling agent. `None` for a user.
    pub(in crate::hub) agent: Option<Arc<AgentSnapshot>>,
    pub(in crate::hub) arguments: CallArguments,
    /// Digest of the arguments.
    pub(in crate::hub) digest: Digest,
    /// Originally requested arguments, if a user has edited them.
    pub(in crate::hub) requested_arguments: Option<CallArguments>,
    pub(in crate::hub) decision: PolicyDecision,
    /// Approval rule that approves the call.
    pub(in crate::hub) rule: Option<ApprovalRuleId>,
    /// Session that the caller has named.
    pub(in crate::hub) session: Option<String>,
    /// Agent whose credential a user has chosen for the call.
    pub(in crate::hub) credential_agent: Option<Arc<AgentSnapshot>>,
    /// Trace that the call belongs to.
    pub(in crate::hub) trace: Option<TraceContext>,
    /// Rate limits that the start of the call consumes.
    pub(in crate::hub) rates: Vec<CallRate>,
    /// What the caller offers to the running call.
    pub(in crate::hub) caller: CallerChannel,
}

impl PlannedCall {
    /// Adds the fields that identify this call to an audit entry.
    pub(super) fn add_to_entry(&self, entry: AuditEntry) -> AuditEntry {
        let entry = entry
            .with("call", self.id.to_string())
            .with("pin", self.target.pin.to_string())
            .with("arguments", self.digest.to_string());
        match &self.credential_agent {
            Some(snapshot) => entry.with("as_agent", snapshot.agent.id.to_string()),
            None => entry,
        }
    }

    /// Creates the call record before the call starts.
    pub(super) fn to_record(
        &self,
        actor: Actor,
        status: CallStatus,
        arguments: Option<Vec<u8>>,
        now: Timestamp,
    ) -> CallRecord {
        CallRecord {
            id: self.id,
            server: self.target.server.id,
            tool: self.target.tool.name.clone(),
            subject: actor.subject().to_string(),
            status,
            digest: self.digest,
            arguments,
            result: None,
            error: None,
            created: self.id.created_at().unwrap_or(now),
            started: None,
            completed: None,
        }
    }

    /// Returns the event that reports a status of this call to subscribers.
    pub(in crate::hub) fn status_event(&self, status: CallStatus) -> NewEvent {
        self.target.status_event(self.id, status)
    }

    /// Returns the digest of policy version, caller, server, tool definition and arguments that an approval of this
    /// call is bound to.
    pub(in crate::hub) fn binding(&self, actor: Actor) -> Digest {
        policy::approval_binding(
            actor.subject(),
            self.target.server.id,
            self.target.pin,
            self.arguments.value(),
        )
    }
}

impl Calls {
    /// Plans a call that can start at once: its tool is in memory, it is allowed without approval, and its arguments
    /// are valid. Its rate limits are consumed in the commit that starts it. Returns any other request unchanged.
    pub(super) async fn plan_ready_call(
        &self,
        actor: Actor,
        request: CallRequest,
        consumed: ConsumedLimits,
    ) -> std::result::Result<(Box<PlannedCall>, PolicyReason), CallRequest> {
        if request.as_agent.is_some() {
            return Err(request);
        }
        let Ok(agent) = self.identity.calling_agent(actor).await else { return Err(request) };
        let Some(target) = self.known_target(actor, agent.as_deref(), &request.tool) else {
            return Err(request);
        };
        let call = (request.session.as_deref(), request.arguments.value());
        let decided = self.decide(actor, agent.as_deref(), &target, call);
        let (PolicyDecision::Allow(reason), _) = decided else { return Err(request) };
        if self.check_running_calls(actor).is_err()
            || self.check_arguments(&target, &request.arguments).is_err()
        {
            return Err(request);
        }
        let agent_rate = agent.as_ref().and_then(|snapshot| CallRate::of_agent(&snapshot.agent));
        let server_rate = CallRate::of_server(&target.server).filter(|_| !consumed.server);
        let rates = agent_rate.filter(|_| !consumed.agent).into_iter().chain(server_rate).collect();
        let CallRequest { arguments, session, trace, .. } = request;
        let mut plan = self.planned_call(agent, target, decided, (session, arguments));
        (plan.trace, plan.rates) = (trace, rates);
        Ok((plan, reason))
    }

    /// Resolves the tool of a call and evaluates the policy.
    pub(super) async fn plan(&self, actor: Actor, request: CallRequest) -> Result<Box<PlannedCall>> {
        let agent = self.identity.calling_agent(actor).await?;
        let CallRequest { tool, arguments, session, as_agent, trace } = request;
        let target = self.call_target(actor, agent.as_deref(), tool).await?;
        let credential_agent = match as_agent {
            Some(name) => Some(self.credential_agent(actor, &target.server, &name).await?),
            None => None,
        };
        let decided = self.decide(actor, agent.as_deref(), &target, (session.as_deref(), arguments.value()));
        let mut plan = self.planned_call(agent, target, decided, (session, arguments));
        (plan.credential_agent, plan.trace) = (credential_agent, trace);
        Ok(plan)
    }

    fn planned_call(
        &self,
        agent: Option<Arc<AgentSnapshot>>,
        target: Arc<CallTarget>,
        (decision, rule): (PolicyDecision, Option<ApprovalRuleId>),
        (session, arguments): (Option<String>, CallArguments),
    ) -> Box<PlannedCall> {
        Box::new(PlannedCall {
            id: CallId::new(&*self.context.platform),
            decision,
            rule,
            session,
            digest: arguments_digest(&arguments),
            target,
            agent,
            arguments,
            requested_arguments: None,
            credential_agent: None,
            trace: None,
            rates: Vec::new(),
            caller: CallerChannel::default(),
        })
    }

    /// Returns the condition that makes a commit fail if the approval rule of the call was revoked or, in a cluster, if
    /// another hub has changed a document that the decision is based on.
    pub(in crate::hub) fn version_preconditions(&self, plan: &PlannedCall) -> Option<StoreChange> {
        // A rule never changes after it was created.
        let mut versions: Vec<_> = plan.rule.map(|rule| (rule_key(rule), 1)).into_iter().collect();
        if self.context.store.shared().is_some() {
            let CallTarget { server, tool, tool_version, .. } = &*plan.target;
            versions.push((DocumentKey::new(DocumentKind::Server, server.id), server.version));
            let tool = DocumentKey::new(DocumentKind::Tool, tool_id(server.id, &tool.name));
            versions.push((tool, *tool_version));
            let agents = plan.agent.iter().chain(&plan.credential_agent);
            versions.extend(agents.map(|snapshot| {
                (DocumentKey::new(DocumentKind::Agent, snapshot.agent.id), snapshot.version)
            }));
        }
        (!versions.is_empty()).then_some(StoreChange::RequireVersions(versions))
    }
}

/// Evaluates the policy for a call. `agent` is the calling agent: a removed one may do nothing.
pub(in crate::hub) fn evaluate_policy(
    actor: Actor,
    agent: Option<&AgentSnapshot>,
    target: &CallTarget,
) -> PolicyDecision {
    let caller = match (actor.agent(), agent) {
        (None, _) => Caller::User,
        (Some(_), Some(snapshot)) => Caller::Agent(&snapshot.agent),
        (Some(_), None) => return PolicyDecision::Deny(PolicyReason::NotSelected),
    };
    policy::evaluate(caller, &target.server, &target.tool, target.state)
}

/// Returns the digest of the arguments of a call, for the audit.
pub(in crate::hub) fn arguments_digest(arguments: &CallArguments) -> Digest {
    Digest::of("linchpin arguments").json(arguments.value()).finish()
}

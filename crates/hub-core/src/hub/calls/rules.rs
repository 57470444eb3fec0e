//! Approval rules of agents: evaluation, and the operations create, list, revoke and expire. Only users create and
//! revoke rules. A rule replaces the approval of a call; it never permits what the policy denies.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::admit::ToolRef;
use super::plan::{PlannedCall, evaluate_policy};
use super::target::CallTarget;
use crate::actor::{Actor, Subject};
use crate::approval_rule::{
    ApprovalRule, ArgumentCondition, RULE_MINUTES, RuleRequest, RuleScope, check_session,
};
use crate::audit::AuditEntry;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::calls::Calls;
use crate::hub::identity::snapshots::AgentSnapshot;
use crate::hub::identity::subject_names::SubjectNames;
use crate::hub::{document, event_payloads, upsert};
use crate::id::{AgentId, ApprovalId, ApprovalRuleId, ServerId, TenantId};
use crate::object_reader::ObjectReader;
use crate::permission::Permission;
use crate::policy::{PolicyDecision, PolicyReason};
use crate::store::{Batch, DocumentKey, DocumentKind, MAX_PAGE_SIZE, Page, PageRequest, StoreChange};
use crate::tool::names::{MAX_NAME_LEN, qualified_name};
use crate::tool::pin::pin;

/// Maximum number of approval rules of an agent.
const MAX_RULES: usize = 100;
/// Noun in errors.
const NOUN: &str = "approval rule";
const NO_LIMIT: &str = "a rule requires a limit: set `session`, `minutes` or `conditions`";

/// Approval rule that a user creates without a pending call.
#[derive(Debug, Clone, PartialEq)]
pub struct NewApprovalRule {
    /// Agent whose calls the rule approves.
    pub agent: AgentId,
    /// Tool whose calls the rule approves, in its current definition.
    pub tool: ToolRef,
    /// Session to which the rule is limited.
    pub session: Option<String>,
    /// Validity of the rule, and conditions on the arguments.
    pub scope: RuleScope,
}

/// Criteria that select approval rules when they are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalRuleFilter {
    /// Only rules of this agent.
    pub agent: Option<AgentId>,
    /// Only rules for tools of this server.
    pub server: Option<ServerId>,
}

/// Approval rule, as shown to users.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ApprovalRuleView {
    /// Id of the approval rule.
    #[schemars(with = "String")]
    pub id: ApprovalRuleId,
    /// Id of the agent whose calls the rule approves.
    #[schemars(with = "String")]
    pub agent: AgentId,
    /// Name of the agent.
    pub agent_name: Option<String>,
    /// Id of the server that has the tool.
    #[schemars(with = "String")]
    pub server_id: ServerId,
    /// Slug of the server that has the tool.
    pub server: Option<String>,
    /// Upstream name of the tool.
    pub tool: String,
    /// Qualified name of the tool, such as `mcp_demo__add`.
    pub name: Option<String>,
    /// Pin of the tool definition that the rule is bound to.
    pub pin: String,
    /// Whether the tool still has this definition. Otherwise the rule approves nothing.
    pub is_valid: bool,
    /// Session to which the rule is limited.
    pub session: Option<String>,
    /// Conditions on the arguments, all of which must hold.
    pub conditions: Vec<ArgumentCondition>,
    /// Time at which the rule expires.
    #[schemars(with = "Option<String>")]
    pub expires: Option<Timestamp>,
    /// Approval with which the rule was created.
    #[schemars(with = "Option<String>")]
    pub approval: Option<ApprovalId>,
    /// User who created the rule: `user:ID`.
    pub created_by: String,
    /// Name of the user who created the rule. Absent if the user was removed.
    pub created_by_name: Option<String>,
    /// Time at which the rule was created.
    #[schemars(with = "String")]
    pub created: Timestamp,
}

impl Calls {
    /// Evaluates the policy for a call and, if it requires approval, the approval rules of the agent. Returns the rule
    /// that approves the call as well.
    pub(super) fn decide(
        &self,
        actor: Actor,
        agent: Option<&AgentSnapshot>,
        target: &CallTarget,
        (session, arguments): (Option<&str>, &Value),
    ) -> (PolicyDecision, Option<ApprovalRuleId>) {
        let decision = evaluate_policy(actor, agent, target);
        let rules = match (decision, agent) {
            (PolicyDecision::RequireApproval(_), Some(agent)) => &*agent.rules,
            _ => return (decision, None),
        };
        if rules.is_empty() {
            return (decision, None);
        }
        let call = RuleRequest {
            server: target.server.id,
            tool: &target.tool.name,
            pin: target.pin,
            session,
            arguments,
        };
        let now = self.context.platform.now();
        match rules.iter().find(|rule| rule.approves(&call, now)) {
            Some(rule) => (PolicyDecision::Allow(PolicyReason::ApprovalRule), Some(rule.id)),
            None => (decision, None),
        }
    }

    /// Creates an approval rule without a pending call.
    pub async fn add_approval_rule(&self, actor: Actor, rule: NewApprovalRule) -> Result<ApprovalRuleView> {
        actor.require_user()?;
        let NewApprovalRule { agent, tool, session, scope } = rule;
        if session.is_none() && scope == RuleScope::default() {
            return Err(Error::invalid("minutes", NO_LIMIT));
        }
        if let Some(session) = &session {
            check_session(session)?;
        }
        let snapshot = self.identity.agent_snapshot(actor.tenant(), agent).await?;
        let unknown = || Error::invalid("agent", "unknown agent: use the id of an agent");
        let snapshot = snapshot.ok_or_else(unknown)?;
        let target = self.call_target(actor, None, tool).await?;
        let caller = Actor::new(actor.tenant(), Subject::Agent(agent));
        if let PolicyDecision::Deny(reason) = evaluate_policy(caller, Some(&snapshot), &target) {
            return Err(Error::new(error::ErrorKind::Conflict, reason.code(), reason.text()));
        }
        let rule = self.new_rule(actor, &snapshot, &target, (session, scope), None)?;
        self.context.store.commit(actor.tenant(), self.creation(actor, &rule, Batch::new())?).await?;
        self.view_rule(actor, rule, &mut self.identity.names(actor.tenant())).await
    }

    /// Adds the creation of a rule to the batch of an approval. `form` has the limits of the rule, `plan` the call as
    /// it will be sent.
    pub(super) fn add_rule_of_approval(
        &self,
        actor: Actor,
        (id, plan): (ApprovalId, &PlannedCall),
        mut form: ObjectReader,
        batch: Batch,
    ) -> Result<Batch> {
        actor.require(Permission::ApprovalRulesWrite)?;
        let is_in_session = form.boolean("session")?.unwrap_or(false);
        let scope = RuleScope::read(&mut form)?;
        form.finish()?;
        if !is_in_session && scope == RuleScope::default() {
            return Err(form.error("minutes", NO_LIMIT));
        }
        let Some(agent) = plan.agent.as_deref() else {
            return Err(form.error("agent", "approval rules are only for calls of agents"));
        };
        if is_in_session && plan.session.is_none() {
            let text = "the caller has not named a session: use `minutes` or `conditions` instead";
            return Err(form.error("session", text));
        }
        if let Some(index) =
            scope.conditions.iter().position(|condition| !condition.holds(plan.arguments.value()))
        {
            let text = "does not hold for the arguments of this call: change the condition or the arguments";
            return Err(form.error(&format!("conditions[{index}]"), text));
        }
        let session = plan.session.clone().filter(|_| is_in_session);
        let rule = self.new_rule(actor, agent, &plan.target, (session, scope), Some(id))?;
        self.creation(actor, &rule, batch)
    }

    fn new_rule(
        &self,
        actor: Actor,
        agent: &AgentSnapshot,
        target: &CallTarget,
        (session, scope): (Option<String>, RuleScope),
        approval: Option<ApprovalId>,
    ) -> Result<ApprovalRule> {
        let RuleScope { minutes, conditions } = scope;
        let now = self.context.platform.now();
        if agent.rules.iter().filter(|rule| !rule.is_expired(now)).count() >= MAX_RULES {
            let text =
                format!("the agent has {MAX_RULES} approval rules, which is the limit: revoke one first");
            return Err(Error::new(error::ErrorKind::LimitExceeded, "too_many_approval_rules", text));
        }
        // The hub does not learn when a session ends: without a limit, rules of old sessions would accumulate.
        let minutes = minutes.or_else(|| session.is_some().then_some(*RULE_MINUTES.end()));
        let expires = minutes.map(|minutes| {
            let validity = SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(i64::MAX / 60));
            now.saturating_add(validity).unwrap_or(Timestamp::MAX)
        });
        Ok(ApprovalRule {
            id: ApprovalRuleId::new(&*self.context.platform),
            agent: agent.agent.id,
            server: target.server.id,
            tool: target.tool.name.clone(),
            pin: target.pin,
            session,
            conditions,
            expires,
            approval,
            created_by: actor.subject().to_string(),
            created: now,
        })
    }

    /// Adds the changes that store a new rule to a batch.
    fn creation(&self, actor: Actor, rule: &ApprovalRule, batch: Batch) -> Result<Batch> {
        let mut entry = rule_entry(self.context.entry(actor, "approval_rule.created"), rule)
            .with("pin", rule.pin.to_string());
        if let Some(session) = &rule.session {
            entry = entry.with("session", session.as_str());
        }
        if let Some(expires) = rule.expires {
            entry = entry.with("expires", expires.to_string());
        }
        if !rule.conditions.is_empty() {
            let conditions = serde_json::json!(rule.conditions);
            let digest = Digest::of("linchpin approval conditions").json(&conditions).finish();
            entry = entry.with("conditions", digest.to_string());
        }
        if let Some(approval) = rule.approval {
            entry = entry.with("approval", approval.to_string());
        }
        let stored = document(DocumentKind::ApprovalRule, rule.id, rule)?.with_parent(rule.agent);
        Ok(batch
            .change(StoreChange::RequireExists(DocumentKey::new(DocumentKind::Agent, rule.agent)))
            .change(StoreChange::RequireExists(DocumentKey::new(DocumentKind::Server, rule.server)))
            .change(upsert(stored, 0))
            .audit(entry)
            .with_event(event_payloads::approval_rule(rule.id, rule.agent, "created")))
    }

    /// Lists the approval rules that have not expired, in the order of their creation.
    pub async fn approval_rules(
        &self,
        actor: Actor,
        filter: &ApprovalRuleFilter,
        paging: &PageRequest,
    ) -> Result<Page<ApprovalRuleView>> {
        actor.require_user()?;
        let agent = filter.agent.map(|agent| agent.to_string());
        let all = self
            .context
            .load_all::<ApprovalRule>(actor.tenant(), DocumentKind::ApprovalRule, agent.as_deref())
            .await?;
        let (now, after) = (self.context.platform.now(), paging.after.as_deref().unwrap_or_default());
        let mut matching = all.into_iter().map(|(rule, _)| rule).filter(|rule| {
            rule.id.to_string().as_str() > after
                && !rule.is_expired(now)
                && filter.server.is_none_or(|server| server == rule.server)
        });
        let (mut items, mut names) = (Vec::new(), self.identity.names(actor.tenant()));
        for rule in matching.by_ref().take(paging.limit.clamp(1, MAX_PAGE_SIZE)) {
            items.push(self.view_rule(actor, rule, &mut names).await?);
        }
        let next = matching.next().and(items.last()).map(|rule| rule.id.to_string());
        Ok(Page { items, next })
    }

    /// Returns one approval rule.
    pub async fn approval_rule(&self, actor: Actor, id: ApprovalRuleId) -> Result<ApprovalRuleView> {
        actor.require_user()?;
        let rule = self.find_rule(actor.tenant(), id).await?;
        self.view_rule(actor, rule, &mut self.identity.names(actor.tenant())).await
    }

    /// Revokes an approval rule: later calls require approval again.
    pub async fn revoke_approval_rule(&self, actor: Actor, id: ApprovalRuleId) -> Result<()> {
        actor.require_user()?;
        let rule = self.find_rule(actor.tenant(), id).await?;
        let entry = rule_entry(self.context.entry(actor, "approval_rule.revoked"), &rule);
        self.context.store.commit(actor.tenant(), removal(&rule, "revoked", entry)).await
    }

    /// Removes the approval rules that have expired.
    pub async fn expire_approval_rules(&self, tenant: TenantId) -> Result<()> {
        let now = self.context.platform.now();
        let all = self.context.load_all::<ApprovalRule>(tenant, DocumentKind::ApprovalRule, None).await?;
        for (rule, _) in all.iter().filter(|(rule, _)| rule.is_expired(now)) {
            let entry = rule_entry(AuditEntry::new(now, "hub", "approval_rule.expired"), rule);
            match self.context.store.commit(tenant, removal(rule, "expired", entry)).await {
                Err(error) if error.kind() != error::ErrorKind::NotFound => return Err(error),
                _ => {} // removed, or just revoked by a user
            }
        }
        Ok(())
    }

    async fn find_rule(&self, tenant: TenantId, id: ApprovalRuleId) -> Result<ApprovalRule> {
        let found = self.context.load::<ApprovalRule>(tenant, DocumentKind::ApprovalRule, id).await?;
        found.map(|(rule, _)| rule).ok_or_else(|| Error::not_found(NOUN, id))
    }

    async fn view_rule(
        &self,
        actor: Actor,
        rule: ApprovalRule,
        names: &mut SubjectNames<'_>,
    ) -> Result<ApprovalRuleView> {
        let tenant = actor.tenant();
        let server = match self.servers.find_server(tenant, &rule.server.to_string()).await {
            Ok(server) => Some(server),
            Err(error) if error.kind() == error::ErrorKind::NotFound => None,
            Err(error) if error.code() == "server_not_in_file" => None,
            Err(error) => return Err(error),
        };
        let tool = self.registry.find_upstream_tool(tenant, rule.server, &rule.tool).await?;
        Ok(ApprovalRuleView {
            id: rule.id,
            agent: rule.agent,
            agent_name: names.get(&Subject::Agent(rule.agent).to_string()).await?,
            server_id: rule.server,
            name: server.as_ref().map(|server| qualified_name(&server.slug, &rule.tool, MAX_NAME_LEN)),
            server: server.map(|server| server.slug.as_str().to_owned()),
            pin: rule.pin.to_string(),
            is_valid: tool.is_some_and(|(tool, _)| !tool.is_removed && pin(&tool.definition) == rule.pin),
            tool: rule.tool,
            session: rule.session,
            conditions: rule.conditions,
            expires: rule.expires,
            approval: rule.approval,
            created_by_name: names.get(&rule.created_by).await?,
            created_by: rule.created_by,
            created: rule.created,
        })
    }
}

/// Returns the key of the document of an approval rule.
pub(super) fn rule_key(id: ApprovalRuleId) -> DocumentKey {
    DocumentKey::new(DocumentKind::ApprovalRule, id)
}

/// Creates the batch that removes a rule.
fn removal(rule: &ApprovalRule, change: &str, entry: AuditEntry) -> Batch {
    let event = event_payloads::approval_rule(rule.id, rule.agent, change);
    Batch::new().change(StoreChange::Delete(rule_key(rule.id))).audit(entry).with_event(event)
}

/// Adds the fields that identify a rule to an audit entry.
fn rule_entry(entry: AuditEntry, rule: &ApprovalRule) -> AuditEntry {
    entry
        .with("rule", rule.id.to_string())
        .with("agent", rule.agent.to_string())
        .with("server", rule.server.to_string())
        .with("tool", rule.tool.as_str())
}

//! Operations on approvals: list, approve, deny and expire requests to permit one exact call. An approval is valid
//! once, for the call it is bound to, until it expires. Agents cannot decide.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::arguments::CallArguments;
use super::call_start::{ApprovalUse, CallBasis};
use super::plan::{PlannedCall, arguments_digest, evaluate_policy};
use super::records::{CallView, StoredArguments};
use super::target::CallTarget;
use crate::actor::{Actor, Subject};
use crate::audit::AuditEntry;
use crate::error::{self, Error, Result};
use crate::hub::calls::Calls;
use crate::hub::event_payloads;
use crate::hub::identity::subject_names::SubjectNames;
use crate::id::{ApprovalId, TenantId};
use crate::object_reader::ObjectReader;
use crate::policy::PolicyDecision;
use crate::store::{
    Approval, ApprovalFilter, ApprovalStatus, Batch, CallRecord, CallStatus, MAX_PAGE_SIZE, Page,
    PageRequest, StoreChange,
};
use crate::text::first_line;

/// Maximum size of arguments in lists, as JSON bytes: large arguments of one caller must not hide the requests of
/// others.
const MAX_LISTED_ARGUMENT_BYTES: usize = 4 << 10;

/// Approval request as shown to users: the call with its arguments, and the decision.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ApprovalView {
    /// Approval id.
    #[schemars(with = "String")]
    pub id: ApprovalId,
    /// Call to approve, with its exact arguments. In lists, those of more than 4 KiB are left out.
    pub call: CallView,
    /// Status of the approval: open, approved, denied and so on.
    pub decision: ApprovalStatus,
    /// Subject that approved, denied or cancelled the call: `user:ID` or `agent:ID`; `hub` if the approval expired or
    /// the policy denied the call.
    pub decided_by: Option<String>,
    /// Name of the user or agent that decided. Absent if it was removed.
    pub decided_by_name: Option<String>,
    /// Digest that binds the approval to subject, server, tool definition, arguments and policy version.
    pub digest: String,
    /// Time at which the approval was requested.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time until which the call can be approved or denied.
    #[schemars(with = "String")]
    pub expires: Timestamp,
    /// Time at which the call was approved, denied or cancelled, or the approval expired.
    #[schemars(with = "Option<String>")]
    pub decided: Option<Timestamp>,
}

impl Calls {
    /// Lists approvals, newest first, optionally filtered by status.
    pub async fn approvals(
        &self,
        actor: Actor,
        decision: Option<ApprovalStatus>,
        paging: &PageRequest,
    ) -> Result<Page<ApprovalView>> {
        actor.require_user()?;
        let filter = ApprovalFilter { call: None, decision };
        let Page { items, next } = self.context.store.approvals(actor.tenant(), &filter, paging).await?;
        let (mut views, mut names) = (Vec::with_capacity(items.len()), self.identity.names(actor.tenant()));
        for approval in items {
            let mut view = self.view_approval(actor, approval, &mut names).await?;
            let call = &mut view.call;
            (call.result, call.summary) = (None, None);
            for arguments in [&mut call.arguments, &mut call.requested_arguments] {
                arguments.take_if(|arguments| arguments.to_string().len() > MAX_LISTED_ARGUMENT_BYTES);
            }
            views.push(view);
        }
        Ok(Page { items: views, next })
    }

    /// Returns one approval.
    pub async fn approval(&self, actor: Actor, id: ApprovalId) -> Result<ApprovalView> {
        actor.require_user()?;
        let approval = self.find_approval(actor.tenant(), id).await?;
        self.view_approval(actor, approval, &mut self.identity.names(actor.tenant())).await
    }

    /// Returns the number of approvals that wait for a decision.
    pub async fn pending_approvals(&self, actor: Actor) -> Result<usize> {
        actor.require_user()?;
        let filter = ApprovalFilter { call: None, decision: Some(ApprovalStatus::Open) };
        let (mut count, mut paging) = (0, PageRequest { after: None, limit: MAX_PAGE_SIZE });
        loop {
            let page = self.context.store.approvals(actor.tenant(), &filter, &paging).await?;
            count += page.items.len();
            match page.next {
                None => return Ok(count),
                after => paging.after = after,
            }
        }
    }

    pub(super) async fn find_approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Approval> {
        self.context.store.approval(tenant, id).await?.ok_or_else(|| Error::not_found("approval", id))
    }

    async fn view_approval(
        &self,
        actor: Actor,
        approval: Approval,
        names: &mut SubjectNames<'_>,
    ) -> Result<ApprovalView> {
        let decided_by_name = match &approval.decided_by {
            Some(subject) => names.get(subject).await?,
            None => None,
        };
        Ok(ApprovalView {
            id: approval.id,
            call: self.call_with_names(actor, approval.call, names).await?,
            decision: approval.decision,
            decided_by: approval.decided_by,
            decided_by_name,
            digest: approval.digest.to_string(),
            created: approval.created,
            expires: approval.expires,
            decided: approval.decided,
        })
    }

    /// Approves a call, optionally with other arguments. The call is started at once.
    pub async fn approve(
        self: &Arc<Self>,
        actor: Actor,
        id: ApprovalId,
        arguments: Option<Value>,
    ) -> Result<ApprovalView> {
        self.approve_with_rule(actor, id, arguments, None).await
    }

    /// Like [`Self::approve`]. `rule` has the limits of an approval rule that the same commit creates: `session`,
    /// `minutes` and `conditions`.
    pub async fn approve_with_rule(
        self: &Arc<Self>,
        actor: Actor,
        id: ApprovalId,
        arguments: Option<Value>,
        rule: Option<ObjectReader>,
    ) -> Result<ApprovalView> {
        actor.require_user()?;
        let approval = self.find_approval(actor.tenant(), id).await?;
        self.grant(actor, &approval, arguments, rule).await?;
        self.approval(actor, id).await
    }

    /// Approves a call for a user, or for the user of the client that calls.
    pub(super) async fn grant(
        self: &Arc<Self>,
        actor: Actor,
        approval: &Approval,
        arguments: Option<Value>,
        rule: Option<ObjectReader>,
    ) -> Result<()> {
        let (tenant, id) = (actor.tenant(), approval.id);
        if approval.decision != ApprovalStatus::Open {
            let text = format!("approval {id} is already {}", approval.decision.name());
            return Err(Error::new(error::ErrorKind::Conflict, "approval_decided", text));
        }
        let (requester, mut plan) = self.load_planned_call(tenant, approval).await?;
        if plan.binding(requester) != approval.digest {
            let text = "the tool has changed since the approval was requested: deny the approval and call the tool again";
            return Err(Error::new(error::ErrorKind::Conflict, "tool_changed", text));
        }
        let mut entry = self.call_entry(actor, "approval.granted", &plan).with("approval", id.to_string());
        if actor.agent().is_some() {
            entry = entry.with("by", "client");
        }
        // The policy may have changed since the request.
        if let PolicyDecision::Deny(reason) = plan.decision {
            let entry = entry.with("refused", reason.code());
            let outcome = (ApprovalStatus::Denied, CallStatus::Denied);
            return self.close_approval(tenant, approval, outcome, "hub", reason.text(), entry).await;
        }
        let (mut batch, mut digest, at) = (Batch::new(), None, self.context.platform.now());
        if let Some(arguments) = arguments.filter(|arguments| arguments != plan.arguments.value()) {
            if !arguments.is_object() {
                return Err(Error::invalid("arguments", "must be a JSON object with the edited arguments"));
            }
            let arguments = CallArguments::from(arguments);
            self.check_arguments(&plan.target, &arguments)
                .map_err(|faults| Error::invalid("arguments", faults))?;
            plan.digest = arguments_digest(&arguments);
            plan.requested_arguments = Some(std::mem::replace(&mut plan.arguments, arguments));
            digest = Some(plan.binding(requester));
            entry = entry.with("edited", plan.digest.to_string());
            let sealed = Some(self.seal_arguments(tenant, &plan).await?);
            batch = batch.change(StoreChange::EditArguments {
                call: plan.id,
                digest: plan.digest,
                arguments: sealed,
            });
        }
        let by = actor.subject().to_string();
        batch = batch.audit(entry).change(StoreChange::DecideApproval {
            approval: id,
            decision: ApprovalStatus::Approved,
            decided_by: by,
            at,
            digest,
        });
        if let Some(rule) = rule {
            batch = self.add_rule_of_approval(actor, (id, &plan), rule, batch)?;
        }
        let started = self.start_call(requester, plan, CallBasis::Approval(ApprovalUse { id, batch })).await;
        started.map(drop).map_err(|failed| failed.error)
    }

    /// Denies a call that waits for approval. The caller receives the reason.
    pub async fn deny(&self, actor: Actor, id: ApprovalId, reason: Option<&str>) -> Result<ApprovalView> {
        actor.require_user()?;
        let reason = reason.map(first_line).filter(|reason| !reason.is_empty());
        let text = reason.as_ref().map_or_else(
            || "the call was denied by a user".to_owned(),
            |reason| format!("the call was denied by a user: {reason}"),
        );
        let approval = self.find_approval(actor.tenant(), id).await?;
        let mut entry = self.context.entry(actor, "approval.denied").with("approval", id.to_string());
        entry = entry.with("call", approval.call.to_string());
        if let Some(reason) = reason {
            entry = entry.with("reason", reason);
        }
        self.close_approval(
            actor.tenant(),
            &approval,
            (ApprovalStatus::Denied, CallStatus::Denied),
            &actor.subject().to_string(),
            &text,
            entry,
        )
        .await?;
        self.approval(actor, id).await
    }

    /// Closes approvals that were not decided in time.
    pub async fn expire_approvals(&self, tenant: TenantId) -> Result<()> {
        let now = self.context.platform.now();
        let filter = ApprovalFilter { call: None, decision: Some(ApprovalStatus::Open) };
        let mut paging = PageRequest { after: None, limit: 100 };
        loop {
            let page = self.context.store.approvals(tenant, &filter, &paging).await?;
            for approval in page.items.iter().filter(|approval| approval.expires <= now) {
                let entry =
                    AuditEntry::new(now, "hub", "approval.expired").with("approval", approval.id.to_string());
                let entry = entry.with("call", approval.call.to_string());
                let text = "the approval has expired: call the tool again";
                let outcome = (ApprovalStatus::Expired, CallStatus::Denied);
                match self.close_approval(tenant, approval, outcome, "hub", text, entry).await {
                    Err(error) if error.kind() != error::ErrorKind::Conflict => return Err(error),
                    _ => {} // expired, or just decided by a user
                }
            }
            match page.next {
                None => return Ok(()),
                after => paging.after = after,
            }
        }
    }

    /// Closes an approval without a call, and ends the call with this status.
    pub(super) async fn close_approval(
        &self,
        tenant: TenantId,
        approval: &Approval,
        (decision, status): (ApprovalStatus, CallStatus),
        by: &str,
        text: &str,
        entry: AuditEntry,
    ) -> Result<()> {
        let at = self.context.platform.now();
        let decide = StoreChange::DecideApproval {
            approval: approval.id,
            decision,
            decided_by: by.to_owned(),
            at,
            digest: None,
        };
        let call = self.context.store.call(tenant, approval.call).await?;
        let call = call.ok_or_else(|| Error::not_found("call", approval.call))?;
        let outcome = self.failed_outcome(tenant, call.id, call.server, status, text).await;
        let finish = StoreChange::FinishCall { call: call.id, outcome };
        self.pending_callers.remove(tenant, call.id);
        let batch = Batch::new().change(decide).change(finish).audit(entry);
        let batch = batch.with_event(event_payloads::approval(approval.id, call.id, decision));
        self.context
            .store
            .commit(tenant, batch.with_event(event_payloads::call(call.id, call.server, &call.tool, status)))
            .await
    }

    /// Rebuilds the call that waits for an approval, and its caller.
    async fn load_planned_call(
        &self,
        tenant: TenantId,
        approval: &Approval,
    ) -> Result<(Actor, Box<PlannedCall>)> {
        let call = self.context.store.call(tenant, approval.call).await?;
        let call: CallRecord = call.ok_or_else(|| Error::not_found("call", approval.call))?;
        let actor = Actor::new(tenant, call.subject.parse::<Subject>()?);
        let server = self.servers.find_server(tenant, &call.server.to_string()).await?;
        let tool = self.registry.find_upstream_tool(tenant, server.id, &call.tool).await?;
        let missing = || Error::not_found("tool", crate::text::shorten(&call.tool));
        let (tool, version) = tool.ok_or_else(missing)?;
        let StoredArguments { arguments, requested, session } = self.unseal_arguments(tenant, &call).await?;
        let lost = || {
            Error::new(
                error::ErrorKind::Conflict,
                "call_finished",
                "the call has finished and its arguments are not stored, so it cannot be approved: call the tool again",
            )
        };
        let (agent, target) =
            (self.identity.calling_agent(actor).await?, CallTarget::new(server, tool, version));
        let arguments = CallArguments::from(arguments.ok_or_else(lost)?);
        Ok((
            actor,
            Box::new(PlannedCall {
                id: call.id,
                decision: evaluate_policy(actor, agent.as_deref(), &target),
                rule: None,
                session,
                target: Arc::new(target),
                agent,
                digest: arguments_digest(&arguments),
                arguments,
                requested_arguments: requested.map(CallArguments::from),
                credential_agent: None,
                trace: None,
                rates: Vec::new(),
                caller: self.pending_callers.find(tenant, call.id),
            }),
        ))
    }
}

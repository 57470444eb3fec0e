//! Approvals: requests to a user to permit one exact call. An approval is valid once, for the call it is bound to,
//! until it expires. Agents cannot decide.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::admit::Plan;
use super::call_records::CallView;
use super::execute::Approved;
use super::subject_names::Names;
use super::{Hub, event_payloads};
use crate::actor::{Scope, Subject};
use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::id::{ApprovalId, TenantId};
use crate::policy::Verdict;
use crate::store::{Approval, ApprovalFilter, Batch, Call, Change, Decision, Page, Paging, Status};
use crate::text::first_line;

/// Maximum size of arguments in lists, as JSON bytes: large arguments of one caller must not hide the requests of
/// others.
const LARGEST_LISTED: usize = 4 << 10;

/// Approval request.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ApprovalView {
    /// Approval id.
    #[schemars(with = "String")]
    pub id: ApprovalId,
    /// The call, with its exact arguments. In lists, those of more than 4 KiB are left out.
    pub call: CallView,
    /// Status of the request.
    pub decision: Decision,
    /// Who decided: `user:` and an id, or `hub`.
    pub decided_by: Option<String>,
    /// The name of that user. Absent if it was removed.
    pub decided_by_name: Option<String>,
    /// Digest that binds the approval to subject, server, tool definition, arguments and policy version.
    pub digest: String,
    /// Time of the request.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time until which it can be decided.
    #[schemars(with = "String")]
    pub expires: Timestamp,
    /// Time of the decision.
    #[schemars(with = "Option<String>")]
    pub decided: Option<Timestamp>,
}

impl Hub {
    /// Lists approvals, newest first, optionally filtered by status.
    pub async fn approvals(
        &self,
        scope: Scope,
        decision: Option<Decision>,
        paging: &Paging,
    ) -> Result<Page<ApprovalView>> {
        scope.person()?;
        let filter = ApprovalFilter { call: None, decision };
        let Page { items, next } = self.store.approvals(scope.tenant(), &filter, paging).await?;
        let (mut views, mut names) = (Vec::with_capacity(items.len()), self.names(scope.tenant()));
        for approval in items {
            let mut view = self.view_approval(scope, approval, &mut names).await?;
            let call = &mut view.call;
            (call.result, call.summary) = (None, None);
            for arguments in [&mut call.arguments, &mut call.asked] {
                arguments.take_if(|arguments| arguments.to_string().len() > LARGEST_LISTED);
            }
            views.push(view);
        }
        Ok(Page { items: views, next })
    }

    /// Returns one approval.
    pub async fn approval(&self, scope: Scope, id: ApprovalId) -> Result<ApprovalView> {
        scope.person()?;
        let approval = self.find_approval(scope.tenant(), id).await?;
        self.view_approval(scope, approval, &mut self.names(scope.tenant())).await
    }

    async fn find_approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Approval> {
        self.store.approval(tenant, id).await?.ok_or_else(|| Error::not_found("approval", id))
    }

    async fn view_approval(
        &self,
        scope: Scope,
        approval: Approval,
        names: &mut Names<'_>,
    ) -> Result<ApprovalView> {
        let decided_by_name = match &approval.decided_by {
            Some(subject) => names.of(subject).await?,
            None => None,
        };
        Ok(ApprovalView {
            id: approval.id,
            call: self.named_call(scope, approval.call, names).await?,
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
        scope: Scope,
        id: ApprovalId,
        arguments: Option<Value>,
    ) -> Result<ApprovalView> {
        scope.person()?;
        let tenant = scope.tenant();
        let approval = self.find_approval(tenant, id).await?;
        if approval.decision != Decision::Open {
            let text = format!("approval {id} is already {}", approval.decision.name());
            return Err(Error::new(error::Kind::Conflict, "approval_decided", text));
        }
        let (asker, mut plan) = self.planned(tenant, &approval).await?;
        if plan.binding(asker) != approval.digest {
            let text = "the tool has changed since the request: deny it and repeat the call";
            return Err(Error::new(error::Kind::Conflict, "tool_changed", text));
        }
        let mut entry = self.about(scope, "approval.approved", &plan).with("approval", id.to_string());
        // The policy may have changed since the request.
        if let Verdict::Deny(reason) = plan.verdict {
            let entry = entry.with("refused", reason.code());
            self.close(tenant, &approval, Decision::Denied, "hub", reason.text(), entry).await?;
            return self.approval(scope, id).await;
        }
        let (mut changes, mut digest, at) = (Vec::new(), None, self.world.now());
        if let Some(arguments) = arguments.filter(|arguments| *arguments != plan.arguments) {
            if !arguments.is_object() {
                return Err(Error::invalid("arguments", "must be an object"));
            }
            self.check_arguments(&plan.tool, &arguments)
                .map_err(|faults| Error::invalid("arguments", faults))?;
            plan.asked = Some(std::mem::replace(&mut plan.arguments, arguments));
            digest = Some(plan.binding(asker));
            entry = entry.with("edited", plan.digest().to_string());
            let sealed = Some(self.seal_arguments(tenant, &plan).await?);
            changes.push(Change::Edit { call: plan.id, digest: plan.digest(), arguments: sealed });
        }
        let by = scope.subject().to_string();
        changes.push(Change::Decide { approval: id, decision: Decision::Approved, by, at, digest });
        self.make(asker, plan, Some(Approved { id, changes, entry }), "approved").await?;
        self.approval(scope, id).await
    }

    /// Denies a call. The caller receives the reason.
    pub async fn deny(&self, scope: Scope, id: ApprovalId, reason: Option<&str>) -> Result<ApprovalView> {
        scope.person()?;
        let reason = reason.map(first_line).filter(|reason| !reason.is_empty());
        let text = reason
            .as_ref()
            .map_or_else(|| "denied by a user".to_owned(), |reason| format!("denied by a user: {reason}"));
        let approval = self.find_approval(scope.tenant(), id).await?;
        let mut entry = self.entry(scope, "approval.denied").with("approval", id.to_string());
        entry = entry.with("call", approval.call.to_string());
        if let Some(reason) = reason {
            entry = entry.with("reason", reason);
        }
        self.close(scope.tenant(), &approval, Decision::Denied, &scope.subject().to_string(), &text, entry)
            .await?;
        self.approval(scope, id).await
    }

    /// Closes approvals that were not decided in time.
    pub async fn expire_approvals(&self, tenant: TenantId) -> Result<()> {
        let now = self.world.now();
        let filter = ApprovalFilter { call: None, decision: Some(Decision::Open) };
        let mut paging = Paging { after: None, limit: 100 };
        loop {
            let page = self.store.approvals(tenant, &filter, &paging).await?;
            for approval in page.items.iter().filter(|approval| approval.expires <= now) {
                let entry =
                    Entry::new(now, "hub", "approval.expired").with("approval", approval.id.to_string());
                let entry = entry.with("call", approval.call.to_string());
                let text = "the approval has expired";
                match self.close(tenant, approval, Decision::Expired, "hub", text, entry).await {
                    Err(error) if error.kind() != error::Kind::Conflict => return Err(error),
                    _ => {} // expired, or just decided by a user
                }
            }
            match page.next {
                None => return Ok(()),
                after => paging.after = after,
            }
        }
    }

    async fn close(
        &self,
        tenant: TenantId,
        approval: &Approval,
        decision: Decision,
        by: &str,
        text: &str,
        entry: Entry,
    ) -> Result<()> {
        let at = self.world.now();
        let decide = Change::Decide { approval: approval.id, decision, by: by.to_owned(), at, digest: None };
        let call = self.store.call(tenant, approval.call).await?;
        let call = call.ok_or_else(|| Error::not_found("call", approval.call))?;
        let outcome = self.failed(tenant, call.id, call.server, Status::Denied, text).await;
        let finish = Change::Finish { call: call.id, outcome };
        let batch = Batch::new().change(decide).change(finish).audit(entry);
        let batch = batch.tell(event_payloads::approval(approval.id, call.id, decision));
        self.store
            .commit(
                tenant,
                batch.tell(event_payloads::call(call.id, call.server, &call.tool, Status::Denied)),
            )
            .await
    }

    /// Rebuilds the planned call of an approval and its actor.
    async fn planned(&self, tenant: TenantId, approval: &Approval) -> Result<(Scope, Plan)> {
        let call = self.store.call(tenant, approval.call).await?;
        let call: Call = call.ok_or_else(|| Error::not_found("call", approval.call))?;
        let scope = Scope::new(tenant, call.subject.parse::<Subject>()?);
        let server = self.find_server(tenant, &call.server.to_string()).await?;
        let tool = self.tool_of(tenant, server.id, &call.tool).await?;
        let missing = || Error::not_found("tool", crate::text::shortened(&call.tool));
        let (tool, version) = tool.ok_or_else(missing)?;
        let (arguments, asked) = self.unseal_arguments(tenant, &call).await?;
        let lost = || {
            Error::new(
                error::Kind::Conflict,
                "call_over",
                "the call has finished and its arguments are not stored",
            )
        };
        let (verdict, by) = self.verdict(scope, &server, (&tool, version)).await?;
        let arguments = arguments.ok_or_else(lost)?;
        Ok((scope, Plan { id: call.id, server, tool, arguments, asked, verdict, by }))
    }
}

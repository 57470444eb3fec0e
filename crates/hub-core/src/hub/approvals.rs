//! Questions to people: may this call be made, exactly so? An answer counts once, for what was asked, and not for ever. An
//! agent never answers.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Hub;
use super::executor::{Plan, ending};
use super::history::CallView;
use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::id::{ApprovalId, TenantId};
use crate::policy::Verdict;
use crate::scope::{Scope, Subject};
use crate::store::{Approval, ApprovalFilter, Batch, Call, Change, Decision, Outcome, Page, Paging, Status};
use crate::text::first_line;

/// A question to a person.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ApprovalView {
    /// Its id.
    #[schemars(with = "String")]
    pub id: ApprovalId,
    /// The call, with its exact arguments.
    pub call: CallView,
    /// What was said.
    pub decision: Decision,
    /// Who said it.
    pub decided_by: Option<String>,
    /// What it is bound to: who asks, the server, the tool as it is defined, the arguments and the rules.
    pub digest: String,
    /// When it was asked.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Until when it can be answered.
    #[schemars(with = "String")]
    pub expires: Timestamp,
    /// When it was answered.
    #[schemars(with = "Option<String>")]
    pub decided: Option<Timestamp>,
}

impl Hub {
    /// Questions, the newest first; all, or those with this decision.
    pub async fn approvals(
        &self,
        scope: Scope,
        decision: Option<Decision>,
        paging: &Paging,
    ) -> Result<Page<ApprovalView>> {
        scope.person()?;
        let filter = ApprovalFilter { call: None, decision };
        let Page { items, next } = self.store.approvals(scope.tenant(), &filter, paging).await?;
        let mut views = Vec::with_capacity(items.len());
        for approval in items {
            views.push(self.view_approval(scope, approval).await?);
        }
        Ok(Page { items: views, next })
    }

    /// One question.
    pub async fn approval(&self, scope: Scope, id: ApprovalId) -> Result<ApprovalView> {
        scope.person()?;
        let approval = self.find_approval(scope.tenant(), id).await?;
        self.view_approval(scope, approval).await
    }

    async fn find_approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Approval> {
        self.store.approval(tenant, id).await?.ok_or_else(|| Error::not_found("approval", id))
    }

    async fn view_approval(&self, scope: Scope, approval: Approval) -> Result<ApprovalView> {
        Ok(ApprovalView {
            id: approval.id,
            call: self.call(scope, approval.call).await?,
            decision: approval.decision,
            decided_by: approval.decided_by,
            digest: approval.digest.to_string(),
            created: approval.created,
            expires: approval.expires,
            decided: approval.decided,
        })
    }

    /// A person says yes: to what was asked, or to other arguments in its place. The call is made at once.
    pub async fn approve(
        self: &Arc<Self>,
        scope: Scope,
        id: ApprovalId,
        arguments: Option<Value>,
    ) -> Result<ApprovalView> {
        scope.person()?;
        // It goes on if whoever said yes has left.
        let (hub, (done, is_done)) = (self.clone(), oneshot::channel());
        self.tasks.start(async move {
            let _ = done.send(hub.approve_now(scope, id, arguments).await);
        });
        is_done.await.unwrap_or_else(|_| Err(ending()))?;
        self.approval(scope, id).await
    }

    async fn approve_now(self: Arc<Self>, scope: Scope, id: ApprovalId, edited: Option<Value>) -> Result<()> {
        let tenant = scope.tenant();
        let approval = self.find_approval(tenant, id).await?;
        let (asker, mut plan) = self.planned(tenant, &approval).await?;
        if plan.binding(asker) != approval.digest && approval.decision == Decision::Open {
            let text =
                "the tool has changed since this was asked: deny it, and have the call asked for again";
            return Err(Error::new(error::Kind::Conflict, "tool_changed", text));
        }
        let mut entry = self.about(scope, "approval.approved", &plan).with("approval", id.to_string());
        let (mut batch, mut digest, at) = (Batch::new(), None, self.world.now());
        if let Some(arguments) = edited.filter(|arguments| *arguments != plan.arguments) {
            if !arguments.is_object() {
                return Err(Error::invalid("arguments", "they are an object"));
            }
            self.check_arguments(&plan.tool, &arguments)
                .map_err(|faults| Error::invalid("arguments", faults))?;
            plan.arguments = arguments;
            digest = Some(plan.binding(asker));
            entry = entry.with("edited", plan.digest().to_string());
            let sealed = self.seal(tenant, plan.id, "arguments", &plan.arguments).await?;
            batch =
                batch.change(Change::Edit { call: plan.id, digest: plan.digest(), arguments: Some(sealed) });
        }
        let by = scope.subject().to_string();
        batch = batch.change(Change::Decide { approval: id, decision: Decision::Approved, by, at, digest });
        self.store.commit(tenant, batch.audit(entry)).await?;
        self.decided(tenant, &approval, Decision::Approved);
        self.make_approved(asker, id, plan).await
    }

    /// Makes a call that a person has said yes to.
    async fn make_approved(self: &Arc<Self>, asker: Scope, id: ApprovalId, plan: Plan) -> Result<()> {
        // The rules may have changed since it was asked.
        if let Verdict::Deny(reason) = plan.verdict {
            let now = self.world.now();
            let outcome = Outcome::failed(Status::Denied, reason.text(), now);
            let entry = self.about(asker, "call.refused", &plan).with("reason", reason.code());
            let batch = Batch::new().change(Change::Finish { call: plan.id, outcome }).audit(entry);
            self.store.commit(asker.tenant(), batch).await?;
            self.call_changed(asker.tenant(), &plan, Status::Denied);
            return Ok(());
        }
        self.make(asker, plan, Some(id), "approved").await.map(drop)
    }

    /// A person says no. Whoever wanted the call is told why.
    pub async fn deny(&self, scope: Scope, id: ApprovalId, reason: Option<&str>) -> Result<ApprovalView> {
        scope.person()?;
        let reason = reason.map(first_line).filter(|reason| !reason.is_empty());
        let text = reason
            .as_ref()
            .map_or_else(|| "a person said no".to_owned(), |reason| format!("a person said no: {reason}"));
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

    /// Closes questions that nobody has answered in time.
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
                let text = "nobody has answered in time";
                match self.close(tenant, approval, Decision::Expired, "hub", text, entry).await {
                    Err(error) if error.kind() != error::Kind::Conflict => return Err(error),
                    _ => {} // or somebody was quicker
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
        let outcome = Outcome::failed(Status::Denied, text, at);
        let finish = Change::Finish { call: approval.call, outcome };
        self.store.commit(tenant, Batch::new().change(decide).change(finish).audit(entry)).await?;
        self.decided(tenant, approval, decision);
        if let Some(call) = self.store.call(tenant, approval.call).await? {
            let body =
                json!({ "call": call.id, "server": call.server, "tool": call.tool, "status": call.status });
            self.events.publish(tenant, "call", body);
        }
        Ok(())
    }

    fn decided(&self, tenant: TenantId, approval: &Approval, decision: Decision) {
        let body = json!({ "approval": approval.id, "call": approval.call, "decision": decision });
        self.events.publish(tenant, "approval", body);
    }

    /// Makes what was approved and not made before the hub ended.
    pub(super) async fn resume_approved(self: &Arc<Self>, tenant: TenantId) -> Result<()> {
        let filter = ApprovalFilter { call: None, decision: Some(Decision::Approved) };
        let mut paging = Paging { after: None, limit: 100 };
        loop {
            let page = self.store.approvals(tenant, &filter, &paging).await?;
            for approval in page.items {
                let waits = self.store.call(tenant, approval.call).await?;
                if waits.is_none_or(|call| call.status != Status::Pending) {
                    continue;
                }
                let (asker, plan) = self.planned(tenant, &approval).await?;
                if let Err(error) = self.make_approved(asker, approval.id, plan).await {
                    tracing::warn!(approval.id = %approval.id, %error, "an approved call could not be made");
                }
            }
            match page.next {
                None => return Ok(()),
                after => paging.after = after,
            }
        }
    }

    /// What was asked for, and by whom.
    async fn planned(&self, tenant: TenantId, approval: &Approval) -> Result<(Scope, Plan)> {
        let call = self.store.call(tenant, approval.call).await?;
        let call: Call = call.ok_or_else(|| Error::not_found("call", approval.call))?;
        let asker = Scope::new(tenant, call.subject.parse::<Subject>()?);
        let server = self.find_server(tenant, &call.server.to_string()).await?;
        let tool = self.tool_of(tenant, server.id, &call.tool).await?;
        let (tool, _) = tool.ok_or_else(|| Error::not_found("tool", crate::text::shortened(&call.tool)))?;
        let arguments = self.unseal(tenant, call.id, "arguments", call.arguments.as_deref()).await?;
        let lost = || {
            Error::new(error::Kind::Conflict, "call_over", "the call is over, and its arguments are not kept")
        };
        let verdict = self.verdict(asker, &server, &tool).await?;
        Ok((asker, Plan { id: call.id, server, tool, arguments: arguments.ok_or_else(lost)?, verdict }))
    }
}

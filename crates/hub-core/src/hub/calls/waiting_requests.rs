//! Requests of MCP clients that wait for an approval, or for the result of the approved call. A client that lost its
//! connection and sends the same request again continues the first call. A request that no client has attended for
//! some time is withdrawn.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::handle::CallerChannel;
use super::plan::PlannedCall;
use super::records::CallView;
use crate::actor::Actor;
use crate::audit::AuditEntry;
use crate::error::{Error, ErrorKind, Result};
use crate::hub::calls::Calls;
use crate::hub::{document, upsert};
use crate::id::{ApprovalId, CallId, TenantId};
use crate::store::{
    Approval, ApprovalStatus, Batch, CallStatus, Document, DocumentKey, DocumentKind, StoreChange,
    StoredDocument,
};

/// Time after which the request of a client that is gone is withdrawn.
pub const CLIENT_LOST_TIMEOUT: Duration = Duration::from_mins(2);
/// Time for which the result of an approved call waits for a client that is gone.
const RESULT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// Request of a client that waits. Its name is the digest that its approval is bound to.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WaitingRequest {
    call: CallId,
    /// Digest that the approval is bound to, which is also the name of the document.
    digest: String,
    /// Time until which the client counts as present.
    attended_until: Timestamp,
}

impl WaitingRequest {
    fn to_document(&self) -> Result<Document> {
        Ok(document(DocumentKind::WaitingRequest, self.call, self)?.with_name(&self.digest))
    }
}

impl Calls {
    /// Returns the change that stores the request of a client with its approval. It conflicts with another open request
    /// of the same digest.
    pub(super) fn waiting_request_change(
        &self,
        plan: &PlannedCall,
        approval: &Approval,
    ) -> Result<Option<StoreChange>> {
        if plan.caller.options.client.is_none() {
            return Ok(None);
        }
        let request = WaitingRequest {
            call: plan.id,
            digest: approval.digest.to_string(),
            attended_until: self.attended_until(CLIENT_LOST_TIMEOUT),
        };
        Ok(Some(upsert(request.to_document()?, 0)))
    }

    fn attended_until(&self, time: Duration) -> Timestamp {
        self.context.platform.now().saturating_add(time).unwrap_or(Timestamp::MAX)
    }

    /// Returns the call of an equal request of the same client that still waits for its approval or result, and makes
    /// the new client its caller.
    pub(super) async fn attach(&self, actor: Actor, plan: &PlannedCall) -> Result<Option<CallView>> {
        if plan.caller.options.client.is_none() {
            return Ok(None);
        }
        self.attach_to(actor, &plan.binding(actor).to_string(), &plan.caller).await
    }

    /// Returns the call that the waiting request with this digest belongs to, and makes `caller` its caller.
    pub(super) async fn attach_to(
        &self,
        actor: Actor,
        digest: &str,
        caller: &CallerChannel,
    ) -> Result<Option<CallView>> {
        let tenant = actor.tenant();
        let found = self.context.store.document_by_name(tenant, DocumentKind::WaitingRequest, digest).await?;
        let Some(StoredDocument { document, .. }) = found else { return Ok(None) };
        let request: WaitingRequest = document.parse_body()?;
        let view = match self.call(actor, request.call).await {
            Ok(view) if view.status != CallStatus::Cancelled => view,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {
                self.end_waiting(tenant, request.call).await?;
                return Ok(None);
            }
        };
        if view.status == CallStatus::Pending {
            let expires = self.attended_until(self.context.options.approval_lifetime);
            self.pending_callers.replace(tenant, request.call, caller, expires);
        }
        self.attend(actor, request.call, CLIENT_LOST_TIMEOUT).await?;
        let entry = self.context.entry(actor, "call.resumed").with("call", request.call.to_string());
        self.context.store.commit(tenant, Batch::new().audit(entry)).await?;
        Ok(Some(view))
    }

    /// Records that the client of a waiting call is present, and counts as present for at least `time` from now on. Does
    /// nothing if the call does not wait.
    pub async fn attend(&self, actor: Actor, call: CallId, time: Duration) -> Result<()> {
        let until = self.attended_until(time);
        self.set_attended(actor.tenant(), call, |current| current.max(until)).await
    }

    /// Records that the client of a request is gone, unless another request of the client continues the call.
    pub(super) async fn leave_waiting(
        &self,
        actor: Actor,
        call: CallId,
        caller: &CallerChannel,
    ) -> Result<()> {
        let tenant = actor.tenant();
        let is_pending = self.find_open_approval(tenant, call).await?.is_some();
        if is_pending && !self.pending_callers.remove_own(tenant, call, caller) {
            return Ok(());
        }
        let until = self.attended_until(CLIENT_LOST_TIMEOUT);
        self.set_attended(tenant, call, |_| until).await
    }

    async fn set_attended(
        &self,
        tenant: TenantId,
        call: CallId,
        until: impl FnOnce(Timestamp) -> Timestamp,
    ) -> Result<()> {
        let found = self.context.load::<WaitingRequest>(tenant, DocumentKind::WaitingRequest, call).await?;
        let Some((mut request, version)) = found else { return Ok(()) };
        request.attended_until = until(request.attended_until);
        let change = upsert(request.to_document()?, version);
        match self.context.store.commit(tenant, Batch::new().change(change)).await {
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(()), // another request of the client changes it, or it was just withdrawn
        }
    }

    /// Ends the waiting of a call, because its outcome was returned to its client. The next equal request is a new call.
    pub async fn end_waiting(&self, tenant: TenantId, call: CallId) -> Result<()> {
        self.pending_callers.remove(tenant, call);
        self.context.delete_if_present(tenant, DocumentKey::new(DocumentKind::WaitingRequest, call)).await
    }

    /// Withdraws the requests whose clients are gone, and forgets results that no client has collected.
    pub async fn withdraw_lost_requests(&self, tenant: TenantId) -> Result<()> {
        let now = self.context.platform.now();
        let requests =
            self.context.load_all::<WaitingRequest>(tenant, DocumentKind::WaitingRequest, None).await?;
        for (request, _) in requests.into_iter().filter(|(request, _)| request.attended_until < now) {
            if let Err(error) = self.end_lost_request(tenant, &request, now).await {
                tracing::warn!(call.id = %request.call, %error, "failed to withdraw the request of a lost client");
            }
        }
        Ok(())
    }

    async fn end_lost_request(
        &self,
        tenant: TenantId,
        request: &WaitingRequest,
        now: Timestamp,
    ) -> Result<()> {
        let call = self.context.store.call(tenant, request.call).await?;
        let is_over = match call.map(|call| call.status) {
            None => true,
            Some(CallStatus::Pending) => self.withdraw(tenant, request.call).await?,
            Some(_) => request.attended_until.saturating_add(RESULT_LIFETIME).is_ok_and(|end| end < now),
        };
        if is_over { self.end_waiting(tenant, request.call).await } else { Ok(()) }
    }

    /// Cancels a pending call whose client is gone. Returns `false` if it was decided at this moment.
    async fn withdraw(&self, tenant: TenantId, call: CallId) -> Result<bool> {
        let Some(approval) = self.find_open_approval(tenant, call).await? else { return Ok(false) };
        let now = self.context.platform.now();
        let entry = AuditEntry::new(now, "hub", "approval.withdrawn").with("call", call.to_string());
        let entry = entry.with("approval", approval.id.to_string()).with("reason", "client_lost");
        let text = "the client disconnected while the call waited for approval: call the tool again";
        let outcome = (ApprovalStatus::Withdrawn, CallStatus::Cancelled);
        match self.close_approval(tenant, &approval, outcome, "hub", text, entry).await {
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            closed => closed.map(|()| true),
        }
    }

    /// Approves or denies a pending call of an agent by the decision of the user of its client, if the agent allows
    /// that. The client must have shown the exact arguments.
    pub async fn decide_by_client(
        self: &Arc<Self>,
        actor: Actor,
        approval: ApprovalId,
        is_approved: bool,
    ) -> Result<()> {
        let found = self.find_approval(actor.tenant(), approval).await?;
        let call = self.call(actor, found.call).await?; // fails for the call of another subject
        let agent = self.identity.calling_agent(actor).await?;
        if call.subject != actor.subject().to_string()
            || agent.is_none_or(|snapshot| !snapshot.agent.client_approvals)
        {
            let text = "the calls of this agent cannot be approved by its client: approve them in the hub";
            return Err(Error::new(ErrorKind::PermissionDenied, "user_required", text));
        }
        if is_approved {
            return self.grant(actor, &found, None, None).await;
        }
        let entry = self.context.entry(actor, "approval.denied").with("approval", approval.to_string());
        let entry = entry.with("call", found.call.to_string()).with("by", "client");
        let text = "the call was denied by the user of the client";
        let (by, outcome) = (actor.subject().to_string(), (ApprovalStatus::Denied, CallStatus::Denied));
        self.close_approval(actor.tenant(), &found, outcome, &by, text, entry).await
    }

    /// Returns whether the user of the caller's client may approve its calls.
    pub async fn accepts_client_approvals(&self, actor: Actor) -> Result<bool> {
        let agent = self.identity.calling_agent(actor).await?;
        Ok(agent.is_some_and(|snapshot| snapshot.agent.client_approvals))
    }
}

//! Cancellation of calls, local and across hubs.

use serde_json::json;
use tokio::time::interval;

use super::records::{CallView, POLL_INTERVAL};
use crate::actor::Actor;
use crate::error::{Error, ErrorKind, Result};
use crate::events::NewEvent;
use crate::hub::calls::Calls;
use crate::hub::event_payloads;
use crate::id::{CallId, TenantId};
use crate::lock::lock;
use crate::store::{Approval, ApprovalFilter, ApprovalStatus, Batch, CallStatus, PageRequest, StoreChange};

/// Event that requests the other hubs to stop a call.
pub(in crate::hub) const CANCEL_EVENT: &str = "cancel";

impl Calls {
    /// Cancels a pending or running call. Every caller that may see the call may cancel it.
    pub async fn cancel_call(&self, actor: Actor, id: CallId) -> Result<CallView> {
        let mut subscription = self.context.events.subscribe(actor.tenant(), None);
        let call = self.call(actor, id).await?;
        let entry = self.context.entry(actor, "call.cancelled").with("call", id.to_string());
        match call.status {
            CallStatus::Pending => {
                let text = "the call was cancelled before it was approved";
                let outcome = self
                    .failed_outcome(actor.tenant(), id, call.server_id, CallStatus::Cancelled, text)
                    .await;
                let Some(approval) = self.find_open_approval(actor.tenant(), id).await? else {
                    return Box::pin(self.cancel_call(actor, id)).await; // decided concurrently
                };
                let (decided_by, at, decision) =
                    (actor.subject().to_string(), self.context.platform.now(), ApprovalStatus::Withdrawn);
                let decide = StoreChange::DecideApproval {
                    approval: approval.id,
                    decision,
                    decided_by,
                    at,
                    digest: None,
                };
                self.pending_callers.remove(actor.tenant(), id);
                let batch = Batch::new()
                    .change(decide)
                    .change(StoreChange::FinishCall { call: id, outcome })
                    .audit(entry);
                let batch = batch.with_event(event_payloads::approval(approval.id, id, decision));
                let batch = batch.with_event(event_payloads::call(
                    id,
                    call.server_id,
                    &call.tool,
                    CallStatus::Cancelled,
                ));
                match self.context.store.commit(actor.tenant(), batch).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => {
                        return Box::pin(self.cancel_call(actor, id)).await; // decided concurrently
                    }
                    done => done?,
                }
            }
            CallStatus::Running => {
                self.context.store.commit(actor.tenant(), Batch::new().audit(entry)).await?;
                let mut finished =
                    std::pin::pin!(self.wait_until_final(actor.tenant(), id, &mut subscription));
                let mut ticks = interval(POLL_INTERVAL);
                loop {
                    tokio::select! {
                        result = &mut finished => break result?,
                        _ = ticks.tick() => if !self.stop_call(actor.tenant(), id) {
                            let cancel = NewEvent::new(CANCEL_EVENT, json!({ "call": id }));
                            self.context.events.publish(actor.tenant(), cancel); // another hub runs the call
                        }
                    }
                }
            }
            status => {
                let text = format!("the call has already finished: its status is {}", status.name());
                return Err(Error::new(ErrorKind::Conflict, "call_finished", text));
            }
        }
        self.call(actor, id).await
    }

    /// Reports whether this hub runs a call, or is about to.
    pub(in crate::hub) fn is_running_here(&self, tenant: TenantId, call: CallId) -> bool {
        lock(&self.running).contains_key(&(tenant, call))
    }

    /// Cancels a call if this hub runs it.
    pub(in crate::hub) fn stop_call(&self, tenant: TenantId, call: CallId) -> bool {
        let stop = lock(&self.running).get(&(tenant, call)).map(|running| running.stop.clone());
        stop.inspect(|stop| stop.notify_one()).is_some()
    }

    /// Returns the open approval of a call, if there is one.
    pub(super) async fn find_open_approval(
        &self,
        tenant: TenantId,
        call: CallId,
    ) -> Result<Option<Approval>> {
        let filter = ApprovalFilter { call: Some(call), decision: Some(ApprovalStatus::Open) };
        let open =
            self.context.store.approvals(tenant, &filter, &PageRequest { after: None, limit: 1 }).await?;
        Ok(open.items.into_iter().next())
    }
}

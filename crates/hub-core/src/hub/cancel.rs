//! Cancellation of calls, local and across hubs.

use serde_json::json;
use tokio::time::interval;

use super::call_records::{CallView, LOOK_AGAIN};
use super::{Hub, event_payloads};
use crate::actor::Scope;
use crate::error::{Error, Kind, Result};
use crate::events::Told;
use crate::id::{CallId, TenantId};
use crate::lock::lock;
use crate::store::{Approval, ApprovalFilter, Batch, Change, Decision, Paging, Status};

/// Event that requests the other hubs to stop a call.
pub(super) const CANCEL: &str = "cancel";

impl Hub {
    /// Cancels a pending or running call. Every caller that may see the call may cancel it.
    pub async fn cancel_call(&self, scope: Scope, id: CallId) -> Result<CallView> {
        let mut watching = self.events.watch(scope.tenant(), None);
        let call = self.call(scope, id).await?;
        let entry = self.entry(scope, "call.cancelled").with("call", id.to_string());
        match call.status {
            Status::Pending => {
                let text = "cancelled before it was approved";
                let outcome = self.failed(scope.tenant(), id, call.server_id, Status::Cancelled, text).await;
                let Some(approval) = self.open_question(scope.tenant(), id).await? else {
                    return Box::pin(self.cancel_call(scope, id)).await; // decided concurrently
                };
                let (by, at, decision) = (scope.subject().to_string(), self.world.now(), Decision::Withdrawn);
                let decide = Change::Decide { approval: approval.id, decision, by, at, digest: None };
                let batch =
                    Batch::new().change(decide).change(Change::Finish { call: id, outcome }).audit(entry);
                let batch = batch.tell(event_payloads::approval(approval.id, id, decision));
                let batch =
                    batch.tell(event_payloads::call(id, call.server_id, &call.tool, Status::Cancelled));
                match self.store.commit(scope.tenant(), batch).await {
                    Err(error) if error.kind() == Kind::Conflict => {
                        return Box::pin(self.cancel_call(scope, id)).await; // decided concurrently
                    }
                    done => done?,
                }
            }
            Status::Running => {
                self.store.commit(scope.tenant(), Batch::new().audit(entry)).await?;
                let mut over = std::pin::pin!(self.until_over(scope.tenant(), id, &mut watching));
                let mut turns = interval(LOOK_AGAIN);
                loop {
                    tokio::select! {
                        over = &mut over => break over?,
                        _ = turns.tick() => if !self.stop(scope.tenant(), id) {
                            let cancel = Told::new(CANCEL, json!({ "call": id }));
                            self.events.publish(scope.tenant(), cancel); // another hub runs the call
                        }
                    }
                }
            }
            over => {
                let text = format!("the call has already finished: its status is {}", over.name());
                return Err(Error::new(Kind::Conflict, "call_over", text));
            }
        }
        self.call(scope, id).await
    }

    /// Reports whether this hub runs a call, or is about to.
    pub(super) fn makes(&self, tenant: TenantId, call: CallId) -> bool {
        lock(&self.running).contains_key(&(tenant, call))
    }

    /// Stops a call if this hub runs it.
    pub(super) fn stop(&self, tenant: TenantId, call: CallId) -> bool {
        let stop = lock(&self.running).get(&(tenant, call)).map(|running| running.stop.clone());
        stop.inspect(|stop| stop.notify_one()).is_some()
    }

    /// Returns the open approval of a call, if there is one.
    async fn open_question(&self, tenant: TenantId, call: CallId) -> Result<Option<Approval>> {
        let filter = ApprovalFilter { call: Some(call), decision: Some(Decision::Open) };
        let open = self.store.approvals(tenant, &filter, &Paging { after: None, limit: 1 }).await?;
        Ok(open.items.into_iter().next())
    }
}

//! Calls that are given up.

use serde_json::json;
use tokio::time::interval;

use super::history::{CallView, LOOK_AGAIN};
use super::{Hub, told};
use crate::error::{Error, Kind, Result};
use crate::events::Told;
use crate::id::{CallId, TenantId};
use crate::scope::Scope;
use crate::store::{Approval, ApprovalFilter, Batch, Change, Decision, Paging, Status};
use crate::sync::lock;

/// The event by which a hub tells the others that somebody wants a call stopped.
pub(super) const CANCEL: &str = "cancel";

impl Hub {
    /// Gives up a call that waits or is under way. Whoever may see it may.
    pub async fn cancel_call(&self, scope: Scope, id: CallId) -> Result<CallView> {
        let mut watching = self.events.watch(scope.tenant(), None);
        let call = self.call(scope, id).await?;
        let entry = self.entry(scope, "call.cancelled").with("call", id.to_string());
        match call.status {
            Status::Pending => {
                let text = "whoever wanted it gave it up";
                let outcome = self.failed(scope.tenant(), id, call.server_id, Status::Cancelled, text).await;
                let Some(approval) = self.open_question(scope.tenant(), id).await? else {
                    return Box::pin(self.cancel_call(scope, id)).await; // somebody has just said yes or no
                };
                let (by, at, decision) = (scope.subject().to_string(), self.world.now(), Decision::Withdrawn);
                let decide = Change::Decide { approval: approval.id, decision, by, at, digest: None };
                let batch =
                    Batch::new().change(decide).change(Change::Finish { call: id, outcome }).audit(entry);
                let batch = batch.tell(told::approval(approval.id, id, decision));
                let batch = batch.tell(told::call(id, call.server_id, &call.tool, Status::Cancelled));
                match self.store.commit(scope.tenant(), batch).await {
                    Err(error) if error.kind() == Kind::Conflict => {
                        return Box::pin(self.cancel_call(scope, id)).await; // the same, a moment later
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
                            self.events.publish(scope.tenant(), cancel); // another hub makes it
                        }
                    }
                }
            }
            over => {
                let text = format!("the call is over: it is {}", over.name());
                return Err(Error::new(Kind::Conflict, "call_over", text));
            }
        }
        self.call(scope, id).await
    }

    /// Whether this hub makes a call, or is about to.
    pub(super) fn makes(&self, tenant: TenantId, call: CallId) -> bool {
        lock(&self.running).contains_key(&(tenant, call))
    }

    /// Stops a call, if this hub makes it.
    pub(super) fn stop(&self, tenant: TenantId, call: CallId) -> bool {
        let stop = lock(&self.running).get(&(tenant, call)).map(|running| running.stop.clone());
        stop.inspect(|stop| stop.notify_one()).is_some()
    }

    /// What a person is asked about a call, if somebody still is.
    async fn open_question(&self, tenant: TenantId, call: CallId) -> Result<Option<Approval>> {
        let filter = ApprovalFilter { call: Some(call), decision: Some(Decision::Open) };
        let open = self.store.approvals(tenant, &filter, &Paging { after: None, limit: 1 }).await?;
        Ok(open.items.into_iter().next())
    }
}

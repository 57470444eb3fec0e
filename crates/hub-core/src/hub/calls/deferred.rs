//! Deferred commits: outcomes that could not be stored, for example because of a full disk, and are retried. Also calls
//! whose start may or may not have been stored.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::audit::AuditEntry;
use crate::error;
use crate::hub::calls::Calls;
use crate::hub::event_payloads;
use crate::id::{CallId, TenantId};
use crate::lock::lock;
use crate::store::{Batch, CallRecord, CallStatus, StoreChange};

/// Maximum number of deferred commits, and of uncertain starts. Calls beyond it are recorded as `unknown` at the next
/// start.
const MAX_DEFERRED: usize = 10_000;
/// Time for which the hub looks up in the store whether a call was started, if the commit of its start failed.
const UNCERTAIN_START_TIMEOUT: Duration = Duration::from_mins(1);

/// Commits that wait for a retry, and calls whose start may or may not have been stored.
#[derive(Default)]
pub(in crate::hub) struct DeferredCommits {
    batches: Mutex<VecDeque<(TenantId, Batch)>>,
    uncertain_starts: Mutex<Vec<UncertainStart>>,
}

/// Call whose start may or may not have been stored. It was not sent.
struct UncertainStart {
    tenant: TenantId,
    call: CallId,
    /// Start time of the call as it would have been stored: the call may have been started again since.
    started: Timestamp,
    since: Instant,
}

impl DeferredCommits {
    pub(in crate::hub) fn add(&self, tenant: TenantId, batch: Batch) {
        let mut batches = lock(&self.batches);
        if batches.len() < MAX_DEFERRED {
            batches.push_back((tenant, batch));
        }
    }

    fn pop_first(&self) -> Option<(TenantId, Batch)> {
        lock(&self.batches).pop_front()
    }

    /// Adds a call whose start may or may not have been stored.
    pub(in crate::hub) fn add_uncertain_start(&self, tenant: TenantId, call: CallId, started: Timestamp) {
        let mut uncertain_starts = lock(&self.uncertain_starts);
        if uncertain_starts.len() < MAX_DEFERRED {
            uncertain_starts.push(UncertainStart { tenant, call, started, since: Instant::now() });
        }
    }
}

impl UncertainStart {
    fn matches_call(&self, call: &CallRecord) -> bool {
        // Stores have a resolution of one millisecond.
        let started = call.started.map(Timestamp::as_millisecond);
        call.status == CallStatus::Running && started == Some(self.started.as_millisecond())
    }
}

impl Calls {
    /// Finishes calls whose start was stored although they were not sent. After a minute, the database is assumed never
    /// to complete the commit.
    pub(in crate::hub) async fn resolve_uncertain_starts(&self) {
        let uncertain_starts = std::mem::take(&mut *lock(&self.deferred_commits.uncertain_starts));
        for start in uncertain_starts {
            let (tenant, id) = (start.tenant, start.call);
            match self.context.store.call(tenant, id).await {
                Ok(Some(call)) if start.matches_call(&call) && !self.is_running_here(tenant, id) => {
                    let text =
                        "the call was not sent: the database connection was lost while its start was stored";
                    let outcome = self.failed_outcome(tenant, id, call.server, CallStatus::Error, text).await;
                    let entry =
                        AuditEntry::new(outcome.at, "hub", "call.finished").with("call", id.to_string());
                    let entry = entry.with("status", CallStatus::Error.name());
                    let batch =
                        Batch::new().change(StoreChange::FinishCall { call: id, outcome }).audit(entry);
                    let batch = batch.with_event(event_payloads::call(
                        id,
                        call.server,
                        &call.tool,
                        CallStatus::Error,
                    ));
                    self.deferred_commits.add(tenant, batch);
                }
                _ if start.since.elapsed() < UNCERTAIN_START_TIMEOUT => {
                    lock(&self.deferred_commits.uncertain_starts).push(start);
                }
                _ => {}
            }
        }
    }

    /// Retries deferred store commits in order. Stops while the store is unavailable.
    pub(in crate::hub) async fn flush_deferred(&self) {
        while let Some((tenant, batch)) = self.deferred_commits.pop_first() {
            match self.context.store.commit(tenant, batch.clone()).await {
                Err(error) if error.kind() == error::ErrorKind::Unavailable => {
                    lock(&self.deferred_commits.batches).push_front((tenant, batch));
                    return;
                }
                // Stored now, or already stored by other means.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

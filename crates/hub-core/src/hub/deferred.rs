//! Deferred commits: outcomes that could not be stored, for example because of a full disk, and are retried. Also calls
//! whose start may or may not have been stored.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Hub, event_payloads};
use crate::audit::Entry;
use crate::error;
use crate::id::{CallId, TenantId};
use crate::lock::lock;
use crate::store::{Batch, Call, Change, Status};

/// Limit of each list. Calls beyond it are recorded as `unknown` at the next start.
const MOST: usize = 10_000;
/// Time during which an uncertain start is looked up in the store.
const DOUBT: Duration = Duration::from_mins(1);

/// Commits waiting for a retry, and uncertain starts.
#[derive(Default)]
pub(super) struct Late {
    batches: Mutex<VecDeque<(TenantId, Batch)>>,
    doubts: Mutex<Vec<Doubt>>,
}

/// Call whose start may or may not have been stored. It was not sent.
struct Doubt {
    tenant: TenantId,
    call: CallId,
    /// Start time that would have been stored: the call may have been started again since.
    started: Timestamp,
    since: Instant,
}

impl Late {
    pub(super) fn add(&self, tenant: TenantId, batch: Batch) {
        let mut waiting = lock(&self.batches);
        if waiting.len() < MOST {
            waiting.push_back((tenant, batch));
        }
    }

    fn first(&self) -> Option<(TenantId, Batch)> {
        lock(&self.batches).pop_front()
    }

    /// Adds a call whose start may or may not have been stored.
    pub(super) fn doubt(&self, tenant: TenantId, call: CallId, started: Timestamp) {
        let mut doubts = lock(&self.doubts);
        if doubts.len() < MOST {
            doubts.push(Doubt { tenant, call, started, since: Instant::now() });
        }
    }
}

impl Doubt {
    fn is_about(&self, call: &Call) -> bool {
        // Stores have a resolution of one millisecond.
        let started = call.started.map(Timestamp::as_millisecond);
        call.status == Status::Running && started == Some(self.started.as_millisecond())
    }
}

impl Hub {
    /// Finishes calls whose start was stored although they were not sent. After a minute, the database is assumed never
    /// to complete the commit.
    pub(super) async fn settle_doubts(&self) {
        let doubts = std::mem::take(&mut *lock(&self.late.doubts));
        for doubt in doubts {
            let (tenant, id) = (doubt.tenant, doubt.call);
            match self.store.call(tenant, id).await {
                Ok(Some(call)) if doubt.is_about(&call) && !self.makes(tenant, id) => {
                    let text =
                        "the call was not sent: the database connection was lost while its start was stored";
                    let outcome = self.failed(tenant, id, call.server, Status::Error, text).await;
                    let entry = Entry::new(outcome.at, "hub", "call.done").with("call", id.to_string());
                    let entry = entry.with("status", Status::Error.name());
                    let batch = Batch::new().change(Change::Finish { call: id, outcome }).audit(entry);
                    let batch = batch.tell(event_payloads::call(id, call.server, &call.tool, Status::Error));
                    self.late.add(tenant, batch);
                }
                _ if doubt.since.elapsed() < DOUBT => lock(&self.late.doubts).push(doubt),
                _ => {}
            }
        }
    }

    /// Retries deferred commits in order. Stops while the store is unavailable.
    pub(super) async fn keep_late(&self) {
        while let Some((tenant, batch)) = self.late.first() {
            match self.store.commit(tenant, batch.clone()).await {
                Err(error) if error.kind() == error::Kind::Unavailable => {
                    lock(&self.late.batches).push_front((tenant, batch));
                    return;
                }
                // Stored now, or already stored by other means.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

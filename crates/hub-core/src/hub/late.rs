//! What could not be kept when it happened, as when the disk is full: it is kept as soon as that is possible.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Hub, told};
use crate::audit::Entry;
use crate::error;
use crate::id::{CallId, TenantId};
use crate::store::{Batch, Call, Change, Status};
use crate::sync::lock;

/// How much is remembered. What does not fit is found out at the next start, as `unknown`.
const MOST: usize = 10_000;
/// How long it is looked for what may have been kept.
const DOUBT: Duration = Duration::from_mins(1);

/// Batches that wait.
#[derive(Default)]
pub(super) struct Late {
    batches: Mutex<VecDeque<(TenantId, Batch)>>,
    doubts: Mutex<Vec<Doubt>>,
}

/// A call of which it is not known whether it was kept that it is made. It is not.
struct Doubt {
    tenant: TenantId,
    call: CallId,
    /// What would have been kept as its start: somebody may say once more that it is made.
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

    /// It is not known whether it was kept that a call is made.
    pub(super) fn doubt(&self, tenant: TenantId, call: CallId, started: Timestamp) {
        let mut doubts = lock(&self.doubts);
        if doubts.len() < MOST {
            doubts.push(Doubt { tenant, call, started, since: Instant::now() });
        }
    }
}

impl Doubt {
    fn is_about(&self, call: &Call) -> bool {
        // To the millisecond, which is what stores keep.
        let started = call.started.map(Timestamp::as_millisecond);
        call.status == Status::Running && started == Some(self.started.as_millisecond())
    }
}

impl Hub {
    /// Calls that were kept after all, and not made, are over. What the database had not done after a while it never does.
    pub(super) async fn settle_doubts(&self) {
        let doubts = std::mem::take(&mut *lock(&self.late.doubts));
        for doubt in doubts {
            let (tenant, id) = (doubt.tenant, doubt.call);
            match self.store.call(tenant, id).await {
                Ok(Some(call)) if doubt.is_about(&call) && !self.makes(tenant, id) => {
                    let text = "the database was lost when it was to be made: it was not";
                    let outcome = self.failed(tenant, id, call.server, Status::Error, text).await;
                    let entry = Entry::new(outcome.at, "hub", "call.done").with("call", id.to_string());
                    let entry = entry.with("status", Status::Error.name());
                    let batch = Batch::new().change(Change::Finish { call: id, outcome }).audit(entry);
                    let batch = batch.tell(told::call(id, call.server, &call.tool, Status::Error));
                    self.late.add(tenant, batch);
                }
                _ if doubt.since.elapsed() < DOUBT => lock(&self.late.doubts).push(doubt),
                _ => {}
            }
        }
    }

    /// Tries again to keep what waits, until something cannot be kept.
    pub(super) async fn keep_late(&self) {
        while let Some((tenant, batch)) = self.late.first() {
            match self.store.commit(tenant, batch.clone()).await {
                Err(error) if error.kind() == error::Kind::Unavailable => {
                    lock(&self.late.batches).push_front((tenant, batch));
                    return;
                }
                // Done, or it was kept in another way meanwhile.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

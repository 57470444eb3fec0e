//! What could not be kept when it happened, as when the disk is full: it is kept as soon as that is possible.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::Hub;
use crate::error;
use crate::id::TenantId;
use crate::store::Batch;
use crate::sync::lock;

/// How much is remembered. What does not fit is found out at the next start, as `unknown`.
const MOST: usize = 10_000;

/// Batches that wait.
#[derive(Default)]
pub(super) struct Late(Mutex<VecDeque<(TenantId, Batch)>>);

impl Late {
    pub(super) fn add(&self, tenant: TenantId, batch: Batch) {
        let mut waiting = lock(&self.0);
        if waiting.len() < MOST {
            waiting.push_back((tenant, batch));
        }
    }

    fn first(&self) -> Option<(TenantId, Batch)> {
        lock(&self.0).pop_front()
    }
}

impl Hub {
    /// Tries again to keep what waits, until something cannot be kept.
    pub(super) async fn keep_late(&self) {
        while let Some((tenant, batch)) = self.late.first() {
            match self.store.commit(tenant, batch.clone()).await {
                Err(error) if error.kind() == error::Kind::Unavailable => {
                    lock(&self.late.0).push_front((tenant, batch));
                    return;
                }
                // Done, or it was kept in another way meanwhile.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

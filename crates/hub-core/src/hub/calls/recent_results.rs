//! Recent results: outcomes that are not (yet) stored, for waiting callers.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::records::CallView;
use crate::id::{CallId, TenantId};
use crate::lock::lock;

/// Maximum number of call outcomes held in memory.
const MAX_RESULTS: usize = 64;

/// Outcomes whose results are not stored, because the server has no history or the commit failed, for callers that
/// wait; oldest first.
#[derive(Default)]
pub(in crate::hub) struct RecentResults(Mutex<VecDeque<(TenantId, CallView)>>);

impl RecentResults {
    pub(in crate::hub) fn insert(&self, tenant: TenantId, view: &CallView) {
        let mut all = lock(&self.0);
        if all.len() == MAX_RESULTS {
            all.pop_front();
        }
        all.push_back((tenant, view.clone()));
    }

    pub(in crate::hub) fn find(&self, tenant: TenantId, call: CallId) -> Option<CallView> {
        let all = lock(&self.0);
        let found = all.iter().rev().find(|(owner, view)| (*owner, view.id) == (tenant, call))?;
        Some(found.1.clone())
    }
}

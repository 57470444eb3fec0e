//! What came of calls and is not kept, or not yet: for whoever waits for it now.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::history::CallView;
use crate::id::{CallId, TenantId};
use crate::sync::lock;

/// How many are remembered.
const MOST: usize = 64;

/// The last of them.
#[derive(Default)]
pub(super) struct Passing(Mutex<VecDeque<(TenantId, CallView)>>);

impl Passing {
    pub(super) fn keep(&self, tenant: TenantId, view: &CallView) {
        let mut all = lock(&self.0);
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back((tenant, view.clone()));
    }

    pub(super) fn find(&self, tenant: TenantId, call: CallId) -> Option<CallView> {
        let all = lock(&self.0);
        let found = all.iter().rev().find(|(whose, view)| (*whose, view.id) == (tenant, call))?;
        Some(found.1.clone())
    }
}

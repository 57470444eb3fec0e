//! Results that are not kept, for whoever waits for them now.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde_json::Value;

use crate::id::{CallId, TenantId};
use crate::sync::lock;

/// How many are remembered.
const MOST: usize = 64;

struct Passed {
    tenant: TenantId,
    call: CallId,
    result: Value,
    warning: Option<String>,
}

/// The last of them.
#[derive(Default)]
pub(super) struct Passing(Mutex<VecDeque<Passed>>);

impl Passing {
    pub(super) fn keep(
        &self,
        tenant: TenantId,
        call: CallId,
        result: Option<Value>,
        warning: Option<String>,
    ) {
        let Some(result) = result else { return };
        let mut all = lock(&self.0);
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back(Passed { tenant, call, result, warning });
    }

    pub(super) fn find(&self, tenant: TenantId, call: CallId) -> Option<(Value, Option<String>)> {
        let all = lock(&self.0);
        let found = all.iter().find(|one| (one.tenant, one.call) == (tenant, call))?;
        Some((found.result.clone(), found.warning.clone()))
    }
}

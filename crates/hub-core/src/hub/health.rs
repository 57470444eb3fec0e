//! Health check of the hub, and counters of its status: open approvals and audit entries.

use super::Hub;
use crate::actor::Actor;
use crate::error::Result;
use crate::store::{ApprovalFilter, ApprovalStatus, MAX_PAGE_SIZE, PageRequest};

impl Hub {
    /// Checks that the store is reachable.
    pub async fn check(&self) -> Result<()> {
        self.store.tenants().await.map(drop)
    }

    /// Returns the number of approvals that wait for a decision.
    pub async fn pending_approvals(&self, actor: Actor) -> Result<usize> {
        actor.require_user()?;
        let filter = ApprovalFilter { call: None, decision: Some(ApprovalStatus::Open) };
        let (mut count, mut paging) = (0, PageRequest { after: None, limit: MAX_PAGE_SIZE });
        loop {
            let page = self.store.approvals(actor.tenant(), &filter, &paging).await?;
            count += page.items.len();
            match page.next {
                None => return Ok(count),
                after => paging.after = after,
            }
        }
    }

    /// Returns the number of entries in the audit log of the tenant.
    pub async fn audit_entries(&self, actor: Actor) -> Result<u64> {
        actor.require_user()?;
        Ok(self.store.audit_head(actor.tenant()).await?.number)
    }
}

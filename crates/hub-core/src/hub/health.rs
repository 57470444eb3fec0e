//! Health checks and counters.

use super::Hub;
use crate::actor::Scope;
use crate::error::Result;
use crate::store::{ApprovalFilter, Decision, MOST_ON_PAGE, Paging};

impl Hub {
    /// Checks that the store is reachable.
    pub async fn check(&self) -> Result<()> {
        self.store.tenants().await.map(drop)
    }

    /// Returns the number of open approvals.
    pub async fn pending_approvals(&self, scope: Scope) -> Result<usize> {
        scope.person()?;
        let filter = ApprovalFilter { call: None, decision: Some(Decision::Open) };
        let (mut count, mut paging) = (0, Paging { after: None, limit: MOST_ON_PAGE });
        loop {
            let page = self.store.approvals(scope.tenant(), &filter, &paging).await?;
            count += page.items.len();
            match page.next {
                None => return Ok(count),
                after => paging.after = after,
            }
        }
    }

    /// Returns the number of audit entries.
    pub async fn audit_entries(&self, scope: Scope) -> Result<u64> {
        scope.person()?;
        Ok(self.store.head(scope.tenant()).await?.number)
    }
}

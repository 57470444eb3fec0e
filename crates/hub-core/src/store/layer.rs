//! Layers of a store: they change how documents are read and batches committed, and pass everything else on.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{Receiver, Sender};

use super::{
    Approval, ApprovalFilter, AuditFilter, AuditStore, CallFilter, CallRecord, CallStore, Cluster,
    MaintenanceStore, Page, PageRequest, SnapshotItem, Store,
};
use crate::audit::{ChainHead, Checkpoint, StoredAuditEntry};
use crate::error::{Error, Result};
use crate::id::{ApprovalId, CallId, TenantId};

/// Store in front of another one. It reads calls, approvals and the audit from the other, and is operated with it.
pub trait StoreLayer: Send + Sync + 'static {
    /// Returns the store behind this one.
    fn inner(&self) -> &dyn Store;
}

#[async_trait]
impl<T: StoreLayer> CallStore for T {
    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<CallRecord>> {
        self.inner().call(tenant, id).await
    }

    async fn calls(
        &self,
        tenant: TenantId,
        filter: &CallFilter,
        paging: &PageRequest,
    ) -> Result<Page<CallRecord>> {
        self.inner().calls(tenant, filter, paging).await
    }

    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>> {
        self.inner().approval(tenant, id).await
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &PageRequest,
    ) -> Result<Page<Approval>> {
        self.inner().approvals(tenant, filter, paging).await
    }

    async fn abandoned_calls(&self, tenant: TenantId) -> Result<Vec<CallRecord>> {
        self.inner().abandoned_calls(tenant).await
    }

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        self.inner().has_calls_before(tenant, before).await
    }
}

#[async_trait]
impl<T: StoreLayer> AuditStore for T {
    async fn audit_head(&self, tenant: TenantId) -> Result<ChainHead> {
        self.inner().audit_head(tenant).await
    }

    async fn audit_entries(
        &self,
        tenant: TenantId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        self.inner().audit_entries(tenant, after, limit).await
    }

    async fn find_audit_entries(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        numbers: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        self.inner().find_audit_entries(tenant, filter, numbers, limit).await
    }

    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>> {
        self.inner().checkpoint(tenant).await
    }
}

#[async_trait]
impl<T: StoreLayer> MaintenanceStore for T {
    fn shared(&self) -> Option<&Cluster> {
        self.inner().shared()
    }

    fn clock_offset(&self) -> SignedDuration {
        self.inner().clock_offset()
    }

    async fn export_snapshot(&self, to: Sender<SnapshotItem>) -> Result<()> {
        self.inner().export_snapshot(to).await
    }

    async fn import_snapshot(&self, from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
        self.inner().import_snapshot(from, count).await
    }

    async fn wait_for_failure(&self) -> Error {
        self.inner().wait_for_failure().await
    }
}

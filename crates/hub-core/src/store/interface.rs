//! Interfaces of a store, one for each part of the data.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{Receiver, Sender};

use super::{
    Approval, ApprovalFilter, AuditFilter, Batch, CallFilter, CallRecord, Cluster, DocumentKey, DocumentKind,
    Page, PageRequest, SnapshotItem, StoredDocument,
};
use crate::audit::{ChainHead, Checkpoint, StoredAuditEntry};
use crate::error::{Error, Result};
use crate::id::{ApprovalId, CallId, TenantId};

/// Database interface of the hub: the parts of a store, and the one way to change it. Every read and write is within one
/// tenant, unless stated otherwise.
#[async_trait]
pub trait Store: DocumentStore + CallStore + AuditStore + MaintenanceStore {
    /// Commits a batch, or nothing of it. A committed batch survives the end of this process.
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()>;
}

/// Reads of documents.
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// Reads a document, if it exists.
    async fn document(&self, tenant: TenantId, key: &DocumentKey) -> Result<Option<StoredDocument>>;

    /// Reads a document of any tenant, with the tenant. Only for authentication, by tokens and sessions, whose ids are
    /// unique across tenants.
    async fn document_in_any_tenant(&self, key: &DocumentKey) -> Result<Option<(TenantId, StoredDocument)>>;

    /// Reads the document of a kind with this name.
    async fn document_by_name(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        name: &str,
    ) -> Result<Option<StoredDocument>>;

    /// Lists documents of a kind in the order of creation; only those of `parent`, if it is given.
    async fn documents(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
        paging: &PageRequest,
    ) -> Result<Page<StoredDocument>>;

    /// Lists all tenants with data.
    async fn tenants(&self) -> Result<Vec<TenantId>>;
}

/// Reads of calls and approvals.
#[async_trait]
pub trait CallStore: Send + Sync + 'static {
    /// Reads a call record, if it exists.
    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<CallRecord>>;

    /// Lists calls, the newest first, without their arguments and results.
    async fn calls(
        &self,
        tenant: TenantId,
        filter: &CallFilter,
        paging: &PageRequest,
    ) -> Result<Page<CallRecord>>;

    /// Reads an approval, if it exists.
    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>>;

    /// Lists approvals, the newest first.
    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &PageRequest,
    ) -> Result<Page<Approval>>;

    /// Lists some of the calls that were running at a hub that is gone.
    async fn abandoned_calls(&self, tenant: TenantId) -> Result<Vec<CallRecord>>;

    /// Returns whether there are calls that finished before `before`.
    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool>;
}

/// Reads of the audit.
#[async_trait]
pub trait AuditStore: Send + Sync + 'static {
    /// Returns the audit chain head of a tenant.
    async fn audit_head(&self, tenant: TenantId) -> Result<ChainHead>;

    /// Lists at most `limit` audit entries that follow the entry with the number `after`.
    async fn audit_entries(
        &self,
        tenant: TenantId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>>;

    /// Lists at most `limit` audit entries that match a filter and have one of these numbers. No index supports the
    /// filter: the range bounds the number of entries that are read.
    async fn find_audit_entries(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        numbers: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>>;

    /// Returns the last checkpoint of a tenant.
    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>>;
}

/// Operation of a store as a whole: its cluster, snapshots and failures.
#[async_trait]
pub trait MaintenanceStore: Send + Sync + 'static {
    /// Returns the cluster of hubs that share this store; `None` if only one hub uses it.
    fn shared(&self) -> Option<&Cluster> {
        None
    }

    /// Returns the offset of the cluster clock from the clock of this machine.
    fn clock_offset(&self) -> SignedDuration {
        SignedDuration::ZERO
    }

    /// Exports a consistent snapshot of all tenants.
    async fn export_snapshot(&self, to: Sender<SnapshotItem>) -> Result<()>;

    /// Imports a snapshot of `count` items of another store, in order; all of them, or none. The store must be empty.
    async fn import_snapshot(&self, from: Receiver<SnapshotItem>, count: u64) -> Result<()>;

    /// Waits until the store fails permanently, and returns the error. Never returns if the store recovers from
    /// failures.
    async fn wait_for_failure(&self) -> Error {
        std::future::pending().await
    }
}

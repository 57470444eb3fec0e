//! Store interface: typed reads, and writes in batches.
//!
//! A [`Batch`] is one transaction: changed documents, the transition of a call, a decision, and their audit entries.
//! Each change names its precondition; if one fails, nothing of the batch is committed. All writes are batches.

mod audit_filter;
mod authenticated;
mod authenticator;
mod batch;
mod cache;
mod call;
mod cluster;
mod document;
mod interface;
mod layer;
mod snapshot;

pub use audit_filter::AuditFilter;
pub use authenticated::{AuthenticatedStore, DOCUMENT_TAMPERED, for_each_document};
pub use authenticator::StoreAuthenticator;
pub use batch::{Batch, CountedCalls, StoreChange};
pub use cache::{CachedStore, Generation};
pub use call::{Approval, ApprovalFilter, ApprovalStatus, CallFilter, CallOutcome, CallRecord, CallStatus};
pub use cluster::{CacheScope, Cluster, ClusterClock, Invalidation};
pub use document::{Document, DocumentKey, DocumentKind, StoredDocument};
pub use interface::{AuditStore, CallStore, DocumentStore, MaintenanceStore, Store};
pub use layer::StoreLayer;
pub use snapshot::{SnapshotItem, SnapshotValue};

pub(crate) use snapshot::bytes;

/// Position and maximum size of a page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// Cursor: the `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items of the page; each store has an upper bound.
    pub limit: usize,
}

/// Page of a list, with the cursor of the next page.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// Items of the page.
    pub items: Vec<T>,
    /// Cursor of the next page, if there is one.
    pub next: Option<String>,
}

/// Maximum number of items of a page.
pub const MAX_PAGE_SIZE: usize = 500;

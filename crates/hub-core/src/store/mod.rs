//! Where everything is kept, as the hub sees it: read in any way, and changed in one.
//!
//! A [`Batch`] is what happens at once or not at all: documents that change, a call that goes on, a decision, and the
//! entries of the audit that say so. Each part names what must be true before; if it is not, nothing of the batch is done.
//! There is no other way to change anything.

mod batch;
mod cached;
mod call;
mod copied;
mod document;
mod shared;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{Receiver, Sender};

pub use batch::{Batch, Change, Room};
pub use cached::Cached;
pub use call::{Approval, ApprovalFilter, Call, CallFilter, Decision, Outcome, Status};
pub use copied::{Copied, What};
pub use document::{Document, Key, Kind, Stored};
pub use shared::{About, Changed, Clock, Shared};

use crate::audit::{Checkpoint, Head, Row};
use crate::error::{Error, Result};
use crate::id::{ApprovalId, CallId, TenantId};

pub(crate) use copied::bytes;

/// Which part of a long list is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paging {
    /// What the page before ended with.
    pub after: Option<String>,
    /// How many, at most; each store has a bound of its own.
    pub limit: usize,
}

/// Part of a long list.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// What to ask for the next page with, if there is one.
    pub next: Option<String>,
}

/// The most that one page holds.
pub const MOST_ON_PAGE: usize = 500;

/// Where everything is kept. Whatever is asked for is of one tenant.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Does all of a batch, or nothing. When it is done, it survives the end of this process.
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()>;

    /// One document.
    async fn document(&self, tenant: TenantId, key: &Key) -> Result<Option<Stored>>;

    /// One document, whose ever it is, and whose it is: only for what proves who asks, which is tokens and sessions. No two
    /// tenants have one with the same id.
    async fn anywhere(&self, key: &Key) -> Result<Option<(TenantId, Stored)>>;

    /// The document of a kind that has this name.
    async fn named(&self, tenant: TenantId, kind: Kind, name: &str) -> Result<Option<Stored>>;

    /// Documents of a kind, in the order in which they were made; those of one parent, if it is named.
    async fn documents(
        &self,
        tenant: TenantId,
        kind: Kind,
        parent: Option<&str>,
        paging: &Paging,
    ) -> Result<Page<Stored>>;

    /// One call.
    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<Call>>;

    /// Calls, the newest first, without their arguments and results: those are read one by one.
    async fn calls(&self, tenant: TenantId, filter: &CallFilter, paging: &Paging) -> Result<Page<Call>>;

    /// One approval.
    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>>;

    /// Approvals, the newest first.
    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &Paging,
    ) -> Result<Page<Approval>>;

    /// Where the audit of a tenant ends.
    async fn head(&self, tenant: TenantId) -> Result<Head>;

    /// Entries of the audit that come after a number.
    async fn audit(&self, tenant: TenantId, after: u64, limit: usize) -> Result<Vec<Row>>;

    /// The last checkpoint of a tenant.
    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>>;

    /// Every tenant that has anything.
    async fn tenants(&self) -> Result<Vec<TenantId>>;

    /// Some of the calls that are under way at a hub that is gone.
    async fn abandoned(&self, tenant: TenantId) -> Result<Vec<Call>>;

    /// Whether there are calls that finished before `before`.
    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool>;

    /// What hubs on this store tell each other; nothing if it has only one.
    fn shared(&self) -> Option<&Shared> {
        None
    }

    /// How far the clock that all hubs on this store go by is ahead of this machine's.
    fn ahead(&self) -> SignedDuration {
        SignedDuration::ZERO
    }

    /// Hands out everything, as it is at one moment.
    async fn copy_out(&self, to: Sender<Copied>) -> Result<()>;

    /// Takes in so many things that another store has handed out, in their order; all of them, or none. There must be nothing
    /// here yet.
    async fn copy_in(&self, from: Receiver<Copied>, count: u64) -> Result<()>;

    /// Waits until nothing can be kept any more, however long the hub runs; for ever where what fails comes back. Why.
    async fn broken(&self) -> Error {
        std::future::pending().await
    }
}

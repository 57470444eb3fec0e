//! Errors, SQL queries and paging that the `SQLite` and PostgreSQL stores share.

use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::platform::{SystemPlatform, random};
use linchpin_hub_core::rate_limit::{approvals_limited, concurrency_limited};
use linchpin_hub_core::store::{CountedCalls, DocumentKey, Page};
use linchpin_hub_core::{Error, error};

/// Returns the error for a document whose version has changed.
pub(crate) fn version_conflict(key: &DocumentKey) -> Error {
    let text = format!("the {} was changed concurrently: read it again", key.kind.name());
    Error::new(error::ErrorKind::Conflict, "version_conflict", text)
}

/// Returns the error for too many calls that run or wait for approval.
pub(crate) fn limit_exceeded(scope: &CountedCalls, max: u32) -> Error {
    match scope {
        CountedCalls::Server(_) | CountedCalls::Subject(_) => concurrency_limited(max),
        CountedCalls::Pending(_) => approvals_limited(max),
    }
}

/// Generates the id of a hub process: 32 characters, new at every start.
pub(crate) fn hub_id() -> String {
    let mut id = Digest::from_bytes(random(&SystemPlatform)).to_string();
    id.truncate(32);
    id
}

/// SQL query that lists all tenants. Steps from one tenant to the next in the index instead of scanning all documents.
pub(crate) const SELECT_TENANTS: &str = "
    WITH RECURSIVE found (tenant) AS (
        SELECT min(tenant) FROM documents
        UNION ALL
        SELECT (SELECT min(tenant) FROM documents WHERE tenant > found.tenant) FROM found WHERE tenant IS NOT NULL
    )
    SELECT tenant FROM found WHERE tenant IS NOT NULL";

/// Builds a page from a query for `limit + 1` rows; the extra row shows that there is a next page.
pub(crate) fn build_page<T>(mut items: Vec<T>, limit: usize, name: impl Fn(&T) -> String) -> Page<T> {
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(name);
    Page { items, next }
}

/// SQL query that returns whether the database contains any data.
pub(crate) const SELECT_HAS_DATA: &str =
    "SELECT EXISTS (SELECT 1 FROM documents) OR EXISTS (SELECT 1 FROM calls)
    OR EXISTS (SELECT 1 FROM audit) OR EXISTS (SELECT 1 FROM checkpoints)";

/// Returns the error for an import into a database with data.
pub(crate) fn store_not_empty() -> Error {
    let text = "the database is not empty: use an empty one, for example in another data directory";
    Error::new(error::ErrorKind::Conflict, "store_not_empty", text)
}

/// Returns the error for a snapshot with missing items.
pub(crate) fn snapshot_incomplete() -> Error {
    let text = "the snapshot is incomplete, so nothing was stored: try again";
    Error::new(error::ErrorKind::Unavailable, "snapshot_incomplete", text)
}

/// Returns the error for an export whose receiver is gone.
pub(crate) fn snapshot_receiver_gone() -> Error {
    Error::new(
        error::ErrorKind::Unavailable,
        "snapshot_aborted",
        "the export was stopped: the receiver of the snapshot is gone",
    )
}

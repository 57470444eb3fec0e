//! SQL, refusals, row readers and paging that the `SQLite` and PostgreSQL stores share.
//!
//! Statements have the parameter marks of PostgreSQL, such as `$1`. Tenants and ids are values of the store: see
//! [`Value`].

pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod documents;
pub(crate) mod filter;
pub(crate) mod limits;
pub(crate) mod refusal;
pub(crate) mod rows;
pub(crate) mod value;

use jiff::Timestamp;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::platform::{SystemPlatform, random};
use linchpin_hub_core::store::{Page, StoreChange};
use linchpin_hub_core::{Error, error};

use self::refusal::Refusal;
use self::value::Value;

/// SQL statement that changes rows, with its values, and the refusal if it changes no row.
pub(crate) struct Statement<'a> {
    pub(crate) sql: &'static str,
    pub(crate) values: Vec<Value<'a>>,
    pub(crate) refusal: Refusal<'a>,
}

impl<'a> Statement<'a> {
    /// Creates the statement of a change that is the same in every database. `hub` is the id of this hub process, which
    /// the store records with running calls.
    pub(crate) fn of(change: &'a StoreChange, tenant: Value<'a>, hub: Option<&'a str>) -> Option<Self> {
        Some(match change {
            StoreChange::Put { document, version } => documents::put(tenant, document, *version),
            StoreChange::Delete(key) => documents::delete(tenant, key),
            StoreChange::DeleteChildren { kind, parent } => documents::delete_children(tenant, *kind, parent),
            StoreChange::InsertCall(call) => calls::insert(tenant, call, hub),
            StoreChange::StartCall { call, at } => calls::start(tenant, *call, *at, hub),
            StoreChange::FinishCall { call, outcome } => calls::finish(tenant, *call, outcome),
            StoreChange::EditArguments { call, digest, arguments } => {
                calls::edit(tenant, *call, digest, arguments.as_deref())
            }
            StoreChange::InsertApproval(approval) => calls::insert_approval(tenant, approval),
            StoreChange::DecideApproval { approval, decision, decided_by, at, digest } => {
                calls::decide_approval(tenant, *approval, *decision, decided_by, *at, digest.as_ref())
            }
            StoreChange::ConsumeApproval { approval, digest, at } => {
                calls::consume_approval(tenant, *approval, digest, *at)
            }
            StoreChange::InsertCheckpoint(checkpoint) => audit::insert_checkpoint(tenant, checkpoint),
            StoreChange::RequireExists(_)
            | StoreChange::RequireVersions(_)
            | StoreChange::RequireUnusedName { .. }
            | StoreChange::ConsumeRate { .. }
            | StoreChange::RequireConcurrency { .. }
            | StoreChange::PruneCalls { .. }
            | StoreChange::RemoveSealedEntries { .. } => return None,
        })
    }
}

/// Converts a time to the stored form: milliseconds since the Unix epoch.
pub(crate) fn to_millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// Converts a number to a signed integer of a database.
pub(crate) fn to_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Generates the id of a hub process: 32 characters, new at every start.
pub(crate) fn hub_id() -> String {
    let mut id = Digest::from_bytes(random(&SystemPlatform)).to_string();
    id.truncate(32);
    id
}

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

/// Returns the error for a request to a store that is closed.
pub(crate) fn store_closed() -> Error {
    Error::new(error::ErrorKind::Unavailable, "store_closed", "the hub is shutting down")
}

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

//! What all databases have in common beside the contract.

use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::limit::{too_many, too_many_waiting};
use linchpin_hub_core::store::{Key, Page, Room};
use linchpin_hub_core::world::{System, random};
use linchpin_hub_core::{Error, error};

/// A document is not what it was.
pub(crate) fn changed(key: &Key) -> Error {
    let text = format!("the {} was changed meanwhile: read it again", key.kind.name());
    Error::new(error::Kind::Conflict, "changed_meanwhile", text)
}

/// Too many calls are running, or wait for an approval.
pub(crate) fn no_room(of: &Room, most: u32) -> Error {
    match of {
        Room::Server(_) | Room::Subject(_) => too_many(most),
        Room::Waiting(_) => too_many_waiting(most),
    }
}

/// The name of a hub, as long as it runs.
pub(crate) fn hub_id() -> String {
    let mut id = Digest::from_bytes(random(&System)).to_string();
    id.truncate(32);
    id
}

/// From one tenant to the next, over whatever lies between them.
pub(crate) const TENANTS: &str = "
    WITH RECURSIVE found (tenant) AS (
        SELECT min(tenant) FROM documents
        UNION ALL
        SELECT (SELECT min(tenant) FROM documents WHERE tenant > found.tenant) FROM found WHERE tenant IS NOT NULL
    )
    SELECT tenant FROM found WHERE tenant IS NOT NULL";

/// One more than a page was asked for: if it is there, there is a next one.
pub(crate) fn page<T>(mut items: Vec<T>, limit: usize, name: impl Fn(&T) -> String) -> Page<T> {
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(name);
    Page { items, next }
}

/// Whether anything is kept.
pub(crate) const ANYTHING: &str = "SELECT EXISTS (SELECT 1 FROM documents) OR EXISTS (SELECT 1 FROM calls)
    OR EXISTS (SELECT 1 FROM audit) OR EXISTS (SELECT 1 FROM checkpoints)";

/// A copy is taken in by a store that has nothing.
pub(crate) fn not_empty() -> Error {
    let text = "there is something in the database already: give one that is empty, such as in another data directory";
    Error::new(error::Kind::Conflict, "store_not_empty", text)
}

/// Not all of a copy has come.
pub(crate) fn incomplete() -> Error {
    let text = "not everything has come that was to be copied, so nothing was kept: try again";
    Error::new(error::Kind::Unavailable, "copy_incomplete", text)
}

/// Nobody takes what is handed out.
pub(crate) fn gone() -> Error {
    Error::new(error::Kind::Unavailable, "copy_given_up", "nobody takes the copy any more")
}

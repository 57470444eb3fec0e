//! What all databases have in common beside the contract.

use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::store::{Key, Page};
use linchpin_hub_core::world::{System, random};
use linchpin_hub_core::{Error, error};

/// A document is not what it was.
pub(crate) fn changed(key: &Key) -> Error {
    let text = format!("the {} was changed meanwhile: read it again", key.kind.name());
    Error::new(error::Kind::Conflict, "changed_meanwhile", text)
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

//! Cluster log: cache invalidations and events that hubs send to each other, as rows numbered in commit order. `NOTIFY`
//! wakes the readers; a lost notification only delays them, because every heartbeat reads the log, too.

use std::collections::BTreeSet;

use linchpin_hub_core::events::{Event, NewEvent};
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Batch, CacheScope, Cluster, DocumentKey, DocumentKind};
use linchpin_hub_core::{Error, ErrorKind};
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::connection::{DbConnection, Values};
use super::{QueryExecutor as _, StoreFailure, invalid_data};
use crate::common::rows::StoredRow as _;
use crate::common::to_integer;

type Result<T> = std::result::Result<T, StoreFailure>;

/// Lock that a hub holds from adding rows until the commit, so that the numbers are in commit order.
const LOCK_LOG: &str = "SELECT pg_advisory_xact_lock(x'6c696e636e657773'::BIGINT)";
const INSERT_MESSAGES: &str = "INSERT INTO news (number, hub, tenant, kind, body)
    SELECT nextval('news_number'), $1, tenant, kind, body
    FROM unnest($2::TEXT[], $3::TEXT[], $4::TEXT[]) WITH ORDINALITY AS all_of (tenant, kind, body, place) ORDER BY place";
const NOTIFY: &str = "SELECT pg_notify('linchpin_news', '')";
/// SQL statement with which a connection subscribes to notifications about new messages of the cluster log.
pub(super) const LISTEN: &str = "LISTEN linchpin_news";
const SELECT_MESSAGES: &str =
    "SELECT number, hub, tenant, kind, body FROM news WHERE number >= $1 ORDER BY number LIMIT $2";
/// SQL that deletes messages of the cluster log older than 5 minutes, except the newest of them, so that a reader at
/// this position sees that it has missed nothing.
const DELETE_OLD_MESSAGES: &str =
    "DELETE FROM news WHERE number < (SELECT max(number) FROM news WHERE at < now() - INTERVAL '5 minutes')";

/// Maximum number of rows read from the cluster log at once.
const PAGE_SIZE: usize = 1_000;
/// Maximum number of changes listed one by one; above it, one row invalidates everything.
const MAX_LISTED_CHANGES: usize = 200;

/// Messages of this hub to its peer hubs that its next commit writes to the cluster log.
#[derive(Default)]
pub(super) struct ClusterMessages {
    changes: BTreeSet<(TenantId, CacheScope)>,
    /// Events that were published without a batch of store changes.
    pub(super) events: Vec<(TenantId, NewEvent)>,
    /// Events that belong to store batches of this commit; `events` holds the others.
    batch_events: Vec<(TenantId, NewEvent)>,
    /// Whether events of this hub were dropped, so that peer hubs must be notified of a gap.
    pub(super) has_lost_events: bool,
}

impl ClusterMessages {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.events.is_empty()
            && self.batch_events.is_empty()
            && !self.has_lost_events
    }

    /// Adds the changes of a batch that peer hubs may have cached, and its events.
    pub(super) fn add(&mut self, tenant: TenantId, batch: &Batch) {
        self.changes.extend(batch.changes.iter().filter_map(CacheScope::of).map(|scope| (tenant, scope)));
        self.batch_events.extend(batch.events.iter().map(|event| (tenant, event.clone())));
    }

    /// Inserts the messages into the cluster log, within the transaction of the commit.
    pub(super) async fn insert(&self, db: &DbConnection, hub: Option<&str>) -> Result<()> {
        let Some(hub) = hub.filter(|_| !self.is_empty()) else { return Ok(()) };
        let (mut tenants, mut kinds, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let mut add = |tenant: Option<TenantId>, kind: &str, body: Value| {
            tenants.push(tenant.map(|tenant| tenant.to_string()));
            kinds.push(kind.to_owned());
            bodies.push(body.to_string());
        };
        if self.changes.len() > MAX_LISTED_CHANGES {
            add(None, "anything", Value::Null);
        } else {
            for (tenant, scope) in &self.changes {
                match scope {
                    CacheScope::Document(DocumentKey { kind, id }) => {
                        add(Some(*tenant), "one", json!([kind.name(), id]));
                    }
                    CacheScope::Children(kind, parent) => {
                        add(Some(*tenant), "parts", json!([kind.name(), parent]));
                    }
                }
            }
        }
        if self.has_lost_events {
            add(None, "cut", Value::Null);
        }
        for (tenant, NewEvent { kind, body }) in self.events.iter().chain(&self.batch_events) {
            add(Some(*tenant), "event", json!([kind, body]));
        }
        // All statements are prepared, so they are pipelined in this order.
        db.prepare_all([LOCK_LOG, INSERT_MESSAGES, NOTIFY]).await?;
        let values: Values<'_> = &[&hub, &tenants, &kinds, &bodies];
        let (locked, added, notified) = tokio::join!(biased; db.execute(LOCK_LOG, &[]), db.execute(INSERT_MESSAGES, values), db.execute(NOTIFY, &[]));
        locked.and(added).and(notified).map(drop)
    }
}

/// Position up to which a hub has read the cluster log.
pub(super) struct ClusterLogReader {
    hub: String,
    position: u64,
}

impl ClusterLogReader {
    /// Creates a reader of the cluster log that starts as far back as events are retained, for subscribers that resume
    /// from another hub. The log is never empty: the hub first adds a row of its own.
    pub(super) async fn start(db: &DbConnection, hub: &str, shared: &Cluster) -> Result<Self> {
        db.run("BEGIN").await?;
        db.execute(LOCK_LOG, &[]).await?;
        db.execute(INSERT_MESSAGES, &[&hub, &&[None::<&str>][..], &&["hub"][..], &&["null"][..]]).await?;
        db.run("COMMIT").await?;
        let first = "SELECT number FROM news ORDER BY number DESC LIMIT $1";
        let found = db.query(first, &[&to_integer(linchpin_hub_core::events::CAPACITY as u64)]).await?;
        let last = found.last().ok_or_else(|| invalid_data("the cluster log is empty"))?.number(0)?;
        shared.events.reset_to(last);
        Ok(ClusterLogReader { hub: hub.to_owned(), position: last })
    }

    /// Reads all new rows of the cluster log and applies them to this hub.
    pub(super) async fn read(&mut self, db: &DbConnection, shared: &Cluster) -> Result<()> {
        loop {
            let found = db
                .query(SELECT_MESSAGES, &[&to_integer(self.position), &to_integer(PAGE_SIZE as u64)])
                .await?;
            let mut rows = found.iter();
            // If the last row that was read is gone, rows after it may be gone, too.
            let is_complete = rows.next().is_some_and(|row| row.number(0).ok() == Some(self.position));
            if is_complete {
                for row in rows {
                    self.position = row.number(0)?;
                    // An unknown row is harmless: it comes from a hub of another version, and all caches are
                    // invalidated.
                    if self.apply(row, shared).is_err() {
                        shared.notify(None);
                    }
                }
            } else {
                shared.notify(None);
                let newest = found.last().map(|row| row.number(0)).transpose()?;
                self.position = newest.unwrap_or(self.position);
                shared.events.reset_to(self.position);
            }
            if found.len() < PAGE_SIZE {
                return Ok(());
            }
        }
    }

    fn apply(&self, row: &Row, shared: &Cluster) -> Result<()> {
        let unknown_row = || {
            let text = "unknown row of the cluster log, probably of a hub of another version";
            StoreFailure::from(Error::new(ErrorKind::Unavailable, "store_unavailable", text))
        };
        let (number, hub): (u64, &str) = (row.number(0)?, row.try_get(1)?);
        let tenant: Option<TenantId> = row.try_get::<_, Option<&str>>(2)?.map(str::parse).transpose()?;
        let mut body: Value = serde_json::from_str(row.try_get(4)?).map_err(|_| unknown_row())?;
        let is_own = hub == self.hub;
        match (row.try_get(3)?, tenant) {
            ("event", Some(tenant)) => {
                let kind = body[0].as_str().ok_or_else(unknown_row)?.to_owned().into();
                shared.events.deliver(Event { number, tenant, kind, body: body[1].take() });
            }
            ("one" | "parts" | "anything", _) if is_own => {} // this hub has invalidated its caches before the change
            (kind @ ("one" | "parts"), Some(tenant)) => {
                let document_kind = body[0].as_str().and_then(DocumentKind::find).ok_or_else(unknown_row)?;
                let id = body[1].as_str().ok_or_else(unknown_row)?.to_owned();
                let scope = if kind == "one" {
                    CacheScope::Document(DocumentKey { kind: document_kind, id })
                } else {
                    CacheScope::Children(document_kind, id)
                };
                shared.notify(Some((tenant, &scope)));
            }
            ("cut", _) => shared.events.reset_to(number),
            ("hub", _) => {}
            // Written by a newer hub: anything may have changed.
            _ => shared.notify(None),
        }
        Ok(())
    }
}

/// Deletes rows of the cluster log that are older than 5 minutes, which all hubs have read.
pub(super) async fn prune(db: &DbConnection) -> Result<()> {
    db.execute(DELETE_OLD_MESSAGES, &[]).await.map(drop)
}

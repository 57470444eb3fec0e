//! Cluster log: cache invalidations and events that hubs send to each other, as rows numbered in commit order. `NOTIFY`
//! wakes the readers; a lost notification only delays them, because every heartbeat reads the log, too.

use std::collections::BTreeSet;

use linchpin_hub_core::events::{Event, Told};
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{About, Batch, Key, Kind, Shared};
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::connection::{Connected, Values};
use super::documents::{number, numbers};
use super::{Ask as _, Stop, unreadable};

type Result<T> = std::result::Result<T, Stop>;

/// Lock that a hub holds from adding rows until the commit, so that the numbers are in commit order.
const LOCK: &str = "SELECT pg_advisory_xact_lock(x'6c696e636e657773'::BIGINT)";
const ADD: &str = "INSERT INTO news (number, hub, tenant, kind, body)
    SELECT nextval('news_number'), $1, tenant, kind, body
    FROM unnest($2::TEXT[], $3::TEXT[], $4::TEXT[]) WITH ORDINALITY AS all_of (tenant, kind, body, place) ORDER BY place";
const RING: &str = "SELECT pg_notify('linchpin_news', '')";
/// Session setup of a connection that reads the log.
pub(super) const LISTEN: &str = "LISTEN linchpin_news";
const READ: &str =
    "SELECT number, hub, tenant, kind, body FROM news WHERE number >= $1 ORDER BY number LIMIT $2";
/// The newest of the old rows stays, so that a reader at this position sees that it has missed nothing.
const PRUNE: &str =
    "DELETE FROM news WHERE number < (SELECT max(number) FROM news WHERE at < now() - INTERVAL '5 minutes')";

/// Rows per read.
const PAGE: usize = 1_000;
/// Maximum number of changes listed one by one; above it, one row invalidates everything.
const MOST_CHANGES: usize = 200;

/// Messages of this hub that are not committed yet.
#[derive(Default)]
pub(super) struct News {
    changes: BTreeSet<(TenantId, About)>,
    /// Events without a batch.
    pub(super) told: Vec<(TenantId, Told)>,
    /// Events of the batches.
    with: Vec<(TenantId, Told)>,
    /// Whether events were dropped.
    pub(super) is_cut: bool,
}

impl News {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.told.is_empty() && self.with.is_empty() && !self.is_cut
    }

    /// Adds the changes of a batch that peer hubs may have cached, and its events.
    pub(super) fn add(&mut self, tenant: TenantId, batch: &Batch) {
        self.changes.extend(batch.changes.iter().filter_map(About::of).map(|about| (tenant, about)));
        self.with.extend(batch.told.iter().map(|told| (tenant, told.clone())));
    }

    /// Inserts the messages within a transaction.
    pub(super) async fn keep(&self, db: &Connected, hub: Option<&str>) -> Result<()> {
        let Some(hub) = hub.filter(|_| !self.is_empty()) else { return Ok(()) };
        let (mut tenants, mut kinds, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let mut add = |tenant: Option<TenantId>, kind: &str, body: Value| {
            tenants.push(tenant.map(|tenant| tenant.to_string()));
            kinds.push(kind.to_owned());
            bodies.push(body.to_string());
        };
        if self.changes.len() > MOST_CHANGES {
            add(None, "anything", Value::Null);
        } else {
            for (tenant, about) in &self.changes {
                match about {
                    About::One(Key { kind, id }) => add(Some(*tenant), "one", json!([kind.name(), id])),
                    About::Parts(kind, parent) => add(Some(*tenant), "parts", json!([kind.name(), parent])),
                }
            }
        }
        if self.is_cut {
            add(None, "cut", Value::Null);
        }
        for (tenant, Told { kind, body }) in self.told.iter().chain(&self.with) {
            add(Some(*tenant), "event", json!([kind, body]));
        }
        // All statements are prepared, so they are pipelined in this order.
        db.know([LOCK, ADD, RING]).await?;
        let values: Values<'_> = &[&hub, &tenants, &kinds, &bodies];
        let (locked, added, rung) =
            tokio::join!(biased; db.execute(LOCK, &[]), db.execute(ADD, values), db.execute(RING, &[]));
        locked.and(added).and(rung).map(drop)
    }
}

/// Position of a hub in the cluster log.
pub(super) struct Reader {
    hub: String,
    last: u64,
}

impl Reader {
    /// Starts as far back as events are retained, for subscribers that resume from another hub. The log is never empty:
    /// the hub first adds a row of its own.
    pub(super) async fn begin(db: &Connected, hub: &str, shared: &Shared) -> Result<Self> {
        db.run("BEGIN").await?;
        db.execute(LOCK, &[]).await?;
        db.execute(ADD, &[&hub, &&[None::<&str>][..], &&["hub"][..], &&["null"][..]]).await?;
        db.run("COMMIT").await?;
        let first = "SELECT number FROM news ORDER BY number DESC LIMIT $1";
        let found = db.query(first, &[&number(linchpin_hub_core::events::REMEMBERED as u64)]).await?;
        let last = numbers(found.last().ok_or_else(|| unreadable("empty cluster log"))?, 0)?;
        shared.events.forget(last);
        Ok(Reader { hub: hub.to_owned(), last })
    }

    /// Reads all new rows and applies them.
    pub(super) async fn read(&mut self, db: &Connected, shared: &Shared) -> Result<()> {
        loop {
            let found = db.query(READ, &[&number(self.last), &number(PAGE as u64)]).await?;
            let mut rows = found.iter();
            // If the last row that was read is gone, rows after it may be gone, too.
            let is_whole = rows.next().is_some_and(|row| numbers(row, 0).ok() == Some(self.last));
            if is_whole {
                for row in rows {
                    self.last = numbers(row, 0)?;
                    if self.tell(row, shared).is_err() {
                        shared.changed(None); // written by a hub of another version
                    }
                }
            } else {
                shared.changed(None);
                let newest = found.last().map(|row| numbers(row, 0)).transpose()?;
                self.last = newest.unwrap_or(self.last);
                shared.events.forget(self.last);
            }
            if found.len() < PAGE {
                return Ok(());
            }
        }
    }

    fn tell(&self, row: &Row, shared: &Shared) -> Result<()> {
        let of_news = || unreadable("invalid row of the cluster log");
        let (number, hub): (u64, &str) = (numbers(row, 0)?, row.try_get(1)?);
        let tenant: Option<TenantId> = row.try_get::<_, Option<&str>>(2)?.map(str::parse).transpose()?;
        let mut body: Value = serde_json::from_str(row.try_get(4)?).map_err(|_| of_news())?;
        let is_own = hub == self.hub;
        match (row.try_get(3)?, tenant) {
            ("event", Some(tenant)) => {
                let kind = body[0].as_str().ok_or_else(of_news)?.to_owned().into();
                shared.events.deliver(Event { number, tenant, kind, body: body[1].take() });
            }
            ("one" | "parts" | "anything", _) if is_own => {} // this hub has invalidated its caches before the change
            (kind @ ("one" | "parts"), Some(tenant)) => {
                let of = body[0].as_str().and_then(Kind::find).ok_or_else(of_news)?;
                let id = body[1].as_str().ok_or_else(of_news)?.to_owned();
                let about =
                    if kind == "one" { About::One(Key { kind: of, id }) } else { About::Parts(of, id) };
                shared.changed(Some((tenant, &about)));
            }
            ("cut", _) => shared.events.forget(number),
            ("hub", _) => {}
            // Written by a newer hub: anything may have changed.
            _ => shared.changed(None),
        }
        Ok(())
    }
}

/// Deletes rows older than 5 minutes, which all hubs have read.
pub(super) async fn prune(db: &Connected) -> Result<()> {
    db.execute(PRUNE, &[]).await.map(drop)
}

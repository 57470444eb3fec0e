//! What hubs tell each other: rows in a table, numbered in the order in which they are committed. Whoever waits for them is
//! woken by a notice of the database; the rows are what counts, and a notice that is lost costs a moment.

use std::collections::BTreeSet;

use linchpin_hub_core::events::{Event, Told};
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{About, Batch, Key, Kind, Shared};
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::documents::{number, numbers};
use super::link::{Connected, Values};
use super::{Ask as _, Stop, unreadable};

type Result<T> = std::result::Result<T, Stop>;

/// Whoever adds news holds this until they are committed: their numbers come in that order.
const LOCK: &str = "SELECT pg_advisory_xact_lock(x'6c696e636e657773'::BIGINT)";
const ADD: &str = "INSERT INTO news (number, hub, tenant, kind, body)
    SELECT nextval('news_number'), $1, tenant, kind, body
    FROM unnest($2::TEXT[], $3::TEXT[], $4::TEXT[]) WITH ORDINALITY AS all_of (tenant, kind, body, place) ORDER BY place";
const RING: &str = "SELECT pg_notify('linchpin_news', '')";
/// What whoever listens says first.
pub(super) const LISTEN: &str = "LISTEN linchpin_news";
const READ: &str =
    "SELECT number, hub, tenant, kind, body FROM news WHERE number >= $1 ORDER BY number LIMIT $2";
/// The newest of what is old stays, so that whoever has read it knows that nothing is missing after it.
const PRUNE: &str =
    "DELETE FROM news WHERE number < (SELECT max(number) FROM news WHERE at < now() - INTERVAL '5 minutes')";

/// How many are read at once.
const PAGE: usize = 1_000;
/// Of more changes at once it is only said that there are some.
const MOST_CHANGES: usize = 200;

/// News on their way.
#[derive(Default)]
pub(super) struct News {
    changes: BTreeSet<(TenantId, About)>,
    /// What happened without a change, and with one.
    pub(super) told: Vec<(TenantId, Told)>,
    with: Vec<(TenantId, Told)>,
    /// Whether something is missing among them.
    pub(super) is_cut: bool,
}

impl News {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.told.is_empty() && self.with.is_empty() && !self.is_cut
    }

    /// What of a batch others remember, and are told.
    pub(super) fn add(&mut self, tenant: TenantId, batch: &Batch) {
        self.changes.extend(batch.changes.iter().filter_map(About::of).map(|about| (tenant, about)));
        self.with.extend(batch.told.iter().map(|told| (tenant, told.clone())));
    }

    /// Keeps them, in the middle of a transaction.
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
        // All are known, so that they are sent in this order, without waiting for one another.
        db.know([LOCK, ADD, RING]).await?;
        let values: Values<'_> = &[&hub, &tenants, &kinds, &bodies];
        let (locked, added, rung) =
            tokio::join!(biased; db.execute(LOCK, &[]), db.execute(ADD, values), db.execute(RING, &[]));
        locked.and(added).and(rung).map(drop)
    }
}

/// How far a hub has read.
pub(super) struct Reader {
    hub: String,
    last: u64,
}

impl Reader {
    /// From as far back as is remembered for those who come from another hub. There is always something: the hub that
    /// begins to read has said so.
    pub(super) async fn begin(db: &Connected, hub: &str, shared: &Shared) -> Result<Self> {
        db.run("BEGIN").await?;
        db.execute(LOCK, &[]).await?;
        db.execute(ADD, &[&hub, &&[None::<&str>][..], &&["hub"][..], &&["null"][..]]).await?;
        db.run("COMMIT").await?;
        let first = "SELECT number FROM news ORDER BY number DESC LIMIT $1";
        let found = db.query(first, &[&number(linchpin_hub_core::events::REMEMBERED as u64)]).await?;
        let last = numbers(found.last().ok_or_else(|| unreadable("no news"))?, 0)?;
        shared.events.forget(last);
        Ok(Reader { hub: hub.to_owned(), last })
    }

    /// Tells everything that is new.
    pub(super) async fn read(&mut self, db: &Connected, shared: &Shared) -> Result<()> {
        loop {
            let found = db.query(READ, &[&number(self.last), &number(PAGE as u64)]).await?;
            let mut rows = found.iter();
            // The last one that was read is still there, or what came after it may be gone, too.
            let is_whole = rows.next().is_some_and(|row| numbers(row, 0).ok() == Some(self.last));
            if is_whole {
                for row in rows {
                    self.last = numbers(row, 0)?;
                    if self.tell(row, shared).is_err() {
                        shared.changed(None); // of another hub than this one understands
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
        let of_news = || unreadable("news that nobody has told");
        let (number, hub): (u64, &str) = (numbers(row, 0)?, row.try_get(1)?);
        let tenant: Option<TenantId> = row.try_get::<_, Option<&str>>(2)?.map(str::parse).transpose()?;
        let mut body: Value = serde_json::from_str(row.try_get(4)?).map_err(|_| of_news())?;
        let is_own = hub == self.hub;
        match (row.try_get(3)?, tenant) {
            ("event", Some(tenant)) => {
                let kind = body[0].as_str().ok_or_else(of_news)?.to_owned().into();
                shared.events.deliver(Event { number, tenant, kind, body: body[1].take() });
            }
            ("one" | "parts" | "anything", _) if is_own => {} // forgotten before it was changed
            (kind @ ("one" | "parts"), Some(tenant)) => {
                let of = body[0].as_str().and_then(Kind::find).ok_or_else(of_news)?;
                let id = body[1].as_str().ok_or_else(of_news)?.to_owned();
                let about =
                    if kind == "one" { About::One(Key { kind: of, id }) } else { About::Parts(of, id) };
                shared.changed(Some((tenant, &about)));
            }
            ("cut", _) => shared.events.forget(number),
            ("hub", _) => {}
            // Of a newer hub: whatever it is about may have changed.
            _ => shared.changed(None),
        }
        Ok(())
    }
}

/// Forgets what everybody has read long ago.
pub(super) async fn prune(db: &Connected) -> Result<()> {
    db.execute(PRUNE, &[]).await.map(drop)
}

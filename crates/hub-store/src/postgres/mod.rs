//! PostgreSQL store, which several hubs can share: one connection for writes and a few for reads.

mod audit;
mod calls;
mod cluster;
mod cluster_log;
mod connection;
mod database;
mod documents;
mod grouped_calls;
mod limits;
mod migrations;
mod snapshot;
mod tls;
mod writer;

use std::error::Error as _;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use linchpin_hub_core::audit::{Checkpoint, Head, Row};
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::platform::World;
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, Batch, Call, CallFilter, Change, Copied, Key, Kind, Page, Paging, Shared,
    Store, Stored,
};
use linchpin_hub_core::{Error, Result, error};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_postgres::error::SqlState;

use self::connection::{Connected, Values};
use self::database::Database;
use crate::Durability;

/// Store in a PostgreSQL database.
pub struct Postgres(Database);

impl Postgres {
    /// Opens the database of a URL such as `postgres://user:password@host:5432/name`, and migrates it to the current
    /// schema version. The store reconnects when the connection is lost.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url, Durability::default()).await
    }

    /// Opens the database like [`Self::open`], with the given durability.
    pub async fn open_with(url: &str, durability: Durability) -> Result<Self> {
        Ok(Postgres(Database::open(url, durability, None).await?))
    }

    /// Opens the database like [`Self::open_with`] as a member of a cluster: the hubs exchange heartbeats and messages.
    /// All of them use the database clock, which is compared to the clock of `world`.
    pub async fn join(url: &str, durability: Durability, world: Arc<dyn World>) -> Result<Self> {
        Ok(Postgres(Database::open(url, durability, Some(world)).await?))
    }
}

/// Executor of queries: the writer within its transaction, or any of the readers.
trait Ask: Sync {
    fn query(
        &self,
        sql: &str,
        values: Values<'_>,
    ) -> impl Future<Output = Result<Vec<tokio_postgres::Row>, Stop>> + Send;
}

/// Reason why an operation failed: the stored state rejects it, or the database reports an error.
enum Stop {
    Refused(Error),
    Fault(tokio_postgres::Error),
}

impl Stop {
    /// Returns whether the connection is lost.
    fn is_lost(&self) -> bool {
        matches!(self, Stop::Fault(error) if is_lost(error))
    }

    /// Returns whether the database aborted the transaction because of a conflict or deadlock; it can be retried.
    fn is_clash(&self) -> bool {
        let clashes = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
        matches!(self, Stop::Fault(error) if error.code().is_some_and(|code| clashes.contains(&code)))
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Stop {
    fn from(error: tokio_postgres::Error) -> Self {
        Stop::Fault(error)
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Refused(error) => error,
            Stop::Fault(error) => failed(&error),
        }
    }
}

const REFUSED: &str = "the database rejects the login: check the user and the password in its URL";

/// Logs a database error and converts it; neither contains data of the database or parts of its URL.
fn failed(error: &tokio_postgres::Error) -> Error {
    let code = error.code().map(SqlState::code);
    let text = match code {
        None if error.to_string() == "error performing TLS handshake" => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            return away(&format!(
                "the TLS handshake failed: {why}; check sslmode and sslrootcert in its URL"
            ));
        }
        None if is_lost(error) => {
            return away(&error.source().map_or_else(|| "connection lost".to_owned(), ToString::to_string));
        }
        None if matches!(&*error.to_string(), "authentication error" | "invalid configuration") => REFUSED,
        Some("57P01" | "57P02" | "57P03") => return away("it is starting up or shutting down"),
        Some("22021" | "22P05") => return unkept(),
        Some("28000" | "28P01") => REFUSED,
        Some("3D000") => "the database does not exist: create it, or check the name in its URL",
        Some("42501") => {
            "the database user lacks privileges: make it the owner of the database, or of a schema in it"
        }
        Some("25006") => "the database is read-only (a standby?): use the URL of the primary",
        Some("53100") => "the disk of the database is full: nothing can be stored until there is free space",
        Some("53300") => "the database has no free connection for the hub: raise its `max_connections`",
        Some("55P03") => "another hub holds a lock of the database: try again",
        Some("XX001" | "XX002") => "the database is damaged: restore it from a backup",
        _ => "the database operation failed: see the log of the hub",
    };
    // The text of an error without SQLSTATE describes the problem and contains no value.
    let kind = code.is_none().then(|| error.to_string());
    tracing::error!(error = code, kind, "{text}");
    Error::new(error::Kind::Unavailable, "store_unavailable", text)
}

/// Logs and returns the error for an unreachable database.
fn away(reason: &str) -> Error {
    tracing::error!(reason, "database unreachable");
    let text = format!("the database is unreachable ({reason}): try again later");
    Error::new(error::Kind::Unavailable, "store_unavailable", text)
}

/// Returns the error for text that PostgreSQL cannot store.
fn unkept() -> Error {
    let text = "a string contains a character that the database cannot store, such as U+0000: remove it";
    Error::new(error::Kind::Invalid, "text_not_kept", text)
}

/// Logs and returns the error for stored data that cannot be decoded.
fn unreadable(what: &'static str) -> Stop {
    tracing::error!(what, "the database contains invalid data");
    let text = "the database is damaged: restore it from a backup";
    Error::new(error::Kind::Unavailable, "store_unavailable", text).into()
}

fn is_lost(error: &tokio_postgres::Error) -> bool {
    let is_io = || error.source().and_then(|error| error.downcast_ref::<std::io::Error>()).is_some();
    let ended = ["57P01", "57P02", "57P03", "25P03", "25006"];
    error.is_closed() || error.code().map_or_else(is_io, |code| ended.contains(&code.code()))
}

/// Returns the error for a change that conflicts with the stored state.
fn conflict(code: &'static str, text: impl Into<String>) -> Stop {
    Error::new(error::Kind::Conflict, code, text).into()
}

async fn apply(db: &Connected, hub: Option<&str>, tenant: TenantId, batch: &Batch) -> Result<(), Stop> {
    for change in &batch.changes {
        match change {
            Change::Put { document, version } => documents::put(db, tenant, document, *version).await?,
            Change::Need(key) => documents::need(db, tenant, key).await?,
            Change::Same(all) => documents::same(db, tenant, all).await?,
            Change::Remove(key) => documents::remove(db, tenant, key).await?,
            Change::RemoveParts { kind, parent } => {
                documents::remove_parts(db, tenant, *kind, parent).await?;
            }
            Change::Take { of, rate, at } => limits::take(db, tenant, of, *rate, *at).await?,
            Change::Room { of, most } => limits::room(db, tenant, of, *most).await?,
            Change::Open(call) => calls::open(db, hub, tenant, call).await?,
            Change::Start { call, at } => calls::start(db, hub, tenant, *call, *at).await?,
            Change::Finish { call, outcome } => calls::finish(db, tenant, *call, outcome).await?,
            Change::Edit { call, digest, arguments } => {
                calls::edit(db, tenant, *call, *digest, arguments.as_deref()).await?;
            }
            Change::Ask(approval) => calls::ask(db, tenant, approval).await?,
            Change::Decide { approval, decision, by, at, digest } => {
                calls::decide(db, tenant, *approval, *decision, by, *at, *digest).await?;
            }
            Change::Use { approval, digest, at } => {
                calls::use_up(db, tenant, *approval, *digest, *at).await?;
            }
            Change::Forget { before, most } => {
                calls::forget(db, tenant, *before, *most).await?;
                limits::forget(db, tenant, *before).await?;
            }
            Change::Checkpoint(checkpoint) => audit::keep_checkpoint(db, tenant, checkpoint).await?,
            Change::Seal { first, last } => audit::seal(db, tenant, *first, *last).await?,
        }
    }
    Ok(())
}

#[async_trait]
impl Store for Postgres {
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        self.0.write(tenant, batch).await
    }

    async fn document(&self, tenant: TenantId, key: &Key) -> Result<Option<Stored>> {
        Ok(documents::get(&self.0, tenant, key).await?)
    }

    async fn anywhere(&self, key: &Key) -> Result<Option<(TenantId, Stored)>> {
        Ok(documents::anywhere(&self.0, key).await?)
    }

    async fn named(&self, tenant: TenantId, kind: Kind, name: &str) -> Result<Option<Stored>> {
        Ok(documents::named(&self.0, tenant, kind, name).await?)
    }

    async fn documents(
        &self,
        tenant: TenantId,
        kind: Kind,
        parent: Option<&str>,
        paging: &Paging,
    ) -> Result<Page<Stored>> {
        Ok(documents::list(&self.0, tenant, kind, parent, paging).await?)
    }

    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<Call>> {
        Ok(calls::get(&self.0, tenant, id).await?)
    }

    async fn calls(&self, tenant: TenantId, filter: &CallFilter, paging: &Paging) -> Result<Page<Call>> {
        Ok(calls::list(&self.0, tenant, filter, paging).await?)
    }

    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>> {
        Ok(calls::approval(&self.0, tenant, id).await?)
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &Paging,
    ) -> Result<Page<Approval>> {
        Ok(calls::approvals(&self.0, tenant, filter, paging).await?)
    }

    async fn head(&self, tenant: TenantId) -> Result<Head> {
        Ok(audit::head(&self.0, tenant).await?)
    }

    async fn audit(&self, tenant: TenantId, after: u64, limit: usize) -> Result<Vec<Row>> {
        Ok(audit::rows(&self.0, tenant, after, limit).await?)
    }

    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>> {
        Ok(audit::checkpoint(&self.0, tenant).await?)
    }

    async fn tenants(&self) -> Result<Vec<TenantId>> {
        Ok(documents::tenants(&self.0).await?)
    }

    async fn abandoned(&self, tenant: TenantId) -> Result<Vec<Call>> {
        let hub = self.0.joined.as_ref().map(|joined| &*joined.hub);
        Ok(calls::abandoned(&self.0, hub, tenant).await?)
    }

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        Ok(calls::has_before(&self.0, tenant, before).await?)
    }

    fn shared(&self) -> Option<&Shared> {
        self.0.joined.as_ref().map(|joined| &joined.shared)
    }

    fn ahead(&self) -> SignedDuration {
        self.0.joined.as_ref().map_or(SignedDuration::ZERO, |joined| joined.ahead())
    }

    async fn copy_out(&self, to: Sender<Copied>) -> Result<()> {
        Ok(snapshot::out(&*self.0.copies().await?, &to).await?)
    }

    async fn copy_in(&self, from: Receiver<Copied>, count: u64) -> Result<()> {
        Ok(snapshot::take(&*self.0.copies().await?, from, count).await?)
    }
}

#[cfg(test)]
mod tests {
    use test_postgres::server;

    use super::connection::{Link, way};
    use super::*;

    /// Connects to a new database with so many rows that the planner prefers an index.
    pub(super) async fn filled(tenant: TenantId) -> Arc<Connected> {
        let url = server().url(&server().database());
        let db = Link::new(way(&url).unwrap(), String::new()).get().await.unwrap();
        migrations::bring_up(&db).await.unwrap();
        let fill = format!(
            "INSERT INTO documents SELECT '{tenant}', CASE WHEN n % 10 = 0 THEN 'token' ELSE 'tool' END, n, 'name-' || n, n % 100, 1, '{{}}'
                 FROM generate_series(1, 20000) AS n;
             INSERT INTO calls SELECT '{tenant}', n, n % 90, n % 100, n % 80,
                 CASE WHEN n % 500 = 0 THEN 'running' WHEN n % 50 = 0 THEN 'error' ELSE 'success' END, '', '', '', '', n, n, n
                 FROM generate_series(1, 20000) AS n;
             INSERT INTO approvals SELECT '{tenant}', n, n, '', CASE WHEN n % 500 = 0 THEN 'open' ELSE 'used' END, '', n, n, n
                 FROM generate_series(1, 20000) AS n;
             ANALYZE"
        );
        db.run(&fill).await.unwrap();
        db
    }

    /// Returns the query plan of a statement.
    pub(super) async fn plan(db: &Connected, sql: &str, values: Values<'_>) -> String {
        let steps = db.query(&format!("EXPLAIN {sql}"), values).await.map_err(Error::from).unwrap();
        steps.iter().map(|step| step.get::<_, &str>(0)).collect::<Vec<_>>().join("\n")
    }

    #[tokio::test]
    async fn an_error_is_told_by_its_code_without_what_it_is_about() {
        let url = server().url(&server().database());
        let db = Link::new(way(&url).unwrap(), String::new()).get().await.unwrap();
        let error = Error::from(Stop::from(db.run("SELECT 'secret'::BIGINT").await.unwrap_err()));
        assert_eq!(format!("{error}"), "the database operation failed: see the log of the hub");
        let row = &db.query("SELECT 'secret', -5::BIGINT", &[]).await.map_err(Error::from).unwrap()[0];
        let error = Error::from(Stop::from(row.try_get::<_, i64>(0).unwrap_err()));
        assert_eq!(format!("{error}"), "the database operation failed: see the log of the hub");
        let error = documents::numbers(row, 1).map_err(Error::from).unwrap_err();
        assert_eq!(format!("{error}"), "the database is damaged: restore it from a backup");
    }
}

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
mod statements;
mod tls;
mod writer;

use std::error::Error as _;
use std::ops::RangeInclusive;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use linchpin_hub_core::audit::{ChainHead, Checkpoint, StoredAuditEntry};
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::platform::Platform;
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, AuditFilter, AuditStore, Batch, CallFilter, CallRecord, CallStore, Cluster,
    DocumentKey, DocumentKind, DocumentStore, MaintenanceStore, Page, PageRequest, SnapshotItem, Store,
    StoreChange, StoredDocument,
};
use linchpin_hub_core::{Error, Result, error};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_postgres::error::SqlState;

use self::connection::{DbConnection, Values};
use self::database::Database;
use self::statements::{execute, query_one};
use crate::Durability;
use crate::common::Statement;
use crate::common::audit::SELECT_CHECKPOINT;
use crate::common::calls::{SELECT_APPROVAL, SELECT_CALL};
use crate::common::documents::{SELECT, SELECT_BY_NAME};
use crate::common::limits::prune_buckets;
use crate::common::rows::{read_approval, read_call, read_checkpoint};

/// Store of the hub in a PostgreSQL database.
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
    /// All of them use the database clock, which is compared to the clock of `platform`.
    pub async fn join(url: &str, durability: Durability, platform: Arc<dyn Platform>) -> Result<Self> {
        Ok(Postgres(Database::open(url, durability, Some(platform)).await?))
    }
}

/// Connection that executes queries: the writer within its transaction, or any of the readers.
trait QueryExecutor: Sync {
    fn query(
        &self,
        sql: &str,
        values: Values<'_>,
    ) -> impl Future<Output = Result<Vec<tokio_postgres::Row>, StoreFailure>> + Send;
}

/// Reason why an operation failed: the stored state rejects it, or the database reports an error.
pub(crate) enum StoreFailure {
    Rejected(Error),
    Database(tokio_postgres::Error),
}

impl StoreFailure {
    /// Returns whether the error means that the database connection is lost.
    fn is_connection_lost(&self) -> bool {
        matches!(self, StoreFailure::Database(error) if is_lost(error))
    }

    /// Returns whether the database aborted the transaction because of a conflict or deadlock; it can be retried.
    fn is_serialization_failure(&self) -> bool {
        let clashes = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
        matches!(self, StoreFailure::Database(error) if error.code().is_some_and(|code| clashes.contains(&code)))
    }
}

impl From<Error> for StoreFailure {
    fn from(error: Error) -> Self {
        StoreFailure::Rejected(error)
    }
}

impl From<tokio_postgres::Error> for StoreFailure {
    fn from(error: tokio_postgres::Error) -> Self {
        StoreFailure::Database(error)
    }
}

impl From<StoreFailure> for Error {
    fn from(stop: StoreFailure) -> Self {
        match stop {
            StoreFailure::Rejected(error) => error,
            StoreFailure::Database(error) => database_error(&error),
        }
    }
}

const MSG_LOGIN_REJECTED: &str = "the database rejects the login: check the user and the password in its URL";

/// Converts a database error and logs it, unless the input caused it; neither text contains data of the database or parts of its URL.
fn database_error(error: &tokio_postgres::Error) -> Error {
    let code = error.code().map(SqlState::code);
    let text = match code {
        None if error.to_string() == "error performing TLS handshake" => {
            let reason = error.source().map(ToString::to_string).unwrap_or_default();
            return unreachable_error(&format!(
                "the TLS handshake failed: {reason}; check sslmode and sslrootcert in the database URL"
            ));
        }
        None if is_lost(error) => {
            return unreachable_error(
                &error.source().map_or_else(|| "connection lost".to_owned(), ToString::to_string),
            );
        }
        None if matches!(&*error.to_string(), "authentication error" | "invalid configuration") => {
            MSG_LOGIN_REJECTED
        }
        Some("57P01" | "57P02" | "57P03") => {
            return unreachable_error("the database server is starting up or shutting down");
        }
        Some("22021" | "22P05") => return unsupported_character(),
        Some("28000" | "28P01") => MSG_LOGIN_REJECTED,
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
    Error::new(error::ErrorKind::Unavailable, "store_unavailable", text)
}

/// Logs and returns the error for an unreachable database.
fn unreachable_error(reason: &str) -> Error {
    tracing::error!(reason, "database unreachable");
    let text = format!("the database is unreachable ({reason}): check that it runs, or try again later");
    Error::new(error::ErrorKind::Unavailable, "store_unavailable", text)
}

/// Returns the error for text that PostgreSQL cannot store.
fn unsupported_character() -> Error {
    let text = "a string contains a character that the database cannot store, such as U+0000: remove it";
    Error::new(error::ErrorKind::Invalid, "unsupported_character", text)
}

/// Logs and returns the error for stored data that cannot be decoded.
fn invalid_data(message: &'static str) -> StoreFailure {
    tracing::error!(detail = message, "the database contains invalid data");
    let text = "the database is damaged: restore it from a backup";
    Error::new(error::ErrorKind::Unavailable, "store_unavailable", text).into()
}

fn is_lost(error: &tokio_postgres::Error) -> bool {
    let is_io = || error.source().and_then(|error| error.downcast_ref::<std::io::Error>()).is_some();
    let closed_states = ["57P01", "57P02", "57P03", "25P03", "25006"];
    error.is_closed() || error.code().map_or_else(is_io, |code| closed_states.contains(&code.code()))
}

async fn apply(
    db: &DbConnection,
    hub: Option<&str>,
    tenant: TenantId,
    batch: &Batch,
) -> Result<(), StoreFailure> {
    for change in &batch.changes {
        match change {
            StoreChange::RequireExists(key) => documents::require_exists(db, tenant, key).await?,
            StoreChange::RequireVersions(all) => documents::require_versions(db, tenant, all).await?,
            StoreChange::RequireUnusedName { kind, name } => {
                documents::require_unused_name(db, tenant, *kind, name).await?;
            }
            StoreChange::ConsumeRate { bucket, rate, at } => {
                limits::consume_rate(db, tenant, bucket, *rate, *at).await?;
            }
            StoreChange::RequireConcurrency { scope, max_calls: max } => {
                limits::require_concurrency(db, tenant, scope, *max).await?;
            }
            StoreChange::PruneCalls { before, max_calls: max } => {
                calls::prune(db, tenant, *before, *max).await?;
                execute(db, tenant, &prune_buckets(tenant.into(), *before)).await?;
            }
            StoreChange::RemoveSealedEntries { first, last } => {
                audit::seal(db, tenant, *first, *last).await?;
            }
            other => {
                if let Some(statement) = Statement::of(other, tenant.into(), hub) {
                    execute(db, tenant, &statement).await?;
                }
            }
        }
    }
    Ok(())
}

#[async_trait]
impl Store for Postgres {
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        self.0.write(tenant, batch).await
    }
}

#[async_trait]
impl DocumentStore for Postgres {
    async fn document(&self, tenant: TenantId, key: &DocumentKey) -> Result<Option<StoredDocument>> {
        Ok(documents::get(&self.0, SELECT, tenant, key.kind, &key.id).await?)
    }

    async fn document_in_any_tenant(&self, key: &DocumentKey) -> Result<Option<(TenantId, StoredDocument)>> {
        Ok(documents::get_in_any_tenant(&self.0, key).await?)
    }

    async fn document_by_name(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        name: &str,
    ) -> Result<Option<StoredDocument>> {
        Ok(documents::get(&self.0, SELECT_BY_NAME, tenant, kind, name).await?)
    }

    async fn documents(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
        paging: &PageRequest,
    ) -> Result<Page<StoredDocument>> {
        Ok(documents::list(&self.0, tenant, kind, parent, paging).await?)
    }

    async fn tenants(&self) -> Result<Vec<TenantId>> {
        Ok(documents::tenants(&self.0).await?)
    }
}

#[async_trait]
impl CallStore for Postgres {
    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<CallRecord>> {
        Ok(query_one(&self.0, SELECT_CALL, &[tenant.into(), id.into()], read_call).await?)
    }

    async fn calls(
        &self,
        tenant: TenantId,
        filter: &CallFilter,
        paging: &PageRequest,
    ) -> Result<Page<CallRecord>> {
        Ok(calls::list(&self.0, tenant, filter, paging).await?)
    }

    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>> {
        Ok(query_one(&self.0, SELECT_APPROVAL, &[tenant.into(), id.into()], read_approval).await?)
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &PageRequest,
    ) -> Result<Page<Approval>> {
        Ok(calls::approvals(&self.0, tenant, filter, paging).await?)
    }

    async fn abandoned_calls(&self, tenant: TenantId) -> Result<Vec<CallRecord>> {
        let hub = self.0.cluster.as_ref().map(|member| &*member.hub);
        Ok(calls::abandoned_calls(&self.0, hub, tenant).await?)
    }

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        Ok(calls::has_finished_before(&self.0, tenant, before).await?)
    }
}

#[async_trait]
impl AuditStore for Postgres {
    async fn audit_head(&self, tenant: TenantId) -> Result<ChainHead> {
        Ok(audit::head(&self.0, tenant).await?)
    }

    async fn audit_entries(
        &self,
        tenant: TenantId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        Ok(audit::entries(&self.0, tenant, after, limit).await?)
    }

    async fn find_audit_entries(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        numbers: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        Ok(audit::find(&self.0, tenant, filter, &numbers, limit).await?)
    }

    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>> {
        Ok(query_one(&self.0, SELECT_CHECKPOINT, &[tenant.into()], |row| read_checkpoint(row, tenant))
            .await?)
    }
}

#[async_trait]
impl MaintenanceStore for Postgres {
    fn shared(&self) -> Option<&Cluster> {
        self.0.cluster.as_ref().map(|member| &member.shared)
    }

    fn clock_offset(&self) -> SignedDuration {
        self.0.cluster.as_ref().map_or(SignedDuration::ZERO, |member| member.clock_offset())
    }

    async fn export_snapshot(&self, to: Sender<SnapshotItem>) -> Result<()> {
        Ok(snapshot::export(&*self.0.snapshot_connection().await?, &to).await?)
    }

    async fn import_snapshot(&self, from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
        Ok(snapshot::import(&*self.0.snapshot_connection().await?, from, count).await?)
    }
}

#[cfg(test)]
mod tests {
    use test_postgres::server;

    use super::connection::{ReconnectingConnection, parse_url};
    use super::*;
    use crate::common::rows::StoredRow as _;

    /// Connects to a new database with so many rows that the planner prefers an index.
    pub(super) async fn database_with_many_rows(tenant: TenantId) -> Arc<DbConnection> {
        let url = server().url(&server().create_database());
        let db = ReconnectingConnection::new(parse_url(&url).unwrap(), String::new()).get().await.unwrap();
        migrations::migrate(&db).await.unwrap();
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
    pub(super) async fn query_plan(db: &DbConnection, sql: &str, values: Values<'_>) -> String {
        let steps = db.query(&format!("EXPLAIN {sql}"), values).await.map_err(Error::from).unwrap();
        steps.iter().map(|step| step.get::<_, &str>(0)).collect::<Vec<_>>().join("\n")
    }

    #[tokio::test]
    async fn an_error_is_told_by_its_code_without_what_it_is_about() {
        let url = server().url(&server().create_database());
        let db = ReconnectingConnection::new(parse_url(&url).unwrap(), String::new()).get().await.unwrap();
        let error = Error::from(StoreFailure::from(db.run("SELECT 'secret'::BIGINT").await.unwrap_err()));
        assert_eq!(format!("{error}"), "the database operation failed: see the log of the hub");
        let row = &db.query("SELECT 'secret', -5::BIGINT", &[]).await.map_err(Error::from).unwrap()[0];
        let error = Error::from(StoreFailure::from(row.try_get::<_, i64>(0).unwrap_err()));
        assert_eq!(format!("{error}"), "the database operation failed: see the log of the hub");
        let error = row.number(1).map_err(Error::from).unwrap_err();
        assert_eq!(format!("{error}"), "the database is damaged: restore it from a backup");
    }
}

//! Schema migrations of the PostgreSQL store. A released migration is never changed; a new one follows it.

use linchpin_hub_core::{Error, Result, error};

use super::connection::DbConnection;
use super::{QueryExecutor as _, StoreFailure, invalid_data};

/// Migrations in order; each leads from one schema version to the next.
const MIGRATIONS: [&str; 3] =
    [include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];
/// Advisory lock held during a migration; its key is `linchpin` in ASCII.
const LOCK_MIGRATIONS: &str =
    "BEGIN; SET LOCAL lock_timeout = 0; SELECT pg_advisory_lock(x'6c696e636870696e'::BIGINT); COMMIT";
const UNLOCK_MIGRATIONS: &str = "ROLLBACK; SELECT pg_advisory_unlock(x'6c696e636870696e'::BIGINT)";

/// Migrates a database to the current schema version.
pub(super) async fn migrate(db: &DbConnection) -> Result<()> {
    // A database of the current version is not written: commands that only read work without write access.
    if is_current(schema_version(db).await?)? {
        return Ok(());
    }
    let result = run_migrations(db).await;
    let _ = db.run(UNLOCK_MIGRATIONS).await; // if this fails, the connection is lost, and the lock with it
    Ok(result?)
}

fn is_current(form: usize) -> Result<bool> {
    if form > MIGRATIONS.len() {
        let text = "the database was used by a newer hub: run that version, or restore an older backup";
        return Err(Error::new(error::ErrorKind::Unavailable, "store_too_new", text));
    }
    Ok(form == MIGRATIONS.len())
}

async fn run_migrations(db: &DbConnection) -> Result<(), StoreFailure> {
    // Two hubs that start at the same time wait for each other here; the second finds the schema migrated. The changes
    // of the first are certain to be visible only in a transaction that starts after the lock was acquired.
    db.run(LOCK_MIGRATIONS).await?;
    db.run("BEGIN").await?;
    let form = schema_version(db).await?;
    if !is_current(form)? {
        for step in &MIGRATIONS[form..] {
            db.run(step).await?;
        }
        let version = MIGRATIONS.len();
        db.run(&format!(
            "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL);
             DELETE FROM schema_version; INSERT INTO schema_version VALUES ({version})"
        ))
        .await?;
    }
    Ok(db.run("COMMIT").await?)
}

/// Returns the schema version of the database; 0 if it is empty.
async fn schema_version(db: &DbConnection) -> Result<usize, StoreFailure> {
    let found = db.query("SELECT to_regclass('schema_version') IS NOT NULL", &[]).await?;
    let exists = found.first().map(|row| row.try_get::<_, bool>(0)).transpose()?;
    if exists != Some(true) {
        return Ok(0);
    }
    let found = db.query("SELECT version FROM schema_version", &[]).await?;
    let version: i64 = found.first().ok_or_else(|| invalid_data("empty schema_version"))?.try_get(0)?;
    usize::try_from(version).map_err(|_| invalid_data("invalid schema_version"))
}

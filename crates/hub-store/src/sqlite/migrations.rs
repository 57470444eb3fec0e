//! Schema migrations of the `SQLite` store. A released migration is never changed; a new one follows it.

use linchpin_hub_core::{Error, Result, error};
use rusqlite::Connection;

use super::errors::database_error;

/// Migrations in order; each leads from one schema version to the next.
const MIGRATIONS: [&str; 4] = [
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
];

/// Migrates a database to the current schema version.
pub(super) fn migrate(db: &mut Connection) -> Result<()> {
    let schema_version =
        |db: &Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, usize>(0));
    match schema_version(db).map_err(|error| database_error(&error))? {
        version if version > MIGRATIONS.len() => {
            let text = "the database was used by a newer hub: run that version, or restore an older backup";
            return Err(Error::new(error::ErrorKind::Unavailable, "store_too_new", text));
        }
        // A database of the current version is not written: commands that only read work without write access.
        version if version == MIGRATIONS.len() => return Ok(()),
        _ => {}
    }
    let apply_pending = |db: &mut Connection| {
        // Two processes that start at the same time wait for each other here; the second finds the schema migrated.
        let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for step in &MIGRATIONS[schema_version(&tx)?..] {
            tx.execute_batch(step)?;
        }
        tx.pragma_update(None, "user_version", MIGRATIONS.len())?;
        tx.commit()
    };
    apply_pending(db).map_err(|error| database_error(&error))
}

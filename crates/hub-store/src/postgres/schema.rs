//! The tables, and how older ones become them. A step is never changed once it has been out; another follows it.

use linchpin_hub_core::{Error, Result, error};

use super::link::Connected;
use super::{Ask as _, Stop, unreadable};

/// Each brings the database from the form before to the next.
const STEPS: [&str; 2] = [include_str!("schema_1.sql"), include_str!("schema_2.sql")];
/// Whoever brings a database to the form of today holds a lock, whose number is the letters of our name.
const LOCK: &str =
    "BEGIN; SET LOCAL lock_timeout = 0; SELECT pg_advisory_lock(x'6c696e636870696e'::BIGINT); COMMIT";
const UNLOCK: &str = "ROLLBACK; SELECT pg_advisory_unlock(x'6c696e636870696e'::BIGINT)";

/// Brings a database to the form of today.
pub(super) async fn bring_up(db: &Connected) -> Result<()> {
    // Whoever only looks changes nothing.
    if is_of_today(form(db).await?)? {
        return Ok(());
    }
    let brought = bring(db).await;
    let _ = db.run(UNLOCK).await; // if that fails, the connection is gone, and the lock with it
    Ok(brought?)
}

fn is_of_today(form: usize) -> Result<bool> {
    if form > STEPS.len() {
        let text = "the database was used by a newer hub: run that one, or restore a backup from before";
        return Err(Error::new(error::Kind::Unavailable, "store_too_new", text));
    }
    Ok(form == STEPS.len())
}

async fn bring(db: &Connected) -> Result<(), Stop> {
    // Two that start at once wait for each other here, and the second finds nothing to do. What the first has made is
    // sure to be seen only in a transaction that begins afterwards.
    db.run(LOCK).await?;
    db.run("BEGIN").await?;
    let form = form(db).await?;
    if !is_of_today(form)? {
        for step in &STEPS[form..] {
            db.run(step).await?;
        }
        let version = STEPS.len();
        db.run(&format!(
            "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL);
             DELETE FROM schema_version; INSERT INTO schema_version VALUES ({version})"
        ))
        .await?;
    }
    Ok(db.run("COMMIT").await?)
}

/// The form that it has: zero before there is anything.
async fn form(db: &Connected) -> Result<usize, Stop> {
    let found = db.query("SELECT to_regclass('schema_version') IS NOT NULL", &[]).await?;
    let is_there = found.first().map(|row| row.try_get::<_, bool>(0)).transpose()?;
    if is_there != Some(true) {
        return Ok(0);
    }
    let found = db.query("SELECT version FROM schema_version", &[]).await?;
    let version: i64 = found.first().ok_or_else(|| unreadable("no schema_version"))?.try_get(0)?;
    usize::try_from(version).map_err(|_| unreadable("schema_version"))
}

//! The tables, and how older ones become them. A step is never changed once it has been out; another follows it.

use linchpin_hub_core::{Error, Result, error};
use rusqlite::Connection;

use super::failed;

/// Each brings the database from the form before to the next.
const STEPS: [&str; 2] = [include_str!("schema_1.sql"), include_str!("schema_2.sql")];

/// Brings a database to the form of today.
pub(super) fn bring_up(db: &mut Connection) -> Result<()> {
    let form = |db: &Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, usize>(0));
    match form(db).map_err(|error| failed(&error))? {
        form if form > STEPS.len() => {
            let text = "the database was used by a newer hub: run that one, or restore a backup from before";
            return Err(Error::new(error::Kind::Unavailable, "store_too_new", text));
        }
        // Whoever only looks changes nothing.
        form if form == STEPS.len() => return Ok(()),
        _ => {}
    }
    let bring = |db: &mut Connection| {
        // Two that start at once wait for each other here, and the second finds nothing to do.
        let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for step in &STEPS[form(&tx)?..] {
            tx.execute_batch(step)?;
        }
        tx.pragma_update(None, "user_version", STEPS.len())?;
        tx.commit()
    };
    bring(db).map_err(|error| failed(&error))
}

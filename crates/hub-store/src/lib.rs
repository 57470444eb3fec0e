//! Databases of the hub: implementations of `hub_core::store::Store` for `SQLite` and PostgreSQL. All SQL is here, but
//! no rule of the hub: each change carries its own precondition.

mod common;
mod postgres;
mod sqlite;

pub use postgres::Postgres;
pub use sqlite::Sqlite;

/// What a committed batch survives: a crash of the hub process, or also a power loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Commits survive a crash of the hub process, but not a power failure.
    #[default]
    Process,
    /// Also survives power loss: each group of batches waits for the disk.
    Power,
}

//! Where the hub keeps everything: `hub_core::store::Store` on databases. Every word of SQL is here, and no rule of the
//! hub is: what a change needs to be true is said by the change itself.

mod common;
mod postgres;
mod sqlite;

pub use postgres::Postgres;
pub use sqlite::Sqlite;

/// What a batch survives once it is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the hub, however it comes.
    #[default]
    Process,
    /// The end of the machine, too: each group of batches waits for the disk.
    Power,
}

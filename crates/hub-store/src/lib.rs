//! Where the hub keeps everything: `hub_core::store::Store` on databases. Every word of SQL is here, and no rule of the
//! hub is: what a change needs to be true is said by the change itself.

mod sqlite;

pub use sqlite::Sqlite;

//! Errors of the `SQLite` store.

use linchpin_hub_core::{Error, error};

const CODE_UNAVAILABLE: &str = "store_unavailable";
/// Error code for an I/O failure, after which the content of the disk is unknown.
const CODE_STORE_BROKEN: &str = "store_broken";

/// Logs a database error and converts it; neither contains data of the database.
pub(super) fn database_error(error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, PermissionDenied, ReadOnly, SystemIoFailure,
    };
    let (code, text) = match error.sqlite_error_code() {
        Some(DiskFull) => {
            (CODE_UNAVAILABLE, "the disk is full: nothing can be stored until there is free space")
        }
        Some(DatabaseCorrupt | NotADatabase) => {
            (CODE_UNAVAILABLE, "the database is damaged: restore it from a backup")
        }
        Some(SystemIoFailure) => {
            (CODE_STORE_BROKEN, "the disk failed to read or write: check it, then restart the hub")
        }
        Some(CannotOpen | PermissionDenied | ReadOnly) => (
            CODE_UNAVAILABLE,
            "the database is not writable: make the file, its directory and the disk writable for the user of the hub",
        ),
        _ => (CODE_UNAVAILABLE, "the database operation failed: see the log of the hub"),
    };
    let number = error.sqlite_error().map(|error| error.extended_code);
    tracing::error!(error = number, kind = variant_name(error), "{text}");
    Error::new(error::ErrorKind::Unavailable, code, text)
}

/// Returns whether the disk has failed, so that its content is unknown.
pub(super) fn is_disk_failure(error: &Error) -> bool {
    error.code() == CODE_STORE_BROKEN
}

/// Returns whether a statement violated a unique index.
pub(super) fn is_unique_violation(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
}

/// Returns the variant name of an `SQLite` error, for logs. The rest of its debug form may contain data of the
/// database.
fn variant_name(error: &rusqlite::Error) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn an_error_is_told_by_its_kind_without_what_it_is_about() {
        let db = Connection::open_in_memory().unwrap();
        let read = |sql: &str| db.query_row(sql, [], |row| row.get::<_, u64>(0)).unwrap_err();
        assert_eq!(variant_name(&read("SELECT 'secret'")), "InvalidColumnType");
        assert_eq!(variant_name(&read("SELECT -5")), "IntegralValueOutOfRange");
        assert_eq!(variant_name(&read("SELECT 'secret' WHERE 0")), "QueryReturnedNoRows");
        assert_eq!(variant_name(&db.execute("SELECT ?1", [u64::MAX]).unwrap_err()), "ToSqlConversionFailure");
    }
}

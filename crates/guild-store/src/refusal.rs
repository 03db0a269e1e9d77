//! What SQLite means when it refuses.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{Error, Result};

/// SQLite's words, sorted by what a caller can do about them.
pub(crate) fn of_sqlite(error: &rusqlite::Error) -> Error {
    let said = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked,
        Some(ErrorCode::DiskFull) => Error::Full(said),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => Error::Io(said),
        Some(ErrorCode::NotADatabase) => Error::NotADatabase(said),
        Some(ErrorCode::DatabaseCorrupt) => Error::Damaged(said),
        _ => Error::Database(said),
    }
}

const BUSY_TIMEOUT: Duration = Duration::from_millis(5_000);

/// A connection that only reads, beside whoever writes; for maintenance, which says things that no table takes part in.
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    // Opening a directory, or nothing, would be refused as well, but not in words that help.
    let metadata = std::fs::metadata(path).map_err(|e| at(path, &e))?;
    if !metadata.is_file() {
        return Err(Error::NotADatabase(format!("{} is not a file", path.display())));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|e| of_sqlite(&e))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(|e| of_sqlite(&e))?;
    Ok(connection)
}

/// What the system said about a path.
pub(crate) fn at(path: &Path, error: &std::io::Error) -> Error {
    Error::Database(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn what_the_system_lacks_passes_and_what_the_tables_refuse_does_not() {
        let said = |code| of_sqlite(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        let passing = [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_LOCKED,
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_NOMEM,
        ];
        for code in passing {
            assert!(said(code).is_passing(), "{:?}", said(code));
        }
        let for_good = [
            ffi::SQLITE_ERROR,
            ffi::SQLITE_CONSTRAINT,
            ffi::SQLITE_MISMATCH,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOTADB,
        ];
        for code in for_good {
            assert!(!said(code).is_passing(), "{:?}", said(code));
        }
    }
}

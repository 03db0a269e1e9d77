//! What PostgreSQL's refusals mean to us.

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::Error;

/// A refusal on a connection. One that ends the session says nothing about what was asked: the same may well succeed on
/// another connection, and a COMMIT so answered may have happened.
pub(super) fn refused(error: &tokio_postgres::Error) -> Error {
    let ends =
        |db: &&DbError| matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    match error.as_db_error().filter(ends) {
        Some(db) => Error::Unreachable(db.to_string()),
        None => not_let_in(error),
    }
}

/// A refusal of a COMMIT. Where no words of the server say so, it is not known whether it was one.
pub(super) fn unanswered(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(_) => refused(error),
        None => Error::Unreachable(error.to_string()),
    }
}

/// A refusal to make a connection. Most of them are for good: no such user, no such database.
pub(super) fn not_let_in(error: &tokio_postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        // Not said by the server: the connection broke, or a value did not fit its parameter.
        let message = chain(error);
        return match error.is_closed() || is_io(error) {
            true => Error::Unreachable(message),
            false => Error::Database(message),
        };
    };
    let message = db.to_string();
    match db.code() {
        code if is_passing(code) => Error::Conflict(message),
        // Another program changed the schema under a prepared statement.
        code if *code == SqlState::FEATURE_NOT_SUPPORTED && message.contains("cached plan") => {
            Error::Conflict(message)
        }
        // Waited for long enough already, and whoever comes again stands at the end of the queue.
        code if *code == SqlState::LOCK_NOT_AVAILABLE => Error::Locked,
        code if is_outage(code) => Error::Unreachable(message),
        code if *code == SqlState::DISK_FULL => Error::Full(message),
        code if is_io_failure(code) => Error::Io(message),
        _ => Error::Database(message),
    }
}

/// The same again may well succeed.
fn is_passing(code: &SqlState) -> bool {
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
}

/// The server's disk, memory or system failed it.
fn is_io_failure(code: &SqlState) -> bool {
    [SqlState::IO_ERROR, SqlState::OUT_OF_MEMORY, SqlState::SYSTEM_ERROR].contains(code)
}

/// The server is going, coming, cutting us off, or full of others.
fn is_outage(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ]
    .contains(code)
        || code.code().starts_with("08")
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if inner.is::<std::io::Error>() {
            return true;
        }
        source = inner.source();
    }
    // The client says so in words only.
    error.to_string().contains("connect")
}

fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

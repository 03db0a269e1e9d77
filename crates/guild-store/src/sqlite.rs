//! SQLite.

use std::ops::Range;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, Statement};

use crate::db::{Access, Column, Columns, Db, Sql, Val, row_count};
use crate::refusal::of_sqlite;
use crate::watch::Watch;
use crate::{Error, Result};

/// A connection to an SQLite database.
pub struct Sqlite {
    connection: Connection,
    /// Whether the file that is written is still the one that has the name.
    watch: Option<Watch>,
}

/// The write-ahead log is flushed at every commit: what was answered survives a power cut. It comes home after 64 MiB:
/// with the usual 4 a large commit would bring it home each time, and pages that change often would be written twice.
const DURABLE: &str =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 16384;";
const EVERYWHERE: &str = "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; \
     PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536;";
const BUSY_TIMEOUT_MS: u64 = 5_000;
const STATEMENT_CACHE: usize = 256;
const JOURNAL_TRIES: u32 = 100;
/// So many values one statement has for many rows, about.
const VALUES_AT_ONCE: usize = 480;
/// Fewer rows than this are not worth a statement of their own.
const ROWS_AT_ONCE_MIN: usize = 8;
/// So many bytes are looked at together.
const NUL_PIECE: usize = 128;
const CONFLICT_TRIES: u32 = 20;

impl Sqlite {
    /// The version of SQLite that is built in.
    pub fn version() -> &'static str {
        rusqlite::version()
    }

    /// Opens the file for writing, creating it if need be, readable by its owner only.
    pub fn open(path: &Path) -> Result<Sqlite> {
        create_private(path)?;
        let mut this = Sqlite::connect(Connection::open(path), BUSY_TIMEOUT_MS)?;
        this.make_durable()?;
        this.watch = Some(Watch::new(path)?);
        Ok(this)
    }

    /// SQLite does not wait for others when it changes the journal, so we wait with a write, for which it does.
    fn make_durable(&self) -> Result<()> {
        for _ in 0..JOURNAL_TRIES {
            match self.connection.execute_batch(DURABLE).map_err(refused) {
                Err(Error::Locked) => {
                    self.connection.execute_batch("BEGIN IMMEDIATE; COMMIT").map_err(refused)?;
                }
                changed => return changed,
            }
        }
        Err(Error::Locked)
    }

    /// Opens an existing file for reading only, also while another process writes it.
    pub fn open_read_only(path: &Path) -> Result<Sqlite> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Sqlite::connect(Connection::open_with_flags(path, flags), BUSY_TIMEOUT_MS)
    }

    /// A file whose commits are not flushed and whose locks are not waited for: one thread of a simulation, where
    /// waiting in real time would be a deadlock.
    pub fn open_simulated(path: &Path) -> Result<Sqlite> {
        let this = Sqlite::connect(Connection::open(path), 0)?;
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;";
        this.connection.execute_batch(pragmas).map_err(refused)?;
        Ok(this)
    }

    /// A database in memory, shared by all connections of this process that name it, gone with the last of them.
    pub fn open_memory(name: &str) -> Result<Sqlite> {
        let uri = format!("file:{name}?mode=memory&cache=shared");
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Sqlite::connect(Connection::open_with_flags(uri, flags), 0)
    }

    fn connect(opened: rusqlite::Result<Connection>, busy_timeout_ms: u64) -> Result<Sqlite> {
        let connection = opened.map_err(refused)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
        let timeout = std::time::Duration::from_millis(busy_timeout_ms);
        connection.busy_timeout(timeout).map_err(refused)?;
        // Else SQLite would plan some statements anew for every value that is bound to them.
        let stable_plans = DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG;
        connection.set_db_config(stable_plans, true).map_err(refused)?;
        connection.execute_batch(EVERYWHERE).map_err(refused)?;
        Ok(Sqlite { connection, watch: None })
    }
}

/// The text that inserts one row of these columns with `INSERT OR FAIL`, as one that inserts so many; nothing if it
/// does anything else. Both end where they fail and keep what they did before.
fn of_rows(sql: &str, columns: &[Column<'_>], rows: usize) -> Option<String> {
    let (table, items) = sql.strip_prefix("INSERT OR FAIL INTO ")?.split_once("VALUES (")?;
    let items: Vec<&str> = items.strip_suffix(')')?.split(',').map(str::trim).collect();
    let is_plain = |item: &&str| item.bytes().all(|byte| byte == b'$' || byte.is_ascii_digit());
    if table.contains(['$', '\'']) || !items.iter().all(is_plain) {
        return None;
    }
    let mut many = format!("INSERT OR FAIL INTO {table}VALUES ");
    for row in 0..rows {
        for (i, item) in items.iter().enumerate() {
            many.push_str(match (row, i) {
                (0, 0) => "(",
                (_, 0) => "), (",
                _ => ", ",
            });
            match item.strip_prefix('$') {
                Some(number) => {
                    let number = number.parse::<usize>().ok()? + row * columns.len();
                    many.push_str(&format!("${number}"));
                }
                None => many.push_str(item),
            }
        }
    }
    many.push(')');
    Some(many)
}

/// SQLite gives a new file the mode that the process happens to have, and the files beside it the mode of the first.
fn create_private(path: &Path) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    match std::fs::File::options().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Error::Database(format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

impl Sqlite {
    /// Runs a statement that takes so many rows at a time for these rows, which are a multiple of as many.
    fn exec_rows(
        &mut self,
        sql: &str,
        columns: &[Column<'_>],
        rows: Range<usize>,
        at_once: usize,
    ) -> Result<u64> {
        let mut statement = self.connection.prepare_cached(sql).map_err(refused)?;
        let width = columns.len().max(1);
        let places = places(&statement, columns.len() * at_once)?;
        let places: Vec<_> =
            places.into_iter().map(|place| (place / width, place % width)).collect();
        let mut changed = 0;
        for first in rows.step_by(at_once) {
            let value = |(row, i): (usize, usize)| {
                columns.get(i).map_or(Val::Null, |column| column.val(first + row))
            };
            bind(&mut statement, &places, value)?;
            changed += statement.raw_execute().map_err(refused)? as u64;
        }
        Ok(changed)
    }
}

fn refused(error: rusqlite::Error) -> Error {
    of_sqlite(&error)
}

/// SQLite numbers `$2` by its first appearance in the text, not by its digits: bind by name. For each parameter in
/// SQLite's order, the place of its argument.
fn places(statement: &Statement<'_>, arguments: usize) -> Result<Vec<usize>> {
    if statement.parameter_count() != arguments {
        let count = statement.parameter_count();
        return Err(Error::Database(format!("{count} parameters but {arguments} arguments")));
    }
    let place = |i| {
        let number = statement.parameter_name(i)?.get(1..)?.parse::<usize>().ok()?;
        number.checked_sub(1).filter(|place| *place < arguments)
    };
    (1..=arguments)
        .map(|i| place(i).ok_or_else(|| Error::Database("parameters are $1, $2, …".to_owned())))
        .collect()
}

/// Looks at all bytes of a piece, whatever it finds: without a way out the processor looks at many of them at once.
fn has_nul(text: &str) -> bool {
    let found =
        |piece: &[u8]| piece.iter().fold(0, |found, byte| found | u8::from(*byte == 0)) != 0;
    text.as_bytes().chunks(NUL_PIECE).any(found)
}

fn bind<'a, P: Copy>(
    statement: &mut Statement<'_>,
    places: &[P],
    arg: impl Fn(P) -> Val<'a>,
) -> Result<()> {
    for (i, place) in places.iter().enumerate() {
        let value = match arg(*place) {
            Val::Null => ValueRef::Null,
            Val::Int(int) => ValueRef::Integer(int),
            // PostgreSQL cannot store it: what one database takes the other takes too.
            Val::Text(text) if has_nul(text) => {
                return Err(Error::Database("a text must not hold the character NUL".to_owned()));
            }
            Val::Text(text) => ValueRef::Text(text.as_bytes()),
            Val::Bytes(bytes) => ValueRef::Blob(bytes),
        };
        statement.raw_bind_parameter(i + 1, ToSqlOutput::Borrowed(value)).map_err(refused)?;
    }
    Ok(())
}

/// To the end: an UPDATE … RETURNING half read is half done.
fn read_all(
    statement: &mut Statement<'_>,
    each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
) -> Result<()> {
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(refused)? {
        each(row)?;
    }
    Ok(())
}

impl Columns for rusqlite::Row<'_> {
    fn val(&self, i: usize) -> Result<Val<'_>> {
        match self.get_ref(i).map_err(refused)? {
            ValueRef::Null => Ok(Val::Null),
            ValueRef::Integer(int) => Ok(Val::Int(int)),
            ValueRef::Text(text) => std::str::from_utf8(text)
                .map(Val::Text)
                .map_err(|_| Error::Decode(format!("column {i} is not UTF-8"))),
            ValueRef::Blob(bytes) => Ok(Val::Bytes(bytes)),
            ValueRef::Real(_) => {
                Err(Error::Decode(format!("column {i} is neither an integer, a text nor bytes")))
            }
        }
    }
}

impl Db for Sqlite {
    fn pick(&self, sql: Sql) -> &'static str {
        sql.lite
    }

    fn begin(&mut self, access: Access) -> Result<()> {
        // A transaction that starts as a reader can fail to become a writer.
        let sql = if access == Access::Write { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.exec(sql, &[]).map(|_| ())
    }

    fn commit(&mut self) -> Result<()> {
        // SQLite goes on writing into a file that was deleted, and what it answered would be lost with the process.
        self.watch.as_ref().map_or(Ok(()), Watch::look)?;
        match self.exec("COMMIT", &[]) {
            Ok(_) => Ok(()),
            Err(error) if self.in_transaction() => Err(error),
            Err(error) => Err(Error::CommitUnknown(error.to_string())),
        }
    }

    fn rollback(&mut self) {
        if self.in_transaction() {
            // If even this fails the connection is broken, and the next call will say so.
            let _ = self.exec("ROLLBACK", &[]);
        }
    }

    fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    fn savepoint(&mut self) -> Result<()> {
        self.exec("SAVEPOINT call", &[]).map(|_| ())
    }

    fn release_savepoint(&mut self) -> Result<()> {
        self.exec("RELEASE SAVEPOINT call", &[]).map(|_| ())
    }

    fn rollback_to_savepoint(&mut self) -> Result<()> {
        self.exec("ROLLBACK TO SAVEPOINT call", &[])?;
        self.release_savepoint()
    }

    fn try_again(&mut self, error: &Error, tries: u32) -> bool {
        // A single writer meets no conflict but those that a simulation plants. A lock has been waited for already.
        matches!(error, Error::Conflict(_)) && tries < CONFLICT_TRIES
    }

    fn exec(&mut self, sql: &str, args: &[Val<'_>]) -> Result<u64> {
        let mut statement = self.connection.prepare_cached(sql).map_err(refused)?;
        let places = places(&statement, args.len())?;
        bind(&mut statement, &places, |i| args.get(i).copied().unwrap_or(Val::Null))?;
        statement.raw_execute().map(|rows| rows as u64).map_err(refused)
    }

    fn query(
        &mut self,
        sql: &str,
        args: &[Val<'_>],
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql).map_err(refused)?;
        let places = places(&statement, args.len())?;
        bind(&mut statement, &places, |i| args.get(i).copied().unwrap_or(Val::Null))?;
        read_all(&mut statement, each)
    }

    fn exec_set(&mut self, sql: &str, columns: &[Column<'_>]) -> Result<u64> {
        let count = row_count(columns)?;
        let at_once = VALUES_AT_ONCE.checked_div(columns.len()).unwrap_or(0);
        let whole = count.checked_div(at_once).unwrap_or(0).saturating_mul(at_once);
        let many =
            (at_once >= ROWS_AT_ONCE_MIN && whole > 0).then(|| of_rows(sql, columns, at_once));
        let Some(many) = many.flatten() else {
            return self.exec_rows(sql, columns, 0..count, 1);
        };
        let changed = self.exec_rows(&many, columns, 0..whole, at_once)?;
        Ok(changed + self.exec_rows(sql, columns, whole..count, 1)?)
    }

    fn query_set(
        &mut self,
        sql: &str,
        columns: &[Column<'_>],
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql).map_err(refused)?;
        let places = places(&statement, columns.len())?;
        for row in 0..row_count(columns)? {
            bind(&mut statement, &places, |i| columns.get(i).map_or(Val::Null, |c| c.val(row)))?;
            read_all(&mut statement, each)?;
        }
        Ok(())
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_inserts_plain_values_is_done_many_at_a_time() {
        let two = [Column::Ints(&[1]), Column::Texts(&["x"])];
        assert_eq!(
            of_rows("INSERT OR FAIL INTO t (a, b, c)\n VALUES ($2, 0, $1)", &two, 3).as_deref(),
            Some("INSERT OR FAIL INTO t (a, b, c)\n VALUES ($2, 0, $1), ($4, 0, $3), ($6, 0, $5)")
        );
        for other in [
            "INSERT OR FAIL INTO t (a, b) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            "INSERT OR FAIL INTO t (a, b) VALUES ($1, $2) RETURNING a",
            "INSERT OR FAIL INTO t (a, b) VALUES ($1, lower($2))",
            "INSERT OR FAIL INTO t (a, b) VALUES ($1, '$2')",
            "INSERT OR FAIL INTO t (a, b) VALUES ($1, $2), ($1, $2)",
            "INSERT OR FAIL INTO t (a, b) SELECT $1, $2",
            "INSERT INTO t (a, b) VALUES ($1, $2)",
            "INSERT OR IGNORE INTO t (a, b) VALUES ($1, $2)",
            "WITH x AS (SELECT $1) INSERT OR FAIL INTO t (a, b) VALUES ($1, $2)",
            "UPDATE t SET a = $1 WHERE b = $2",
        ] {
            assert_eq!(of_rows(other, &two, 3), None, "{other}");
        }
    }

    #[test]
    fn a_text_with_nul_is_seen_wherever_it_stands() {
        for bytes in [1, NUL_PIECE - 1, NUL_PIECE, NUL_PIECE + 1, 3 * NUL_PIECE] {
            let text = "x".repeat(bytes);
            assert!(!has_nul(&text));
            for at in 0..bytes {
                let mut text = text.clone();
                text.replace_range(at..=at, "\0");
                assert!(has_nul(&text), "{at} of {bytes}");
            }
        }
        assert!(!has_nul(""));
    }
}

//! PostgreSQL, by a blocking client. A pump's thread owns the connection: the client must be neither made nor dropped
//! inside a runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use postgres::types::BorrowToSql;
use postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement};

use crate::db::{Access, Column, Columns, Db, Sql, Val, row_count};
use crate::{Error, Result};

mod failure;
mod value;

use failure::refused;

/// Writers take turns, in all processes that share a database: a write closure is alone, as it is on SQLite. So there
/// are no conflicts between closures that were written with one database in mind, numbers are given in the order of
/// commits, and no two groups of calls can wait for each other. The lock goes with the transaction, however that ends.
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SELECT pg_advisory_xact_lock(7452681103923456); SELECT pg_current_xact_id()";
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A plan is kept for as long as the connection, and one that was made while a table was small would read all of it
/// once it is large. Whatever we ask is asked by a key or in the order of one, so it is planned so from the start.
const PLANS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
     SET enable_material = off";

/// A holder that stalls is cut off, so that the others can go on; whoever waits longer than that tries again.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '15s'; SET lock_timeout = '30s'; \
     SET timezone = 'UTC'; SET client_min_messages = 'warning'";

const OLDEST_VERSION: i64 = 15;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection whose other end has vanished without a word is given up after this.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
const STATEMENT_CACHE: usize = 512;
const CONFLICT_TRIES: u32 = 20;
/// Together some six seconds, which a server needs to start again.
const OUTAGE_TRIES: u32 = 8;
const OUTAGE_FIRST_WAIT_MS: u64 = 25;

/// A connection to a PostgreSQL database: made at the first use, made again when it is lost.
pub struct Postgres {
    config: Config,
    link: Option<Link>,
    /// The transaction that is open, with its number if it writes.
    transaction: Option<Transaction>,
    /// An outage has outlasted our patience: until it is over, callers are told at once.
    given_up: bool,
}

struct Link {
    client: Client,
    statements: BTreeMap<String, Statement>,
}

struct Transaction {
    number: Option<String>,
}

impl Postgres {
    /// Takes the URL; does not connect yet.
    pub fn new(url: &str) -> Result<Postgres> {
        let mut config: Config = url.parse().map_err(|e| Error::BadUrl {
            url: redacted(url),
            reason: format!("PostgreSQL's client says: {e}"),
        })?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("guild");
        }
        Ok(Postgres { config, link: None, transaction: None, given_up: false })
    }

    fn connect(&self) -> Result<Link> {
        let mut client = self.config.connect(NoTls).map_err(|e| refused(&e))?;
        client.batch_execute(SESSION).map_err(|e| refused(&e))?;
        client.batch_execute(PLANS).map_err(|e| refused(&e))?;
        let version = client
            .query_one("SELECT current_setting('server_version_num')::bigint / 10000", &[])
            .and_then(|row| row.try_get::<_, i64>(0))
            .map_err(|e| refused(&e))?;
        if version < OLDEST_VERSION {
            let message =
                format!("PostgreSQL {OLDEST_VERSION} or newer is needed, this is {version}");
            return Err(Error::Database(message));
        }
        Ok(Link { client, statements: BTreeMap::new() })
    }

    fn link(&mut self) -> Result<&mut Link> {
        if self.link.is_none() {
            if self.transaction.is_some() {
                return Err(Error::Unreachable("the connection is lost".to_owned()));
            }
            self.link = Some(self.connect()?);
            self.given_up = false;
        }
        self.link.as_mut().ok_or_else(|| Error::Unreachable("no connection".to_owned()))
    }

    /// Runs something on the connection, and lets go of one that is lost or whose plans are out of date.
    fn on_link<T>(&mut self, run: impl FnOnce(&mut Link) -> Result<T>) -> Result<T> {
        let link = self.link()?;
        let done = run(link);
        if let Err(error) = &done {
            if link.client.is_closed() || matches!(error, Error::Unreachable(_)) {
                self.link = None;
            } else if matches!(error, Error::Conflict(_)) {
                link.statements.clear();
            }
        }
        done
    }

    fn begin_write(&mut self) -> Result<()> {
        let messages =
            self.on_link(|link| link.client.simple_query(BEGIN_WRITE).map_err(|e| refused(&e)))?;
        let number = messages.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        self.transaction = Some(Transaction { number });
        Ok(())
    }

    /// Whether the transaction whose COMMIT got no answer was committed. The database remembers its number.
    fn outcome(&mut self, number: Option<&str>, lost: &Error) -> Result<()> {
        let unknown = || Err(Error::CommitUnknown(lost.to_string()));
        let Some(number) = number else { return unknown() };
        for tries in 0..OUTAGE_TRIES {
            wait_ms(outage_wait_ms(tries));
            let asked = self.on_link(|link| {
                let sql = "SELECT pg_xact_status($1::text::xid8)";
                let row = link.client.query_one(sql, &[&number]).map_err(|e| refused(&e))?;
                row.try_get::<_, Option<String>>(0).map_err(|e| refused(&e))
            });
            match asked.as_ref().map(|status| status.as_deref()) {
                Ok(Some("committed")) => return Ok(()),
                Ok(Some("aborted")) => return Err(lost.clone()),
                // The server has not noticed yet that we are gone, or cannot be reached.
                Ok(Some(_)) | Err(_) => {}
                Ok(None) => return unknown(),
            }
        }
        unknown()
    }
}

impl Link {
    fn prepared(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= STATEMENT_CACHE {
            self.statements.clear();
        }
        let statement = self.client.prepare(sql).map_err(|e| refused(&e))?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn exec<P, I>(&mut self, sql: &str, arguments: I) -> Result<u64>
    where
        P: BorrowToSql,
        I: IntoIterator<Item = P>,
        I::IntoIter: ExactSizeIterator,
    {
        let statement = self.prepared(sql)?;
        let mut rows = self.client.query_raw(&statement, arguments).map_err(|e| refused(&e))?;
        while rows.next().map_err(|e| refused(&e))?.is_some() {}
        Ok(rows.rows_affected().unwrap_or(0))
    }

    fn query<P, I>(
        &mut self,
        sql: &str,
        arguments: I,
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()>
    where
        P: BorrowToSql,
        I: IntoIterator<Item = P>,
        I::IntoIter: ExactSizeIterator,
    {
        let statement = self.prepared(sql)?;
        let mut rows = self.client.query_raw(&statement, arguments).map_err(|e| refused(&e))?;
        let mut outcome = Ok(());
        // To the end, also after a row that could not be read: the next statement starts clean.
        while let Some(row) = rows.next().map_err(|e| refused(&e))? {
            if outcome.is_ok() {
                outcome = each(&row);
            }
        }
        outcome
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).map_err(|e| refused(&e))
    }
}

impl Db for Postgres {
    fn pick(&self, sql: Sql) -> &'static str {
        sql.pg
    }

    fn begin(&mut self, access: Access) -> Result<()> {
        match access {
            Access::Write => self.begin_write()?,
            Access::Read => {
                self.on_link(|link| link.batch(BEGIN_READ))?;
                self.transaction = Some(Transaction { number: None });
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let committed = self.on_link(|link| link.batch("COMMIT"));
        let transaction = self.transaction.take();
        match committed {
            Err(lost @ Error::Unreachable(_)) => {
                self.outcome(transaction.and_then(|t| t.number).as_deref(), &lost)
            }
            answered => answered,
        }
    }

    fn rollback(&mut self) {
        let open = self.transaction.is_some() && self.link.is_some();
        if open && self.on_link(|link| link.batch("ROLLBACK")).is_err() {
            // The server rolls back what a lost connection has left open.
            self.link = None;
        }
        self.transaction = None;
    }

    fn in_transaction(&self) -> bool {
        self.transaction.is_some() && self.link.is_some()
    }

    fn guards_are_cheap(&self) -> bool {
        // Each is a journey.
        false
    }

    fn savepoint(&mut self) -> Result<()> {
        self.on_link(|link| link.batch("SAVEPOINT call"))
    }

    fn release_savepoint(&mut self) -> Result<()> {
        self.on_link(|link| link.batch("RELEASE SAVEPOINT call"))
    }

    fn rollback_to_savepoint(&mut self) -> Result<()> {
        self.on_link(|link| link.batch("ROLLBACK TO SAVEPOINT call; RELEASE SAVEPOINT call"))
    }

    fn try_again(&mut self, error: &Error, tries: u32) -> bool {
        match error {
            Error::Conflict(_) if tries < CONFLICT_TRIES => {
                wait_ms(conflict_wait_ms(tries));
                true
            }
            Error::Unreachable(_) if tries < OUTAGE_TRIES && !self.given_up => {
                wait_ms(outage_wait_ms(tries));
                true
            }
            Error::Unreachable(_) => {
                self.given_up = true;
                false
            }
            _ => false,
        }
    }

    fn exec(&mut self, sql: &str, args: &[Val<'_>]) -> Result<u64> {
        self.on_link(|link| link.exec(sql, args))
    }

    fn query(
        &mut self,
        sql: &str,
        args: &[Val<'_>],
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()> {
        self.on_link(|link| link.query(sql, args, each))
    }

    fn exec_set(&mut self, sql: &str, columns: &[Column<'_>]) -> Result<u64> {
        if row_count(columns)? == 0 {
            return Ok(0);
        }
        self.on_link(|link| link.exec(sql, columns))
    }

    fn query_set(
        &mut self,
        sql: &str,
        columns: &[Column<'_>],
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()> {
        if row_count(columns)? == 0 {
            return Ok(());
        }
        self.on_link(|link| link.query(sql, columns, each))
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        self.on_link(|link| link.batch(sql))
    }
}

/// The URL without its password: for messages.
pub(crate) fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    let (user, place) = rest.rsplit_once('@').map_or(("", rest), |(user, place)| (user, place));
    let user = user.split(':').next().unwrap_or_default();
    // A password can also stand among the parameters.
    let place = place.split('?').next().unwrap_or_default();
    let at = if user.is_empty() { "" } else { "@" };
    format!("{scheme}://{user}{at}{place}")
}

/// Doubles, up to a limit.
fn outage_wait_ms(tries: u32) -> u64 {
    OUTAGE_FIRST_WAIT_MS.saturating_mul(1 << tries.min(7))
}

/// Processes that met once should not meet again: each waits for another time.
fn conflict_wait_ms(tries: u32) -> u64 {
    let mixed = u64::from(std::process::id()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (tries % 48);
    1 + mixed % (2 << tries.min(6))
}

#[expect(clippy::disallowed_methods, reason = "a thread that waits for a real server")]
fn wait_ms(duration_ms: u64) {
    std::thread::sleep(Duration::from_millis(duration_ms));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_gets_into_a_message() {
        let shown = [
            (
                "postgresql://ann:secret@db.example:5432/guild",
                "postgresql://ann@db.example:5432/guild",
            ),
            ("postgresql://ann:se@cret@db/guild", "postgresql://ann@db/guild"),
            ("postgresql://db/guild?user=ann&password=secret", "postgresql://db/guild"),
            ("host=db password=secret", "…"),
        ];
        for (url, safe) in shown {
            assert_eq!(redacted(url), safe);
        }
    }

    #[test]
    fn waits_are_bounded() {
        assert_eq!((0..OUTAGE_TRIES).map(outage_wait_ms).sum::<u64>(), 6_375);
        assert!((0..CONFLICT_TRIES).all(|tries| (1..=128).contains(&conflict_wait_ms(tries))));
    }
}

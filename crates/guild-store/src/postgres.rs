//! PostgreSQL, by a blocking client. A pump's thread owns the connection: the client must be neither made nor dropped
//! inside a runtime.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::BorrowToSql;
use tokio_postgres::{Config, SimpleQueryMessage, Statement};

use crate::db::{Access, Column, Columns, Db, Sql, Val, row_count};
use crate::{Error, Result};

mod client;
mod copy;
mod failure;
mod server;
mod value;

use client::Client;
use failure::refused;
pub(crate) use server::connect_timeout;
use server::{Server, servers, set_defaults};

/// Writers take turns, in all processes that share a database: a write closure is alone, as it is on SQLite. So there
/// are no conflicts between closures that were written with one database in mind, numbers are given in the order of
/// commits, and no two groups of calls can wait for each other. The lock goes with the transaction, however that ends.
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SELECT pg_advisory_xact_lock(7452681103923456); SELECT pg_current_xact_id()";
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A plan is kept for as long as the connection, and one that was made while a table was small would read all of it
/// once it is large. Whatever we ask is asked by a key or in the order of one, so it is planned so from the start.
/// What cannot be is then planned at an enormous price, for which the server would translate the plan into machine
/// code: tenths of a second for a question that takes none.
const PLANS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
     SET enable_material = off; SET jit = off";

/// A holder that stalls is cut off, so that the others can go on; whoever waits longer than that is told so.
/// A session may be idle for as long as it likes. An answer waits for the disk, also where the server's default does
/// not; a default that waits for more stays.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '15s'; SET lock_timeout = '30s'; \
     SET idle_session_timeout = 0; SET timezone = 'UTC'; SET client_min_messages = 'warning'; \
     SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') = 'off'";

/// Differs after every crash and on every other server, and stays the same over an orderly restart: the moment since
/// which the server counts. A crash makes it forget the number of a transaction of which nothing was on the disk, and
/// give that number to another one.
const LIFE: &str = "SELECT current_setting('server_version_num')::bigint / 10000, \
     (SELECT stats_reset::text FROM pg_stat_bgwriter)";
const STATUS: &str = "SELECT pg_xact_status($1::text::xid8), \
     (SELECT stats_reset::text FROM pg_stat_bgwriter)";

const OLDEST_VERSION: i64 = 15;
const STATEMENT_CACHE: usize = 512;
const CONFLICT_TRIES: u32 = 20;
/// Together some six seconds, which a server needs to start again.
const OUTAGE_TRIES: u32 = 8;
const OUTAGE_FIRST_WAIT_MS: u64 = 25;
/// After this no further try is begun: one that ends in silence takes long.
const OUTAGE_PATIENCE: Duration = Duration::from_secs(6);
/// After an outage was given up, a try that failed stands for all that would come within this part of its own time.
const REST_PART: u32 = 5;

/// A connection to a PostgreSQL database: made at the first use, made again when it is lost.
pub struct Postgres {
    config: Config,
    servers: Vec<Server>,
    link: Option<Link>,
    /// The transaction that is open.
    transaction: Option<Transaction>,
    /// When the calls that are tried now met an outage.
    outage: Option<Instant>,
    /// An outage has outlasted our patience: until it is over, callers are told at once.
    given_up: bool,
    /// Why there is no connection, and until when that is answer enough for those who wait already.
    no_link: Option<(Error, Instant)>,
}

struct Link {
    client: Client,
    statements: BTreeMap<String, Statement>,
    life: Option<String>,
}

enum Transaction {
    /// Whatever became of it, nothing has changed.
    Read,
    /// What the database knows it by, and in which of its lives.
    Write { number: String, life: Option<String> },
}

impl Postgres {
    /// Takes the URL; does not connect yet.
    pub fn new(url: &str) -> Result<Postgres> {
        let bad = |reason| Error::BadUrl { url: redacted(url), reason };
        let parsed = url.parse::<Config>();
        let mut config = parsed.map_err(|e| bad(format!("PostgreSQL's client says: {e}")))?;
        set_defaults(&mut config);
        let servers = servers(&config).map_err(|e| bad(e.to_owned()))?;
        Ok(Postgres {
            config,
            servers,
            link: None,
            transaction: None,
            outage: None,
            given_up: false,
            no_link: None,
        })
    }

    /// Connects only to a server that takes writes, unless the URL says what is wanted: after a failover a name may
    /// lead to one that does not, and a connection once made would stay there.
    pub(crate) fn for_writes(mut self) -> Postgres {
        if self.config.get_target_session_attrs() == TargetSessionAttrs::Any {
            self.config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        self
    }

    /// To the first that lets us in.
    fn connect(&self) -> Result<Link> {
        let mut failed = Error::Unreachable("the server has no address".to_owned());
        for server in &self.servers {
            let configs = server.configs(&self.config).unwrap_or_else(|error| {
                failed = error;
                Vec::new()
            });
            for config in configs {
                match Link::open(&config) {
                    Ok(link) => return Ok(link),
                    Err(error) => failed = error,
                }
            }
        }
        Err(failed)
    }

    fn link(&mut self) -> Result<&mut Link> {
        if self.link.is_none() {
            if self.transaction.is_some() {
                return Err(Error::Unreachable("the connection is lost".to_owned()));
            }
            self.link = Some(self.connect_again()?);
            self.given_up = false;
        }
        self.link.as_mut().ok_or_else(|| Error::Unreachable("no connection".to_owned()))
    }

    /// A server that says nothing must not cost each of many callers, one after the other, the time in which it could
    /// have answered.
    fn connect_again(&mut self) -> Result<Link> {
        let began = now();
        if let Some((error, until)) = &self.no_link
            && self.given_up
            && began < *until
        {
            return Err(error.clone());
        }
        self.connect().inspect_err(|error| {
            let rest = began.elapsed() / REST_PART;
            self.no_link = Some((error.clone(), now() + rest));
        })
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

    fn begin_write(&mut self) -> Result<Transaction> {
        let (messages, life) = self.on_link(|link| {
            let messages = link.client.messages(BEGIN_WRITE)?;
            Ok((messages, link.life.clone()))
        })?;
        let number = messages.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        let nameless = || Error::Database("a transaction was begun without a number".to_owned());
        Ok(Transaction::Write { number: number.ok_or_else(nameless)?, life })
    }

    /// Whether the transaction whose COMMIT got no answer was committed. The database remembers its number.
    fn outcome(&mut self, number: &str, life: Option<&str>, lost: &Error) -> Result<()> {
        let unknown = || Err(Error::CommitUnknown(lost.to_string()));
        for tries in 0..OUTAGE_TRIES {
            if !self.is_patient(tries) {
                break;
            }
            wait_ms(outage_wait_ms(tries));
            let asked = self.on_link(|link| {
                let row = link.client.one_row(STATUS, &[&number])?;
                let read = |i| row.try_get::<_, Option<String>>(i).map_err(|e| refused(&e));
                Ok((read(0)?, read(1)?))
            });
            let Ok((status, life_now)) = asked else { continue };
            match status.as_deref() {
                // After a crash it may be another one that got the number. If it says "aborted" that makes no
                // difference: ours is not committed either way.
                Some("committed") if life.is_some() && life == life_now.as_deref() => return Ok(()),
                Some("committed") | None => return unknown(),
                Some("aborted") => return Err(lost.clone()),
                // The server has not noticed yet that we are gone.
                Some(_) => {}
            }
        }
        self.given_up = self.link.is_none();
        unknown()
    }

    /// Whether an outage that has lasted for `tries` tries has not lasted for too long.
    fn is_patient(&mut self, tries: u32) -> bool {
        if tries == 0 {
            self.outage = None;
        }
        self.outage.get_or_insert_with(now).elapsed() < OUTAGE_PATIENCE
    }
}

impl Link {
    fn open(server: &Config) -> Result<Link> {
        let (client, (version, life)) = Client::connect(server, async |client| {
            client.batch_execute(SESSION).await?;
            client.batch_execute(PLANS).await?;
            let row = client.query_one(LIFE, &[]).await?;
            Ok((row.try_get::<_, i64>(0)?, row.try_get(1)?))
        })?;
        if version < OLDEST_VERSION {
            let message =
                format!("PostgreSQL {OLDEST_VERSION} or newer is needed, this is {version}");
            return Err(Error::Database(message));
        }
        Ok(Link { client, statements: BTreeMap::new(), life })
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= STATEMENT_CACHE {
            self.statements.clear();
        }
        let statement = self.client.prepare(sql)?;
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
        self.client.run(&statement, arguments, |_| ())
    }

    fn copy(&mut self, sql: &str, columns: &[Column<'_>], rows: usize) -> Result<u64> {
        let statement = self.prepared(sql)?;
        self.client.copy(&statement, copy::pieces(columns, rows))
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
        let mut outcome = Ok(());
        // To the end, also after a row that could not be read: the next statement starts clean.
        self.client.run(&statement, arguments, |row| {
            if outcome.is_ok() {
                outcome = each(row);
            }
        })?;
        outcome
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(Link { client, .. }) = self.link.take() {
            client.close();
        }
    }
}

impl Db for Postgres {
    fn pick(&self, sql: Sql) -> &'static str {
        sql.pg
    }

    fn begin(&mut self, access: Access) -> Result<()> {
        self.link()?;
        // From here on the server may have a transaction, even if the wait for our turn fails: it must be ended.
        self.transaction = Some(Transaction::Read);
        let begun = match access {
            Access::Write => self.begin_write(),
            Access::Read => {
                self.on_link(|link| link.client.batch(BEGIN_READ)).map(|()| Transaction::Read)
            }
        };
        match begun {
            Ok(transaction) => {
                self.transaction = Some(transaction);
                Ok(())
            }
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    fn commit(&mut self) -> Result<()> {
        let committed = self.on_link(|link| link.client.commit());
        match (committed, self.transaction.take()) {
            (Err(lost @ Error::Unreachable(_)), Some(Transaction::Write { number, life })) => {
                self.outcome(&number, life.as_deref(), &lost)
            }
            (answered, _) => answered.inspect(|()| self.outage = None),
        }
    }

    fn rollback(&mut self) {
        let open = self.transaction.is_some() && self.link.is_some();
        if open && self.on_link(|link| link.client.batch("ROLLBACK")).is_err() {
            // The server rolls back what a lost connection has left open.
            self.link = None;
        }
        self.transaction = None;
    }

    fn in_transaction(&self) -> bool {
        self.transaction.is_some() && self.link.is_some()
    }

    fn savepoint(&mut self) -> Result<()> {
        self.on_link(|link| link.client.batch("SAVEPOINT call"))
    }

    fn release_savepoint(&mut self) -> Result<()> {
        self.on_link(|link| link.client.batch("RELEASE SAVEPOINT call"))
    }

    fn rollback_to_savepoint(&mut self) -> Result<()> {
        self.on_link(|link| link.client.batch("ROLLBACK TO SAVEPOINT call; RELEASE SAVEPOINT call"))
    }

    fn try_again(&mut self, error: &Error, tries: u32) -> bool {
        match error {
            Error::Conflict(_) if tries < CONFLICT_TRIES => {
                wait_ms(conflict_wait_ms(tries));
                true
            }
            Error::Unreachable(_)
                if tries < OUTAGE_TRIES && !self.given_up && self.is_patient(tries) =>
            {
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
        let rows = row_count(columns)?;
        if rows == 0 {
            return Ok(0);
        }
        let copy = (rows >= copy::ROWS_MIN).then(|| copy::copy_of(sql, columns)).flatten();
        self.on_link(|link| match &copy {
            Some(copy) => link.copy(copy, columns, rows),
            None => link.exec(sql, columns),
        })
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
        self.on_link(|link| link.client.batch(sql))
    }
}

/// The URL without its password: for messages. What is not clearly something else is taken for one.
pub(crate) fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    if scheme == "sqlite" {
        return url.to_owned();
    }
    if !scheme.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return "…".to_owned();
    }
    let (user, place) = rest.rsplit_once('@').map_or(("", rest), |(user, place)| (user, place));
    // A password can also stand among the parameters.
    let hosts = place.split(['?', '/']).next().unwrap_or_default();
    if user.contains('?') || !hosts.split(',').all(is_host) {
        return format!("{scheme}://…");
    }
    let user = user.split(':').next().unwrap_or_default();
    let place = place.split('?').next().unwrap_or_default();
    let at = if user.is_empty() { "" } else { "@" };
    format!("{scheme}://{user}{at}{place}")
}

/// Where a port should be but no number is, there is a password whose host was forgotten.
fn is_host(host: &str) -> bool {
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port);
    port.is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit()))
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

#[expect(clippy::disallowed_methods, reason = "a thread that waits for a real server")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::server::KEEPALIVE;
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
            ("host=db password=secret://x", "…"),
            ("postgresql://db/guild?password=secret@x", "postgresql://…"),
            ("postgresql://ann@db/guild?password=x@secret", "postgresql://…"),
            ("postgresql://ann:sec?ret@db/guild", "postgresql://…"),
            ("postgresql://ann:secret", "postgresql://…"),
            ("postgresql://ann:secret/guild", "postgresql://…"),
            ("postgresql://ann@[::1]/guild", "postgresql://ann@[::1]/guild"),
            ("postgresql://ann@[::1]:5,db:6/guild?x", "postgresql://ann@[::1]:5,db:6/guild"),
            ("sqlite:///srv/ann:x@y/node.db?", "sqlite:///srv/ann:x@y/node.db?"),
        ];
        for (url, safe) in shown {
            assert_eq!(redacted(url), safe);
        }
    }

    #[test]
    fn a_server_that_vanishes_while_it_is_awaited_is_missed_soon() {
        let db = Postgres::new("postgresql://ann@db/guild").unwrap();
        assert_eq!(db.config.get_keepalives_idle(), KEEPALIVE);
        assert_eq!(db.config.get_keepalives_interval(), Some(KEEPALIVE));
        let own = Postgres::new("postgresql://ann@db/guild?keepalives_idle=60").unwrap();
        assert_eq!(own.config.get_keepalives_idle(), Duration::from_secs(60));
    }

    #[test]
    fn an_outage_that_has_lasted_is_not_waited_for_again() {
        let mut db = Postgres::new("postgresql://ann@db/guild").unwrap();
        let gone = Error::Unreachable("gone".to_owned());
        assert!(db.try_again(&gone, 0));
        db.outage = now().checked_sub(OUTAGE_PATIENCE);
        assert!(!db.try_again(&gone, 1));
        assert!(!db.try_again(&gone, 0), "the next caller is told at once");
    }

    #[test]
    fn waits_are_bounded() {
        assert_eq!((0..OUTAGE_TRIES).map(outage_wait_ms).sum::<u64>(), 6_375);
        assert!((0..CONFLICT_TRIES).all(|tries| (1..=128).contains(&conflict_wait_ms(tries))));
    }
}

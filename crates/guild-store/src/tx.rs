//! What a closure sees of its transaction.

use std::ops::{Deref, DerefMut};

use crate::db::{Column, Db, Decode, Engine, Sql, Val};
use crate::pump::{Hooks, Point};
use crate::{Error, Result};

/// A transaction that reads.
pub struct Rx<'a> {
    db: &'a mut dyn Db,
    hooks: &'a Hooks,
    failed: Option<Error>,
}

impl<'a> Rx<'a> {
    pub(crate) fn new(db: &'a mut dyn Db, hooks: &'a Hooks) -> Rx<'a> {
        Rx { db, hooks, failed: None }
    }

    /// Which database this is: for the rare place where not only the texts differ but how many there are.
    pub fn engine(&self) -> Engine {
        match self.db.pick(Sql { lite: "lite", pg: "pg" }) {
            "lite" => Engine::Sqlite,
            _ => Engine::Postgres,
        }
    }

    /// All rows of a query.
    pub fn all<T: Decode>(&mut self, sql: impl Into<Sql>, args: &[Val<'_>]) -> Result<Vec<T>> {
        let sql = sql.into();
        self.statement(|db| {
            let mut rows = Vec::new();
            let text = db.pick(sql);
            db.query(text, args, &mut |row| {
                rows.push(T::decode(row)?);
                Ok(())
            })?;
            Ok(rows)
        })
    }

    /// The first row of a query, if there is one.
    pub fn first<T: Decode>(&mut self, sql: impl Into<Sql>, args: &[Val<'_>]) -> Result<Option<T>> {
        Ok(self.all(sql, args)?.into_iter().next())
    }

    /// All rows of a query that is asked for a whole set at once. SQLite runs its text once for each row of the
    /// columns, with `$1`, `$2`, … bound to the row's values: a prepared statement costs it no more than a row of a
    /// join would. PostgreSQL runs its text once, with `$1`, `$2`, … bound to whole columns, for `unnest` or `ANY`:
    /// there every statement is a journey.
    ///
    /// ```
    /// # use guild_store::{Column, Rx, Result, Sql};
    /// const STATES: Sql = Sql {
    ///     lite: "SELECT seq, state FROM outbox WHERE seq = $1",
    ///     pg: "SELECT seq, state FROM outbox WHERE seq = ANY ($1::bigint[])",
    /// };
    /// fn states(rx: &mut Rx<'_>, seqs: &[i64]) -> Result<Vec<(i64, String)>> {
    ///     rx.all_set(STATES, &[Column::Ints(seqs)])
    /// }
    /// ```
    pub fn all_set<T: Decode>(
        &mut self,
        sql: impl Into<Sql>,
        columns: &[Column<'_>],
    ) -> Result<Vec<T>> {
        let sql = sql.into();
        self.statement(|db| {
            let mut rows = Vec::new();
            let text = db.pick(sql);
            db.query_set(text, columns, &mut |row| {
                rows.push(T::decode(row)?);
                Ok(())
            })?;
            Ok(rows)
        })
    }

    /// The error of a statement that the closure may have swallowed: nothing of such a call is committed.
    pub(crate) fn into_failure(self) -> Option<Error> {
        self.failed
    }

    /// After a failed statement PostgreSQL refuses all others; here SQLite does the same.
    fn statement<T>(&mut self, run: impl FnOnce(&mut dyn Db) -> Result<T>) -> Result<T> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let hooks = self.hooks;
        let done = hooks.reach(Point::BeforeStatement).and_then(|()| run(self.db));
        let done = hooks.reach(Point::AfterStatement).and(done);
        done.inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// A transaction that writes. Whatever it does stands or falls as one.
pub struct Tx<'a> {
    rx: Rx<'a>,
    bells: &'a mut Vec<(String, i64)>,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(rx: Rx<'a>, bells: &'a mut Vec<(String, i64)>) -> Tx<'a> {
        Tx { rx, bells }
    }

    /// Runs a statement; the number of rows it changed.
    pub fn exec(&mut self, sql: impl Into<Sql>, args: &[Val<'_>]) -> Result<u64> {
        let sql = sql.into();
        self.rx.statement(|db| {
            let text = db.pick(sql);
            db.exec(text, args)
        })
    }

    /// Runs a statement for a whole set at once, as [`Rx::all_set`] does; the number of rows it changed. SQLite's text
    /// is about one row, PostgreSQL's about all: `INSERT INTO t (a, b) VALUES ($1, $2)`, and
    /// `INSERT INTO t (a, b) SELECT * FROM unnest($1::bigint[], $2::text[])`.
    ///
    /// If SQLite's text begins with `INSERT OR FAIL`, many rows go into one statement. That is quicker for a table
    /// without an `INTEGER PRIMARY KEY`; for others SQLite keeps a copy of every page that such a statement changes.
    pub fn exec_set(&mut self, sql: impl Into<Sql>, columns: &[Column<'_>]) -> Result<u64> {
        let sql = sql.into();
        self.rx.statement(|db| {
            let text = db.pick(sql);
            db.exec_set(text, columns)
        })
    }

    /// A fenced write: it must change exactly one row, or this holder has lost what it held.
    pub fn cas(&mut self, sql: impl Into<Sql>, args: &[Val<'_>]) -> Result<()> {
        if self.exec(sql, args)? == 1 { Ok(()) } else { Err(Error::Fenced) }
    }

    /// Rings after the commit: there is something new on `topic` after number `after`. Never before it, and never
    /// if the call fails.
    pub fn ring(&mut self, topic: &str, after: i64) {
        self.bells.push((topic.to_owned(), after));
    }

    pub(crate) fn into_rx(self) -> Rx<'a> {
        self.rx
    }
}

impl<'a> Deref for Tx<'a> {
    type Target = Rx<'a>;
    fn deref(&self) -> &Rx<'a> {
        &self.rx
    }
}

impl DerefMut for Tx<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.rx
    }
}

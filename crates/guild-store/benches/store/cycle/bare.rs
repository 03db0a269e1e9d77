//! The limit: one thread, prepared statements, nothing between the loop and the database's own library.

use std::path::Path;

use guild_store::Val;
use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, NoTls};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use testbed::bench::{Measured, Watch};

use super::ops::{self, Claim, Op, Statements};
use super::{DONE, SCHEMA, Shape, expected};
use crate::said;

/// What a loop needs beside the statements of the cycle.
pub(super) trait Bare: Statements<Error = String> {
    fn begin(&mut self) -> Result<(), String>;
    fn commit(&mut self) -> Result<(), String>;
    fn stored(&mut self) -> Result<Vec<i64>, String>;
}

/// Where a caller of the loop is in its cycle.
enum Phase {
    Idle,
    Enqueued(u64),
    Claimed(Claim),
    Stepped(Claim),
}

pub(super) fn run(db: &mut impl Bare, shape: Shape) -> Result<Measured, String> {
    let watch = Watch::start();
    cycles(db, shape)?;
    let per_s = watch.per_s(shape.cycles);
    assert_eq!(db.stored()?, expected(shape.cycles), "what the tables of the bare loop hold");
    Ok(Measured { name: "bare loop", per_s, result: shape.result() })
}

/// The callers take turns, each with its next call, until all cycles are done.
fn cycles(db: &mut impl Bare, shape: Shape) -> Result<(), String> {
    let mut callers: Vec<Phase> = (0..shape.callers).map(|_| Phase::Idle).collect();
    let body = ops::body();
    let (mut started, mut finished) = (0, 0);
    let (mut calls, mut commits) = (0_u64, 0_u64);
    db.begin()?;
    while finished < shape.cycles {
        for phase in &mut callers {
            *phase = match std::mem::replace(phase, Phase::Idle) {
                Phase::Idle if started == shape.cycles => continue,
                Phase::Idle => {
                    ops::enqueue(db, started)?;
                    started += 1;
                    Phase::Enqueued(started - 1)
                }
                Phase::Enqueued(number) => Phase::Claimed(ops::claim(db, number)?),
                Phase::Claimed(claim) => {
                    ops::step(db, &claim, &body)?;
                    Phase::Stepped(claim)
                }
                Phase::Stepped(claim) => {
                    ops::finish(db, &claim, &body)?;
                    finished += 1;
                    Phase::Idle
                }
            };
            calls += 1;
            // Groups of changing size whose average is that of our pump.
            if calls as f64 >= (commits + 1) as f64 * shape.calls_a_commit {
                db.commit()?;
                db.begin()?;
                commits += 1;
            }
        }
    }
    db.commit()
}

/// SQLite as the store opens it, with every statement prepared for good.
pub(super) struct Lite<'a> {
    connection: &'a rusqlite::Connection,
    statements: Vec<rusqlite::Statement<'a>>,
    begin: rusqlite::Statement<'a>,
    commit: rusqlite::Statement<'a>,
}

impl Lite<'_> {
    pub(super) fn open<T>(
        path: &Path,
        run: impl FnOnce(&mut Lite<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let connection = rusqlite::Connection::open(path).map_err(said)?;
        let pragmas =
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             PRAGMA foreign_keys = ON;
             PRAGMA wal_autocheckpoint = 8192; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536;";
        connection.execute_batch(pragmas).map_err(said)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(said)?;
        connection.execute_batch(SCHEMA.lite).map_err(said)?;
        let prepare = |sql: &str| connection.prepare(sql).map_err(said);
        let statements =
            Op::ALL.iter().map(|op| prepare(op.sql().lite)).collect::<Result<_, _>>()?;
        let (begin, commit) = (prepare("BEGIN IMMEDIATE")?, prepare("COMMIT")?);
        run(&mut Lite { connection: &connection, statements, begin, commit })
    }

    fn row<T>(
        &mut self,
        op: Op,
        args: &[Val<'_>],
        read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, String> {
        let statement = bound(&mut self.statements, op, args)?;
        let mut rows = statement.raw_query();
        let found = rows.next().map_err(said)?.map(read).transpose().map_err(said)?;
        // To the end: an UPDATE … RETURNING half read is half done.
        while rows.next().map_err(said)?.is_some() {}
        found.ok_or_else(|| format!("{op:?} found nothing"))
    }
}

fn bound<'s, 'a>(
    statements: &'s mut [rusqlite::Statement<'a>],
    op: Op,
    args: &[Val<'_>],
) -> Result<&'s mut rusqlite::Statement<'a>, String> {
    let statement = statements.get_mut(op as usize).ok_or("a statement is not prepared")?;
    for (i, arg) in args.iter().enumerate() {
        let value = match *arg {
            Val::Null => ValueRef::Null,
            Val::Int(int) => ValueRef::Integer(int),
            Val::Text(text) => ValueRef::Text(text.as_bytes()),
            Val::Bytes(bytes) => ValueRef::Blob(bytes),
        };
        statement.raw_bind_parameter(i + 1, ToSqlOutput::Borrowed(value)).map_err(said)?;
    }
    Ok(statement)
}

impl Statements for Lite<'_> {
    type Error = String;

    fn exec(&mut self, op: Op, args: &[Val<'_>]) -> Result<(), String> {
        bound(&mut self.statements, op, args)?.raw_execute().map(drop).map_err(said)
    }

    fn cas(&mut self, op: Op, args: &[Val<'_>]) -> Result<(), String> {
        let changed = bound(&mut self.statements, op, args)?.raw_execute().map_err(said)?;
        one(op, changed as u64)
    }

    fn texts(&mut self, op: Op, args: &[Val<'_>]) -> Result<(String, String), String> {
        self.row(op, args, |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn ints(&mut self, op: Op, args: &[Val<'_>]) -> Result<(i64, i64), String> {
        self.row(op, args, |row| Ok((row.get(0)?, row.get(1)?)))
    }
}

impl Bare for Lite<'_> {
    fn begin(&mut self) -> Result<(), String> {
        self.begin.raw_execute().map(drop).map_err(said)
    }

    fn commit(&mut self) -> Result<(), String> {
        self.commit.raw_execute().map(drop).map_err(said)
    }

    fn stored(&mut self) -> Result<Vec<i64>, String> {
        let counts = |row: &rusqlite::Row<'_>| (0..6).map(|i| row.get(i)).collect();
        self.connection.query_row(DONE, [], counts).map_err(said)
    }
}

/// PostgreSQL in a schema of its own, with every statement prepared for good.
pub(super) struct Pg {
    client: Client,
    statements: Vec<postgres::Statement>,
}

impl Pg {
    pub(super) fn connect(url: &str) -> Result<Pg, String> {
        let mut client = Client::connect(url, NoTls).map_err(said)?;
        client.batch_execute("CREATE SCHEMA bare; SET search_path = bare").map_err(said)?;
        client.batch_execute(SCHEMA.pg).map_err(said)?;
        let mut statements = Vec::new();
        for op in Op::ALL {
            statements.push(client.prepare(op.sql().pg).map_err(said)?);
        }
        Ok(Pg { client, statements })
    }

    fn changed(&mut self, op: Op, args: &[Val<'_>]) -> Result<u64, String> {
        let statement = self.statements.get(op as usize).ok_or("a statement is not prepared")?;
        let mut rows = self.client.query_raw(statement, args).map_err(said)?;
        while rows.next().map_err(said)?.is_some() {}
        Ok(rows.rows_affected().unwrap_or(0))
    }

    fn row(&mut self, op: Op, args: &[Val<'_>]) -> Result<postgres::Row, String> {
        let statement = self.statements.get(op as usize).ok_or("a statement is not prepared")?;
        let mut rows = self.client.query_raw(statement, args).map_err(said)?;
        let found = rows.next().map_err(said)?;
        while rows.next().map_err(said)?.is_some() {}
        found.ok_or_else(|| format!("{op:?} found nothing"))
    }
}

impl Statements for Pg {
    type Error = String;

    fn exec(&mut self, op: Op, args: &[Val<'_>]) -> Result<(), String> {
        self.changed(op, args).map(drop)
    }

    fn cas(&mut self, op: Op, args: &[Val<'_>]) -> Result<(), String> {
        let changed = self.changed(op, args)?;
        one(op, changed)
    }

    fn texts(&mut self, op: Op, args: &[Val<'_>]) -> Result<(String, String), String> {
        let row = self.row(op, args)?;
        Ok((row.try_get(0).map_err(said)?, row.try_get(1).map_err(said)?))
    }

    fn ints(&mut self, op: Op, args: &[Val<'_>]) -> Result<(i64, i64), String> {
        let row = self.row(op, args)?;
        Ok((row.try_get(0).map_err(said)?, row.try_get(1).map_err(said)?))
    }
}

impl Bare for Pg {
    fn begin(&mut self) -> Result<(), String> {
        self.client.batch_execute("BEGIN").map_err(said)
    }

    fn commit(&mut self) -> Result<(), String> {
        self.client.batch_execute("COMMIT").map_err(said)
    }

    fn stored(&mut self) -> Result<Vec<i64>, String> {
        let row = self.client.query_one(DONE, &[]).map_err(said)?;
        (0..6).map(|i| row.try_get(i).map_err(said)).collect()
    }
}

fn one(op: Op, changed: u64) -> Result<(), String> {
    if changed == 1 { Ok(()) } else { Err(format!("{op:?} changed {changed} rows")) }
}

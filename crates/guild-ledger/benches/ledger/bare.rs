//! The limit: the same rows into tables of the same shape, in the same commits, with prepared statements and nothing
//! else. Nobody asks whether a transfer is new, or whether the money is there.

use std::path::Path;

use postgres::{Client, NoTls, Statement};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use testbed::bench::{Measured, Watch};

use crate::rows::{Batch, History};
use crate::said;

const SCHEMA: &str = "CREATE TABLE account (account_no BIGINT PRIMARY KEY, account_id TEXT NOT NULL UNIQUE,
         debits_posted BIGINT NOT NULL, credits_posted BIGINT NOT NULL, last_seq BIGINT NOT NULL);
     CREATE TABLE transfer (seq BIGINT PRIMARY KEY, transfer_id TEXT NOT NULL UNIQUE, step TEXT NOT NULL,
         debit_no BIGINT NOT NULL, credit_no BIGINT NOT NULL, units BIGINT NOT NULL, hold_seq BIGINT,
         expires_ms BIGINT, memo TEXT NOT NULL, at_ms BIGINT NOT NULL, debit_prev_seq BIGINT NOT NULL,
         credit_prev_seq BIGINT NOT NULL);";

const COLUMNS: &str =
    "(seq, transfer_id, debit_no, credit_no, units, at_ms, debit_prev_seq, credit_prev_seq,
     step, memo)";
const UPDATE: &str = "UPDATE account SET debits_posted = $1, credits_posted = $2, last_seq = $3
     WHERE account_no = $4";
const TOTALS: &str = "SELECT (SELECT count(*) FROM transfer),
     (SELECT CAST(sum(credits_posted) - sum(debits_posted) AS BIGINT) FROM account)";

/// A database that takes batches.
trait Bare {
    fn write(&mut self, batch: &Batch) -> Result<(), String>;
    /// How many transfers there are, and the sum over all accounts.
    fn totals(&mut self) -> Result<(i64, i64), String>;
}

pub(crate) fn on_sqlite(path: &Path, history: &History) -> Result<Measured, String> {
    let connection = Connection::open(path).map_err(said)?;
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 8192; PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536;";
    connection.execute_batch(pragmas).map_err(said)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(said)?;
    // The same table, by the number that SQLite keeps for each row anyway.
    let schema = SCHEMA.replace("seq BIGINT PRIMARY KEY", "seq INTEGER PRIMARY KEY");
    let schema = schema.replace("account_no BIGINT PRIMARY KEY", "account_no INTEGER PRIMARY KEY");
    connection.execute_batch(&schema).map_err(said)?;
    let prepare = |sql: &str| connection.prepare(sql).map_err(said);
    let values = "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'post', 'bench.post')";
    let mut lite = Lite {
        begin: prepare("BEGIN IMMEDIATE")?,
        commit: prepare("COMMIT")?,
        insert: prepare(&format!("INSERT INTO transfer {COLUMNS} {values}"))?,
        update: prepare(UPDATE)?,
        totals: prepare(TOTALS)?,
    };
    let sql = "INSERT INTO account VALUES ($1, 'acct_' || $1, 0, 0, 0)";
    for account_no in &history.before.account_no {
        connection.execute(sql, [account_no]).map_err(said)?;
    }
    run(&mut lite, history)
}

pub(crate) fn on_postgres(url: &str, history: &History) -> Result<Measured, String> {
    let mut client = Client::connect(url, NoTls).map_err(said)?;
    client.batch_execute("CREATE SCHEMA bare; SET search_path = bare").map_err(said)?;
    let schema = SCHEMA.replace("id TEXT NOT NULL", "id TEXT COLLATE \"C\" NOT NULL");
    let schema = schema.replacen(");", ") WITH (fillfactor = 50);", 1);
    client.batch_execute(&schema).map_err(said)?;
    let sql = "INSERT INTO account SELECT n, 'acct_' || n, 0, 0, 0 FROM unnest($1::bigint[]) AS n";
    client.execute(sql, &[&history.before.account_no]).map_err(said)?;
    let set = "SELECT *, 'post', 'bench.post' FROM unnest($1::bigint[], $2::text[], $3::bigint[],
         $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])";
    let update_set =
        "UPDATE account SET debits_posted = n.debits, credits_posted = n.credits, last_seq = n.seq
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
           AS n (debits, credits, seq, account_no) WHERE account.account_no = n.account_no";
    let row = "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'post', 'bench.post')";
    let mut prepare = |sql: &str| client.prepare(sql).map_err(said);
    let statements = [
        prepare(&format!("INSERT INTO transfer {COLUMNS} {set}"))?,
        prepare(update_set)?,
        prepare(&format!("INSERT INTO transfer {COLUMNS} {row}"))?,
        prepare(UPDATE)?,
    ];
    run(&mut Pg { client, statements }, history)
}

fn run(db: &mut impl Bare, history: &History) -> Result<Measured, String> {
    db.write(&history.before)?;
    let watch = Watch::start();
    for batch in &history.batches {
        db.write(batch)?;
    }
    let per_s = watch.per_s(history.transfers());
    let (count, sum) = db.totals()?;
    let expected = history.transfers() + history.before.seq.len() as u64;
    assert_eq!((u64::try_from(count), sum), (Ok(expected), 0), "what the bare loop wrote");
    Ok(Measured { name: "bare loop", per_s, result: history.result() })
}

struct Lite<'a> {
    begin: rusqlite::Statement<'a>,
    commit: rusqlite::Statement<'a>,
    insert: rusqlite::Statement<'a>,
    update: rusqlite::Statement<'a>,
    totals: rusqlite::Statement<'a>,
}

impl Bare for Lite<'_> {
    fn write(&mut self, batch: &Batch) -> Result<(), String> {
        self.begin.raw_execute().map_err(said)?;
        for i in 0..batch.seq.len() {
            let row = rusqlite::params![
                batch.seq[i],
                batch.transfer_id[i],
                batch.debit_no[i],
                batch.credit_no[i],
                batch.units[i],
                batch.at_ms[i],
                batch.debit_prev_seq[i],
                batch.credit_prev_seq[i],
            ];
            self.insert.execute(row).map_err(said)?;
        }
        for i in 0..batch.account_no.len() {
            let row = [batch.debits[i], batch.credits[i], batch.last_seq[i], batch.account_no[i]];
            self.update.execute(row).map_err(said)?;
        }
        self.commit.raw_execute().map(drop).map_err(said)
    }

    fn totals(&mut self) -> Result<(i64, i64), String> {
        self.totals.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(said)
    }
}

struct Pg {
    client: Client,
    /// Insert and update of a set, insert and update of a row.
    statements: [Statement; 4],
}

impl Pg {
    fn write_set(&mut self, b: &Batch) -> Result<(), String> {
        let [insert, update, ..] = &self.statements;
        let columns: [&(dyn postgres::types::ToSql + Sync); 8] = [
            &b.seq,
            &b.transfer_id,
            &b.debit_no,
            &b.credit_no,
            &b.units,
            &b.at_ms,
            &b.debit_prev_seq,
            &b.credit_prev_seq,
        ];
        self.client.execute(insert, &columns).map_err(said)?;
        self.client
            .execute(update, &[&b.debits, &b.credits, &b.last_seq, &b.account_no])
            .map(drop)
            .map_err(said)
    }

    fn write_row(&mut self, b: &Batch) -> Result<(), String> {
        let [_, _, insert, update] = &self.statements;
        let columns: [&(dyn postgres::types::ToSql + Sync); 8] = [
            &b.seq[0],
            &b.transfer_id[0],
            &b.debit_no[0],
            &b.credit_no[0],
            &b.units[0],
            &b.at_ms[0],
            &b.debit_prev_seq[0],
            &b.credit_prev_seq[0],
        ];
        self.client.execute(insert, &columns).map_err(said)?;
        for i in 0..b.account_no.len() {
            self.client
                .execute(update, &[&b.debits[i], &b.credits[i], &b.last_seq[i], &b.account_no[i]])
                .map_err(said)?;
        }
        Ok(())
    }
}

impl Bare for Pg {
    fn write(&mut self, batch: &Batch) -> Result<(), String> {
        self.client.batch_execute("BEGIN").map_err(said)?;
        if batch.seq.len() == 1 {
            self.write_row(batch)?;
        } else {
            self.write_set(batch)?;
        }
        self.client.batch_execute("COMMIT").map_err(said)
    }

    fn totals(&mut self) -> Result<(i64, i64), String> {
        let row = self.client.query_one(TOTALS, &[]).map_err(said)?;
        Ok((row.try_get(0).map_err(said)?, row.try_get(1).map_err(said)?))
    }
}

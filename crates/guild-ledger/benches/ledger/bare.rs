//! The limit: the same rows into the same tables, in the same commits, with prepared statements and nothing else.
//! Nobody asks whether a transfer is new, or whether the money is there.

use std::path::Path;

use postgres::{Client, NoTls, Statement};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use testbed::bench::{Measured, Watch};

use crate::rows::{Batch, History};
use crate::said;

const ACCOUNT: &str = "INSERT INTO ledger_account
       (account_no, account_id, owner, purpose, asset_id, balance_limit, opened_seq, opened_ms)
     VALUES ($1, $2, $2, 'main', 'usd_micro', $3, $1, 0)";
const COLUMNS: &str =
    "(seq, transfer_id, debit_no, credit_no, units, at_ms, debit_prev_seq, credit_prev_seq,
     step, memo)";
const UPDATE: &str =
    "UPDATE ledger_account SET debits_posted = $1, credits_posted = $2, last_seq = $3
     WHERE account_no = $4";
const TOTALS: &str = "SELECT (SELECT count(*) FROM ledger_transfer),
     (SELECT CAST(sum(credits_posted) - sum(debits_posted) AS BIGINT) FROM ledger_account)";

/// A database that takes batches.
trait Bare {
    fn write(&mut self, batch: &Batch) -> Result<(), String>;
    /// How many transfers there are, and the sum over all accounts.
    fn totals(&mut self) -> Result<(i64, i64), String>;
}

pub(crate) fn on_sqlite(path: &Path, history: &History) -> Result<Measured, String> {
    let connection = Connection::open(path).map_err(said)?;
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536;";
    connection.execute_batch(pragmas).map_err(said)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(said)?;
    for migration in guild_ledger::migrations() {
        connection.execute_batch(migration.sql.lite).map_err(said)?;
    }
    let prepare = |sql: &str| connection.prepare(sql).map_err(said);
    let values = "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'post', 'bench.post')";
    let mut lite = Lite {
        begin: prepare("BEGIN IMMEDIATE")?,
        commit: prepare("COMMIT")?,
        insert: prepare(&format!("INSERT INTO ledger_transfer {COLUMNS} {values}"))?,
        update: prepare(UPDATE)?,
        totals: prepare(TOTALS)?,
    };
    for (account_no, account_id, limit) in accounts(history) {
        connection.execute(ACCOUNT, (account_no, account_id, limit)).map_err(said)?;
    }
    run(&mut lite, history)
}

pub(crate) fn on_postgres(url: &str, history: &History) -> Result<Measured, String> {
    let mut client = Client::connect(url, NoTls).map_err(said)?;
    client.batch_execute("CREATE SCHEMA bare; SET search_path = bare").map_err(said)?;
    for migration in guild_ledger::migrations() {
        client.batch_execute(migration.sql.pg).map_err(said)?;
    }
    for (account_no, account_id, limit) in accounts(history) {
        client.execute(ACCOUNT, &[&account_no, &account_id, &limit]).map_err(said)?;
    }
    let set = "SELECT *, 'post', 'bench.post' FROM unnest($1::bigint[], $2::text[], $3::bigint[],
         $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])";
    let update_set =
        "UPDATE ledger_account AS a SET debits_posted = n.debits, credits_posted = n.credits, last_seq = n.seq
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
           AS n (debits, credits, seq, account_no) WHERE a.account_no = n.account_no";
    let row = "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'post', 'bench.post')";
    let mut prepare = |sql: &str| client.prepare(sql).map_err(said);
    let statements = [
        prepare(&format!("INSERT INTO ledger_transfer {COLUMNS} {set}"))?,
        prepare(update_set)?,
        prepare(&format!("INSERT INTO ledger_transfer {COLUMNS} {row}"))?,
        prepare(UPDATE)?,
    ];
    run(&mut Pg { client, statements }, history)
}

/// Everybody but the outside world, which was opened first, stays above zero.
fn accounts(history: &History) -> impl Iterator<Item = (i64, String, &'static str)> {
    let numbers = history.before.account_no.iter().enumerate();
    numbers.map(|(i, account_no)| {
        let limit = if i == 0 { "none" } else { "never_negative" };
        (*account_no, format!("acct_{account_no:064}"), limit)
    })
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

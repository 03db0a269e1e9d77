//! The limit of a batch: the same transfers, in the same commits, as two postings and two changes of a balance each,
//! sent as two statements over the whole set. Nobody asks whether a transfer is new, or whether the money is there,
//! and nothing is remembered by its id.

use std::path::Path;

use postgres::{Client, NoTls};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use testbed::bench::{Measured, Watch};

use crate::rows::{Batch, History};
use crate::said;

const SCHEMA: &str = "CREATE TABLE account (account_no INTEGER PRIMARY KEY, units BIGINT NOT NULL);
     CREATE TABLE posting (seq INTEGER PRIMARY KEY, transfer_id TEXT NOT NULL, account_no BIGINT NOT NULL,
       units BIGINT NOT NULL, at_ms BIGINT NOT NULL);";
const TOTALS: &str =
    "SELECT (SELECT count(*) FROM posting), (SELECT CAST(sum(units) AS BIGINT) FROM account)";

pub(crate) fn on_sqlite(path: &Path, history: &History) -> Result<Measured, String> {
    const INSERT: &str = "INSERT INTO posting (transfer_id, account_no, units, at_ms)
         SELECT value ->> 0, value ->> 1, -(value ->> 3), value ->> 4 FROM json_each($1)
         UNION ALL SELECT value ->> 0, value ->> 2, value ->> 3, value ->> 4 FROM json_each($1)";
    const UPDATE: &str = "UPDATE account SET units = account.units + change.units FROM
         (SELECT account_no, sum(units) AS units FROM
            (SELECT value ->> 1 AS account_no, -(value ->> 3) AS units FROM json_each($1)
             UNION ALL SELECT value ->> 2, value ->> 3 FROM json_each($1)) GROUP BY account_no) AS change
         WHERE account.account_no = change.account_no";
    let connection = Connection::open(path).map_err(said)?;
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 8192; PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536;";
    connection.execute_batch(pragmas).map_err(said)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(said)?;
    connection.execute_batch(SCHEMA).map_err(said)?;
    for account_no in &history.before.account_no {
        let sql = "INSERT INTO account VALUES ($1, 0)";
        connection.execute(sql, [account_no]).map_err(said)?;
    }
    let prepare = |sql: &str| connection.prepare(sql).map_err(said);
    let (mut insert, mut update) = (prepare(INSERT)?, prepare(UPDATE)?);
    let (mut begin, mut commit) = (prepare("BEGIN IMMEDIATE")?, prepare("COMMIT")?);
    let measured = measure(history, |batch| {
        let rows = json(batch);
        begin.raw_execute().map_err(said)?;
        insert.execute([&rows]).map_err(said)?;
        update.execute([&rows]).map_err(said)?;
        commit.raw_execute().map(drop).map_err(said)
    })?;
    let totals: (i64, i64) =
        connection.query_row(TOTALS, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(said)?;
    check(history, totals);
    Ok(measured)
}

pub(crate) fn on_postgres(url: &str, history: &History) -> Result<Measured, String> {
    const INSERT: &str = "INSERT INTO posting (transfer_id, account_no, units, at_ms)
         SELECT id, debit, -units, at FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[],
           $5::bigint[]) AS n (id, debit, credit, units, at)
         UNION ALL SELECT id, credit, units, at FROM unnest($1::text[], $2::bigint[], $3::bigint[],
           $4::bigint[], $5::bigint[]) AS n (id, debit, credit, units, at)";
    const UPDATE: &str = "UPDATE account SET units = account.units + change.units FROM
         (SELECT account_no, CAST(sum(units) AS BIGINT) AS units FROM
            (SELECT debit AS account_no, -units AS units
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n (debit, credit, units)
             UNION ALL SELECT credit, units
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n (debit, credit, units)) AS sides
          GROUP BY account_no) AS change WHERE account.account_no = change.account_no";
    let mut client = Client::connect(url, NoTls).map_err(said)?;
    client.batch_execute("CREATE SCHEMA bare; SET search_path = bare").map_err(said)?;
    let schema = SCHEMA.replace("seq INTEGER PRIMARY KEY", "seq BIGSERIAL PRIMARY KEY");
    let schema = schema.replace("account_no INTEGER PRIMARY KEY", "account_no BIGINT PRIMARY KEY");
    client.batch_execute(&schema.replacen(");", ") WITH (fillfactor = 50);", 1)).map_err(said)?;
    let accounts = "INSERT INTO account SELECT n, 0 FROM unnest($1::bigint[]) AS n";
    client.execute(accounts, &[&history.before.account_no]).map_err(said)?;
    let insert = client.prepare(INSERT).map_err(said)?;
    let update = client.prepare(UPDATE).map_err(said)?;
    let measured = measure(history, |b| {
        client.batch_execute("BEGIN").map_err(said)?;
        let postings: [&(dyn postgres::types::ToSql + Sync); 5] =
            [&b.transfer_id, &b.debit_no, &b.credit_no, &b.units, &b.at_ms];
        client.execute(&insert, &postings).map_err(said)?;
        client.execute(&update, &[&b.debit_no, &b.credit_no, &b.units]).map_err(said)?;
        client.batch_execute("COMMIT").map_err(said)
    })?;
    let row = client.query_one(TOTALS, &[]).map_err(said)?;
    check(history, (row.try_get(0).map_err(said)?, row.try_get(1).map_err(said)?));
    Ok(measured)
}

fn measure(
    history: &History,
    mut write: impl FnMut(&Batch) -> Result<(), String>,
) -> Result<Measured, String> {
    write(&history.before)?;
    let watch = Watch::start();
    history.batches.iter().try_for_each(&mut write)?;
    let per_s = watch.per_s(history.transfers());
    Ok(Measured { name: "bare sets", per_s, result: history.result() })
}

/// A set for `json_each`: made in the loop, as whoever sends one must.
fn json(batch: &Batch) -> String {
    let mut rows = String::from("[");
    for i in 0..batch.seq.len() {
        let comma = if i == 0 { "" } else { "," };
        let (id, debit, credit) = (&batch.transfer_id[i], batch.debit_no[i], batch.credit_no[i]);
        rows +=
            &format!("{comma}[\"{id}\",{debit},{credit},{},{}]", batch.units[i], batch.at_ms[i]);
    }
    rows + "]"
}

fn check(history: &History, totals: (i64, i64)) {
    let transfers = history.transfers() + history.before.seq.len() as u64;
    let postings = i64::try_from(transfers * 2).unwrap_or(i64::MAX);
    assert_eq!(totals, (postings, 0), "what the bare sets wrote");
}

//! Fetch and complete jobs that wait in a table: 50 at a time, under a lease, several callers. The table is fresh and
//! has never been analysed.

use std::cell::RefCell;

use futures_util::future::try_join_all;
use guild_store::{
    Column, Error, Hooks, Migration, Migrations, Options, Result, Service, Sql, Store, Tx, args,
};
use testbed::bench::{Arguments, Measured, Watch};

use crate::said;

const JOBS_A_SECOND: u64 = 10_000;
const BATCH: usize = 50;
const CALLERS: usize = 8;
const NOW_MS: i64 = 1_000;
const LEASE_MS: i64 = 60_000;

/// A job is due until it is done. Whether it is due is one range of one index, so that a plan needs no statistics.
const SCHEMA: &str = "CREATE TABLE job (
         seq BIGINT PRIMARY KEY, body TEXT NOT NULL, due_ms BIGINT, token TEXT, done_ms BIGINT,
         CHECK ((due_ms IS NULL) = (done_ms IS NOT NULL)));
     CREATE INDEX job_due ON job (due_ms, seq) WHERE due_ms IS NOT NULL;";

const ENQUEUE: Sql = Sql {
    lite: "INSERT INTO job (seq, body, due_ms) VALUES ($1, $2, 0)",
    pg: "INSERT INTO job (seq, body, due_ms)
         SELECT seq, body, 0 FROM unnest($1::bigint[], $2::text[]) AS new (seq, body)",
};
const CLAIM: Sql = Sql {
    lite: "UPDATE job SET due_ms = $2, token = $3 WHERE seq IN
             (SELECT seq FROM job WHERE due_ms <= $1 ORDER BY due_ms, seq LIMIT 50)
           RETURNING seq, body",
    pg: "UPDATE job SET due_ms = $2, token = $3 WHERE seq = ANY (ARRAY
           (SELECT seq FROM job WHERE due_ms <= $1 ORDER BY due_ms, seq LIMIT 50))
         RETURNING seq, body",
};
const COMPLETE: Sql = Sql {
    lite: "UPDATE job SET due_ms = NULL, token = NULL, done_ms = $3 WHERE seq = $1 AND token = $2",
    pg: "UPDATE job SET due_ms = NULL, token = NULL, done_ms = done.done_ms
         FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS done (seq, token, done_ms)
         WHERE job.seq = done.seq AND job.token = done.token",
};

pub(crate) fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let count = arguments.seconds.max(1) * JOBS_A_SECOND;
    let migration =
        Migration { area: "bench", number: 1, name: "jobs", sql: Sql { lite: SCHEMA, pg: SCHEMA } };
    let migrations = Migrations::store().and([migration]);
    let options = Options::at(arguments.postgres_url()?);
    let service = Service::open(&options, &migrations, Hooks::default(), 0).map_err(said)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(said)?;
    let per_s = runtime.block_on(do_all(&service.handle(), count)).map_err(said)?;
    service.close();
    Ok(vec![Measured { name: "guild", per_s, result: format!("{count} jobs done once") }])
}

async fn do_all(store: &Store, count: u64) -> Result<f64> {
    let seqs: Vec<i64> = (0..count).map(|seq| i64::try_from(seq).unwrap_or(i64::MAX)).collect();
    for some in seqs.chunks(1_000) {
        let some = some.to_vec();
        store.write(move |tx| enqueue(tx, &some)).await?;
    }
    let done = RefCell::new(vec![0_u32; seqs.len()]);
    let watch = Watch::start();
    try_join_all((0..CALLERS).map(|caller| call(store, &done, caller))).await?;
    let per_s = watch.per_s(count);
    assert!(done.borrow().iter().all(|times| *times == 1), "a job was lost or done twice");
    let sql = "SELECT count(*) FROM job WHERE done_ms IS NOT NULL AND due_ms IS NULL";
    let stored = store.read(move |rx| rx.first::<(i64,)>(sql, args![])).await?;
    assert_eq!(stored.map(|(done,)| done), i64::try_from(count).ok(), "jobs that are done");
    Ok(per_s)
}

async fn call(store: &Store, done: &RefCell<Vec<u32>>, caller: usize) -> Result<()> {
    for lease in 0_u64.. {
        let token = format!("lease_{caller:04}_{lease:016}");
        let claimed = {
            let token = token.clone();
            store.write(move |tx| claim(tx, &token)).await?
        };
        if claimed.is_empty() {
            return Ok(());
        }
        for (seq, body) in &claimed {
            assert_eq!(body.len(), 200, "a job came without its body");
            let times =
                usize::try_from(*seq).map(|seq| done.borrow_mut().get_mut(seq).map(|t| *t += 1));
            assert_eq!(times, Ok(Some(())), "a job that nobody enqueued");
        }
        let seqs: Vec<i64> = claimed.iter().map(|(seq, _)| *seq).collect();
        store.write(move |tx| complete(tx, &seqs, &token)).await?;
    }
    Ok(())
}

fn enqueue(tx: &mut Tx<'_>, seqs: &[i64]) -> Result<()> {
    let body = "x".repeat(200);
    let bodies = vec![body.as_str(); seqs.len()];
    tx.exec_set(ENQUEUE, &[Column::Ints(seqs), Column::Texts(&bodies)]).map(drop)
}

fn claim(tx: &mut Tx<'_>, token: &str) -> Result<Vec<(i64, String)>> {
    let claimed = tx.all(CLAIM, args![NOW_MS, NOW_MS + LEASE_MS, token])?;
    assert!(claimed.len() <= BATCH, "more than a batch");
    Ok(claimed)
}

/// Whoever has lost the lease of one of them completes none.
fn complete(tx: &mut Tx<'_>, seqs: &[i64], token: &str) -> Result<()> {
    let (tokens, times) = (vec![token; seqs.len()], vec![NOW_MS; seqs.len()]);
    let columns = [Column::Ints(seqs), Column::Texts(&tokens), Column::Ints(&times)];
    match tx.exec_set(COMPLETE, &columns)? {
        changed if changed == seqs.len() as u64 => Ok(()),
        _ => Err(Error::Fenced),
    }
}

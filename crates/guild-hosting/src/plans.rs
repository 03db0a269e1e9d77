//! Every statement that a meter or a driver asks again and again finds its rows by an index, on both databases.

use guild_store::{Engine, Hooks, Migrations, Options, Rx, Service, Val};

use crate::{job, meter, money, pace, sandbox};

const TEXT: Val<'static> = Val::Text("1");
const INT: Val<'static> = Val::Int(1);

/// Each with arguments.
fn statements() -> Vec<(&'static str, Vec<Val<'static>>)> {
    vec![
        (meter::DUE, vec![INT, INT]),
        (job::DUE, vec![INT, INT]),
        (sandbox::OPEN, vec![TEXT, INT]),
        (money::BURN, vec![TEXT]),
        (pace::PACE, vec![TEXT]),
        (sandbox::OPEN_OF_ALL, vec![TEXT, INT]),
        (sandbox::BURN_OF_ALL, vec![TEXT]),
    ]
}

/// There is no index on prices.
const NO_INDEX: &str = "SELECT sandbox_id FROM hosting_sandbox WHERE price = $1";

/// What the database means to do.
fn plan(rx: &mut Rx<'_>, sql: &str, args: &[Val<'_>]) -> guild_store::Result<String> {
    let explained = |explain: &str| -> &'static str { format!("{explain} {sql}").leak() };
    if rx.engine() == Engine::Sqlite {
        let rows: Vec<(i64, i64, i64, String)> = rx.all(explained("EXPLAIN QUERY PLAN"), args)?;
        return Ok(rows.into_iter().map(|row| row.3).collect::<Vec<_>>().join("\n"));
    }
    let rows: Vec<(String,)> = rx.all(explained("EXPLAIN (COSTS OFF)"), args)?;
    Ok(rows.into_iter().map(|row| row.0).collect::<Vec<_>>().join("\n"))
}

fn check(options: &Options) {
    let all = Migrations::store().and(guild_ledger::migrations()).and(crate::migrations());
    let service = Service::open(options, &all, Hooks::default(), 0).unwrap();
    let asked = service.handle().write(move |tx| {
        if tx.engine() == Engine::Postgres {
            // An empty table is best read whole: that says nothing about a full one.
            tx.exec("SET LOCAL enable_seqscan = off", &[])?;
        }
        let planted = plan(tx, NO_INDEX, &[INT])?;
        let plans = statements().into_iter().map(|(sql, args)| plan(tx, sql, &args));
        Ok((planted, plans.collect::<guild_store::Result<Vec<String>>>()?))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let asked: guild_store::Result<(String, Vec<String>)> = runtime.block_on(asked);
    service.close();
    let (planted, plans) = asked.unwrap();
    // What a subquery has found is no table.
    let reads_all = |plan: &str| {
        plan.contains("Seq Scan")
            || plan.lines().any(|line| line.starts_with("SCAN ") && line != "SCAN r")
            || plan.contains("SCAN hosting_sandbox")
    };
    assert!(reads_all(&planted), "{planted}");
    for plan in &plans {
        assert!(!reads_all(plan), "{plan}");
    }
    assert!(plans[0].contains("hosting_run_due"), "{}", plans[0]);
    assert!(plans[1].contains("hosting_job_due"), "{}", plans[1]);
    assert!(plans[2].contains("hosting_sandbox_open"), "{}", plans[2]);
}

#[test]
fn rows_are_found_by_an_index_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    check(&Options::file(&dir.path().join("node.db")));
}

#[test]
fn rows_are_found_by_an_index_on_postgres() {
    check(&Options::at(&testbed::Database::new().unwrap().url()));
}

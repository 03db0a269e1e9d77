//! Every statement that turns and sweeps run again and again finds its rows by an index, on both databases.

use guild_store::{Column, Engine, Hooks, Migrations, Options, Rx, Service, Sql, Val};

use crate::outside::doorbell;
use crate::row::{Holds, Statement};
use crate::turn::{recall, statements, sweep};
use crate::{story, worker};

const INT: Val<'static> = Val::Int(1);
const TEXT: Val<'static> = Val::Text("");

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

/// The same for a statement about a set of one row.
fn plan_of_set(rx: &mut Rx<'_>, statement: &'static Statement) -> guild_store::Result<String> {
    let leak = |explain: &str, sql: &str| -> &'static str { format!("{explain} {sql}").leak() };
    let sql = statement.sql();
    let sql =
        Sql { lite: leak("EXPLAIN QUERY PLAN", sql.lite), pg: leak("EXPLAIN (COSTS OFF)", sql.pg) };
    let column = |holds: &Holds| match holds {
        Holds::Text => Column::Texts(&["1"]),
        Holds::Int => Column::Ints(&[1]),
    };
    let columns: Vec<Column<'_>> = statement.width().iter().map(column).collect();
    if rx.engine() == Engine::Sqlite {
        let rows: Vec<(i64, i64, i64, String)> = rx.all_set(sql, &columns)?;
        return Ok(rows.into_iter().map(|row| row.3).collect::<Vec<_>>().join("\n"));
    }
    if statement.sql().pg == statement.sql().lite {
        let one: Vec<Val<'_>> = columns.iter().map(|column| column.val(0)).collect();
        return plan(rx, statement.sql().pg, &one);
    }
    let rows: Vec<(String,)> = rx.all_set(sql, &columns)?;
    Ok(rows.into_iter().map(|row| row.0).collect::<Vec<_>>().join("\n"))
}

/// There is no index on authors.
const NO_INDEX: &str = "SELECT card_id FROM cards WHERE created_ms = $1";

const SWEEPS: [(&str, &[Val<'static>], &str); 11] = [
    (sweep::LEASES, &[INT, INT], "agent_state_head_running"),
    (sweep::CALLS, &[INT, INT], "turn_waiting_tools_due"),
    (sweep::STOPS, &[INT, INT], "agent_inbox_stops"),
    (sweep::STUCK, &[INT, INT], "agent_state_head_suspended"),
    (sweep::BATCHES, &[INT, INT], "pmo_batches_due"),
    (sweep::QUEUES, &[TEXT, TEXT, INT], "agent_inbox_queued"),
    (recall::DISPATCHED, &[TEXT, INT], "agent_state_head_dispatched"),
    (recall::STOPS, &[INT], "agent_inbox_stops"),
    (recall::LEASES, &[INT, INT], "agent_state_head_running"),
    (recall::CALLS, &[INT], "turn_waiting_tools_due"),
    (recall::SUSPENDED, &[INT], "agent_state_head_suspended"),
];

/// What a subquery has found is no table, and an index that has only what is wanted may be read whole.
fn reads_all(plan: &str) -> bool {
    let found = ["SCAN a", "SCAN awaited"];
    let scans =
        |line: &str| line.starts_with("SCAN ") && !line.contains("INDEX") && !found.contains(&line);
    plan.contains("Seq Scan") || plan.lines().any(scans)
}

fn check(options: &Options) {
    let all = Migrations::store().and(crate::migrations());
    let service = Service::open(options, &all, Hooks::default(), 0).unwrap();
    let asked = service.handle().write(move |tx| {
        if tx.engine() == Engine::Postgres {
            // An empty table is best read whole: that says nothing about a full one.
            tx.exec("SET LOCAL enable_seqscan = off", &[])?;
        }
        let planted = plan(tx, NO_INDEX, &[INT])?;
        let mut plans = Vec::new();
        for (sql, arguments, index) in SWEEPS {
            plans.push((plan(tx, sql, arguments)?, index));
        }
        let told = story::statements().into_iter().map(|statement| &**statement);
        let heard = doorbell::statements().into_iter().map(|statement| &**statement);
        let told = told.chain(heard);
        for statement in statements().into_iter().chain(worker::statements()).chain(told) {
            plans.push((plan_of_set(tx, statement)?, ""));
        }
        Ok((planted, plans))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let asked: guild_store::Result<(String, Vec<(String, &str)>)> = runtime.block_on(asked);
    service.close();
    let (planted, plans) = asked.unwrap();
    assert!(reads_all(&planted), "{planted}");
    assert!(plans.len() > 20);
    for (plan, index) in &plans {
        assert!(!reads_all(plan), "{plan}");
        assert!(plan.contains(index), "{index} is not in {plan}");
    }
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

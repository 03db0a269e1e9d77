//! Every statement that may meet a large table finds its rows by an index, on both databases.

use guild_store::{Column, Engine, Hooks, Migrations, Options, Rx, Service, Sql};

use super::put::{load, save};
use super::{query, sweep};
use crate::index;

/// Each with how many arguments it has.
fn statements() -> Vec<(Sql, usize)> {
    let mut all = load::STATEMENTS.to_vec();
    all.extend(save::STATEMENTS);
    all.extend(query::STATEMENTS);
    all.extend(sweep::STATEMENTS.map(|(sql, arguments)| (Sql::from(sql), arguments)));
    all.extend(index::STATEMENTS.map(|(sql, arguments)| (Sql::from(sql), arguments)));
    all.extend(index::GLANCES);
    all.extend(index::OFFERS);
    all.extend(index::ANNOUNCED);
    all
}

/// What the database means to do. Both are asked with ones.
fn plan(rx: &mut Rx<'_>, sql: Sql, arguments: usize) -> guild_store::Result<Option<String>> {
    let column = |n| match sql.pg.contains(&format!("${n}::text[]")) {
        true => Column::Texts(&["1"]),
        false => Column::Ints(&[1]),
    };
    let columns: Vec<Column<'_>> = (1..=arguments).map(column).collect();
    let explained =
        |explain: &str, sql: &str| -> &'static str { format!("{explain} {sql}").leak() };
    if rx.engine() == Engine::Sqlite {
        let text = explained("EXPLAIN QUERY PLAN", sql.lite);
        let rows: Vec<(i64, i64, i64, String)> = rx.all_set(text, &columns)?;
        return Ok(Some(rows.into_iter().map(|row| row.3).collect::<Vec<_>>().join("\n")));
    }
    if !sql.pg.contains("bigint[]") {
        return Ok(None);
    }
    let text = explained("EXPLAIN (COSTS OFF)", sql.pg);
    let rows: Vec<(String,)> = rx.all_set(text, &columns)?;
    Ok(Some(rows.into_iter().map(|row| row.0).collect::<Vec<_>>().join("\n")))
}

fn plans(options: &Options, more: Option<Sql>) -> Vec<String> {
    let all = Migrations::store().and(crate::migrations());
    let service = Service::open(options, &all, Hooks::default(), 0).unwrap();
    let asked = service.handle().write(move |tx| {
        if tx.engine() == Engine::Postgres {
            // An empty table is best read whole: that says nothing about a full one.
            tx.exec("SET LOCAL enable_seqscan = off", &[])?;
        }
        let statements = statements().into_iter().chain(more.map(|sql| (sql, 1)));
        statements.filter_map(|(sql, arguments)| plan(tx, sql, arguments).transpose()).collect()
    });
    let plans: guild_store::Result<Vec<String>> =
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(asked);
    service.close();
    plans.unwrap()
}

/// Whether a table is read whole; what a subquery has found, or an argument lists, is none.
fn reads_all(plan: &str) -> bool {
    let after = |word: &'static str| plan.lines().filter_map(move |line| line.strip_prefix(word));
    let found: Vec<&str> =
        after("CO-ROUTINE ").chain(after("MATERIALIZE ")).chain(["CONSTANT ROW"]).collect();
    plan.contains("Seq Scan")
        || after("SCAN ")
            .any(|scanned| !found.contains(&scanned) && !scanned.starts_with("json_each "))
}

/// There is no index on sizes.
const NO_INDEX: Sql = Sql {
    lite: "SELECT seq FROM nostr_event WHERE bytes = $1",
    pg: "SELECT seq FROM nostr_event WHERE bytes = ANY ($1::bigint[])",
};

fn check(options: &Options) {
    let plans = plans(options, Some(NO_INDEX));
    let (planted, plans) = plans.split_last().unwrap();
    assert!(reads_all(planted), "{planted}");
    assert!(plans.len() >= 11);
    for plan in plans {
        assert!(!reads_all(plan), "{plan}");
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

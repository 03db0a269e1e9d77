use guild_ledger::migrations;
use guild_store::{Db, Migrations, Sqlite};

/// A database as the first form of the schema left it.
fn first_form(path: &std::path::Path) -> Sqlite {
    let mut db = Sqlite::open(path).unwrap();
    let first = migrations().into_iter().take(1);
    Migrations::store().and(first).apply(&mut db, 1).unwrap();
    db
}

#[test]
fn an_empty_ledger_of_the_first_form_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = first_form(&dir.path().join("node.db"));
    let all = Migrations::store().and(migrations());
    all.apply(&mut db, 2).unwrap();
    all.check(&mut db).unwrap();
    db.exec("INSERT INTO ledger_hold (seq, expires_ms) VALUES (1, 2)", &[]).unwrap();
}

#[test]
fn a_ledger_of_the_first_form_that_holds_anything_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = first_form(&dir.path().join("node.db"));
    db.exec(
        "INSERT INTO ledger_account (account_id, owner, purpose, asset_id, balance_limit, opened_ms)
         VALUES ('a', 'a', 'main', 'USD_MICRO', 'none', 0)",
        &[],
    )
    .unwrap();
    let refused = Migrations::store().and(migrations()).apply(&mut db, 2).unwrap_err();
    assert!(refused.to_string().contains("ledger/0002_history"), "{refused}");
    assert_eq!(db.exec("UPDATE ledger_account SET opened_ms = 1", &[]), Ok(1));
}

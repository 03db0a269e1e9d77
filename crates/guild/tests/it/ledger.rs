#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger, migrations};
use guild_protocol::amount::{Amount, AssetId};
use guild_store::{Db, Hooks, Migrations, Options, Service, Sqlite};
use insta::assert_snapshot;

use crate::support::Home;

/// A data directory with a deposit of 100 in its ledger.
fn home_with_money() -> (Home, std::path::PathBuf) {
    let home = Home::new();
    assert_eq!(home.run(&["log", "append", "test.done"]).code, 0);
    let file = home.path().join(".local/share/guildhall/node.db");
    let all = Migrations::store().and(migrations());
    let service = Service::open(&Options::file(&file), &all, Hooks::default(), 0).unwrap();
    let account = |owner, limit| Account::new(owner, "main", AssetId::usd_micro(), limit).unwrap();
    let booked = service.handle().write(move |tx| {
        let (from, to) = (account("outside", Limit::None), account("ann", Limit::NeverNegative));
        ledger::open(tx, &from, 0)?;
        ledger::open(tx, &to, 0)?;
        let (debit, credit) = (from.account_id, to.account_id);
        let step = Step::Post { debit, credit, amount: Amount::new(AssetId::usd_micro(), 100) };
        let transfer = NewTransfer::new(TransferId::named(5, &["deposit"]), step, "deposit")?;
        ledger::book(tx, &[vec![transfer]], 5).map(|_| ())
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(booked).unwrap();
    service.close();
    (home, file)
}

#[test]
fn accounts_are_listed_and_an_honest_ledger_holds() {
    let (home, _) = home_with_money();
    let listed = home.run(&["ledger", "accounts"]).stdout;
    let rows: Vec<&str> = listed.lines().map(str::trim_start).collect();
    assert_eq!(
        rows,
        [
            "100 USD_MICRO    ann / main  (free 100)",
            "-100 USD_MICRO    outside / main  (free -100)"
        ]
    );
    assert_snapshot!(home.run(&["ledger", "audit"]).shown(&home).trim_end(), @r"
    exit 0
    --- stdout
    the ledger holds: 1 transfers between 2 accounts
    ");
    let (code, answer) = home.json(&["ledger", "audit"]);
    assert_eq!((code, &answer["transfers"]), (0, &serde_json::json!(1)));
}

#[test]
fn a_ledger_that_was_tampered_with_is_answered_no() {
    let (home, file) = home_with_money();
    let mut db = Sqlite::open(&file).unwrap();
    db.exec("UPDATE ledger_account SET credits_posted = 101 WHERE owner = 'ann'", &[]).unwrap();
    drop(db);
    let run = home.run(&["ledger", "audit"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("does NOT hold") && run.stdout.contains("not zero"), "{run:?}");
}

#[test]
fn without_a_database_there_is_a_typed_error() {
    let home = Home::new();
    let run = home.run(&["ledger", "accounts"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("error[node.no_database]"), "{run:?}");
}

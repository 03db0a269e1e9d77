#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use guild_ledger::{Account, AccountId, Limit, NewTransfer, Step, TransferId, ledger, migrations};
use guild_protocol::amount::{Amount, AssetId};
use guild_store::{Db, Hooks, Migrations, Options, Service, Sqlite};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::node::{ANY_PORT, Node};
use crate::support::{Home, Run};

/// A data directory with a deposit of 100 in its ledger.
fn home_with_money() -> (Home, std::path::PathBuf) {
    let home = Home::new();
    assert_eq!(home.run(&["log", "append", "test.done"]).code, 0);
    let file = home.path().join(".local/share/guildhall/node.db");
    let amount = Amount::new(AssetId::usd_micro(), 100);
    book(&file, move |debit, credit| Step::Post { debit, credit, amount: amount.clone() });
    (home, file)
}

/// Books one step between the outside world and Ann, at a time long past.
fn book(file: &std::path::Path, step: impl Fn(AccountId, AccountId) -> Step + Send + 'static) {
    let all = Migrations::store()
        .and(migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations())
        .and(guild_hosting::migrations())
        .and(guild_kernel::migrations());
    let service = Service::open(&Options::file(file), &all, Hooks::default(), 0).unwrap();
    let account = |owner, limit| Account::new(owner, "main", AssetId::usd_micro(), limit).unwrap();
    let booked = service.handle().write(move |tx| {
        let (from, to) = (account("outside", Limit::None), account("ann", Limit::NeverNegative));
        ledger::open(tx, &from, 0)?;
        ledger::open(tx, &to, 0)?;
        let step = step(from.account_id, to.account_id);
        let id = TransferId::named(5, &[step.name().as_str()]);
        let transfer = NewTransfer::new(id, step, "deposit")?;
        ledger::book(tx, &[vec![transfer]], 5)?.pop().unwrap()
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(booked).unwrap();
    service.close();
}

#[test]
fn accounts_are_listed_and_an_honest_ledger_holds() {
    let (home, _) = home_with_money();
    assert_snapshot!(home.run(&["ledger", "accounts"]).shown(&home), @"
    exit 0
    --- stdout
    owner    purpose  asset      balance  free  held  reserve  credit
    ann      main     USD_MICRO      100   100     0        -       -
    outside  main     USD_MICRO     -100  -100     0        -       -
    ");
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

/// Runs a command of the ledger that must succeed.
fn did(home: &Home, args: &[&str]) -> Value {
    let (code, answer) = home.json(&[&["ledger"], args].concat());
    assert_eq!(code, 0, "{args:?}: {answer}");
    answer
}

/// Runs one that must be refused.
fn refused(home: &Home, args: &[&str]) -> Run {
    let run = home.run(&[&["ledger"], args].concat());
    assert_eq!(run.code, 2, "{args:?}: {run:?}");
    run.assert_no_panic();
    run
}

const USD: [&str; 2] = ["--asset", "USD_MICRO"];

/// A home with accounts of the outside world, Ann and Bob, all by commands; Ann has 1000.
fn home_by_commands() -> Home {
    let home = Home::new();
    let opened =
        did(&home, &["open", "outside", "main", "--asset", "USD_MICRO", "--limit", "none"]);
    assert_eq!((&opened["outcome"], &opened["seq"]), (&json!("new"), &json!(1)));
    for owner in ["ann", "bob"] {
        did(&home, &[&["open", owner, "main"], &USD[..]].concat());
    }
    did(
        &home,
        &[
            "transfer",
            "--from",
            "outside/main",
            "--to",
            "ann/main",
            "--units",
            "1000",
            "--memo",
            "deposit",
        ],
    );
    home
}

fn balance(home: &Home, owner: &str) -> (String, String) {
    let all = did(home, &["accounts"]);
    let account = all["accounts"].as_array().unwrap().iter().find(|a| a["owner"] == owner).unwrap();
    let text = |field: &str| account[field].as_str().unwrap().to_owned();
    (text("units"), text("free_units"))
}

#[test]
fn a_transfer_with_an_id_is_booked_once_with_and_without_a_node() {
    let home = home_by_commands();
    let id = format!("xfer_{:032x}", 7);
    let args = [
        "ledger", "transfer", "--from", "ann/main", "--to", "bob/main", "--units", "250", "--id",
        &id,
    ];
    assert_snapshot!(home.run(&args).shown(&home), @"
    exit 0
    --- stdout
    xfer_00000000000000000000000000000007  moved 250, number 5
    ");
    let node = Node::up(&home, &ANY_PORT);
    assert_snapshot!(home.run(&args).shown(&home), @"
    exit 0
    --- stdout
    xfer_00000000000000000000000000000007  moved 250, number 5; it was booked before, and nothing changed
    ");
    let other = home.run(&[&args[..6], &["--units", "251", "--id", &id]].concat());
    assert!(other.stderr.contains("error[ledger.transfer_conflict]"), "{other:?}");
    did(&home, &["transfer", "--from", "ann/main", "--to", "bob/main", "--units", "50"]);
    let open = did(&home, &["open", "ann", "main", "--asset", "USD_MICRO"]);
    assert_eq!(open["outcome"], "known");
    assert_eq!(node.stop(), 0);
    assert_eq!(balance(&home, "bob"), ("300".to_owned(), "300".to_owned()));
    assert_eq!(home.run(&["ledger", "audit"]).code, 0);
}

#[test]
fn a_hold_is_settled_or_voided_once() {
    let home = home_by_commands();
    let hold = |units: &str, until: &str| {
        let args = ["transfer", "--from", "ann/main", "--to", "bob/main", "--units", units];
        let told = did(&home, &[&args[..], &["--hold-until", until]].concat());
        told["transfer_id"].as_str().unwrap().to_owned()
    };
    let (settled, voided) = (hold("400", "2h"), hold("100", "7d"));
    assert_eq!(balance(&home, "ann"), ("1000".to_owned(), "500".to_owned()));
    for outcome in ["new", "known"] {
        let told = did(&home, &["settle", &settled, "--units", "300"]);
        assert_eq!((&told["outcome"], &told["units"]), (&json!(outcome), &json!("300")));
        assert_eq!(did(&home, &["void", &voided])["outcome"], outcome);
    }
    let closed = refused(&home, &["void", &settled]);
    assert!(closed.stderr.contains("error[ledger.hold_closed]"), "{closed:?}");
    let unknown = refused(&home, &["settle", &format!("xfer_{:032x}", 1)]);
    assert!(unknown.stderr.contains("error[ledger.unknown_hold]"), "{unknown:?}");
    let moving = [
        "transfer",
        "--from",
        "ann/main",
        "--to",
        "bob/main",
        "--units",
        "1",
        "--hold-until",
        "2h",
    ];
    let moving = refused(&home, &[&moving[..], &["--id", &settled]].concat());
    assert!(moving.stderr.contains("help: Write --hold-until 2"), "{moving:?}");
    assert_eq!(home.run(&["ledger", "audit"]).code, 0);
}

#[test]
fn a_node_gives_back_by_itself_what_has_run_out() {
    let (home, file) = home_with_money();
    book(&file, |from, to| Step::Hold {
        debit: to,
        credit: from,
        amount: Amount::new(AssetId::usd_micro(), 30),
        expires_ms: 10,
    });
    assert_eq!(balance(&home, "ann"), ("100".to_owned(), "70".to_owned()));
    let node = Node::up(&home, &ANY_PORT);
    while balance(&home, "ann").1 != "100" {}
    assert_eq!(node.stop(), 0);
    let newest = &did(&home, &["statement", "ann/main"])["lines"][0];
    assert_eq!((&newest["step"], &newest["units"]), (&json!("expire"), &json!("30")));
    assert_eq!(home.run(&["ledger", "audit"]).code, 0);
}

#[test]
fn a_rule_binds_and_the_accounts_show_it() {
    let home = home_by_commands();
    did(&home, &["rule", "ann/main", "--reserve", "900", "--lets-through", "fees,sandboxes"]);
    assert_eq!(did(&home, &["rule", "ann/main", "--credit", "0"])["outcome"], "new");
    assert_eq!(did(&home, &["rule", "ann/main", "--credit", "0"])["outcome"], "known");
    let pay = ["transfer", "--from", "ann/main", "--to", "bob/main", "--units", "101"];
    let gated = refused(&home, &pay);
    assert!(
        gated.stderr.contains("error[ledger.gated]: 899 would stay free, the gate keeps 900"),
        "{gated:?}"
    );
    let all = did(&home, &["accounts"]);
    assert_eq!(all["accounts"][0]["lets_through"], json!(["fees", "sandboxes"]));
    assert_snapshot!(home.run(&["ledger", "accounts"]).stdout, @"
    owner    purpose  asset      balance   free  held  reserve  credit
    ann      main     USD_MICRO     1000   1000     0      900       0
    bob      main     USD_MICRO        0      0     0        -       -
    outside  main     USD_MICRO    -1000  -1000     0        -       -
    ");
    did(&home, &["rule", "ann/main", "--clear"]);
    did(&home, &pay);
}

#[test]
fn a_statement_tells_what_went_through_an_account() {
    let home = home_by_commands();
    let told = did(
        &home,
        &[
            "transfer",
            "--from",
            "ann/main",
            "--to",
            "bob/main",
            "--units",
            "400",
            "--memo",
            "job.escrow",
            "--hold-until",
            "2h",
        ],
    );
    did(&home, &["settle", told["transfer_id"].as_str().unwrap(), "--units", "250"]);
    did(
        &home,
        &[
            "transfer", "--from", "bob/main", "--to", "ann/main", "--units", "50", "--memo",
            "refund",
        ],
    );
    let shown = home.run(&["ledger", "statement", "ann/main"]).stdout;
    let without_times: Vec<String> = shown
        .lines()
        .map(|line| match line.find("Z  ") {
            Some(end) => format!("{}TIME{}", &line[..end - 23], &line[end + 1..]),
            None => line.to_owned(),
        })
        .collect();
    assert_snapshot!(without_times.join("\n"), @"
    ann/main, in USD_MICRO
    number  time                      step      in    out  balance  held  counterparty  memo
         7  TIME  post      50             800     0  bob/main      refund
         6  TIME  settle          250      750     0  bob/main      hold.settle
         5  TIME  hold          (400)     1000   400  bob/main      job.escrow
         4  TIME  post    1000            1000     0  outside/main  deposit
    ");
    let page = did(&home, &["statement", "ann/main", "-n", "2", "--before", "7"]);
    let lines = page["lines"].as_array().unwrap();
    let seqs: Vec<i64> = lines.iter().map(|line| line["seq"].as_i64().unwrap()).collect();
    assert_eq!((seqs, &page["next_before"]), (vec![6, 5], &json!(5)));
    assert_eq!(
        (&lines[0]["out_units"], &lines[0]["balance_units"]),
        (&json!("250"), &json!("750"))
    );
    let by_id = did(&home, &["statement", page["account_id"].as_str().unwrap()]);
    assert_eq!(by_id["lines"].as_array().unwrap().len(), 4);
    assert_eq!(
        home.run(&["ledger", "statement", "bob/main", "--before", "1"]).stdout,
        "bob/main, in USD_MICRO\nnothing went through it\n"
    );
}

#[test]
fn a_mistake_is_told_with_what_to_do() {
    let home = home_by_commands();
    did(&home, &["open", "ann", "main", "--asset", "BTC_LN"]);
    did(&home, &["open", "ann", "spare", "--asset", "BTC_LN"]);
    let transfer = |from: &str, to: &str, more: &[&str]| {
        refused(&home, &[&["transfer", "--from", from, "--to", to], more].concat()).shown(&home)
    };
    assert_snapshot!(transfer("anm/main", "bob/main", &["--units", "1"]), @r#"
    exit 2
    --- stderr
    error[ledger.unknown_account]: there is no account anm/main; near it: ann/main, bob/main
    help: `guild ledger accounts` lists those that exist; `guild ledger open "anm" "main" --asset ASSET` opens this one.
    "#);
    assert_snapshot!(transfer("ann/main", "bob/main", &["--units", "1"]), @"
    exit 2
    --- stderr
    error[ledger.malformed]: there are several accounts ann/main, for BTC_LN, USD_MICRO
    help: Say which one with --asset.
    ");
    assert_snapshot!(transfer("ann/main", "bob/main", &["--units", "1", "--asset", "BTC_LN"]), @"
    exit 2
    --- stderr
    error[ledger.wrong_asset]: bob/main counts USD_MICRO, not BTC_LN
    help: Move each asset between its own accounts; conversion needs a rail with a rate.
    ");
    assert_snapshot!(transfer("ann/spare", "bob/main", &["--units", "1"]), @"
    exit 2
    --- stderr
    error[ledger.wrong_asset]: ann/spare counts BTC_LN, bob/main counts USD_MICRO
    help: Move each asset between its own accounts; conversion needs a rail with a rate.
    ");
    assert_snapshot!(transfer("bob/main", "ann/main", &["--units", "1", "--asset", "USD_MICRO"]), @"
    exit 2
    --- stderr
    error[ledger.overdraft]: main of bob has 0 free
    help: Deposit first, or transfer less.
    ");
    for units in ["0", "-5", "1.5", "9223372036854775808", "lots", ""] {
        let told = transfer("ann/main", "bob/main", &["--units", units, "--asset", "USD_MICRO"]);
        assert!(told.contains("error[cli.usage]") && told.contains("--units"), "{told}");
    }
    let more = ["--units", "9223372036854775807", "--asset", "USD_MICRO"];
    let over = transfer("outside/main", "ann/main", &more);
    assert!(over.contains("error[ledger.overflow]"), "{over}");
    for (from, to) in [("ann", "bob/main"), ("acct_1", "bob/main"), ("/main", "bob/main")] {
        let told = transfer(from, to, &["--units", "1"]);
        assert!(told.contains("error[cli.usage]"), "{told}");
    }
    let same = transfer("bob/main", "bob/main", &["--units", "1"]);
    assert!(same.contains("error[ledger.same_account]"), "{same}");
    for args in [
        &["rule", "ann/main"][..],
        &["rule", "bob/main", "--reserve", "-1"],
        &["rule", "bob/main", "--lets-through", "x"],
        &["open", "zoe", "main", "--asset", "USD"],
        &["open", "", "main", "--asset", "USD_MICRO"],
        &["open", "zoe", "main", "--asset", "USD_MICRO", "--limit", "some"],
        &["statement", "bob/main", "-n", "0"],
        &["statement", "zoe/main"],
        &["export", "--force"],
        &["export", "a", "--evidence", "b"],
        &["export", "/nowhere/at/all"],
    ] {
        refused(&home, args);
    }
    assert_eq!(did(&home, &["accounts"])["accounts"].as_array().unwrap().len(), 5);
    assert_eq!(home.run(&["ledger", "audit"]).code, 0);
}

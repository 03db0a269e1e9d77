//! `guild audit` over the books of a node that sold sandboxes: silent when all is well, and it names every kind of lie.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::path::PathBuf;

use guild_hosting::clamp::Policy;
use guild_hosting::job::{self, NewJob};
use guild_hosting::price::Shape;
use guild_hosting::sandbox::{self, NewSandbox, SecurityMode};
use guild_hosting::{UserId, meter, money};
use guild_ledger::{NewTransfer, Step, TransferId, ledger};
use guild_protocol::amount::{Amount, AssetId};
use guild_store::{Db, Hooks, Migrations, Options, Service, Sqlite, Tx};
use insta::assert_snapshot;

use crate::support::Home;

const T0: i64 = 1_768_465_800_000;
const MINUTE_MS: i64 = 60_000;

fn file(home: &Home) -> PathBuf {
    home.path().join(".local/share/guildhall/node.db")
}

fn write<T: Send + 'static>(
    home: &Home,
    run: impl Fn(&mut Tx<'_>) -> guild_hosting::Result<T> + Send + 'static,
) -> T {
    let all = Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations())
        .and(guild_hosting::migrations())
        .and(guild_kernel::migrations());
    let service = Service::open(&Options::file(&file(home)), &all, Hooks::default(), 0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let done = runtime.block_on(service.handle().write(run));
    service.close();
    done.unwrap()
}

fn user() -> UserId {
    UserId::of_wallet([1; 20])
}

fn named(prefix: &str) -> String {
    format!("{prefix}_{:032x}", 1)
}

/// A node that sold three minutes of a sandbox, which still runs.
fn home() -> Home {
    let home = Home::new();
    assert_eq!(home.run(&["log", "append", "test.begins"]).code, 0);
    write(&home, |tx| {
        let policy = Policy::default();
        money::credit(tx, &user(), 10_000, "wire", T0)?;
        let new_job = NewJob {
            job_id: named("job").parse()?,
            user_id: user(),
            name: "job".to_owned(),
            max_spend: 8_000,
            ttl_ms: 3_600_000,
            idle_timeout_ms: None,
        };
        job::create(tx, &new_job, &policy, T0)?;
        let new_sandbox = NewSandbox {
            sandbox_id: named("sbx").parse()?,
            quote_id: named("quote").parse()?,
            job_id: new_job.job_id,
            user_id: user(),
            shape: Shape { cpu_milli: 1_000, ram_mib: 1_024, disk_mib: 64 },
            cap: 5_000,
            ttl_ms: 3_600_000,
            idle_timeout_ms: None,
            image: "sandbox-base:v1.0.0".to_owned(),
            image_digest: "host".to_owned(),
            security_mode: SecurityMode::Standard,
            machine: "local".to_owned(),
        };
        sandbox::create(tx, &new_sandbox, &policy, T0)?;
        sandbox::started(tx, &new_sandbox.sandbox_id, "127.0.0.1:1", "key", T0)?;
        for minute in 1..3 {
            meter::tick(tx, T0 + minute * MINUTE_MS - 10_000, 10)?;
        }
        Ok(())
    });
    home
}

/// Books something for a minute that the meter would not.
fn book(home: &Home, minute: i64) {
    write(home, move |tx| {
        let memo = format!("sandbox.minute {} {minute}", named("sbx"));
        let step = Step::Post {
            debit: money::account(&user())?.account_id,
            credit: money::revenue()?.account_id,
            amount: Amount::new(AssetId::usd_micro(), 5),
        };
        let transfer = NewTransfer::new(TransferId::named(T0, &["planted"]), step, &memo)?;
        ledger::book(tx, &[vec![transfer]], T0)?.pop().unwrap()?;
        Ok(())
    });
}

/// Changes rows as no program of ours would, whatever the schema says.
fn change(home: &Home, sql: &str) {
    let mut db = Sqlite::open(&file(home)).unwrap();
    db.batch("PRAGMA ignore_check_constraints = ON").unwrap();
    assert!(db.exec(sql, &[]).unwrap() > 0, "{sql}");
}

/// An envelope of five millisatoshi that says that it holds and has spent something in a month.
fn envelope(home: &Home, held_and_spent: &str) {
    change(home, "INSERT INTO market_envelope VALUES ('oa.embedding.v1', 1, 1, 5, 5, 0, 0, 0, 1)");
    let period = "INSERT INTO market_envelope_period VALUES ('oa.embedding.v1', 'month', '2026-01', 5, 0, 0, 0, ";
    change(home, &format!("{period}{held_and_spent})"));
}

#[test]
fn honest_books_hold() {
    assert_snapshot!(home().run(&["audit"]).shown(&Home::new()), @r"
    exit 0
    --- stdout
    the books of this node hold
      ok           ledger        5 transfers between 3 accounts
      ok           hosting       1 jobs, 1 sandboxes, 3 minutes
      ok           budget        0 envelopes, 0 orders charged
      ok           kernel        0 turns, 0 of them over, 0 steps
      ok           delegations   0 delegations by 0 orders
      ok           disputes      0 disputes, 0 of them open
      ok           lifecycle     0 entries of the matrix, 0 changes of a stage
    ");
    let (code, answer) = home().json(&["audit"]);
    assert_eq!((code, &answer["holds"]), (0, &true.into()), "{answer}");
    assert_eq!((&answer["minutes"], &answer["problems"]), (&3.into(), &serde_json::json!([])));
}

#[test]
fn what_is_wrong_is_told_with_its_part() {
    let home = home();
    change(&home, "UPDATE hosting_run SET spent = 3331");
    assert_snapshot!(home.run(&["audit"]).shown(&home), @r"
    exit 1
    --- stdout
    the books of this node do NOT hold
      ok           ledger        5 transfers between 3 accounts
      FAILED       hosting       1 jobs, 1 sandboxes, 3 minutes, 1 problems
      ok           budget        0 envelopes, 0 orders charged
      ok           kernel        0 turns, 0 of them over, 0 steps
      ok           delegations   0 delegations by 0 orders
      ok           disputes      0 disputes, 0 of them open
      ok           lifecycle     0 entries of the matrix, 0 changes of a stage

      hosting: sbx_00000000000000000000000000000001 has spent 3331, its transfers are 3330
          [store.inconsistent] The tables of the database contradict each other.
    ");
    let (code, answer) = home.json(&["audit"]);
    assert_eq!((code, &answer["ok"], &answer["holds"]), (1, &false.into(), &false.into()));
    assert_eq!(answer["problems"][0]["part"], "hosting", "{answer}");
    assert_eq!(answer["problems"][0]["code"], "store.inconsistent", "{answer}");
}

type Plant = fn(&Home);

const PLANTS: [(&str, Plant); 14] = [
    ("minute 1 of sbx_00000000000000000000000000000001 is paid twice", |home| book(home, 1)),
    ("minute 3 of sbx_00000000000000000000000000000001 is missing before minute 4", |home| {
        book(home, 4);
    }),
    ("ran 1 ms that nobody has paid", |home| {
        change(home, "UPDATE hosting_sandbox SET ran_ms = 180001");
    }),
    ("has -1 free", |home| {
        let sql =
            "UPDATE ledger_account SET balance_limit = 'none', debits_posted = credits_posted + 1
                   WHERE owner LIKE 'eip155%'";
        change(home, sql);
    }),
    ("together hold 1, not zero", |home| {
        let sql =
            "UPDATE ledger_account SET credits_posted = credits_posted + 1 WHERE owner = 'outside'";
        change(home, sql);
    }),
    ("has spent 3331, its transfers are 3330", |home| {
        change(home, "UPDATE hosting_job SET spent = 3331");
    }),
    ("has spent 3330 of a cap of 3329", |home| {
        change(home, "UPDATE hosting_run SET cap = 3329");
    }),
    ("has spent 3330 of a budget of 3329", |home| {
        change(home, "UPDATE hosting_job SET max_spend = 3329");
    }),
    ("has 4 paid minutes, 3 are booked", |home| {
        change(home, "UPDATE hosting_run SET paid_minutes = 4");
    }),
    ("has ended, and 1 of its sandboxes run", |home| {
        change(home, "UPDATE hosting_job SET status = 'stopped', due_ms = NULL, ended_ms = 1");
    }),
    ("box_x has gaps", |home| {
        let sql = "INSERT INTO card_boxes (box_id, project_id, next_place, created_ms) VALUES ('box_x', 'p', 1, 1)";
        change(home, sql);
    }),
    ("the envelope oa.embedding.v1 has used 7 msat of 5 in 2026-01", |home| {
        envelope(home, "0, 7");
    }),
    ("the envelope oa.embedding.v1 counts 3 msat held in 2026-01, its rows say 0", |home| {
        envelope(home, "3, 0");
    }),
    ("its time is over at", |home| {
        change(home, "UPDATE hosting_sandbox SET expires_ms = 1768465800001");
    }),
];

#[test]
fn every_kind_of_lie_is_named() {
    let home = home();
    let honest = fs::read(file(&home)).unwrap();
    for (words, plant) in PLANTS {
        plant(&home);
        let (code, answer) = home.json(&["audit"]);
        let problems = answer["problems"].to_string();
        assert!(code == 1 && problems.contains(words), "{words:?} is not in: {answer}");
        fs::write(file(&home), &honest).unwrap();
    }
    assert_eq!(home.run(&["audit"]).code, 0, "all of it was taken back");
}

//! The checker of exported histories: honest ones pass, and a bug of every kind is found under its own code.

mod between;
mod export;
mod files;
mod mutated;
mod planted;
mod random;

use export::{History, account_id};
use guild_ledger::evidence::{Calls, Checker, Events, Receipts, Report, code};
use serde_json::json;

const USD: &str = "USD_MICRO";

fn outside() -> String {
    account_id("outside", "main", USD)
}

fn ann() -> String {
    account_id("ann", "main", USD)
}

fn bob() -> String {
    account_id("bob", "main", USD)
}

/// Somebody who may owe us 50.
fn buyer() -> String {
    account_id("buyer", "main", USD)
}

/// What we owe somebody.
fn owed() -> String {
    account_id("node", "owed", USD)
}

fn sandboxes() -> String {
    account_id("node", "sandboxes", USD)
}

fn ann_btc() -> String {
    account_id("ann", "main", "BTC_LN")
}

/// A history with everything in it that may happen.
fn honest() -> History {
    let mut history = History::default();
    history.account("outside", "main", USD, "none");
    history.account("ann", "main", USD, "never_negative");
    history.account("bob", "main", USD, "never_negative");
    history.account("buyer", "main", USD, "none");
    history.account("node", "owed", USD, "never_positive");
    history.account("node", "sandboxes", USD, "never_negative");
    history.account("ann", "main", "BTC_LN", "never_negative");
    history.commit();
    history.rule(&ann(), None, json!({"reserve_units": "30", "lets_through": ["sandboxes"]}));
    history.rule(&buyer(), Some(50), json!(null));
    history.post("deposit", &outside(), &ann(), 100);
    history.commit();
    history.hold("escrow", (&ann(), &bob()), 40, 1_000);
    history.close("pay", "settle", "escrow", 25, 20);
    history.post("minute", &ann(), &sandboxes(), 50);
    history.commit();
    history.post("credit", &buyer(), &bob(), 50);
    history.hold("late", (&bob(), &ann()), 20, 100);
    history.close("ran-out", "expire", "late", 20, 100);
    history.hold("unwanted", (&bob(), &ann()), 10, 100);
    history.close("back", "void", "unwanted", 10, 5);
    history.commit();
    history.post("lend", &owed(), &bob(), 5);
    history.post("repay", &bob(), &owed(), 5);
    history.hold("open", (&bob(), &ann()), 3, 5_000);
    history.commit();
    history
}

/// What lies in an evidence directory.
#[derive(Default)]
struct Evidence {
    ledger: Vec<String>,
    calls: Option<Vec<String>>,
    receipts: Vec<Vec<u8>>,
    events: Vec<String>,
}

impl Evidence {
    fn check(&self) -> Report {
        let mut checker = Checker::new();
        if let Some(lines) = &self.calls {
            let mut calls = Calls::new();
            lines.iter().for_each(|line| calls.line(line.as_bytes()));
            checker = checker.with_calls(calls);
        }
        let mut receipts = Receipts::new();
        self.receipts.iter().for_each(|receipt| receipts.file("a.json", receipt));
        let mut events = Events::new();
        self.events.iter().for_each(|line| events.line(line.as_bytes()));
        let mut checker = checker.with_receipts(receipts).with_events(events);
        self.ledger.iter().for_each(|line| checker.line(line.as_bytes()));
        checker.finish()
    }
}

fn check(ledger: Vec<String>) -> Report {
    Evidence { ledger, ..Evidence::default() }.check()
}

/// The names of the codes, in the order in which they were found.
fn codes(report: &Report) -> Vec<&'static str> {
    report.problems.iter().map(|problem| problem.code.name).collect()
}

#[test]
fn an_honest_history_holds() {
    let report = check(honest().lines());
    assert!(report.holds(), "{:?}", report.problems);
    assert_eq!((report.records, report.accounts, report.transfers, report.heads), (21, 7, 12, 5));
    let empty = check(History::default().lines());
    assert!(empty.holds() && empty.records == 0, "{:?}", empty.problems);
}

#[test]
fn a_problem_says_where_it_is() {
    let mut history = honest();
    history.named("deposit")["units"] = "39".into();
    let report = check(history.lines());
    let problem = &report.problems[0];
    assert_eq!(
        (problem.code.name, problem.place.line, problem.place.seq),
        ("evidence.overdraft", Some(14), Some(11))
    );
    assert_eq!(
        problem.to_string(),
        format!(
            "ledger.jsonl:14 (seq 11): {} (main of ann) is left with -1 [evidence.overdraft]",
            ann()
        )
    );
}

/// One lost deposit, and everything after it is overdrawn: each account is named once.
#[test]
fn one_wrong_record_does_not_drown_the_rest() {
    let mut history = honest();
    history.named("deposit")["units"] = "1".into();
    for n in 0..500 {
        history.post(&format!("on-{n}"), &ann(), &sandboxes(), 1);
    }
    history.commit();
    let report = check(history.lines());
    assert_eq!(codes(&report), ["evidence.overdraft"]);
    // Back above zero, it is named again.
    history.post("more", &outside(), &ann(), 10_000);
    history.post("all", &ann(), &bob(), 20_000);
    history.commit();
    assert_eq!(codes(&check(history.lines())), ["evidence.overdraft", "evidence.overdraft"]);
}

#[test]
fn problems_beyond_the_limit_are_counted() {
    let mut lines = honest().lines();
    lines.splice(1..1, (0..250).map(|_| "rubbish\n".to_owned()));
    let report = check(lines);
    assert_eq!(report.problems.len(), 100);
    assert!(report.problems_left_out() >= 150 && !report.holds());
}

#[test]
fn rubbish_is_no_evidence() {
    assert_eq!(codes(&check(vec![])), ["evidence.cut"]);
    assert_eq!(codes(&check(vec![String::new()])), ["evidence.form", "evidence.cut"]);
    let mut headless = honest().lines();
    headless[0] = "rubbish\n".to_owned();
    assert_eq!(codes(&check(headless)), ["evidence.form"]);
    let mut long = honest().lines();
    long.insert(3, format!("{}\n", "x".repeat(70_000)));
    assert_eq!(codes(&check(long))[0], "evidence.form");
    let mut checker = Checker::new();
    checker.line(&[0xff, 0, 0x1b, b'\n']);
    assert_eq!(codes(&checker.finish()), ["evidence.form", "evidence.cut"]);
}

fn example(name: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    std::fs::read_to_string(format!("{root}/vectors/evidence/{name}")).unwrap()
}

fn lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').map(str::to_owned).collect()
}

#[test]
fn the_documented_example_holds_and_every_code_is_documented() {
    let (ledger, calls) = (example("ledger.jsonl"), example("calls.jsonl"));
    let page = example("../../../../docs/formats/evidence.md");
    assert!(page.contains(&ledger) && page.contains(&calls), "the page shows the example");
    for code in code::ALL {
        let row = format!("| `{}` | {} |", code.name, code.meaning);
        assert!(page.contains(&row), "the page lists {row}");
    }
    let evidence =
        Evidence { ledger: lines(&ledger), calls: Some(lines(&calls)), ..Evidence::default() };
    let report = evidence.check();
    assert!(report.holds(), "{:?}", report.problems);
    assert_eq!((report.records, report.transfers, report.calls), (7, 3, 4));
}

use sim::campaign::{self, Plan};
use sim::fault::Selection;
use sim::scenario::Report;
use sim::scenario::market::{Bug, run as run_selected};

use crate::time_boxed;

fn run(seed: u64, bug: Option<Bug>) -> Report {
    run_selected(seed, bug, &Selection::ALL)
}

#[test]
fn whoever_dies_every_job_ends_once_and_the_books_agree() {
    let summary = time_boxed(|seed| run(seed, None));
    for words in [
        "crash before a statement",
        "crash after a statement",
        "crash before the commit",
        "crash after the commit",
        "crash between two steps",
        "crash before the delivery",
        "crash after the delivery",
    ] {
        assert!(summary.crashes.contains_key(words), "no {words}");
    }
    for words in [
        "pause",
        "clock step",
        "statement refused",
        "commit refused",
        "commit not done, its answer lost",
        "commit done, its answer lost",
        "sink fails",
        "bell lost",
    ] {
        assert!(summary.faults.contains_key(words), "never: {words}");
    }
    for deed in [
        "released",
        "withheld",
        "expired",
        "cancelled",
        "failed",
        "books that agree",
        "hire without an answer",
        "buyer.no_provider",
    ] {
        assert!(summary.deeds.contains_key(deed), "never: {deed}");
    }
}

/// The first seed at which this checker sees the bug; another may see a consequence first.
fn found(bug: Bug, words: &str) -> Report {
    let plan =
        Plan { from: 0, seeds: 300, seconds: None, at_least: 0, repeat_one_in: 0, threads: 1 };
    let seen_by_this_one = |seed| {
        let mut report = run(seed, Some(bug));
        if !report.violations.iter().any(|v| v.contains(words)) {
            report.violations.clear();
        }
        report
    };
    let found = campaign::run(plan, seen_by_this_one, |_| {}).failure.expect("not found");
    assert_eq!(run(found.seed, Some(bug)), found, "the seed does not replay");
    assert_eq!(run(found.seed, None).violations, Vec::<String>::new(), "it is not the bug");
    found
}

#[test]
fn a_verdict_that_sees_nothing_is_found() {
    found(Bug::VerdictBlind, "[cheat]");
}

#[test]
fn a_relay_that_forgets_is_found() {
    found(Bug::RelayForgets, "receipts are taken");
}

#[test]
fn an_event_that_is_not_queued_is_found() {
    found(Bug::NotQueued, "receipts are taken");
}

#[test]
fn a_job_that_is_delivered_again_is_found() {
    found(Bug::DeliveredAgain, "[answered twice]");
}

#[test]
fn a_cursor_that_is_ahead_is_found() {
    found(Bug::CursorAhead, "[in time]");
}

#[test]
fn a_receipt_that_is_forgotten_is_found() {
    found(Bug::ReceiptForgotten, "[jobs]");
}

use sim::campaign::{self, Plan};
use sim::fault::Selection;
use sim::minimise::minimise;
use sim::scenario::Report;
use sim::scenario::ledger::{Bug, run as run_selected};

use crate::time_boxed;

fn run(seed: u64, bug: Option<Bug>) -> Report {
    run_selected(seed, bug, &Selection::ALL)
}

#[test]
fn whatever_fails_money_is_neither_lost_nor_made() {
    let summary = time_boxed(|seed| run(seed, None));
    for words in [
        "crash before a statement",
        "crash after a statement",
        "crash before the commit",
        "crash after the commit",
        "crash between two steps",
    ] {
        assert!(summary.crashes.contains_key(words), "no {words}");
    }
    for words in [
        "pause",
        "statement refused",
        "statement done, its answer lost",
        "conflict at a statement",
        "commit refused",
        "conflict at the commit",
        "commit not done, its answer lost",
        "commit done, its answer lost",
    ] {
        assert!(summary.faults.contains_key(words), "never: {words}");
    }
    for deed in [
        "post",
        "hold",
        "settle",
        "void",
        "rule",
        "known",
        "sweep that gave holds back",
        "ask without an answer",
        "ledger.overdraft",
        "ledger.gated",
        "ledger.credit_limit",
        "ledger.hold_closed",
        "ledger.hold_expired",
        "ledger.transfer_conflict",
    ] {
        assert!(summary.deeds.contains_key(deed), "never: {deed}");
    }
}

/// The first seed at which this checker sees the bug; another may see a consequence first.
fn found(bug: Bug, words: &str) -> Report {
    let plan =
        Plan { from: 0, seeds: 500, seconds: None, at_least: 0, repeat_one_in: 0, threads: 1 };
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
fn an_overdraft_is_found() {
    found(Bug::NoOverdraftCheck, "[evidence.overdraft]");
}

#[test]
fn a_gate_that_is_ignored_is_found() {
    found(Bug::GateIgnored, "[evidence.gate]");
}

#[test]
fn a_credit_that_is_ignored_is_found() {
    found(Bug::CreditIgnored, "[evidence.credit]");
}

#[test]
fn a_hold_that_is_closed_twice_is_found() {
    found(Bug::HoldClosedTwice, "[evidence.hold_closed]");
}

#[test]
fn a_transfer_that_is_booked_twice_is_found() {
    found(Bug::BookedTwice, "[evidence.doubled]");
    found(Bug::BookedTwice, "[answer]");
}

#[test]
fn a_retry_under_another_id_is_found() {
    found(Bug::NewIdAfterSilence, "[evidence.unasked]");
}

#[test]
fn an_answer_before_the_commit_is_found() {
    found(Bug::AnswerBeforeCommit, "[evidence.lost]");
}

#[test]
fn a_balance_that_is_not_written_is_found() {
    found(Bug::OneSideUnwritten, "[evidence.sum]");
    found(Bug::OneSideUnwritten, "[evidence.balance]");
}

#[test]
fn an_expiry_before_its_time_is_found() {
    found(Bug::ExpiryTooEarly, "[evidence.expiry]");
}

#[test]
fn a_head_that_covers_nothing_is_found() {
    found(Bug::HeadSkipped, "[evidence.head]");
}

#[test]
fn a_hold_that_is_never_given_back_is_found() {
    found(Bug::HoldNeverSwept, "[audit] the row of hold");
}

/// A story is worth something only if it is short, and if playing it again fails again.
#[test]
fn a_failing_seed_is_told_with_a_handful_of_faults() {
    let bug = Some(Bug::NewIdAfterSilence);
    let plan =
        Plan { from: 0, seeds: 500, seconds: None, at_least: 0, repeat_one_in: 0, threads: 1 };
    let failing = campaign::run(plan, |seed| run(seed, bug), |_| {}).failure.expect("not found");
    let seed = failing.seed;
    assert!(failing.faults.len() > 5, "it is short already: {:?}", failing.faults);
    let story = minimise(&failing, &|selection| run_selected(seed, bug, selection));
    let told = story.told(" --scenario ledger");
    println!("{told}");
    assert!(story.minimal && story.runs < 1_000, "{} runs", story.runs);
    assert!((1..=4).contains(&story.report.faults.len()), "{told}");
    assert!(!story.report.failure_kinds().is_disjoint(&failing.failure_kinds()), "{told}");
    // As the command of the story does it: by numbers.
    let numbers = story.report.faults.iter().map(|fault| fault.number).collect();
    let selection = Selection::numbered(&failing.faults, &numbers).with_schedule(story.schedule);
    let again = run_selected(seed, bug, &selection);
    assert_eq!(again, story.report);
}

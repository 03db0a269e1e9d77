use sim::fault::Selection;
use sim::minimise::minimise;
use sim::scenario::ledger::{Bug, run};

use crate::{CRASHES, failing, found, met, time_boxed};

#[test]
fn whatever_fails_money_is_neither_lost_nor_made() {
    let summary = time_boxed(run);
    met(&summary.crashes, &CRASHES);
    met(
        &summary.faults,
        &[
            "pause",
            "statement refused",
            "statement done, its answer lost",
            "conflict at a statement",
            "commit refused",
            "conflict at the commit",
            "commit not done, its answer lost",
            "commit done, its answer lost",
        ],
    );
    met(
        &summary.deeds,
        &[
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
        ],
    );
}

#[test]
fn an_overdraft_is_found() {
    found(run, Bug::NoOverdraftCheck, "[evidence.overdraft]");
}

#[test]
fn a_gate_that_is_ignored_is_found() {
    found(run, Bug::GateIgnored, "[evidence.gate]");
}

#[test]
fn a_credit_that_is_ignored_is_found() {
    found(run, Bug::CreditIgnored, "[evidence.credit]");
}

#[test]
fn a_hold_that_is_closed_twice_is_found() {
    found(run, Bug::HoldClosedTwice, "[evidence.hold_closed]");
}

#[test]
fn a_transfer_that_is_booked_twice_is_found() {
    found(run, Bug::BookedTwice, "[evidence.doubled]");
    found(run, Bug::BookedTwice, "[answer]");
}

#[test]
fn a_retry_under_another_id_is_found() {
    found(run, Bug::NewIdAfterSilence, "[evidence.unasked]");
}

#[test]
fn an_answer_before_the_commit_is_found() {
    found(run, Bug::AnswerBeforeCommit, "[evidence.lost]");
}

#[test]
fn a_balance_that_is_not_written_is_found() {
    found(run, Bug::OneSideUnwritten, "[evidence.sum]");
    found(run, Bug::OneSideUnwritten, "[evidence.balance]");
}

#[test]
fn an_expiry_before_its_time_is_found() {
    found(run, Bug::ExpiryTooEarly, "[evidence.expiry]");
}

#[test]
fn a_head_that_covers_nothing_is_found() {
    found(run, Bug::HeadSkipped, "[evidence.head]");
}

#[test]
fn a_hold_that_is_never_given_back_is_found() {
    found(run, Bug::HoldNeverSwept, "[audit] the row of hold");
}

/// A story is worth something only if it is short, and if playing it again fails again.
#[test]
fn a_failing_seed_is_told_with_a_handful_of_faults() {
    let bug = Some(Bug::NewIdAfterSilence);
    let failing = failing(|seed| run(seed, bug, &Selection::ALL));
    let seed = failing.seed;
    assert!(failing.faults.len() > 5, "it is short already: {:?}", failing.faults);
    let story = minimise(&failing, &|selection| run(seed, bug, selection));
    let told = story.told(" --scenario ledger");
    println!("{told}");
    assert!(story.minimal && story.runs < 1_000, "{} runs", story.runs);
    assert!((1..=4).contains(&story.report.faults.len()), "{told}");
    assert!(!story.report.failure_kinds().is_disjoint(&failing.failure_kinds()), "{told}");
    // As the command of the story does it: by numbers.
    let numbers = story.report.faults.iter().map(|fault| fault.number).collect();
    let selection = Selection::numbered(&failing.faults, &numbers).with_schedule(story.schedule);
    let again = run(seed, bug, &selection);
    assert_eq!(again, story.report);
}

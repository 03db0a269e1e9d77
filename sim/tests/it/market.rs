use sim::scenario::market::{Bug, run};

use crate::{CRASHES, found, met, time_boxed};

#[test]
fn whoever_dies_every_job_ends_once_and_the_books_agree() {
    let summary = time_boxed(run);
    met(&summary.crashes, &CRASHES);
    met(&summary.crashes, &["crash before the delivery", "crash after the delivery"]);
    met(
        &summary.faults,
        &[
            "pause",
            "clock step",
            "statement refused",
            "commit refused",
            "commit not done, its answer lost",
            "commit done, its answer lost",
            "sink fails",
            "bell lost",
        ],
    );
    met(
        &summary.deeds,
        &[
            "released",
            "withheld",
            "expired",
            "cancelled",
            "failed",
            "commands paid",
            "commands not paid",
            "books that agree",
            "hire without an answer",
            "buyer.no_provider",
            "taken over",
            "outcomes learnt",
        ],
    );
}

#[test]
fn a_verdict_that_sees_nothing_is_found() {
    found(run, Bug::VerdictBlind, "[cheat]");
}

#[test]
fn a_relay_that_forgets_is_found() {
    found(run, Bug::RelayForgets, "receipts are taken");
}

#[test]
fn an_event_that_is_not_queued_is_found() {
    found(run, Bug::NotQueued, "receipts are taken");
}

#[test]
fn a_job_that_is_delivered_again_is_found() {
    found(run, Bug::DeliveredAgain, "[answered twice]");
}

#[test]
fn a_cursor_that_is_ahead_is_found() {
    found(run, Bug::CursorAhead, "[in time]");
}

#[test]
fn a_hand_in_that_is_not_fenced_is_found() {
    found(run, Bug::UnfencedHandIn, "[unfenced]");
}

#[test]
fn a_claim_that_is_not_seen_is_found() {
    found(run, Bug::ClaimUnseen, "[stolen]");
}

#[test]
fn a_receipt_that_is_forgotten_is_found() {
    found(run, Bug::ReceiptForgotten, "[jobs]");
}

#[test]
fn an_outcome_that_is_lost_is_found() {
    found(run, Bug::OutcomeLost, "[outcome]");
}

#[test]
fn an_outcome_of_what_nobody_was_given_is_found() {
    found(run, Bug::OutcomeUngiven, "[given]");
}

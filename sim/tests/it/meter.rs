use sim::fault::Selection;
use sim::minimise::minimise;
use sim::scenario::meter::{Bug, run};

use crate::{CRASHES, failing, found, met, time_boxed};

#[test]
fn whoever_dies_no_minute_runs_that_is_not_paid() {
    let summary = time_boxed(run);
    met(&summary.crashes, &CRASHES);
    met(&summary.crashes, &["agent dies"]);
    met(
        &summary.faults,
        &[
            "pause",
            "clock step",
            "statement refused",
            "commit refused",
            "commit not done, its answer lost",
            "commit done, its answer lost",
            "machine fails",
            "machine does it, its answer lost",
            "machine takes long",
            "bell lost",
        ],
    );
    met(
        &summary.deeds,
        &[
            "minute",
            "sandbox_ttl",
            "sandbox_idle",
            "job_ttl",
            "job_idle",
            "sandbox_cap",
            "job_cap",
            "account",
            "meter_gap",
            "user",
            "job_stopped",
            "machine",
            "resized",
            "shape given",
            "job extended",
            "sandbox extended",
            "withdrawn",
            "withdrawal failed",
            "quoted",
            "answer of an earlier request",
        ],
    );
}

#[test]
fn a_minute_that_is_paid_twice_is_found() {
    found(run, Bug::PaidTwice, "[twice]");
}

#[test]
fn a_minute_that_is_paid_after_it_began_is_found() {
    found(run, Bug::PaidLate, "[late]");
}

#[test]
fn a_lease_that_is_longer_than_what_is_paid_is_found() {
    found(run, Bug::LeaseTooLong, "[unpaid]");
}

#[test]
fn minutes_that_are_billed_after_an_outage_are_found() {
    found(run, Bug::BackBilled, "[late]");
}

#[test]
fn a_cap_that_is_looked_at_too_late_is_found() {
    found(run, Bug::CapTooLate, "[cap]");
}

#[test]
fn a_budget_that_is_looked_at_too_late_is_found() {
    found(run, Bug::BudgetTooLate, "[budget]");
}

#[test]
fn a_time_that_is_looked_at_too_late_is_found() {
    found(run, Bug::TimeTooLate, "[time]");
}

#[test]
fn an_account_that_pays_what_it_has_not_is_found() {
    found(run, Bug::Overdrawn, "[negative]");
}

#[test]
fn a_job_that_ends_without_its_sandboxes_is_found() {
    found(run, Bug::JobLeavesThem, "[job]");
}

#[test]
fn a_clock_that_is_believed_is_found() {
    found(run, Bug::ClockBelieved, "[clock]");
}

#[test]
fn a_start_that_was_never_committed_is_found() {
    found(run, Bug::AnswerBeforeCommit, "[unpaid]");
}

#[test]
fn agents_that_go_on_are_found() {
    found(run, Bug::LeaseIgnored, "[unpaid]");
}

#[test]
fn a_shape_that_is_given_before_it_is_paid_is_found() {
    found(run, Bug::ShapeTooSoon, "[shape]");
}

#[test]
fn a_shape_that_is_kept_when_it_is_not_paid_any_more_is_found() {
    found(run, Bug::ShapeKept, "[shape]");
}

#[test]
fn a_minute_that_costs_more_than_its_shape_is_found() {
    found(run, Bug::PaidTooMuch, "[price]");
}

/// A bug without a test of its own is a checker that nobody has seen at work.
#[test]
fn every_bug_has_a_test_of_its_own() {
    let source = include_str!("meter.rs");
    let bugs = <Bug as clap::ValueEnum>::value_variants();
    assert_eq!(bugs.len(), 15);
    for bug in bugs {
        let call = format!("    found(run, Bug::{bug:?}, ");
        assert_eq!(source.matches(&call).count(), 1, "{bug:?}");
    }
    let tests = source.split("#[test]").filter(|test| test.contains("\n    found(run, ")).count();
    assert_eq!(tests, bugs.len(), "one in each test");
}

/// What fails without any fault is told without any.
#[test]
fn a_failing_fleet_is_told_with_the_faults_that_it_needs() {
    let bug = Some(Bug::CapTooLate);
    let failing = failing(|seed| run(seed, bug, &Selection::ALL));
    let story = minimise(&failing, &|selection| run(failing.seed, bug, selection));
    let told = story.told(" --scenario meter");
    assert!(story.minimal && story.report.faults.len() <= 2, "{told}");
    assert!(!story.report.failure_kinds().is_disjoint(&failing.failure_kinds()), "{told}");
}

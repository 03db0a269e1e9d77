use sim::fault::Selection;
use sim::minimise::minimise;
use sim::scenario::kernel::{Bug, run};

use crate::{CRASHES, failing, found, met, time_boxed};

#[test]
fn whoever_dies_every_turn_ends_once() {
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
            "bell doubled",
            "bell late",
        ],
    );
    met(
        &summary.deeds,
        &[
            "success",
            "kernel.stopped",
            "kernel.canceled",
            "kernel.model_refused",
            "asked again",
            "conflict",
            "child",
            "effect",
            "early result",
            "result that resumes",
            "result beside others",
            "kernel.answered",
            "kernel.unknown_call",
            "call that timed out",
            "step that was lost",
            "step that follows another",
            "tool never answers",
            "model is busy",
            "command of orchestration again",
            "command that was refused",
            "batch that went well",
            "batch that went well in part",
            "batch that failed",
            "batch that was late",
            "child that was stopped",
            "child that went well",
            "child that did not go well",
            "worker that left with nothing",
        ],
    );
}

#[test]
fn a_turn_that_is_asked_for_again_by_a_watchdog_is_found() {
    found(run, Bug::AskedAgain, "has several rows");
}

#[test]
fn a_card_of_one_that_has_lost_its_turn_is_found() {
    found(run, Bug::UnfencedAppend, "was written without a lease");
}

#[test]
fn a_card_that_one_who_has_lost_its_turn_puts_into_a_box_is_found() {
    found(run, Bug::UnfencedEntry, "lies in a box that its turn does not write to");
}

#[test]
fn a_result_that_is_applied_before_its_turn_is_resumed_is_found() {
    found(run, Bug::TwoTransactions, "waits for another number of calls than are open");
}

#[test]
fn a_tool_that_runs_before_its_call_is_written_down_is_found() {
    found(run, Bug::PublishBeforeCommit, "[unknown call]");
}

#[test]
fn a_command_that_leaves_before_its_commit_is_found() {
    found(run, Bug::CommandBeforeCommit, "is ordered");
}

#[test]
fn a_heartbeat_that_revives_a_lost_lease_is_found() {
    found(run, Bug::HeartbeatRevives, "[stolen]");
}

#[test]
fn a_sweep_that_takes_turns_from_the_living_is_found() {
    found(run, Bug::SweepEvicts, "[evicted]");
}

#[test]
fn a_time_out_beside_a_result_is_found() {
    found(run, Bug::TimeoutBesideResult, "has several results");
}

#[test]
fn a_call_that_stays_open_after_its_turn_is_found() {
    found(run, Bug::LeakedWait, "is awaited by a turn that does not wait for it");
}

#[test]
fn an_epoch_that_stays_is_found() {
    found(run, Bug::EpochStays, "[epoch]");
}

#[test]
fn turns_that_begin_out_of_order_are_found() {
    found(run, Bug::OutOfOrder, "[order]");
}

#[test]
fn a_batch_that_is_joined_again_is_found() {
    found(run, Bug::JoinedAgain, "[joined again]");
}

#[test]
fn an_answer_for_a_turn_that_was_stopped_is_found() {
    found(run, Bug::AnsweredAfterStop, "[answered after its end]");
}

#[test]
fn a_second_worker_where_one_may_serve_is_found() {
    found(run, Bug::SecondWorker, "[second worker]");
}

#[test]
fn a_turn_that_waits_for_the_time_of_a_wrong_clock_is_found() {
    found(run, Bug::AheadForEver, "[end]");
}

/// What fails without any fault is told without any.
#[test]
fn a_failing_turn_is_told_with_the_faults_that_it_needs() {
    let bug = Some(Bug::SweepEvicts);
    let failing = failing(|seed| run(seed, bug, &Selection::ALL));
    let story = minimise(&failing, &|selection| run(failing.seed, bug, selection));
    let told = story.told(" --scenario kernel");
    assert!(story.minimal && story.report.faults.len() <= 2, "{told}");
}

use sim::scenario::audit_log::{Bug, run};

use crate::{CRASHES, found, met, time_boxed};

#[test]
fn crashes_anywhere_lose_nothing_double_nothing_and_keep_order() {
    let summary = time_boxed(run);
    met(&summary.crashes, &CRASHES);
    met(
        &summary.crashes,
        &[
            "crash after the bells",
            "crash before the delivery",
            "crash after the delivery",
            "process dies, the sink takes its message later",
        ],
    );
    met(
        &summary.faults,
        &[
            "pause",
            "clock step",
            "statement refused",
            "statement done, its answer lost",
            "conflict at a statement",
            "database locked at a statement",
            "commit refused",
            "conflict at the commit",
            "database locked at the commit",
            "commit not done, its answer lost",
            "commit done, its answer lost",
            "no bell is heard",
            "bell lost",
            "bell doubled",
            "bell late",
            "sink fails",
            "sink refuses for good",
            "sink stalls past the lease",
            "sink takes it and answers past the lease",
        ],
    );
}

#[test]
fn a_bell_before_its_commit_is_found() {
    found(run, Bug::RingBeforeCommit, "a bell on");
}

#[test]
fn a_drain_without_lease_is_found() {
    found(run, Bug::DrainWithoutLease, "at the same time");
}

#[test]
fn a_message_that_overtakes_another_is_found() {
    found(run, Bug::DrainNewestFirst, "leaves before");
}

#[test]
fn a_message_closed_without_delivery_is_found() {
    found(run, Bug::RetryWithoutDelivery, "never took it");
}

#[test]
fn an_entry_written_twice_is_found() {
    found(run, Bug::AppendWithoutId, "are stored");
}

#[test]
fn a_stream_that_skips_is_found() {
    found(run, Bug::FollowerSkips, "saw");
}

#[test]
fn a_stream_that_trusts_bells_is_found() {
    found(run, Bug::FollowerWithoutSweep, "faults have ended");
}

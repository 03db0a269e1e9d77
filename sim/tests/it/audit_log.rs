use sim::campaign::{self, Plan};
use sim::fault::Selection;
use sim::scenario::Report;
use sim::scenario::audit_log::{Bug, run as run_selected};

use crate::time_boxed;

fn run(seed: u64, bug: Option<Bug>) -> Report {
    run_selected(seed, bug, &Selection::ALL)
}

#[test]
fn crashes_anywhere_lose_nothing_double_nothing_and_keep_order() {
    let summary = time_boxed(|seed| run(seed, None));
    for words in [
        "crash before a statement",
        "crash after a statement",
        "crash before the commit",
        "crash after the commit",
        "crash after the bells",
        "crash before the delivery",
        "crash after the delivery",
        "crash between two steps",
        "process dies, the sink takes its message later",
    ] {
        assert!(summary.crashes.contains_key(words), "no {words}");
    }
    for words in [
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
    ] {
        assert!(summary.faults.contains_key(words), "never: {words}");
    }
}

/// The checkers are worth something only if they see what they are for.
fn is_found_and_replays(bug: Bug, words: &str) {
    let plan =
        Plan { from: 0, seeds: 500, seconds: None, at_least: 0, repeat_one_in: 0, threads: 1 };
    // Another checker may see a consequence first; it is this one that must see it too.
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
}

#[test]
fn a_bell_before_its_commit_is_found() {
    is_found_and_replays(Bug::RingBeforeCommit, "a bell on");
}

#[test]
fn a_drain_without_lease_is_found() {
    is_found_and_replays(Bug::DrainWithoutLease, "at the same time");
}

#[test]
fn a_message_that_overtakes_another_is_found() {
    is_found_and_replays(Bug::DrainNewestFirst, "leaves before");
}

#[test]
fn a_message_closed_without_delivery_is_found() {
    is_found_and_replays(Bug::RetryWithoutDelivery, "never took it");
}

#[test]
fn an_entry_written_twice_is_found() {
    is_found_and_replays(Bug::AppendWithoutId, "are stored");
}

#[test]
fn a_stream_that_skips_is_found() {
    is_found_and_replays(Bug::FollowerSkips, "saw");
}

#[test]
fn a_stream_that_trusts_bells_is_found() {
    is_found_and_replays(Bug::FollowerWithoutSweep, "faults have ended");
}

//! One integration binary for the crate.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod audit_log;
mod ledger;
mod market;

use sim::campaign::{self, Plan, Summary};
use sim::scenario::Report;

/// As many seeds as fit into the time; none may fail, and some are run twice.
#[expect(clippy::print_stdout, reason = "a reader of the test's output learns what was run")]
fn time_boxed(run: impl Fn(u64) -> Report + Sync) -> Summary {
    let plan = Plan {
        from: 0,
        seeds: u64::MAX,
        seconds: Some(seconds()),
        at_least: 100,
        repeat_one_in: 10,
        threads: 2,
    };
    let summary = campaign::run(plan, run, |_| {});
    println!("{} seeds, crashes: {:?}", summary.seeds, summary.crashes);
    println!("other faults: {:?}, deeds: {:?}", summary.faults, summary.deeds);
    assert!(summary.failure.is_none(), "{:#?}", summary.failure);
    assert!(summary.seeds >= 100, "only {} seeds were run", summary.seeds);
    assert!(summary.repeated >= 10, "only {} seeds were run twice", summary.repeated);
    summary
}

/// How long one simulation may take inside the tests: they share the time.
#[expect(clippy::disallowed_methods, reason = "the test runner sets the time box")]
fn seconds() -> u64 {
    std::env::var("GUILD_SIM_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8_u64)
        .div_ceil(3)
}

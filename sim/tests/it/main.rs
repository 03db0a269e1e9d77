//! One integration binary for the crate.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod audit_log;
mod kernel;
mod ledger;
mod market;
mod meter;

use std::collections::BTreeMap;

use sim::campaign::{self, Plan, Summary};
use sim::fault::Selection;
use sim::scenario::Report;

/// How a scenario runs a seed, with a bug of its own kind or none.
type Run<B> = fn(u64, Option<B>, &Selection) -> Report;

/// Where every process can die.
const CRASHES: [&str; 5] = [
    "crash before a statement",
    "crash after a statement",
    "crash before the commit",
    "crash after the commit",
    "crash between two steps",
];

/// All of these must have happened: what was never tried has proven nothing.
fn met(happened: &BTreeMap<&'static str, u64>, wanted: &[&str]) {
    for words in wanted {
        assert!(happened.contains_key(words), "never: {words}");
    }
}

/// The first seed that fails.
fn failing(run: impl Fn(u64) -> Report + Sync) -> Report {
    let plan =
        Plan { from: 0, seeds: 500, seconds: None, at_least: 0, repeat_one_in: 0, threads: 1 };
    campaign::run(plan, run, |_| {}).failure.expect("not found")
}

/// The first seed at which a checker sees a bug: it is worth something only if it sees what it is for. Another may see
/// a consequence first; it is the one with these words that must see it too.
fn found<B: Copy + Sync>(run: Run<B>, bug: B, words: &str) -> Report {
    let found = failing(|seed| {
        let mut report = run(seed, Some(bug), &Selection::ALL);
        if !report.violations.iter().any(|v| v.contains(words)) {
            report.violations.clear();
        }
        report
    });
    let again = |bug| run(found.seed, bug, &Selection::ALL);
    assert_eq!(again(Some(bug)), found, "the seed does not replay");
    assert_eq!(again(None).violations, Vec::<String>::new(), "it is not the bug");
    found
}

/// As many seeds as fit into the time; none may fail, and some are run twice.
#[expect(clippy::print_stdout, reason = "a reader of the test's output learns what was run")]
fn time_boxed<B>(run: Run<B>) -> Summary {
    let plan = Plan {
        from: 0,
        seeds: u64::MAX,
        seconds: Some(seconds()),
        at_least: 100,
        repeat_one_in: 10,
        threads: 2,
    };
    let summary = campaign::run(plan, |seed| run(seed, None, &Selection::ALL), |_| {});
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
        .div_ceil(4)
}

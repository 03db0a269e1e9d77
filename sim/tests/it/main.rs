//! One integration binary for the crate.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod audit_log;
mod kernel;
mod ledger;
mod market;
mod meter;

use std::collections::BTreeMap;
use std::sync::Mutex;

use guild_store::Migrations;
use sim::campaign::{self, Plan, Summary};
use sim::database::{Database, Plant};
use sim::fault::Selection;
use sim::scenario::Report;
use sim::world::World;

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
    let edits: Mutex<BTreeMap<&'static str, bool>> = Mutex::default();
    let found = failing(|seed| {
        let mut report = run(seed, Some(bug), &Selection::ALL);
        let mut edits = edits.lock().expect("nobody panics with it");
        for (text, planted) in &report.edits {
            *edits.entry(text).or_default() |= planted;
        }
        if !report.violations.iter().any(|v| v.contains(words)) {
            report.violations.clear();
        }
        report
    });
    // What no statement says any more is not planted, and another bug was found.
    for (text, planted) in edits.into_inner().expect("nobody panics with it") {
        assert!(planted, "no statement has this text of the bug: {text:?}");
    }
    let again = |bug| run(found.seed, bug, &Selection::ALL);
    assert_eq!(again(Some(bug)), found, "the seed does not replay");
    assert_eq!(again(None).violations, Vec::<String>::new(), "it is not the bug");
    found
}

/// A run that fails, with a bug in a text that statements have and in one that none has.
fn stale(seed: u64, bug: Option<&'static str>, selection: &Selection) -> Report {
    const EDITS: &[(&str, &str)] =
        &[("CREATE TABLE outbox", "CREATE TABLE outbox"), ("no such text", "")];
    let world = World::new(seed, 0, selection);
    let edits = if bug.is_some() { EDITS } else { &[] };
    let plant = Plant { edits, ..Plant::default() };
    let database = Database::new(&world, seed, &Migrations::store(), plant);
    drop(database.expect("a database"));
    let violations = bug.map(|bug| format!("{bug} is found")).into_iter().collect();
    Report {
        seed,
        trace: 0,
        polls: 0,
        faults: Vec::new(),
        deeds: BTreeMap::new(),
        edits: world.edits(),
        violations,
    }
}

#[test]
#[should_panic(expected = "no statement has this text of the bug: \"no such text\"")]
fn a_bug_that_is_not_planted_is_not_found() {
    found(stale, "something else", "is found");
}

#[test]
fn every_text_of_a_bug_is_told_with_whether_it_was_met() {
    let edits = stale(1, Some("it"), &Selection::ALL).edits;
    assert_eq!(edits, BTreeMap::from([("CREATE TABLE outbox", true), ("no such text", false)]));
    assert_eq!(stale(1, None, &Selection::ALL).edits, BTreeMap::new());
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

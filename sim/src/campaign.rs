//! Many seeds, on all cores, counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::scenario::Report;

/// Which seeds are run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The first seed.
    pub from: u64,
    /// How many at most.
    pub seeds: u64,
    /// For how long at most.
    pub seconds: Option<u64>,
    /// So many are run however long it takes: the first ones reach what a scenario is for.
    pub at_least: u64,
    /// Every so many seeds one is run twice, and both traces must be equal.
    pub repeat_one_in: u64,
    /// How many threads run them: seeds are independent.
    pub threads: usize,
}

/// What a campaign found.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Seeds run twice with equal traces.
    pub repeated: u64,
    /// Steps of tasks.
    pub polls: u64,
    /// How long it took.
    pub seconds: u64,
    /// Crashes, by the point at which they happened.
    pub crashes: BTreeMap<&'static str, u64>,
    /// All other faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What the system did.
    pub deeds: BTreeMap<&'static str, u64>,
    /// The failing seed with the smallest number.
    pub failure: Option<Report>,
}

impl Summary {
    /// How fast it went.
    pub fn seeds_per_second(&self) -> u64 {
        self.seeds / self.seconds.max(1)
    }

    fn add(&mut self, report: Report, repeated: Option<Report>) {
        self.seeds += 1;
        self.polls += report.polls;
        for (counts, crashes) in [(&mut self.crashes, true), (&mut self.faults, false)] {
            for (words, count) in report.count(crashes) {
                *counts.entry(words).or_default() += count;
            }
        }
        for (deed, count) in &report.deeds {
            *self.deeds.entry(deed).or_default() += count;
        }
        let mut failing = report;
        if let Some(again) = repeated {
            self.repeated += 1;
            if again.trace != failing.trace {
                failing
                    .violations
                    .push("the same seed took another course the second time".to_owned());
            }
        }
        let smaller = self.failure.as_ref().is_none_or(|known| failing.seed < known.seed);
        if !failing.violations.is_empty() && smaller {
            self.failure = Some(failing);
        }
    }
}

/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(10);

/// Runs the plan, and tells how far it is now and then. Stops soon after the first failure.
#[expect(clippy::disallowed_methods, reason = "the time box of a test run is real time")]
pub fn run(
    plan: Plan,
    scenario: impl Fn(u64) -> Report + Sync,
    progress: impl Fn(&Summary) + Sync,
) -> Summary {
    let next = AtomicU64::new(plan.from);
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let summary = Mutex::new((Summary::default(), began));
    let over = || plan.seconds.is_some_and(|seconds| began.elapsed().as_secs() >= seconds);
    let work = || {
        while !stop.load(Ordering::SeqCst) {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            let number = seed - plan.from;
            if number >= plan.seeds || (over() && number >= plan.at_least) {
                return;
            }
            let report = scenario(seed);
            let repeat = plan.repeat_one_in > 0 && seed.is_multiple_of(plan.repeat_one_in);
            let repeated = repeat.then(|| scenario(seed));
            let mut locked = summary.lock().unwrap_or_else(PoisonError::into_inner);
            let (summary, told) = &mut *locked;
            summary.add(report, repeated);
            summary.seconds = began.elapsed().as_secs();
            if told.elapsed() >= PROGRESS {
                *told = Instant::now();
                progress(summary);
            }
            if summary.failure.is_some() {
                stop.store(true, Ordering::SeqCst);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(work);
        }
    });
    summary.into_inner().unwrap_or_else(PoisonError::into_inner).0
}

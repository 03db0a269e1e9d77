//! Makes a failing seed short: leaves out faults as long as it still fails in the same way, and tells the rest as a
//! story.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::fault::{Fault, Selection};
use crate::scenario::Report;

/// How often a seed is run at most to make it short.
const RUNS_MAX: u32 = 3_000;

/// In how many orders each smaller set of faults is tried, and the empty one: it is worth the most.
const SCHEDULES: u64 = 4;
const SCHEDULES_WITHOUT_FAULTS: u64 = 50;

/// So many violations are told: most are consequences of the first.
const VIOLATIONS_MAX: usize = 4;

/// A failing seed with as few faults as could be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// What is left: it fails with these faults, and in no order that was tried without any single one of them.
    pub report: Report,
    /// In which order.
    pub schedule: u64,
    /// How many faults the seed has by itself.
    pub faults_before: usize,
    /// How often it was run.
    pub runs: u32,
    /// Whether nothing more can be left out; false if the search was broken off.
    pub minimal: bool,
}

/// Leaves out halves of the faults, then quarters, and in the end single ones, as long as `run` still fails in the way
/// of `failing`. A fault that is left out may change everything after it: what counts is only whether it still fails,
/// in this order or in another.
pub fn minimise(failing: &Report, run: &dyn Fn(&Selection) -> Report) -> Story {
    let mut story = Story {
        report: failing.clone(),
        schedule: 0,
        faults_before: failing.faults.len(),
        runs: 0,
        minimal: false,
    };
    let wanted = failing.failure_kinds();
    // The cheapest question first: perhaps no fault is needed at all.
    if story.keeps_failing(&[], SCHEDULES_WITHOUT_FAULTS, &wanted, run) {
        story.minimal = true;
        return story;
    }
    let mut parts = 2;
    while story.runs < RUNS_MAX {
        let faults = story.report.faults.clone();
        if faults.len() <= 1 {
            story.minimal = true;
            break;
        }
        parts = parts.min(faults.len());
        let size = faults.len().div_ceil(parts);
        let shorter = (0..faults.len()).step_by(size).any(|from| {
            let without = [&faults[..from], &faults[(from + size).min(faults.len())..]].concat();
            story.runs < RUNS_MAX && story.keeps_failing(&without, SCHEDULES, &wanted, run)
        });
        if shorter {
            parts = parts.saturating_sub(1).max(2);
        } else if size == 1 {
            story.minimal = story.runs < RUNS_MAX;
            break;
        } else {
            parts *= 2;
        }
    }
    story
}

impl Story {
    /// Runs with these faults only, in some orders, and takes over the first run that fails in the same way.
    fn keeps_failing(
        &mut self,
        faults: &[Fault],
        schedules: u64,
        wanted: &BTreeSet<String>,
        run: &dyn Fn(&Selection) -> Report,
    ) -> bool {
        let others = (0..schedules).filter(|schedule| *schedule != self.schedule);
        for schedule in std::iter::once(self.schedule).chain(others) {
            self.runs += 1;
            let report = run(&Selection::only(faults).with_schedule(schedule));
            // What was chosen and did not happen any more is left out too.
            let fewer = report.faults.len() < self.report.faults.len();
            if fewer && !report.failure_kinds().is_disjoint(wanted) {
                (self.report, self.schedule) = (report, schedule);
                return true;
            }
        }
        false
    }

    /// The faults that are left, as a command line takes them.
    pub fn only(&self) -> String {
        let numbers: BTreeSet<u64> = self.report.faults.iter().map(|fault| fault.number).collect();
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        if numbers.is_empty() { "none".to_owned() } else { numbers.join(",") }
    }

    /// The story for a reader, with the command that plays it again.
    pub fn told(&self, arguments: &str) -> String {
        let mut text = format!(
            "seed {} with {} of its {} faults ({} runs{}):\n",
            self.report.seed,
            self.report.faults.len(),
            self.faults_before,
            self.runs,
            if self.minimal { "" } else { ", search broken off" }
        );
        for fault in &self.report.faults {
            let _ = writeln!(text, "{fault}");
        }
        for violation in self.report.violations.iter().take(VIOLATIONS_MAX) {
            let _ = writeln!(text, "  → {violation}");
        }
        match self.report.violations.len().saturating_sub(VIOLATIONS_MAX) {
            0 => {}
            more => {
                let _ = writeln!(text, "  → and {more} more");
            }
        }
        let (seed, only) = (self.report.seed, self.only());
        let _ =
            write!(text, "play it again: cargo xtask sim{arguments} --seed {seed} --only {only}");
        if self.schedule > 0 {
            let _ = write!(text, " --schedule {}", self.schedule);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Key, Kind};

    fn fault(number: u64) -> Fault {
        let at_ms = i64::try_from(number).unwrap();
        Fault { number, at_ms, key: Key { who: Some(0), kind: Kind::Pause, turn: number } }
    }

    /// Fails whenever all of `needed` happen.
    fn run(needed: &BTreeSet<u64>, selection: &Selection) -> Report {
        let chosen: Vec<Fault> = (1..=100)
            .map(fault)
            .filter(|fault| {
                selection.only.as_ref().is_none_or(|keys| keys.contains_key(&fault.key))
            })
            .collect();
        let happened: BTreeSet<u64> = chosen.iter().map(|fault| fault.number).collect();
        let violations = match needed.is_subset(&happened) {
            true => vec![format!("at {} ms: it broke", chosen.len())],
            false => Vec::new(),
        };
        let (deeds, edits) = Default::default();
        Report { seed: 5, trace: 0, polls: 0, faults: chosen, deeds, edits, violations }
    }

    #[test]
    fn exactly_what_is_needed_is_left() {
        for needed in [vec![], vec![42], vec![3, 17], vec![1, 50, 51, 100]] {
            let needed: BTreeSet<u64> = needed.into_iter().collect();
            let run = |selection: &Selection| run(&needed, selection);
            let story = minimise(&run(&Selection::ALL), &run);
            let left: BTreeSet<u64> = story.report.faults.iter().map(|f| f.number).collect();
            assert_eq!((left, story.minimal), (needed.clone(), true));
            assert!(story.runs < 400, "{} runs", story.runs);
        }
    }

    #[test]
    fn another_order_is_tried_and_told() {
        // Without all its faults it fails in the third order only.
        let run = |selection: &Selection| {
            let needed = match selection.schedule {
                3 => BTreeSet::from([9]),
                _ => (1..=100).collect(),
            };
            run(&needed, selection)
        };
        let story = minimise(&run(&Selection::ALL), &run);
        assert_eq!((story.only().as_str(), story.schedule, story.minimal), ("9", 3, true));
        assert!(story.told("").ends_with("--seed 5 --only 9 --schedule 3"), "{}", story.told(""));
    }

    #[test]
    fn the_story_says_how_to_play_it_again() {
        let needed = BTreeSet::from([3, 17]);
        let run = |selection: &Selection| run(&needed, selection);
        let told = minimise(&run(&Selection::ALL), &run).told(" --scenario ledger");
        let (first, rest) = told.split_once('\n').unwrap();
        assert!(first.starts_with("seed 5 with 2 of its 100 faults"), "{first}");
        insta::assert_snapshot!(rest, @r"
            3  at      3 ms  process 0  pause
           17  at     17 ms  process 0  pause
          → at 2 ms: it broke
        play it again: cargo xtask sim --scenario ledger --seed 5 --only 3,17
        ");
    }
}

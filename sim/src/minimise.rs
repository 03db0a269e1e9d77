//! Makes a failing seed short: leaves out faults as long as it still fails in the same way, and tells the rest as a
//! story.

use std::fmt::Write as _;

use crate::fault::{Fault, Selection};
use crate::scenario::Report;

/// How often a seed is run at most to make it short.
const RUNS_MAX: u32 = 600;

/// So many violations are told: most are consequences of the first.
const VIOLATIONS_MAX: usize = 4;

/// A failing seed with as few faults as could be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// What is left: it fails with these faults, and not without any single one of them.
    pub report: Report,
    /// How many faults the seed has by itself.
    pub faults_before: usize,
    /// How often it was run.
    pub runs: u32,
    /// Whether nothing more can be left out; false if the search was broken off.
    pub minimal: bool,
}

/// Leaves out halves of the faults, then quarters, and in the end single ones, as long as `run` still fails in the way
/// of `failing`. A fault that is left out may change everything after it: what counts is only whether it still fails.
pub fn minimise(failing: &Report, run: &dyn Fn(&Selection) -> Report) -> Story {
    let mut story = Story {
        report: failing.clone(),
        faults_before: failing.faults.len(),
        runs: 0,
        minimal: false,
    };
    let wanted = failing.failure_kind();
    let mut parts = 2;
    // The cheapest question first: perhaps no fault is needed at all.
    if story.keeps_failing(&[], &wanted, run) {
        story.minimal = true;
        return story;
    }
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
            story.runs < RUNS_MAX && story.keeps_failing(&without, &wanted, run)
        });
        if shorter {
            parts = parts.saturating_sub(1).max(2);
        } else if parts == faults.len() {
            story.minimal = story.runs < RUNS_MAX;
            break;
        } else {
            parts *= 2;
        }
    }
    story
}

impl Story {
    /// Runs with these faults only, and takes the run over if it fails in the same way.
    fn keeps_failing(
        &mut self,
        faults: &[Fault],
        wanted: &Option<String>,
        run: &dyn Fn(&Selection) -> Report,
    ) -> bool {
        self.runs += 1;
        let report = run(&Selection::only(faults));
        // What was chosen and did not happen any more is left out too.
        let fails =
            report.failure_kind() == *wanted && report.faults.len() < self.report.faults.len();
        if fails {
            self.report = report;
        }
        fails
    }

    /// The faults that are left, as a command line takes them.
    pub fn only(&self) -> String {
        let numbers: Vec<String> =
            self.report.faults.iter().map(|fault| fault.number.to_string()).collect();
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
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
            .filter(|fault| match selection {
                Selection::All => true,
                Selection::Only(keys) => keys.contains_key(&fault.key),
            })
            .collect();
        let happened: BTreeSet<u64> = chosen.iter().map(|fault| fault.number).collect();
        let violations = match needed.is_subset(&happened) {
            true => vec![format!("at {} ms: it broke", chosen.len())],
            false => Vec::new(),
        };
        let deeds = Default::default();
        Report { seed: 5, trace: 0, polls: 0, faults: chosen, deeds, violations }
    }

    #[test]
    fn exactly_what_is_needed_is_left() {
        for needed in [vec![], vec![42], vec![3, 17], vec![1, 50, 51, 100]] {
            let needed: BTreeSet<u64> = needed.into_iter().collect();
            let run = |selection: &Selection| run(&needed, selection);
            let story = minimise(&run(&Selection::All), &run);
            let left: BTreeSet<u64> = story.report.faults.iter().map(|f| f.number).collect();
            assert_eq!((left, story.minimal), (needed.clone(), true));
            assert!(story.runs < 120, "{} runs", story.runs);
        }
    }

    #[test]
    fn the_story_says_how_to_play_it_again() {
        let needed = BTreeSet::from([3, 17]);
        let run = |selection: &Selection| run(&needed, selection);
        let told = minimise(&run(&Selection::All), &run).told(" --scenario ledger");
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

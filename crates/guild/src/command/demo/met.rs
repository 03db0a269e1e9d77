//! What the buyer found of each provider before it hired anybody.

use guild_roles::meeting::{Outcome, Story};
use serde::Serialize;

use crate::command::table::Column;

/// A provider that was met.
pub(super) struct Met {
    pub(super) name: &'static str,
    pub(super) story: Story,
}

#[derive(Serialize)]
pub(super) struct MetBody {
    provider: &'static str,
    meeting_id: String,
    outcome: &'static str,
    pace: Option<&'static str>,
    score_bp: Option<u32>,
    trust_bp: Option<u32>,
    trials: usize,
    tests_passed: i64,
    tests: i64,
    median_ms: Option<i64>,
}

pub(super) const COLUMNS: [Column; 8] = [
    Column::Right("rank"),
    Column::Left("provider"),
    Column::Right("trials"),
    Column::Right("hidden tests"),
    Column::Right("median"),
    Column::Left("pace"),
    Column::Left("found"),
    Column::Right("trust"),
];

impl Met {
    /// Whether it is hired from now on.
    pub(super) fn is_admitted(&self) -> bool {
        self.outcome().is_admitted()
    }

    fn outcome(&self) -> Outcome {
        self.story.meeting.outcome.unwrap_or(Outcome::Undelivered)
    }

    /// Whether what was found is what each of them is: good, slow, and a cheat.
    pub(super) fn is_seen_through(&self) -> bool {
        let found = (self.outcome(), self.pace(), self.trust_bp().is_some());
        match self.name {
            "Ada" => matches!(found, (Outcome::Active, _, true)),
            "Bruno" => matches!(found, (Outcome::Conditional, Some("SLOW"), true)),
            _ => matches!(found, (Outcome::Rejected, _, false)),
        }
    }

    /// Tests that passed, and all.
    fn tests(&self) -> (i64, i64) {
        let sum = |of: fn(&guild_roles::meeting::Trial) -> i64| {
            self.story.trials.iter().map(|(trial, _)| of(trial)).fold(0_i64, i64::saturating_add)
        };
        (sum(|trial| trial.passed), sum(|trial| trial.total))
    }

    pub(super) fn median_ms(&self) -> Option<i64> {
        let mut taken_ms: Vec<i64> =
            self.story.trials.iter().filter_map(|(trial, _)| trial.latency_ms).collect();
        taken_ms.sort_unstable();
        taken_ms.get(taken_ms.len() / 2).copied()
    }

    /// The first trust in it; none in whoever is turned away.
    fn trust_bp(&self) -> Option<u32> {
        let found = self.story.meeting.evaluation.as_ref().filter(|_| self.is_admitted());
        found.and_then(|found| found.trust_bp)
    }

    fn pace(&self) -> Option<&'static str> {
        self.story.meeting.evaluation.as_ref().map(|found| found.pace.name())
    }

    /// What happened, for a person who watches.
    pub(super) fn sentence(&self) -> String {
        let (passed, total) = self.tests();
        let name = self.name;
        match (self.is_admitted(), self.outcome()) {
            (true, _) => format!(
                "{name} was tested: {passed} of {total} hidden tests passed; it may work here"
            ),
            (false, outcome) => format!(
                "{name} was tested: {passed} of {total} hidden tests passed; {}",
                outcome.name()
            ),
        }
    }

    fn row(&self, rank: usize) -> [String; 8] {
        let (passed, total) = self.tests();
        let trust = |bp: u32| format!("{}.{:02}", bp / 10_000, bp % 10_000 / 100);
        [
            if self.is_admitted() { rank.to_string() } else { "–".to_owned() },
            self.name.to_owned(),
            self.story.trials.len().to_string(),
            format!("{passed} of {total}"),
            self.median_ms().map(|ms| format!("{ms} ms")).unwrap_or_default(),
            self.pace().unwrap_or_default().to_owned(),
            self.outcome().name().to_uppercase(),
            self.trust_bp().map(trust).unwrap_or_default(),
        ]
    }

    /// For programs.
    pub(super) fn body(&self) -> MetBody {
        let (tests_passed, tests) = self.tests();
        MetBody {
            provider: self.name,
            meeting_id: self.story.meeting.meeting_id.to_string(),
            outcome: self.outcome().name(),
            pace: self.pace(),
            score_bp: self.story.meeting.evaluation.as_ref().map(|found| found.score_bp),
            trust_bp: self.trust_bp(),
            trials: self.story.trials.len(),
            tests_passed,
            tests,
            median_ms: self.median_ms(),
        }
    }
}

/// The most trusted first.
pub(super) fn rows(met: &[Met]) -> Vec<[String; 8]> {
    let mut ranked: Vec<&Met> = met.iter().collect();
    ranked.sort_by_key(|one| std::cmp::Reverse(one.trust_bp()));
    (1..).zip(ranked).map(|(rank, one)| one.row(rank)).collect()
}

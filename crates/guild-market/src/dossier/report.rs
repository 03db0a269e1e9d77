//! What a check of a dossier found.

use guild_protocol::error::Code;
use serde::Serialize;

/// So many problems at most are kept; the others are counted.
const PROBLEMS_MAX: usize = 100;

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The rule that is broken.
    pub code: &'static Code,
    /// One sentence about this very case.
    pub message: String,
}

impl Problem {
    pub(super) fn new(code: &'static Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into() }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What is asked: `request`, `receipt`, `winner` and so on.
    pub name: &'static str,
    /// Of what: a path, the id of a request or of a delegation.
    pub of: String,
    /// Why not, if not.
    pub problem: Option<Problem>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What the dossier is of, if that can be read.
    pub about: Option<String>,
    /// Who asked, if that can be read.
    pub buyer: Option<String>,
    /// Everything that was looked at, in order.
    pub checks: Vec<Check>,
    /// What these files do not show, in words.
    pub notes: Vec<String>,
    /// What lies there and is named by nothing.
    pub not_checked: Vec<String>,
    /// How many problems were found beyond those that are kept.
    pub problems_left_out: u64,
}

/// How many things of a kind were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// In all.
    pub checked: u64,
    /// Those that do not hold.
    pub problems: u64,
}

impl Report {
    /// Whether everything holds that was looked at, and something was.
    pub fn holds(&self) -> bool {
        !self.checks.is_empty() && self.problems().next().is_none()
    }

    /// The problems, in order.
    pub fn problems(&self) -> impl Iterator<Item = (&Check, &Problem)> {
        self.checks.iter().filter_map(|check| Some((check, check.problem.as_ref()?)))
    }

    /// How many checks of this name there were.
    pub fn count(&self, name: &str) -> Counted {
        let named = self.checks.iter().filter(|check| check.name == name);
        named.fold(Counted { checked: 0, problems: 0 }, |sum, check| Counted {
            checked: sum.checked.saturating_add(1),
            problems: sum.problems.saturating_add(u64::from(check.problem.is_some())),
        })
    }

    pub(super) fn record(
        &mut self,
        name: &'static str,
        of: impl Into<String>,
        outcome: Result<(), Problem>,
    ) -> bool {
        let holds = outcome.is_ok();
        if !holds && self.problems().count() >= PROBLEMS_MAX {
            self.problems_left_out = self.problems_left_out.saturating_add(1);
        } else {
            self.checks.push(Check { name, of: of.into(), problem: outcome.err() });
        }
        holds
    }

    pub(super) fn note(&mut self, words: impl Into<String>) {
        let words = words.into();
        if !self.notes.contains(&words) {
            self.notes.push(words);
        }
    }
}

//! What a check found, and where.

use std::collections::BTreeMap;
use std::fmt;

use guild_protocol::error::Code;

use super::MAX_PROBLEMS;

/// A part of the evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The history of the money.
    Ledger,
    /// What was asked and answered.
    Calls,
    /// Signed receipts.
    Receipts,
    /// The keys under which the node deals.
    Keys,
    /// The node's events.
    Events,
}

impl Part {
    /// The file or directory that holds it.
    pub fn file_name(self) -> &'static str {
        match self {
            Part::Ledger => "ledger.jsonl",
            Part::Calls => "calls.jsonl",
            Part::Receipts => "receipts",
            Part::Keys => "keys.json",
            Part::Events => "events.jsonl",
        }
    }
}

/// Where something was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The part.
    pub part: Part,
    /// The file in the part, if the part is a directory.
    pub name: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u64>,
    /// The number of the record.
    pub seq: Option<i64>,
}

impl Place {
    /// A line of a part that is one file.
    pub(super) fn line(part: Part, line: u64) -> Place {
        Place { part, name: None, line: Some(line), seq: None }
    }

    /// A part as a whole.
    pub(super) fn of(part: Part) -> Place {
        Place { part, name: None, line: None, seq: None }
    }

    pub(super) fn of_receipt(name: &str) -> Place {
        Place { part: Part::Receipts, name: Some(name.to_owned()), line: None, seq: None }
    }

    /// The file, below the directory of the evidence.
    pub fn file(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.part.file_name()),
            None => self.part.file_name().to_owned(),
        }
    }
}

/// `ledger.jsonl:12 (seq 9)`
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match self.seq {
            Some(seq) => write!(f, " (seq {seq})"),
            None => Ok(()),
        }
    }
}

/// One thing that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The rule that is broken.
    pub code: &'static Code,
    /// Where.
    pub place: Place,
    /// One sentence about this very case.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.message, self.code.name)
    }
}

/// A problem whose place is not known yet.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: &'static Code,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: &'static Code, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }

    pub(super) fn at(self, place: Place) -> Problem {
        Problem { code: self.code, place, message: self.message }
    }
}

/// The problems so far: the first ones whole, the others as a number.
#[derive(Debug, Default)]
pub(super) struct Findings {
    kept: Vec<Problem>,
    found: BTreeMap<Part, u64>,
}

impl Findings {
    pub(super) fn push(&mut self, problem: Problem) {
        let found = self.found.entry(problem.place.part).or_default();
        *found = found.saturating_add(1);
        if self.kept.len() < MAX_PROBLEMS {
            self.kept.push(problem);
        }
    }

    /// Puts what others found behind.
    pub(super) fn append(&mut self, others: Findings) {
        let room = MAX_PROBLEMS.saturating_sub(self.kept.len());
        self.kept.extend(others.kept.into_iter().take(room));
        for (part, count) in others.found {
            let found = self.found.entry(part).or_default();
            *found = found.saturating_add(count);
        }
    }

    /// The report, with these findings; the numbers are those of `counted`.
    pub(super) fn into_report(self, counted: Report) -> Report {
        Report { problems: self.kept, found: self.found, ..counted }
    }
}

/// What a check of the evidence found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Numbered records of the ledger.
    pub records: u64,
    /// Accounts that were opened.
    pub accounts: u64,
    /// Transfers.
    pub transfers: u64,
    /// Heads.
    pub heads: u64,
    /// What was asked of the ledger.
    pub calls: u64,
    /// Receipts.
    pub receipts: u64,
    /// Events.
    pub events: u64,
    /// The first problems: those of the ledger, then those of the other parts. Empty when all is well.
    pub problems: Vec<Problem>,
    found: BTreeMap<Part, u64>,
}

impl Report {
    /// Whether all is well.
    pub fn holds(&self) -> bool {
        self.found.is_empty()
    }

    /// How many problems a part has, kept or not.
    pub fn found_in(&self, part: Part) -> u64 {
        self.found.get(&part).copied().unwrap_or(0)
    }

    /// How many problems there are beyond those kept.
    pub fn problems_left_out(&self) -> u64 {
        let found = self.found.values().fold(0u64, |sum, count| sum.saturating_add(*count));
        found.saturating_sub(u64::try_from(self.problems.len()).unwrap_or(u64::MAX))
    }
}

//! Checking a replay, line by line.

use super::chain::Chain;
use super::report::{Report, Standing};
use super::rules::Rules;
use super::{MAX_BYTES, MAX_LINE_BYTES, MAX_LINES, REPLAY_VERSION, code, fields};
use crate::hash::Hash;
use crate::identity::PublicKey;
use crate::json::{self, Doc, Limits};
use crate::receipt::{self, Receipt};
use crate::verification::{Problem, Verification};
use crate::wire::{Reading, integer_at, text_at};
use crate::{Error, Result, tamper};

/// Problems listed at most; a hostile file could have millions.
const MAX_PROBLEMS: usize = 100;

/// Checks a replay, and whether the receipt signs for it.
///
/// An error means that the bytes are not a replay (or a receipt) of a version known here.
pub fn verify(replay: &[u8], receipt: Option<&[u8]>) -> Result<Report> {
    run(Checker::new(), replay, receipt)
}

/// As [`verify`], and where a line was changed it looks for the field.
pub fn explain(replay: &[u8], receipt: Option<&[u8]>) -> Result<Report> {
    run(Checker::explaining(), replay, receipt)
}

fn run(mut checker: Checker, replay: &[u8], receipt: Option<&[u8]>) -> Result<Report> {
    if replay.len() > MAX_BYTES {
        return Err(Error::new(&code::LIMIT, "the file is longer than 1 GiB"));
    }
    for line in replay.split_inclusive(|byte| *byte == b'\n') {
        checker.line(line)?;
    }
    checker.finish(receipt)
}

/// The checks, in the order in which they are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Lines,
    Fields,
    Order,
    Hashes,
    Chain,
}

const GROUPS: [(Group, &str, &str); 4] = [
    (Group::Lines, "lines", "every line is JSON of its form"),
    (Group::Fields, "fields", "every event has its fields"),
    (Group::Order, "order", "calls, results and totals add up"),
    (Group::Hashes, "hashes", "the stated hashes are those of the content"),
];

/// Takes a replay line by line, for files that are not held in memory.
#[derive(Debug)]
pub struct Checker {
    pub(super) reading: Option<Reading>,
    pub(super) rules: Rules,
    chain: Chain,
    problems: Vec<(Group, Problem)>,
    problems_left_out: u64,
    number: u64,
    unterminated: bool,
    imported: bool,
    repaired: bool,
    trajectory_hash: Option<Hash>,
}

impl Default for Checker {
    fn default() -> Checker {
        Checker::new()
    }
}

impl Checker {
    /// Nothing read yet.
    pub fn new() -> Checker {
        Checker::with_chain(Chain::new(false))
    }

    /// As [`Checker::new`]; looks for the field where a line was changed.
    pub fn explaining() -> Checker {
        Checker::with_chain(Chain::new(true))
    }

    fn with_chain(chain: Chain) -> Checker {
        Checker {
            reading: None,
            rules: Rules::default(),
            chain,
            problems: Vec::new(),
            problems_left_out: 0,
            number: 0,
            unterminated: false,
            imported: false,
            repaired: false,
            trajectory_hash: None,
        }
    }

    /// Takes the next line with its line feed; only the last may lack it. An error means that this is not a replay.
    pub fn line(&mut self, line: &[u8]) -> Result<()> {
        self.number = self.number.saturating_add(1);
        let place = format!("line {}", self.number);
        if line.len() > MAX_LINE_BYTES || self.number > MAX_LINES {
            return Err(Error::new(&code::LIMIT, "is beyond the limits of a replay").at(place));
        }
        let text = line.strip_suffix(b"\n");
        self.unterminated = text.is_none();
        let text = text.unwrap_or(line);
        if text.trim_ascii().is_empty() && self.reading == Some(Reading::Tolerant) {
            return Ok(());
        }
        let doc = match parse(text) {
            Ok(doc) => doc,
            Err(problem) if self.number == 1 => {
                return Err(Error::from(problem.on_line(1)));
            }
            Err(problem) => {
                self.unreadable(problem);
                return Ok(());
            }
        };
        let reading = match self.reading {
            Some(reading) => reading,
            None => self.open(&doc)?,
        };
        self.read(&doc, text, reading);
        Ok(())
    }

    /// The first line decides whether this is a replay, of which version, and whether it is sealed.
    fn open(&mut self, doc: &Doc<'_>) -> Result<Reading> {
        if text_at(doc, "event") != Some("ReplayHeader") {
            let message = "the first line must be a ReplayHeader";
            return Err(Error::new(&code::NOT_A_REPLAY, message).at("line 1, event"));
        }
        if integer_at(doc, "replay_version") != Some(REPLAY_VERSION) {
            let message = format!("must be {REPLAY_VERSION}");
            return Err(Error::new(&code::UNKNOWN_VERSION, message).at("line 1, replay_version"));
        }
        self.imported = doc.get("imported") == Some(&Doc::Bool(true));
        let sealed = doc.get("chain").is_some();
        let reading = if sealed { Reading::Strict } else { Reading::Tolerant };
        self.reading = Some(reading);
        Ok(reading)
    }

    fn unreadable(&mut self, problem: Problem) {
        self.settle();
        // A last line that broke off is said once, at the end.
        if !self.unterminated {
            self.add_all(Group::Lines, [problem.on_line(self.number)]);
        }
    }

    fn read(&mut self, doc: &Doc<'_>, text: &[u8], reading: Reading) {
        let number = self.number;
        if reading == Reading::Strict {
            let canonical = json::require_canonical(text, doc).map_err(|e| placed(&e, text));
            self.add_all(Group::Lines, canonical.err().map(|p| p.on_line(number)));
        }
        let groups = [
            (Group::Fields, fields::problems(doc, reading)),
            (Group::Order, self.rules.check(doc, reading)),
            (Group::Hashes, fields::hash_problems(doc, text, reading)),
        ];
        for (group, problems) in groups {
            self.add_all(group, problems.into_iter().map(|p| p.on_line(number)));
        }
        self.rules.apply(doc, reading);
        self.repaired |= doc.get("repaired") == Some(&Doc::Bool(true));
        self.follow_chain(doc, reading);
    }

    fn follow_chain(&mut self, doc: &Doc<'_>, reading: Reading) {
        if reading == Reading::Tolerant {
            if doc.get("chain").is_some() || doc.get("trajectory_hash").is_some() {
                let message = "is missing, although later lines are sealed";
                let problem = Problem::new(&code::CHAIN, message).at("chain").on_line(1);
                if !self.problems.contains(&(Group::Chain, problem.clone())) {
                    self.add_all(Group::Chain, [problem]);
                }
            }
            return;
        }
        let problems = self.chain.line(self.number, doc);
        self.add_all(Group::Chain, problems);
        if text_at(doc, "event") == Some("SessionEnd") {
            let (end, problems) = self.chain.end(self.number, text_at(doc, "trajectory_hash"));
            self.trajectory_hash = end;
            self.add_all(Group::Chain, problems);
        }
    }

    fn add_all(&mut self, group: Group, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            if self.problems.len() < MAX_PROBLEMS {
                self.problems.push((group, problem));
            } else {
                self.problems_left_out = self.problems_left_out.saturating_add(1);
            }
        }
    }

    /// The first problem so far, if no line follows.
    pub(super) fn first_problem(&mut self) -> Option<&Problem> {
        self.settle();
        self.problems.iter().map(|(_, problem)| problem).min_by_key(|problem| problem.line)
    }

    /// Behind the last line: everything that was found.
    pub fn finish(mut self, receipt: Option<&[u8]>) -> Result<Report> {
        let Some(reading) = self.reading else {
            return Err(Error::new(&code::NOT_A_REPLAY, "the file is empty"));
        };
        self.close();
        let mut checks = Verification::default();
        for (group, name, holds) in GROUPS {
            checks.record(name, holds, self.taken(group));
        }
        let chain = self.taken(Group::Chain);
        if reading == Reading::Strict || !chain.is_empty() {
            checks.record("chain", "every line continues the chain up to the seal", chain);
        }
        let signer = match receipt {
            Some(receipt) => self.match_receipt(receipt, reading, &mut checks)?,
            None => None,
        };
        let whole = checks.holds();
        checks.record("origin", "not marked as repaired or imported", self.origin_problems());
        let standing = match (whole, reading) {
            (false, _) => Standing::Refused,
            (true, _) if self.repaired => Standing::Repaired,
            (true, _) if self.imported => Standing::Imported,
            (true, Reading::Tolerant) => Standing::Unsealed,
            (true, Reading::Strict) if receipt.is_some() => Standing::Verified,
            (true, Reading::Strict) => Standing::Sealed,
        };
        Ok(Report {
            standing,
            signed_by: signer.filter(|_| standing == Standing::Verified),
            checks,
            session_id: self.rules.session_id,
            policy_bundle_id: self.rules.policy_bundle_id,
            trajectory_hash: self.trajectory_hash,
            lines: self.number,
            tool_calls: self.rules.tool_calls,
        })
    }

    /// What only shows once there are no more lines.
    fn close(&mut self) {
        let number = self.number;
        if self.unterminated {
            let message = "breaks off: it does not end with a line feed";
            self.add_all(Group::Lines, [Problem::new(&code::TORN, message).on_line(number)]);
        }
        if !self.rules.ended {
            self.settle();
            let message = "is the last line, but not a SessionEnd";
            self.add_all(Group::Order, [Problem::new(&code::ORDER, message).on_line(number)]);
        }
        if self.problems_left_out > 0 {
            let message = format!("{} more problems are not listed", self.problems_left_out);
            self.problems.push((Group::Lines, Problem::new(&code::LINE, message)));
        }
    }

    /// No line follows that could tell what is wrong with the last one.
    fn settle(&mut self) {
        let lost = self.chain.lose();
        self.add_all(Group::Chain, lost);
    }

    fn taken(&self, group: Group) -> Vec<Problem> {
        let of_group = self.problems.iter().filter(|(its, _)| *its == group);
        of_group.map(|(_, problem)| problem.clone()).collect()
    }

    fn origin_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.repaired {
            let message = "says that the file was closed by a repair";
            problems.push(Problem::new(&code::REPAIRED, message).at("repaired"));
        }
        if self.imported {
            let message = "says that the file was converted from another format";
            problems.push(Problem::new(&code::IMPORTED, message).at("imported").on_line(1));
        }
        problems
    }

    /// Who signed the receipt, if the receipt holds.
    fn match_receipt(
        &self,
        bytes: &[u8],
        reading: Reading,
        checks: &mut Verification,
    ) -> Result<Option<PublicKey>> {
        let verification = receipt::verify(bytes).map_err(|e| e.within("receipt"))?;
        let problems = verification.problems().map(|problem| Problem {
            field: problem.field.as_ref().map(|field| format!("receipt.{field}")),
            ..problem.clone()
        });
        checks.record("receipt", "the receipt holds", problems);
        if reading == Reading::Tolerant {
            let message = "cannot be computed: the replay is not sealed";
            let problem = Problem::new(&code::UNSEALED, message).at("trajectory_hash");
            checks.record("trajectory_hash", "", [problem]);
        }
        if !verification.holds() {
            return Ok(None);
        }
        let receipt = Receipt::from_verified(bytes)?;
        let stated = receipt.stated();
        let differs = |differs: bool, field: &'static str| {
            differs.then(|| Problem::new(&code::RECEIPT, "differs from the receipt's").at(field))
        };
        if reading == Reading::Strict {
            let differs =
                differs(self.trajectory_hash != Some(stated.trajectory_hash), "trajectory_hash");
            checks.record("trajectory_hash", "the seal is the one the receipt names", differs);
        }
        let session = self.rules.session_id.as_ref() != Some(&stated.session_id);
        checks.record("session_id", "of one session", differs(session, "session_id"));
        let policy = self.rules.policy_bundle_id.as_ref() != Some(&stated.policy_bundle_id);
        checks.record("policy_bundle_id", "under one policy", differs(policy, "policy_bundle_id"));
        Ok(Some(stated.buyer_id))
    }
}

/// Reads one line.
pub(super) fn parse(text: &[u8]) -> Result<Doc<'_>, Problem> {
    let limits = Limits { max_bytes: MAX_LINE_BYTES, ..Limits::default() };
    Doc::parse_within(text, limits).map_err(|error| placed(&error, text))
}

/// The error as a problem of the line, with the field in which it is.
fn placed(error: &Error, text: &[u8]) -> Problem {
    let place = error.place().unwrap_or_default();
    let offset = place.strip_prefix("byte ").and_then(|offset| offset.parse().ok());
    let message = format!("{place}: {}", error.message());
    let problem = Problem::new(&code::LINE, message);
    match offset.and_then(|offset| tamper::path_at(text, offset)) {
        Some(path) => problem.at(crate::hash::shorten(&path)),
        None => problem,
    }
}

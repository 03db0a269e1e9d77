//! Closing a replay whose writer was interrupted.

use super::check::{Checker, parse};
use super::fields::SessionStatus;
use super::write::end_members;
use super::{TRAJECTORY_HASH_ALG, chain_next, code};
use crate::hash::Hash;
use crate::timestamp::Timestamp;
use crate::wire::{Reading, text_at};
use crate::{Error, Result, json};

/// A replay that has been closed. It says so itself, and never passes as verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// The whole file: every whole line as it was, and a `SessionEnd`.
    pub bytes: Vec<u8>,
    /// How many bytes of a broken last line were dropped.
    pub dropped_bytes: usize,
    /// How many lines were kept.
    pub kept_lines: u64,
}

/// Drops a last line that broke off, and closes the file with a `SessionEnd` of this status, which cannot be
/// `Success`. Refused if anything else is wrong with the file, or nothing is.
pub fn repair(bytes: &[u8], status: SessionStatus) -> Result<Repaired> {
    let refuse = |message: &str| Error::new(&code::NOT_REPAIRABLE, message);
    if status == SessionStatus::Success {
        return Err(refuse("nobody knows whether an interrupted session succeeded").at("status"));
    }
    let mut kept: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if kept.last().is_some_and(|last| is_broken(last)) {
        kept.pop();
    }
    let mut checker = Checker::new();
    for line in &kept {
        checker.line(line)?;
    }
    if let Some(problem) = checker.first_problem() {
        let message = format!("is damaged inside: {problem}");
        return Err(refuse(&message).at(problem.place().unwrap_or_default()));
    }
    if checker.rules.ended {
        return Err(refuse("the file already has its SessionEnd"));
    }
    let (Some(reading), Some(t)) = (checker.reading, checker.rules.last_t) else {
        return Err(refuse("too little is left: ReplayHeader and SessionStart are needed"));
    };
    let mut repaired: Vec<u8> = kept.concat();
    let dropped_bytes = bytes.len().saturating_sub(repaired.len());
    let former = kept.last().copied().unwrap_or_default();
    repaired.extend(last_line(&checker, reading, t, status, former)?);
    let kept_lines = u64::try_from(kept.len()).unwrap_or(u64::MAX);
    Ok(Repaired { bytes: repaired, dropped_bytes, kept_lines })
}

/// A line without its line feed was not written whole; nor was one that is not JSON, such as a block of zeros.
fn is_broken(line: &[u8]) -> bool {
    let text = line.strip_suffix(b"\n");
    text.is_none_or(|text| !text.trim_ascii().is_empty() && parse(text).is_err())
}

fn last_line(
    checker: &Checker,
    reading: Reading,
    t: Timestamp,
    status: SessionStatus,
    former: &[u8],
) -> Result<Vec<u8>> {
    let mut members = end_members(&checker.rules, t, status, 0.0);
    members.insert("repaired".to_owned(), true.into());
    if reading == Reading::Strict {
        members.insert("trajectory_hash_alg".to_owned(), TRAJECTORY_HASH_ALG.into());
        let chain = chain_next(&stated_chain(former)?, &json::to_canonical(&members)?);
        for key in ["chain", "trajectory_hash"] {
            members.insert(key.to_owned(), chain.to_string().into());
        }
    }
    let mut line = json::to_canonical(&members)?;
    line.push(b'\n');
    Ok(line)
}

/// The chain up to a line that has passed the checks.
fn stated_chain(line: &[u8]) -> Result<Hash> {
    let doc = parse(line)?;
    text_at(&doc, "chain").unwrap_or_default().parse()
}

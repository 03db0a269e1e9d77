//! What a review of ours says: pure, and the same each time.

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::review::{Content, Evidence, Review};

use crate::routing::{Entry, Status, TaskType};

/// Who is sometimes so much slower than usual is told to be.
const SLOW_FACTOR: u64 = 2;

/// What is believed of a provider when something is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belief<'a> {
    /// Of whom.
    pub provider: PublicKey,
    /// For which work.
    pub task: &'a TaskType,
    /// How far it is trusted.
    pub trust_bp: u32,
    /// Its entry; none if it was never admitted.
    pub entry: Option<&'a Entry>,
    /// The part of the tests that passed, or the score of the verdict, in ten-thousandths.
    pub test_score_bp: Option<u32>,
    /// Whether it tried what is forbidden.
    pub is_violation: bool,
}

/// The review of a provider.
pub fn compose(belief: &Belief<'_>, relay: Option<String>, evidence: Evidence) -> Review {
    let mut latencies: Vec<u64> = belief
        .entry
        .map(|entry| entry.samples.as_slice())
        .unwrap_or_default()
        .iter()
        .filter_map(|sample| u64::try_from(sample.latency_ms?).ok())
        .collect();
    latencies.sort_unstable();
    let (p50, p95) = (quantile(&latencies, 50), quantile(&latencies, 95));
    let (good, all) = counted(belief.entry);
    let mut strengths = Vec::new();
    let mut weaknesses = Vec::new();
    match (good, all) {
        (_, 0) => {}
        (good, all) if good == all => strengths.push(format!("all of {all} results accepted")),
        (good, all) if good.saturating_mul(10) >= all.saturating_mul(9) => {
            strengths.push(format!("{good} of {all} results accepted"));
        }
        (good, all) => weaknesses.push(format!("{good} of {all} results accepted")),
    }
    match belief.test_score_bp {
        Some(10_000) => strengths.push("passed every test".to_owned()),
        Some(bp) if bp < 9_000 => {
            weaknesses.push(format!("passed {} % of the tests", bp.div_euclid(100)));
        }
        _ => {}
    }
    if let (Some(p50), Some(p95)) = (p50, p95)
        && p95 > p50.saturating_mul(SLOW_FACTOR)
    {
        weaknesses.push(format!("some results took {p95} ms, half of them {p50} ms or less"));
    }
    if belief.is_violation {
        weaknesses.push("tried what is forbidden".to_owned());
    }
    let content = Content {
        summary: Some(summary(belief, good, all)),
        strengths,
        weaknesses,
        test_score_bp: belief.test_score_bp,
        latency_p50_ms: p50,
        latency_p95_ms: p95,
        recommendation: Some(recommendation(belief).to_owned()),
        evidence_cid: None,
        alert: belief.is_violation.then(|| "security_violation".to_owned()),
    };
    let trust_bp = if belief.is_violation { 0 } else { belief.trust_bp };
    Review {
        relay,
        content,
        evidence,
        ..Review::new(belief.provider, belief.task.as_str(), trust_bp)
    }
}

/// Good outcomes of the last 30 days, and all of them.
fn counted(entry: Option<&Entry>) -> (u64, u64) {
    let days = entry.map(|entry| entry.days.as_slice()).unwrap_or_default();
    days.iter().fold((0, 0), |(good, all), day| {
        (good.saturating_add(day.good.into()), all.saturating_add(day.all.into()))
    })
}

fn summary(belief: &Belief<'_>, good: u64, all: u64) -> String {
    let task = belief.task;
    if belief.is_violation {
        return format!("It tried what is forbidden while it did {task}.");
    }
    match belief.entry {
        None => format!("It did not pass the tests for {task}."),
        Some(_) if all == 0 => format!("It was tested for {task}, and has not been hired yet."),
        Some(_) => format!("{good} of {all} results for {task} were accepted in the last 30 days."),
    }
}

fn recommendation(belief: &Belief<'_>) -> &'static str {
    let status = belief.entry.map(|entry| entry.status);
    match status {
        _ if belief.is_violation => "Do not hire it.",
        Some(Status::Blacklisted) => "Do not hire it.",
        Some(Status::Active) => "Hired here.",
        Some(Status::Conditional) => "Hired here for small jobs.",
        Some(_) | None => "Not hired here now.",
    }
}

/// The smallest value that so many hundredths of all do not exceed.
fn quantile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = sorted.len().saturating_mul(percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        assert_eq!(quantile(&[], 50), None);
        assert_eq!((quantile(&[7], 50), quantile(&[7], 95)), (Some(7), Some(7)));
        let many: Vec<u64> = (1..=15).collect();
        assert_eq!((quantile(&many, 50), quantile(&many, 95)), (Some(8), Some(15)));
    }
}

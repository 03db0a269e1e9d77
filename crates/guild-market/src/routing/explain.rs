//! Everybody who could do some work, and how likely each is to get it: for people who want to know why.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use serde::Serialize;

use super::choice::{Look, again};
use super::{
    Choice, Entry, Hearsay, Hearsays, Matrix, Parts, Policy, Reason, TaskType, Tier, Wanted,
};

/// One who could be hired, or could not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Who.
    pub provider: PublicKey,
    /// Its tier; none if it is not hired.
    pub tier: Option<Tier>,
    /// Its place inside the tier, from 1.
    pub rank: Option<usize>,
    /// Its score, in millionths.
    pub score_micro: u32,
    /// What that is made of.
    pub parts: Parts,
    /// Why it could not be taken now.
    pub against: Option<Reason>,
    /// How much of the last hour's work it was given,
    pub share_jobs: usize,
    /// of so much.
    pub share_of: usize,
    /// The part of its outcomes of 30 days that were successes, in ten-thousandths.
    pub success_rate_30d_bp: Option<u32>,
    /// What others say of it, as far as that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hearsay: Option<Hearsay>,
    /// What is believed of it.
    pub entry: Entry,
}

/// Everybody for some work, and what either policy would choose.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Which work.
    pub task: TaskType,
    /// When.
    pub at_ms: UnixMs,
    /// The number of the last row of the log that counts.
    pub log_seq: i64,
    /// Outcomes of this task type.
    pub outcomes: u64,
    /// How often somebody is drawn from all, in ten-thousandths.
    pub epsilon_bp: u32,
    /// How many active providers are missing.
    pub short_of_active: usize,
    /// Everybody, the best tier first and the best in it first; who is not hired last.
    pub candidates: Vec<Candidate>,
    /// What the policies choose by this seed.
    pub choices: Vec<Choice>,
}

/// Explains the routing of some work at this moment, with choices of this seed; nothing if nobody was ever admitted for
/// it.
pub fn explain(matrix: &Matrix, task: &TaskType, now_ms: UnixMs, seed: u64) -> Option<Explanation> {
    explain_with(matrix, task, &Hearsays::new(), now_ms, seed)
}

/// The same, with what others say.
pub fn explain_with(
    matrix: &Matrix,
    task: &TaskType,
    said: &Hearsays,
    now_ms: UnixMs,
    seed: u64,
) -> Option<Explanation> {
    let shelf = matrix.task(task)?;
    let except = BTreeSet::new();
    let wanted = Wanted { task, except: &except, max_cost_msat: None, now_ms };
    let look = Look {
        seed,
        matrix,
        task: shelf,
        wanted: &wanted,
        said,
        limited: true,
        passed_over: Vec::new(),
        passed_over_count: 0,
    };
    let mut candidates: Vec<Candidate> =
        shelf.entries().iter().map(|(provider, entry)| candidate(&look, provider, entry)).collect();
    for tier in Tier::ALL {
        for (rank, (_, place)) in (1_usize..).zip(shelf.pool(tier)) {
            if let Some(candidate) = candidates.get_mut(*place) {
                candidate.rank = Some(rank);
            }
        }
    }
    candidates.sort_by_key(|one| (one.tier.is_none(), one.tier, one.rank));
    let choices = [Policy::Tiered, Policy::Thompson]
        .map(|policy| again(matrix, policy, (&wanted, said), seed));
    Some(Explanation {
        task: task.clone(),
        at_ms: now_ms,
        log_seq: matrix.seq(),
        outcomes: shelf.outcomes,
        epsilon_bp: super::tiered::epsilon_bp(matrix.options(), shelf.outcomes),
        short_of_active: matrix.options().min_active.saturating_sub(shelf.active()),
        candidates,
        choices: choices.into(),
    })
}

fn candidate(look: &Look<'_>, provider: &PublicKey, entry: &Entry) -> Candidate {
    let options = look.matrix.options();
    let parts = Parts::of(options, entry);
    let tier = Tier::of(options, entry);
    let (share_jobs, share_of) = look.task.shares.count(options, provider, look.wanted.now_ms);
    let against = match tier {
        None => Some(Reason::Status),
        Some(_) => look.against(provider, entry),
    };
    Candidate {
        provider: *provider,
        tier,
        rank: None,
        score_micro: parts.score_micro(options),
        parts,
        against,
        share_jobs,
        share_of,
        success_rate_30d_bp: entry.success_rate_30d_bp(look.wanted.now_ms),
        hearsay: look.said.get(provider).map(|said| said.beside(entry)),
        entry: entry.clone(),
    }
}

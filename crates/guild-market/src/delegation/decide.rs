//! What is to be done about a delegation: a pure decision.
//!
//! A result that was checked by itself and passed is a vote; votes for the same answer have the same hash. As soon as
//! enough are the same, the answer is decided, and whoever is still at it is told to stop. The answer that wins has
//! strictly more votes than any other, so there is never a second one.
//!
//! Of work that can be checked by itself (objective), a replica that failed, or whose result is wrong, is a fault that
//! is known: of f faults that a quorum bears, one is used up, and one vote less is needed; but never none. Of work that
//! only the comparison can judge nothing is known of who is silent, so nothing is taken off.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;

/// How it is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// So many must say the same.
    pub needed: u32,
    /// Whether each result is checked by itself.
    pub objective: bool,
}

/// Where a replica stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// It was asked, and nothing has come. From this moment on it is slow.
    Waiting {
        /// From when.
        slow_from_ms: UnixMs,
    },
    /// Its result is here and was not checked yet.
    Unchecked,
    /// Its result passed its own check, and says this.
    Voted(Hash),
    /// Its result did not pass its own check.
    Wrong,
    /// It ended without a result.
    Gone,
}

/// All that a decision looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// How it is decided.
    pub rule: Rule,
    /// The replicas, by their numbers.
    pub seats: BTreeMap<i64, Seat>,
    /// Until when results must be here.
    pub deadline_ms: UnixMs,
    /// Until when an unchecked result is waited for.
    pub check_until_ms: UnixMs,
    /// Whether one more could be asked: there is budget, time, and somebody.
    pub can_ask: bool,
    /// Whether there is a judge whom one could ask.
    pub has_judge: bool,
    /// Now.
    pub now_ms: UnixMs,
}

/// Why one more is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is one of those who were asked first.
    First,
    /// Those who are at it take longer than they do of all but five of a hundred times.
    Hedge,
    /// Those who are left cannot decide it.
    Replacement,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 3] = [Reason::First, Reason::Hedge, Reason::Replacement];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::First => "first",
            Reason::Hedge => "hedge",
            Reason::Replacement => "replacement",
        }
    }

    /// The one of this word.
    pub fn parse(word: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|one| one.as_str() == word)
    }
}

/// Who is what, once it is decided. Every replica is in one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// Those whose answer it is.
    pub agrees: Vec<i64>,
    /// Those who delivered something else.
    pub differs: Vec<i64>,
    /// Those who delivered nothing that could be checked.
    pub failed: Vec<i64>,
    /// Those who are still at it.
    pub cancel: Vec<i64>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing until then, unless something comes.
    Wait {
        /// When to look again.
        until_ms: UnixMs,
    },
    /// One more is to be asked.
    More(Reason),
    /// Nothing is agreed on: a judge is to choose among these answers.
    Adjudicate {
        /// The answers, with how many say so.
        answers: BTreeMap<Hash, u32>,
    },
    /// It is decided.
    Decided {
        /// The answer.
        winner: Hash,
        /// Who is what.
        split: Split,
    },
    /// It will not be decided: nobody is paid.
    Undecided {
        /// Why, in words.
        why: String,
        /// Who is what: nobody agrees.
        split: Split,
    },
}

/// How long is waited where nothing says for what.
const LOOK_MS: i64 = 1_000;

impl Facts {
    /// How many say what.
    pub fn votes(&self) -> BTreeMap<Hash, u32> {
        let mut votes = BTreeMap::new();
        for seat in self.seats.values() {
            if let Seat::Voted(hash) = seat {
                let count: &mut u32 = votes.entry(*hash).or_insert(0);
                *count = count.saturating_add(1);
            }
        }
        votes
    }

    /// How many must say the same, as things stand.
    pub fn needed(&self) -> u32 {
        let needed = self.rule.needed.max(1);
        if !self.rule.objective {
            return needed;
        }
        let known = self.count(|seat| matches!(seat, Seat::Wrong | Seat::Gone));
        needed.saturating_sub(known).max(1)
    }

    fn count(&self, wanted: impl Fn(&Seat) -> bool) -> u32 {
        let count = self.seats.values().filter(|seat| wanted(seat)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The answer that more say than any other.
    fn leader(&self) -> Option<(Hash, u32)> {
        let votes = self.votes();
        let (hash, count) = votes.iter().max_by_key(|(_, count)| **count)?;
        let alone = votes.values().filter(|other| *other == count).count() == 1;
        alone.then_some((*hash, *count))
    }

    /// Who is what if this is the answer.
    pub fn split(&self, winner: Option<&Hash>) -> Split {
        let mut split = Split::default();
        for (number, seat) in &self.seats {
            let to = match seat {
                Seat::Voted(hash) if Some(hash) == winner => &mut split.agrees,
                Seat::Voted(_) | Seat::Wrong => &mut split.differs,
                Seat::Gone | Seat::Unchecked => &mut split.failed,
                Seat::Waiting { .. } => &mut split.cancel,
            };
            to.push(*number);
        }
        split
    }
}

/// What is to be done.
///
/// ```
/// use guild_market::delegation::{Decision, Facts, Rule, Seat, decide};
/// use guild_protocol::hash::Hash;
/// let (right, wrong) = (Hash::of(b"right"), Hash::of(b"wrong"));
/// let seats = [Seat::Voted(right), Seat::Voted(wrong), Seat::Voted(right)];
/// let facts = Facts {
///     rule: Rule { needed: 2, objective: false },
///     seats: (1..).zip(seats).collect(),
///     deadline_ms: 60_000, check_until_ms: 120_000, can_ask: false, has_judge: false, now_ms: 0,
/// };
/// let Decision::Decided { winner, split } = decide(&facts) else { panic!() };
/// assert_eq!((winner, split.agrees, split.differs), (right, vec![1, 3], vec![2]));
/// ```
pub fn decide(facts: &Facts) -> Decision {
    let unchecked = facts.count(|seat| *seat == Seat::Unchecked);
    if unchecked > 0 && facts.now_ms < facts.check_until_ms {
        // Whoever delivered before it was decided takes part.
        return Decision::Wait { until_ms: facts.check_until_ms };
    }
    let needed = facts.needed();
    if let Some((winner, count)) = facts.leader()
        && count >= needed
    {
        return Decision::Decided { winner, split: facts.split(Some(&winner)) };
    }
    let most = facts.votes().values().copied().max().unwrap_or(0);
    let waiting = facts.count(|seat| matches!(seat, Seat::Waiting { .. }));
    // Of objective work everybody who is silent in the end is one vote less that is needed.
    let reachable = match facts.rule.objective {
        true => waiting > 0,
        false => most.saturating_add(waiting) >= needed,
    };
    match (reachable, facts.can_ask) {
        (true, can_ask) => wait_or_hedge(facts, can_ask),
        (false, true) => Decision::More(Reason::Replacement),
        (false, false) => without_consensus(facts, needed),
    }
}

/// Waits for those who are at it, or asks one more once the slowest of them is late.
fn wait_or_hedge(facts: &Facts, can_ask: bool) -> Decision {
    let slow = facts.seats.values().filter_map(|seat| match seat {
        Seat::Waiting { slow_from_ms } => Some(*slow_from_ms),
        _ => None,
    });
    let slow_from_ms = slow.max().unwrap_or(facts.deadline_ms);
    if can_ask && slow_from_ms <= facts.now_ms && facts.now_ms < facts.deadline_ms {
        return Decision::More(Reason::Hedge);
    }
    let moments = [slow_from_ms, facts.deadline_ms];
    let next = moments.into_iter().filter(|at_ms| *at_ms > facts.now_ms).min();
    // Behind the deadline the rows say when everything that came in time was read.
    let until_ms = next.unwrap_or_else(|| facts.now_ms.saturating_add(LOOK_MS));
    Decision::Wait { until_ms }
}

fn without_consensus(facts: &Facts, needed: u32) -> Decision {
    let answers = facts.votes();
    if !facts.rule.objective && facts.has_judge && answers.len() > 1 {
        return Decision::Adjudicate { answers };
    }
    let most = answers.values().copied().max().unwrap_or(0);
    let why = match most {
        0 => "nobody delivered what passes its check".to_owned(),
        most => format!("{needed} must say the same, and at most {most} do"),
    };
    Decision::Undecided { why, split: facts.split(None) }
}

#[cfg(test)]
mod tests;

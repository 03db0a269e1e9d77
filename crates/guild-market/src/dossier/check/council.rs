//! Work that several did: whether all votes are there, each counts for what its result says, and the answer follows.
//!
//! The rule of `docs/delegation.md`, written a second time: the answer that wins has enough votes, and strictly more
//! than any other; of objective work each who failed, or was found wrong, is one vote less that is needed, but never
//! none.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::hash::Hash;
use guild_protocol::receipt::Status;

use super::document::{Consensus, Own};
use super::work::Seat;
use super::{Desk, says};
use crate::dossier::{Council, Problem, code};

/// An order that is no part of anything says nothing of others.
pub(super) fn alone(desk: &mut Desk<'_>, seats: &[Seat]) {
    let part = seats
        .iter()
        .find(|seat| seat.verdict.as_ref().is_some_and(|verdict| verdict.consensus.is_some()));
    if let Some(seat) = part {
        let message = "it is one of several, and the others are not here";
        desk.report.record("votes", seat.of(), Err(Problem::new(&code::VOTES, message)));
    }
}

pub(super) fn check(desk: &mut Desk<'_>, council: &Council, seats: &[Seat]) {
    let of = council.delegation_id.clone();
    if !desk.report.record("votes", &of, all_there(council, seats)) {
        return;
    }
    desk.report.record("amount", &of, within_budget(council, seats));
    let Some(agreed) = consensus_of(seats).next() else {
        return desk
            .report
            .note("nothing was delivered, so nobody has signed for what became of the delegation");
    };
    let silent = seats.iter().any(|seat| ["expired", "failed"].contains(&seat.work.state.as_str()));
    if silent {
        desk.report.note("that somebody delivered nothing in time is the buyer's word");
    }
    let votes = match counted(desk, seats) {
        Ok(votes) => votes,
        Err(problem) => {
            desk.report.record("votes", &of, Err(problem));
            return;
        }
    };
    let Some(votes) = votes else { return };
    for (number, seat) in seats.iter().enumerate() {
        let outcome = as_it_says(desk, seat, votes.get(&number));
        if seat.verdict.is_some() {
            desk.report.record("vote", seat.of(), outcome);
        }
    }
    if agreed.by.as_deref() == Some("judge") {
        desk.report.note("nobody agreed, and a judge model chose; what it said is not checked");
    }
    desk.report.record("winner", &of, follows(agreed, seats, &votes));
}

fn consensus_of(seats: &[Seat]) -> impl Iterator<Item = &Consensus> {
    seats.iter().filter_map(|seat| seat.verdict.as_ref()?.consensus.as_ref())
}

fn wrong(message: impl Into<String>) -> Problem {
    Problem::new(&code::VOTES, message)
}

/// Whether the verdicts are those of one delegation, of as many as there are, each of another.
fn all_there(council: &Council, seats: &[Seat]) -> Result<(), Problem> {
    let providers: BTreeSet<_> = seats.iter().filter_map(|seat| seat.work.provider).collect();
    if providers.len() != seats.len() {
        return Err(wrong("somebody stands in it twice"));
    }
    let jobs: BTreeSet<Hash> =
        seats.iter().filter_map(|seat| Some(seat.job.as_ref()?.job_hash())).collect();
    if jobs.len() > 1 {
        return Err(wrong("they did not do the same work"));
    }
    let mut agreed: Option<&Consensus> = None;
    for seat in seats {
        let Some(verdict) = &seat.verdict else { continue };
        let Some(one) = &verdict.consensus else {
            return Err(wrong(format!(
                "the verdict of {} is not that of one of several",
                seat.of()
            )));
        };
        if one.delegation_id != council.delegation_id {
            return Err(wrong(format!("{} is a part of {}", seat.of(), one.delegation_id)));
        }
        if usize::try_from(one.replicas).ok() != Some(seats.len()) {
            return Err(wrong(format!(
                "{} were asked, and {} are here",
                one.replicas,
                seats.len()
            )));
        }
        let first = agreed.get_or_insert(one);
        let parts = |one: &Consensus| {
            let Consensus { rule, asked, needed, agreeing, by, state, winner, .. } = one;
            (rule.clone(), (*asked, *needed, *agreeing), by.clone(), state.clone(), *winner)
        };
        if parts(first) != parts(one) {
            return Err(wrong("two verdicts tell of two decisions"));
        }
    }
    Ok(())
}

/// All of them together are paid no more than was set aside. How much that was, the buyer says.
fn within_budget(council: &Council, seats: &[Seat]) -> Result<(), Problem> {
    let paid = seats.iter().filter_map(|seat| {
        let stated = seat.receipt.as_ref()?.stated();
        matches!(stated.status, Status::Released | Status::Prepaid).then_some(stated.amount.units)
    });
    let paid = paid.fold(0_i64, i64::saturating_add);
    match paid <= council.budget_msat {
        true => Ok(()),
        false => {
            let message = format!("{paid} msat were paid, {} were set aside", council.budget_msat);
            Err(Problem::new(&code::AMOUNT, message))
        }
    }
}

/// Whether a result takes part in the vote.
fn votes(seat: &Seat) -> bool {
    seat.verdict.as_ref().is_some_and(|verdict| verdict.own() == Own::Passed)
}

/// Who counts for which answer; none if the kind of work is not known here.
fn counted(desk: &Desk<'_>, seats: &[Seat]) -> Result<Option<BTreeMap<usize, Hash>>, Problem> {
    let Some(job) = seats.iter().find_map(|seat| seat.job.as_ref()) else { return Ok(None) };
    let mut outputs = Vec::new();
    for (number, seat) in seats.iter().enumerate().filter(|(_, seat)| votes(seat)) {
        match &seat.output {
            Some(output) => outputs.push((number, output.as_str())),
            None => return Err(wrong(format!("the result of {} is not here", seat.of()))),
        }
    }
    Ok(Some(says::votes(desk.options.registry, job, &outputs)))
}

/// Whether a verdict says of its result what the result says, and counts it for what it counts.
fn as_it_says(desk: &Desk<'_>, seat: &Seat, vote: Option<&Hash>) -> Result<(), Problem> {
    let Some((verdict, consensus)) =
        seat.verdict.as_ref().and_then(|verdict| Some((verdict, verdict.consensus.as_ref()?)))
    else {
        return Ok(());
    };
    let says = match (&seat.job, &seat.output) {
        (Some(job), Some(output)) if verdict.own() != Own::Unchecked => {
            says::hash(desk.options.registry, job, output)
        }
        _ => None,
    };
    if consensus.says != says {
        return Err(wrong("its result says something else than its verdict has it say"));
    }
    // What cannot be compared is no vote, whatever its check says.
    if consensus.vote.as_ref() != vote {
        return Err(wrong("it is counted for another answer than the one that it is like"));
    }
    if verdict.passed != (consensus.winner.is_some() && consensus.vote == consensus.winner) {
        let message = "it is accepted and differs from the answer, or the other way round";
        return Err(Problem::new(&code::WINNER, message));
    }
    Ok(())
}

/// Whether the answer, or that there is none, follows from the votes.
fn follows(
    agreed: &Consensus,
    seats: &[Seat],
    votes: &BTreeMap<usize, Hash>,
) -> Result<(), Problem> {
    let wrong = |message: String| Err(Problem::new(&code::WINNER, message));
    rule_is_one(agreed)?;
    let objective = seats
        .iter()
        .find_map(|seat| seat.verdict.as_ref())
        .is_some_and(|verdict| verdict.mode == "objective");
    let needed = needed(agreed.needed, objective, faults(seats, votes));
    let counts = count(votes);
    let most = counts.values().copied().max().unwrap_or(0);
    let decided = winner(needed, &counts);
    let for_winner = agreed.winner.and_then(|winner| counts.get(&winner).copied()).unwrap_or(0);
    match (agreed.state.as_str(), agreed.by.as_deref()) {
        ("decided", Some("votes")) if decided != agreed.winner => {
            wrong(format!("{needed} had to say the same, and at most {most} do, or another answer"))
        }
        ("decided", Some("judge")) if decided.is_some() => {
            wrong("a judge chose although the votes decide".to_owned())
        }
        ("decided", Some("judge")) if for_winner == 0 => {
            wrong("a judge chose what nobody said".to_owned())
        }
        ("undecided", None) if decided.is_some() => {
            wrong(format!("{most} say the same, {needed} had to, and it is undecided"))
        }
        ("decided", Some("votes" | "judge")) if agreed.agreeing != for_winner => {
            wrong(format!("{for_winner} say so, the verdict counts {}", agreed.agreeing))
        }
        ("undecided", None) if agreed.agreeing != 0 || agreed.winner.is_some() => {
            wrong("it is undecided and has an answer".to_owned())
        }
        ("decided", Some("votes" | "judge")) | ("undecided", None) => Ok(()),
        _ => wrong("it ended in no way that there is".to_owned()),
    }
}

/// How many must say the same, as things stand.
fn needed(by_rule: u32, objective: bool, faults: u32) -> u32 {
    match objective {
        true => by_rule.saturating_sub(faults).max(1),
        false => by_rule.max(1),
    }
}

fn count(votes: &BTreeMap<usize, Hash>) -> BTreeMap<Hash, u32> {
    let mut counts: BTreeMap<Hash, u32> = BTreeMap::new();
    for vote in votes.values() {
        let count = counts.entry(*vote).or_insert(0);
        *count = count.saturating_add(1);
    }
    counts
}

/// The answer that enough say, and more than any other.
fn winner(needed: u32, counts: &BTreeMap<Hash, u32>) -> Option<Hash> {
    let most = counts.values().copied().max()?;
    let mut leaders = counts.iter().filter(|(_, count)| **count == most);
    let (first, _) = leaders.next()?;
    (leaders.next().is_none() && most >= needed).then_some(*first)
}

/// Whether so many are needed by a rule of that name: more than half of those who were asked first. Whoever was asked
/// beside them, because one was slow or had failed, makes it neither more nor less.
fn rule_is_one(agreed: &Consensus) -> Result<(), Problem> {
    let by_rule = match agreed.rule.as_str() {
        "first_success" => Some(1),
        "majority" | "quorum" => Some(agreed.asked.div_euclid(2).saturating_add(1)),
        _ => None,
    };
    let fits = (1..=agreed.replicas).contains(&agreed.asked) && by_rule == Some(agreed.needed);
    match fits {
        true => Ok(()),
        false => {
            let message =
                format!("{} of {} by the rule {}", agreed.needed, agreed.asked, agreed.rule);
            Err(Problem::new(&code::WINNER, format!("no such number is needed: {message}")))
        }
    }
}

/// Those who are known to have failed: who ended without a result, and whose result was found wrong or says nothing.
fn faults(seats: &[Seat], counted: &BTreeMap<usize, Hash>) -> u32 {
    let is_fault = |(number, seat): &(usize, &Seat)| match &seat.verdict {
        Some(verdict) => match verdict.own() {
            Own::Failed => true,
            Own::Passed => !counted.contains_key(number),
            Own::Unchecked => false,
        },
        None => ["expired", "failed"].contains(&seat.work.state.as_str()),
    };
    u32::try_from(seats.iter().enumerate().filter(is_fault).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::UnixMs;
    use proptest::prelude::*;

    use super::*;
    use crate::delegation::{Decision, Facts, Rule, Seat as Place, decide};

    const NOW_MS: UnixMs = 10_000;

    /// One who votes for one of three answers, or does not.
    fn place() -> impl Strategy<Value = Place> {
        let answer = |n: u8| Place::Voted(Hash::of(&[n]));
        prop_oneof![
            4 => (0u8..3).prop_map(answer),
            1 => Just(Place::Wrong),
            1 => Just(Place::Gone),
            1 => Just(Place::Unchecked),
            1 => Just(Place::Waiting { slow_from_ms: NOW_MS }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

        /// The rule that is written here, and the one by which delegations are decided.
        #[test]
        fn both_rules_come_to_the_same(
            places in prop::collection::vec(place(), 1..8), by_rule in 1u32..5, objective: bool,
        ) {
            let facts = Facts {
                rule: Rule { needed: by_rule, objective },
                seats: (1..).zip(places.clone()).collect(),
                deadline_ms: 0,
                check_until_ms: 0,
                can_ask: false,
                has_judge: false,
                now_ms: NOW_MS,
            };
            let votes: BTreeMap<usize, Hash> = places
                .iter()
                .enumerate()
                .filter_map(|(number, place)| match place {
                    Place::Voted(hash) => Some((number, *hash)),
                    _ => None,
                })
                .collect();
            let known = places.iter().filter(|place| matches!(place, Place::Wrong | Place::Gone));
            let needed = needed(by_rule, objective, known.count() as u32);
            let by_this = winner(needed, &count(&votes));
            match decide(&facts) {
                Decision::Decided { winner, .. } => prop_assert_eq!(by_this, Some(winner)),
                Decision::Undecided { .. } => prop_assert_eq!(by_this, None),
                other => prop_assert!(matches!(other, Decision::Wait { .. }), "{:?}", other),
            }
        }
    }
}

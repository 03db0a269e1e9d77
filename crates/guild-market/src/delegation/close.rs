//! A decision becomes rows.

use std::collections::BTreeMap;

use guild_ledger::policy::Bundle;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::schema::Registry;
use guild_store::{Rx, Tx, args};

use super::judge::{Finding, Question};
use super::read::{DecidedBy, Delegation, Replica, Standing, State, get, with_orders};
use super::vote::{Says, group};
use super::{
    Decision, DelegationId, Facts, NewReplica, Options, Reason, Seat, Split, decide, left_of, seat,
    tell_of,
};
use crate::error::code;
use crate::order::{self, Order};
use crate::{Error, Result};

/// How much of why is kept.
const WHY_MAX_CHARS: usize = 600;

/// What is needed to decide.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// The schemas that are known.
    pub registry: &'a Registry,
    /// The numbers.
    pub options: &'a Options,
    /// Whether there is a judge.
    pub has_judge: bool,
}

/// A delegation that has just ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// As it stands now.
    pub delegation: Delegation,
    /// The orders that were cancelled: their requests are to be taken back in this transaction.
    pub cancelled: Vec<Order>,
}

/// What a look at a delegation gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It has ended before.
    Over,
    /// It waits.
    Waits,
    /// One more is to be asked: see [`add`] and [`exhaust`].
    More(Reason),
    /// A judge is to be asked: see [`adjudged`].
    Ask(Question),
    /// It has ended now.
    Closed(Box<Closed>),
}

/// All that is known of a delegation.
struct Known {
    delegation: Delegation,
    seated: Vec<(Replica, Order)>,
    facts: Facts,
}

/// Reads what a decision looks at. What each says is found out here, from all of them together.
fn read(
    rx: &mut Rx<'_>,
    delegation: Delegation,
    means: Means<'_>,
    now_ms: UnixMs,
) -> Result<Known> {
    let seated = with_orders(rx, &delegation.delegation_id)?;
    let votes = votes(&delegation, &seated, means)?;
    let seats = seated
        .iter()
        .map(|(replica, order)| (replica.number, seat_of(replica, order, &votes)))
        .collect();
    let Options { ask_least_ms, check_ms, .. } = *means.options;
    let extra = seated.iter().filter(|(replica, _)| replica.reason != Reason::First).count();
    let has_room = u32::try_from(extra).is_ok_and(|extra| extra < delegation.extra_max);
    let has_time = now_ms.saturating_add(ask_least_ms) < delegation.deadline_ms;
    let has_money = delegation.budget.0 == 0 || left_of(&delegation, &seated).0 > 0;
    let facts = Facts {
        rule: delegation.rule(),
        seats,
        deadline_ms: delegation.deadline_ms,
        check_until_ms: delegation.deadline_ms.saturating_add(check_ms),
        can_ask: has_room && has_time && has_money && !delegation.exhausted,
        // What is private is not shown to anybody else.
        has_judge: means.has_judge && !delegation.private,
        now_ms,
    };
    Ok(Known { delegation, seated, facts })
}

fn votes(
    delegation: &Delegation,
    seated: &[(Replica, Order)],
    means: Means<'_>,
) -> Result<BTreeMap<i64, Hash>> {
    let passed = seated.iter().filter(|(replica, _)| replica.passed == Some(true));
    let said: Vec<Says<'_>> = passed
        .map(|(replica, order)| Says {
            number: replica.number,
            output_text: order.output_text.as_deref().unwrap_or_default(),
        })
        .collect();
    if said.is_empty() {
        return Ok(BTreeMap::new());
    }
    let job = delegation.job(means.registry)?;
    Ok(group(means.registry, means.options, &job, &said))
}

fn seat_of(replica: &Replica, order: &Order, votes: &BTreeMap<i64, Hash>) -> Seat {
    match (order.state, replica.passed) {
        (order::State::Posted, _) => Seat::Waiting { slow_from_ms: replica.slow_from_ms },
        (order::State::Delivered, None) => Seat::Unchecked,
        (order::State::Delivered, Some(true)) => {
            votes.get(&replica.number).map_or(Seat::Wrong, |vote| Seat::Voted(*vote))
        }
        (order::State::Delivered, Some(false)) => Seat::Wrong,
        _ => Seat::Gone,
    }
}

/// Looks at a delegation, and does what can be done here: it ends, or the time of the next look is written.
pub fn step(
    tx: &mut Tx<'_>,
    delegation_id: &DelegationId,
    means: Means<'_>,
    now_ms: UnixMs,
) -> Result<Step> {
    let delegation = get(tx, delegation_id)?;
    if delegation.state != State::Open {
        return Ok(Step::Over);
    }
    let known = read(tx, delegation, means, now_ms)?;
    match decide(&known.facts) {
        Decision::Wait { until_ms } => {
            super::put_off(tx, delegation_id, until_ms)?;
            Ok(Step::Waits)
        }
        Decision::More(reason) => Ok(Step::More(reason)),
        Decision::Adjudicate { answers } => Ok(Step::Ask(question(&known, &answers))),
        Decision::Decided { winner, split } => {
            let count = split.agrees.len();
            let needed = known.facts.needed();
            let why = format!("{count} say the same, {needed} had to");
            let end = End { won: Some((winner, DecidedBy::Votes)), split, why };
            close(tx, &known, &end, now_ms).map(|closed| Step::Closed(Box::new(closed)))
        }
        Decision::Undecided { why, split } => {
            let end = End { won: None, split, why };
            close(tx, &known, &end, now_ms).map(|closed| Step::Closed(Box::new(closed)))
        }
    }
}

/// One answer of each kind: that of the first who says so.
fn question(known: &Known, answers: &BTreeMap<Hash, u32>) -> Question {
    let text = |hash: &Hash| {
        let says = |(replica, _): &&(Replica, Order)| {
            known.facts.seats.get(&replica.number) == Some(&Seat::Voted(*hash))
        };
        let first = known.seated.iter().find(says);
        first.and_then(|(_, order)| order.output_text.clone()).unwrap_or_default()
    };
    Question {
        schema_id: known.delegation.schema_id.to_string(),
        payload: known.delegation.payload.clone(),
        answers: answers.keys().map(|hash| (*hash, text(hash))).collect(),
    }
}

/// One more is asked, if that is still what is to be done; none if it is not.
pub fn add(
    tx: &mut Tx<'_>,
    delegation_id: &DelegationId,
    replica: &NewReplica,
    means: Means<'_>,
    bundle: &Bundle,
    now_ms: UnixMs,
) -> Result<Option<Order>> {
    let Some(known) = still(tx, delegation_id, means, now_ms)? else { return Ok(None) };
    let Decision::More(reason) = decide(&known.facts) else { return Ok(None) };
    let number = next_number(&known.seated);
    let order = seat(tx, &known.delegation, (number, reason), replica, bundle, now_ms)?;
    super::stir(tx, &order.order_id)?;
    Ok(Some(order))
}

/// The number that the next replica gets.
fn next_number(seated: &[(Replica, Order)]) -> i64 {
    let last = seated.iter().map(|(replica, _)| replica.number).max().unwrap_or(0);
    last.saturating_add(1)
}

/// Notes that nobody else can be asked.
pub fn exhaust(tx: &mut Tx<'_>, delegation_id: &DelegationId) -> Result<()> {
    tx.exec(
        "UPDATE market_delegation SET exhausted = 1, due_ms = 0 WHERE delegation_id = $1 AND state = 'open'",
        args![delegation_id.as_str()],
    )?;
    Ok(())
}

fn still(
    tx: &mut Tx<'_>,
    delegation_id: &DelegationId,
    means: Means<'_>,
    now_ms: UnixMs,
) -> Result<Option<Known>> {
    let delegation = get(tx, delegation_id)?;
    if delegation.state != State::Open {
        return Ok(None);
    }
    read(tx, delegation, means, now_ms).map(Some)
}

/// Ends a delegation by what a judge found about the answers that it was shown; nothing happens if they are others by
/// now. Who did not answer, or not as it must, has decided nothing: nobody is paid.
pub fn adjudged(
    tx: &mut Tx<'_>,
    delegation_id: &DelegationId,
    asked: &Question,
    found: &Result<Finding, String>,
    means: Means<'_>,
    now_ms: UnixMs,
) -> Result<Option<Closed>> {
    let Some(known) = still(tx, delegation_id, means, now_ms)? else { return Ok(None) };
    let Decision::Adjudicate { answers } = decide(&known.facts) else { return Ok(None) };
    if question(&known, &answers) != *asked {
        return Ok(None);
    }
    let end = match found {
        Ok(Finding { winner: Some(winner), reason }) => End {
            won: Some((*winner, DecidedBy::Judge)),
            split: known.facts.split(Some(winner)),
            why: format!("nobody agreed, and a judge chose: {reason}"),
        },
        Ok(Finding { winner: None, reason }) => End {
            won: None,
            split: known.facts.split(None),
            why: format!("nobody agreed, and the judge took none of them: {reason}"),
        },
        Err(why) => End {
            won: None,
            split: known.facts.split(None),
            why: format!("nobody agreed, and there is no judgement: {why}"),
        },
    };
    close(tx, &known, &end, now_ms).map(Some)
}

/// How a delegation ends.
struct End {
    won: Option<(Hash, DecidedBy)>,
    split: Split,
    why: String,
}

/// Writes the decision, where each stands, and the end of those who are still at it.
fn close(tx: &mut Tx<'_>, known: &Known, end: &End, now_ms: UnixMs) -> Result<Closed> {
    let mut cancelled = Vec::new();
    for (replica, order) in &known.seated {
        let standing = standing(&end.split, replica.number);
        let vote = match known.facts.seats.get(&replica.number) {
            Some(Seat::Voted(vote)) => Some(vote.to_string()),
            _ => None,
        };
        if standing == Standing::Cancelled {
            cancelled.push(order::cancel(tx, &order.order_id, now_ms)?);
        }
        tx.cas(
            "UPDATE market_replica SET standing = $3, vote = $4
             WHERE delegation_id = $1 AND number = $2 AND standing = 'waiting'",
            args![replica.delegation_id.as_str(), replica.number, standing.as_str(), vote.as_ref()],
        )?;
    }
    let state = if end.won.is_some() { State::Decided } else { State::Undecided };
    let delegation = finish(tx, &known.delegation, (state, end.won, &end.why), now_ms)?;
    Ok(Closed { delegation, cancelled })
}

fn standing(split: &Split, number: i64) -> Standing {
    let all = [
        (&split.agrees, Standing::Agrees),
        (&split.differs, Standing::Differs),
        (&split.cancel, Standing::Cancelled),
    ];
    let found = all.into_iter().find(|(numbers, _)| numbers.contains(&number));
    found.map_or(Standing::Failed, |(_, standing)| standing)
}

fn finish(
    tx: &mut Tx<'_>,
    delegation: &Delegation,
    (state, won, why): (State, Option<(Hash, DecidedBy)>, &str),
    now_ms: UnixMs,
) -> Result<Delegation> {
    let why: String = why.chars().filter(|c| !c.is_control()).take(WHY_MAX_CHARS).collect();
    tx.cas(
        "UPDATE market_delegation SET state = $2, winner = $3, decided_by = $4, why = $5, changed_ms = $6
         WHERE delegation_id = $1 AND state = 'open'",
        args![
            delegation.delegation_id.as_str(),
            state.as_str(),
            won.map(|(winner, _)| winner.to_string()).as_ref(),
            won.map(|(_, by)| by.as_str()),
            &why,
            now_ms
        ],
    )?;
    let delegation = get(tx, &delegation.delegation_id)?;
    tell_of(tx, &delegation, now_ms)?;
    Ok(delegation)
}

/// Gives a delegation up, as long as nothing has come: what was delivered is decided about and paid. Again it is the
/// same.
pub fn cancel(tx: &mut Tx<'_>, delegation_id: &DelegationId, now_ms: UnixMs) -> Result<Closed> {
    let delegation = get(tx, delegation_id)?;
    if delegation.state == State::Cancelled {
        return Ok(Closed { delegation, cancelled: Vec::new() });
    }
    let seated = with_orders(tx, delegation_id)?;
    let came = seated.iter().any(|(_, order)| order.state == order::State::Delivered);
    if came || delegation.state != State::Open {
        let message = match came {
            true => "a result has come: it is decided by itself".to_owned(),
            false => format!("the delegation is {}", delegation.state.as_str()),
        };
        return Err(Error::refused(&code::DELEGATION_CLOSED, message));
    }
    let mut cancelled = Vec::new();
    for (replica, order) in &seated {
        let standing = match order.state {
            order::State::Posted => {
                cancelled.push(order::cancel(tx, &order.order_id, now_ms)?);
                Standing::Cancelled
            }
            _ => Standing::Failed,
        };
        tx.cas(
            "UPDATE market_replica SET standing = $2 WHERE order_id = $1 AND standing = 'waiting'",
            args![replica.order_id.as_str(), standing.as_str()],
        )?;
    }
    let delegation = finish(tx, &delegation, (State::Cancelled, None, "we gave it up"), now_ms)?;
    Ok(Closed { delegation, cancelled })
}

//! One piece of work that several do, because it matters that the answer is right and there.
//!
//! | from | to | when |
//! |---|---|---|
//! | | `open` | [`post`]: every replica is an order of its own, to one provider, with its own budget held |
//! | `open` | `open` | [`voted`]: a result was checked by itself; [`add`]: one more is asked |
//! | `open` | `decided` | [`step`], [`adjudged`]: enough say the same, or a judge chose; the rest is cancelled |
//! | `open` | `undecided` | [`step`], [`adjudged`]: nobody can agree any more |
//! | `open` | `cancelled` | [`cancel`]: before anything came |
//!
//! The decision and where every replica stands are one transaction. The money follows from those rows: an order of a
//! replica is settled only once its delegation has ended, by [`verdict_of`], and that is found again by whoever looks
//! next. So a crash between the two changes nothing, and two different answers are never paid.
//!
//! | replica | order | paid |
//! |---|---|---|
//! | `agrees` | released | what was agreed with it |
//! | `differs` | withheld | nothing |
//! | `failed` | expired or failed; withheld if what came could not be checked | nothing |
//! | `cancelled` | cancelled | nothing; a result that comes later makes it `late`, and changes nothing else |

use guild_ledger::policy::Bundle;
use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::Event;
use guild_protocol::schema::VerificationMode;
use guild_store::{Rx, Tx, args};
use serde_json::json;

use crate::claim::Claim;
use crate::error::code;
use crate::event::tell;
use crate::order::{self, NewOrder, Order, OrderId, Placed};
use crate::sandbox_run::Bounds;
use crate::verify::{self, Verdict};
use crate::{Error, Result};

pub mod audit;
mod close;
mod decide;
pub mod judge;
mod read;
mod terms;
mod verdict;
pub mod vote;

pub use close::{Closed, Means, Step, add, adjudged, cancel, exhaust, step};
pub use decide::{Decision, Facts, Reason, Rule, Seat, Split, decide};
pub use read::{
    DecidedBy, Delegation, Replica, Standing, State, due, find, get, page_before, replica_of,
    replicas, with_orders,
};
pub use terms::{
    Clusters, Consensus, Criticality, DelegationId, NewDelegation, Options, cluster_of,
};
pub use verdict::verdict_of;

/// Somebody who is to do it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewReplica {
    /// The order that it gets, under the key that the delegation gives it.
    pub order: NewOrder,
    /// Its request, signed.
    pub request: Event,
    /// Of which operator it is.
    pub cluster: String,
    /// From when on it is slow.
    pub slow_from_ms: UnixMs,
}

/// What became of a delegation that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Posted {
    /// It is posted: the requests of these orders are to be published in this transaction.
    New(Delegation, Vec<Order>),
    /// It was posted before, and stands like this.
    Known(Delegation),
}

/// Refuses work that could not be decided here: what is objective must be checkable; what is not is compared.
pub fn can_decide(new: &NewDelegation, sandbox: Option<&Bounds>) -> Result<()> {
    match new.mode() {
        VerificationMode::Objective => verify::can_verify(&new.job, sandbox),
        VerificationMode::Subjective => Ok(()),
    }
}

/// Refuses a key that is that of other work.
pub fn check_same(known: &Delegation, new: &NewDelegation) -> Result<()> {
    let same = known.job_hash == new.job.job_hash()
        && known.criticality == new.criticality
        && known.budget == new.budget
        && known.private == new.private;
    if same {
        return Ok(());
    }
    let message = format!("{:?} is the key of other work", new.delegation_key);
    Err(Error::refused(&code::DELEGATION_CONFLICT, message))
}

/// Posts a delegation with those who are to do it. All of them are ordered, or none is.
pub fn post(
    tx: &mut Tx<'_>,
    new: &NewDelegation,
    replicas: &[NewReplica],
    bundle: &Bundle,
    now_ms: UnixMs,
) -> Result<Posted> {
    let delegation_id = new.delegation_id();
    if let Some(known) = find(tx, &delegation_id)? {
        check_same(&known, new)?;
        return Ok(Posted::Known(known));
    }
    new.check(now_ms)?;
    if usize::try_from(new.replicas).ok() != Some(replicas.len()) {
        let message = format!("{} were to do it, and {} are", new.replicas, replicas.len());
        return Err(Error::refused(&code::DELEGATION_MALFORMED, message));
    }
    insert(tx, new, now_ms)?;
    let delegation = get(tx, &delegation_id)?;
    let mut orders = Vec::new();
    for (number, replica) in (1..).zip(replicas) {
        orders.push(seat(tx, &delegation, (number, Reason::First), replica, bundle, now_ms)?);
    }
    tell_of(tx, &delegation, now_ms)?;
    Ok(Posted::New(delegation, orders))
}

fn insert(tx: &mut Tx<'_>, new: &NewDelegation, now_ms: UnixMs) -> Result<()> {
    let objective = new.mode() == VerificationMode::Objective;
    tx.exec(
        "INSERT INTO market_delegation (delegation_id, delegation_key, buyer, kind, schema_id, job_hash, payload,
           private, objective, criticality, consensus, replicas, needed, extra_max, budget_units, deadline_ms,
           posted_ms, state, changed_ms, due_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, 'open', $17, $17)",
        args![
            new.delegation_id().as_str(),
            &new.delegation_key,
            &new.buyer.npub(),
            i64::from(new.kind),
            new.job.schema_id().as_str(),
            &new.job.job_hash().to_string(),
            &new.payload_text()?,
            i64::from(new.private),
            i64::from(objective),
            new.criticality.as_str(),
            new.consensus().as_str(),
            i64::from(new.replicas),
            i64::from(new.needed()),
            i64::from(new.extra_max),
            new.budget.0,
            new.deadline_ms,
            now_ms
        ],
    )?;
    Ok(())
}

/// Orders from one more, within what is left of the budget, and of an operator that is not there yet.
fn seat(
    tx: &mut Tx<'_>,
    delegation: &Delegation,
    (number, reason): (i64, Reason),
    replica: &NewReplica,
    bundle: &Bundle,
    now_ms: UnixMs,
) -> Result<Order> {
    let malformed = |what: String| Error::refused(&code::DELEGATION_MALFORMED, what);
    let NewReplica { order: new, request, cluster, slow_from_ms } = replica;
    let fits = new.order_key == terms::order_key(&delegation.delegation_id, number)
        && new.job.job_hash() == delegation.job_hash
        && new.private == delegation.private
        && new.deadline_ms <= delegation.deadline_ms
        && request.pubkey == delegation.buyer;
    let provider = new.provider.filter(|_| fits);
    let Some(provider) = provider else {
        return Err(malformed(format!("the order of replica {number} is not of this work")));
    };
    let seated = read::with_orders(tx, &delegation.delegation_id)?;
    let left = left_of(delegation, &seated);
    if new.budget > left {
        let message = format!("{} msat are left, {} are asked", left.0, new.budget.0);
        return Err(Error::refused(&code::PRICE, message));
    }
    if seated.iter().any(|(one, _)| one.cluster == *cluster || one.provider == provider) {
        return Err(malformed(format!("replica {number} is of an operator that is at it")));
    }
    let order = match order::post(tx, new, request, bundle, now_ms)? {
        Placed::Posted(order) => order,
        Placed::Known(order) => {
            return Err(malformed(format!("{} is no replica", order.order_id)));
        }
        Placed::Waits(_) => {
            let message = "the policy asks a guardian about an order of this size";
            return Err(Error::refused(&code::DELEGATION_APPROVAL, message));
        }
    };
    tx.exec(
        "INSERT INTO market_replica (delegation_id, number, order_id, provider, cluster, reason, slow_from_ms, standing)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'waiting')",
        args![
            delegation.delegation_id.as_str(),
            number,
            order.order_id.as_str(),
            &provider.npub(),
            cluster,
            reason.as_str(),
            *slow_from_ms
        ],
    )?;
    Ok(order)
}

/// What may still be promised to somebody: what was promised to those who ended without being paid is free again.
pub fn left_of(delegation: &Delegation, seated: &[(Replica, Order)]) -> Msat {
    let promised = seated.iter().map(|(_, order)| match order.state {
        order::State::Posted | order::State::Delivered => order.budget.0,
        order::State::Released => order.paid.map_or(0, |paid| paid.0),
        _ => 0,
    });
    let promised = promised.fold(0_i64, i64::saturating_add);
    Msat(delegation.budget.0.saturating_sub(promised).max(0))
}

/// Writes down what the check of a replica's result by itself gave. Whoever has lost its claim to another process is
/// refused; a second time changes nothing.
pub fn voted(
    tx: &mut Tx<'_>,
    order_id: &OrderId,
    claim: &Claim,
    (verdict, says): (&Verdict, Option<Hash>),
    now_ms: UnixMs,
) -> Result<Replica> {
    let unknown = || Error::refused(&code::DELEGATION_UNKNOWN, format!("{order_id} is no replica"));
    let replica = replica_of(tx, order_id)?.ok_or_else(unknown)?;
    let delegation = get(tx, &replica.delegation_id)?;
    if replica.judged_ms.is_some() || delegation.state != State::Open {
        return Ok(replica);
    }
    let order = order::get(tx, order_id)?;
    order.claimed.check(claim)?;
    if order.state != order::State::Delivered {
        let message = format!("{order_id} has no result that waits");
        return Err(Error::refused(&code::ORDER_CLOSED, message));
    }
    // What cannot be compared is no vote, whatever its check says.
    let passed = verdict.passed && says.is_some();
    tx.cas(
        "UPDATE market_replica SET judged_ms = $2, passed = $3, ballot = $4, says = $5
         WHERE order_id = $1 AND judged_ms IS NULL AND standing = 'waiting'",
        args![
            order_id.as_str(),
            now_ms,
            i64::from(passed),
            &verdict.document,
            says.map(|says| says.to_string()).as_ref()
        ],
    )?;
    stir(tx, order_id)?;
    let body = json!({
        "delegation_id": replica.delegation_id, "order_id": order_id, "number": replica.number,
        "provider": replica.provider, "passed": passed,
    });
    tell(tx, &format!("{order_id}:voted"), "delegation.voted", &body, now_ms)?;
    replica_of(tx, order_id)?.ok_or_else(unknown)
}

/// Looks at a delegation later: now it fails by itself.
pub fn put_off(tx: &mut Tx<'_>, delegation_id: &DelegationId, until_ms: UnixMs) -> Result<()> {
    tx.exec(
        "UPDATE market_delegation SET due_ms = $2 WHERE delegation_id = $1 AND state = 'open'",
        args![delegation_id.as_str(), until_ms],
    )?;
    Ok(())
}

/// Something happened to an order: if it is a replica, its delegation is to be looked at.
pub(crate) fn stir(tx: &mut Tx<'_>, order_id: &OrderId) -> Result<()> {
    tx.exec(
        "UPDATE market_delegation SET due_ms = 0 WHERE state = 'open' AND delegation_id =
           (SELECT delegation_id FROM market_replica WHERE order_id = $1)",
        args![order_id.as_str()],
    )?;
    Ok(())
}

/// Notes that the result of a replica came when nobody waited for it any more.
pub fn late(tx: &mut Tx<'_>, order_id: &OrderId) -> Result<()> {
    tx.exec(
        "UPDATE market_replica SET standing = 'late' WHERE order_id = $1 AND standing IN ('failed', 'cancelled')",
        args![order_id.as_str()],
    )?;
    Ok(())
}

/// Refuses to settle the order of a replica otherwise than its delegation says.
pub(crate) fn may_settle(tx: &mut Tx<'_>, order: &Order, verdict: &Verdict) -> Result<()> {
    let Some(replica) = replica_of(tx, &order.order_id)? else { return Ok(()) };
    let delegation = get(tx, &replica.delegation_id)?;
    let replicas = replicas(tx, &delegation.delegation_id)?;
    let due = verdict_of(&delegation, &replicas, &replica, order)?;
    if due.document != verdict.document || due.passed != verdict.passed {
        let message = format!("{} says otherwise", delegation.delegation_id);
        return Err(Error::refused(&code::DELEGATION_DIFFERS, message));
    }
    Ok(())
}

/// Refuses what concerns one replica alone.
pub fn not_alone(rx: &mut Rx<'_>, order_id: &OrderId) -> Result<()> {
    match replica_of(rx, order_id)? {
        None => Ok(()),
        Some(replica) => {
            let message = format!("it is a part of {}", replica.delegation_id);
            Err(Error::refused(&code::DELEGATION_PART, message))
        }
    }
}

/// What the key of every order of a replica begins with.
pub const ORDER_KEY_PREFIX: &str = "delegation_";

/// Whom nobody of this delegation may be: those who are at it, and others of their operators.
pub fn is_taken(replicas: &[Replica], clusters: &Clusters, key: &PublicKey) -> bool {
    let cluster = cluster_of(clusters, key);
    replicas.iter().any(|one| one.provider == *key || one.cluster == cluster)
}

/// Tells that a delegation has come to the state in which it is. What a private one is about is not in it.
fn tell_of(tx: &mut Tx<'_>, delegation: &Delegation, now_ms: UnixMs) -> Result<()> {
    let state = delegation.state.as_str();
    let shown = !delegation.private;
    let body = json!({
        "delegation_id": delegation.delegation_id,
        "schema_id": shown.then(|| delegation.schema_id.as_str()),
        "criticality": delegation.criticality.as_str(),
        "budget_msat": delegation.budget.0,
        "private": delegation.private,
        "winner": delegation.winner,
        "words": delegation.why,
    });
    let id = format!("{}:{state}", delegation.delegation_id);
    tell(tx, &id, &format!("delegation.{state}"), &body, now_ms)
}

//! What we were hired for.
//!
//! | from | to | when |
//! |---|---|---|
//! | | `accepted` | [`take`]: the offer and the buyer's standing decide |
//! | | `refused` | [`refuse`]: the same, and the buyer is told why |
//! | `accepted` | `delivered` | [`deliver`]: the work is done, the result signed |
//! | `accepted` | `failed` | [`fail`]: it could not be done |
//! | `accepted` | `cancelled` | [`cancel`]: the buyer took it back |
//! | `delivered` | `paid`, `underpaid` | [`take_receipt`]: the buyer owes us, and has signed it |
//! | `delivered` | `withheld` | [`take_receipt`]: the buyer did not accept the work |
//!
//! Several processes may share the rows: which of them works on a job is its [claim](crate::claim), and handing in
//! needs it. Whoever takes a job has it claimed in the same statement, as long as it has room.
//!
//! A receipt for less than the price is booked all the same, because it is a true debt; the job is then `underpaid`,
//! for everybody to see. Work that costs nothing stays `delivered`: there is nothing to pay.

use guild_protocol::amount::{AssetId, Msat};
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::job::Request;
use guild_protocol::nostr::{Event, EventId, tag, unix_s};
use guild_protocol::receipt::{Receipt, Status};
use guild_protocol::schema::Job;
use guild_store::{Rx, Tx, args};
use serde_json::json;

use guild_ledger::{ledger, receivable};

use crate::claim::{self, Claim};
use crate::error::code;
use crate::event::tell;
use crate::receipts::{self, Direction, Role, deal_under};
use crate::{Error, Result, dispute};

mod claiming;
mod consider;
mod read;
mod stability;
mod state;

pub use claiming::{claim, release, renew};
use consider::is_sample;
pub use consider::{
    Decision, Offer, Refusal, Shop, Standing, carrying, consider, payload_text, referred,
};
pub use read::{TakenJob, accepted, find, forget_refused, get, page_before, to_do, unpaid_after};
pub use stability::{Stability, stability};
pub use state::{Act, State};

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// We do it; a row says so from now on.
    Accepted(TakenJob),
    /// We do not. Nothing was written: [`refuse`] is for the one who is told.
    Refused(Refusal),
    /// It is none of our business; nothing was written.
    Ignored(String),
    /// It was taken or refused before, and stands like this.
    Known(TakenJob),
}

/// Decides about a request, and writes down what is accepted. The event must be verified, and `request` be what it
/// says. The caller publishes its feedback in the same transaction.
pub fn take(
    tx: &mut Tx<'_>,
    event: &Event,
    request: &Request,
    shop: &Shop<'_>,
    now_ms: UnixMs,
) -> Result<Taken> {
    if let Some(known) = find(tx, &event.id)? {
        return Ok(Taken::Known(known));
    }
    let us = &shop.offer.provider;
    let (mut standing, begun) = look(tx, &event.pubkey, shop.offer, &shop.claimant.token, now_ms)?;
    if is_sample(request) {
        (standing.samples, standing.samples_of_all) = samples(tx, &event.pubkey, now_ms)?;
    }
    match consider(shop, event, request, &standing, unix_s(now_ms)) {
        Decision::Ignore(why) => Ok(Taken::Ignored(why)),
        Decision::Accept { job, price, due_s } => {
            let due_ms = due_s.and_then(|due_s| i64::try_from(due_s).ok());
            let due_ms = due_ms.map(|due_s| due_s.saturating_mul(1_000));
            let claim = (begun < shop.claimant.at_once).then(|| shop.claimant.claim(1, now_ms));
            let terms = Terms { job: Some(&job), price, due_ms, refusal: None, claim };
            deal_under(tx, Role::Provider, us, now_ms)?;
            Ok(Taken::Accepted(insert(tx, event, us, State::Accepted, &terms, now_ms)?))
        }
        Decision::Refuse(refusal) => Ok(Taken::Refused(refusal)),
    }
}

/// Writes down that `us` refuses a request, so that its buyer is told once: the caller publishes the feedback in the
/// same transaction. The request itself is not kept. What is there already stays as it is.
pub fn refuse(
    tx: &mut Tx<'_>,
    event: &Event,
    us: &PublicKey,
    refusal: &Refusal,
    now_ms: UnixMs,
) -> Result<TakenJob> {
    if let Some(known) = find(tx, &event.id)? {
        return Ok(known);
    }
    let terms =
        Terms { job: None, price: Msat(0), due_ms: None, refusal: Some(refusal), claim: None };
    insert(tx, event, us, State::Refused, &terms, now_ms)
}

/// How a buyer stands with us. Its own credit, if the operator has set one, counts instead of the usual one.
pub fn standing(
    rx: &mut Rx<'_>,
    buyer: &PublicKey,
    offer: &Offer,
    now_ms: UnixMs,
) -> Result<Standing> {
    look(rx, buyer, offer, "", now_ms).map(|(standing, _)| standing)
}

/// The same, and how many jobs the holder of this token works on.
fn look(
    rx: &mut Rx<'_>,
    buyer: &PublicKey,
    offer: &Offer,
    token: &str,
    now_ms: UnixMs,
) -> Result<(Standing, u64)> {
    let owing = receivable::receivable(buyer, AssetId::btc_ln())?.account_id;
    let entry = ledger::entries(rx, &[owing].into())?.into_values().next();
    let own_credit = entry.as_ref().and_then(|entry| entry.rule.credit_units);
    let owed = entry.map_or(0, |entry| entry.balance.units().saturating_neg());
    let npub = buyer.npub();
    let accepted: Option<(i64, i64, i64)> = rx.first(
        "SELECT count(*), CAST(coalesce(sum(CASE WHEN buyer = $1 THEN price_units END), 0) AS BIGINT),
           count(CASE WHEN claim_token = $2 THEN 1 END)
         FROM market_job WHERE state = 'accepted'",
        args![&npub, token],
    )?;
    let (jobs, promised, begun) = accepted.unwrap_or_default();
    // Whoever did not pay may have had its reasons, and whoever never answered may be gone: neither is for ever.
    let since_ms = now_ms.saturating_sub(offer.unpaid_ms);
    let unpaid: Option<(i64,)> = rx.first(
        "SELECT CAST(coalesce(sum(price_units - coalesce(paid_units, 0)), 0) AS BIGINT) FROM market_job
         WHERE buyer = $1 AND state IN ('delivered', 'underpaid', 'withheld') AND delivered_ms > $2",
        args![&npub, since_ms],
    )?;
    let unpaid = unpaid.map_or(0, |(units,)| units);
    // Whoever disputes what it then loses gets half as much credit each time, until a while has passed.
    let lost_ms = now_ms.saturating_sub(dispute::LOST_MS);
    let lost = dispute::lost_in_row(rx, dispute::Side::Provider, buyer, lost_ms)?;
    let credit = own_credit.unwrap_or(offer.credit.0);
    let lost = u32::try_from(lost).unwrap_or(u32::MAX);
    let credit = credit.checked_shr(lost).unwrap_or(0);
    let standing = Standing {
        credit: Msat(credit),
        owed: Msat(owed),
        open: Msat(promised.saturating_add(unpaid)),
        open_jobs: u64::try_from(jobs).unwrap_or(0),
        samples: 0,
        samples_of_all: 0,
    };
    Ok((standing, u64::try_from(begun).unwrap_or(0)))
}

/// How many samples of work a buyer, and all of them, were given within an hour.
fn samples(rx: &mut Rx<'_>, buyer: &PublicKey, now_ms: UnixMs) -> Result<(u64, u64)> {
    const HOUR_MS: i64 = 3_600_000;
    let given: Option<(i64, i64)> = rx.first(
        "SELECT count(CASE WHEN buyer = $1 THEN 1 END), count(*) FROM market_job
         WHERE taken_ms > $2 AND price_units = 0 AND state <> 'refused' AND schema_id <> $3",
        args![&buyer.npub(), now_ms.saturating_sub(HOUR_MS), crate::benchmark::SCHEMA_ID],
    )?;
    let (own, all) = given.unwrap_or_default();
    Ok((u64::try_from(own).unwrap_or(0), u64::try_from(all).unwrap_or(0)))
}

struct Terms<'a> {
    job: Option<&'a Job>,
    price: Msat,
    due_ms: Option<UnixMs>,
    refusal: Option<&'a Refusal>,
    claim: Option<Claim>,
}

fn insert(
    tx: &mut Tx<'_>,
    event: &Event,
    us: &PublicKey,
    state: State,
    terms: &Terms<'_>,
    now_ms: UnixMs,
) -> Result<TakenJob> {
    let Terms { job, price, due_ms, refusal, claim } = terms;
    let payload = match job {
        Some(job) => Some(guild_protocol::json::to_canonical(job.payload())?),
        None => None,
    };
    let payload = payload.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    tx.exec(
        "INSERT INTO market_job (request_id, request_json, provider, buyer, private, schema_id, job_hash, payload,
           price_units, taken_ms, due_ms, state, changed_ms, code, words, claim_token, claim_until_ms, claim_epoch)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $10, $13, $14, $15, $16, $17)",
        args![
            &event.id.hex(),
            job.map(|_| event.to_json()).as_ref(),
            &us.npub(),
            &event.pubkey.npub(),
            i64::from(tag::has(&event.tags, "encrypted")),
            job.map(|job| job.schema_id().as_str()),
            job.map(|job| job.job_hash().to_string()).as_ref(),
            payload.as_ref(),
            price.0,
            now_ms,
            *due_ms,
            state.as_str(),
            refusal.map(|refusal| refusal.code.name),
            refusal.map(|refusal| &refusal.words),
            claim.as_ref().map(|claim| &claim.token),
            claim.as_ref().map(|claim| claim.until_ms),
            claim.as_ref().map_or(0, |claim| claim.epoch)
        ],
    )?;
    match state {
        // Anybody can make us refuse: that is no event.
        State::Refused => get(tx, &event.id),
        _ => changed(tx, &event.id, now_ms),
    }
}

/// Hands in the result, which must be signed by the key that took the job. The first one stays: a second call with
/// another event gives back the one that counts, so that we never sign two results and publish both. Whoever has lost
/// its claim to another process is refused.
pub fn deliver(
    tx: &mut Tx<'_>,
    request_id: &EventId,
    claim: &Claim,
    result: &Event,
    now_ms: UnixMs,
) -> Result<TakenJob> {
    let job = get(tx, request_id)?;
    if job.provider != result.pubkey {
        let message = format!("{request_id} is no job of {}", result.pubkey.npub());
        return Err(Error::refused(&code::UNKNOWN_JOB, message));
    }
    if job.result_json.is_some() {
        return Ok(job);
    }
    job.state.after(Act::Deliver)?;
    let handed_in = tx.exec(
        "UPDATE market_job SET state = 'delivered', result_json = $2, delivered_ms = $3, changed_ms = $3,
           claim_token = $4, claim_until_ms = NULL, claim_epoch = $5
         WHERE request_id = $1 AND state = 'accepted' AND claim_token = $4 AND claim_epoch = $5",
        args![&request_id.hex(), &result.to_json(), now_ms, &claim.token, claim.epoch],
    )?;
    claim::fenced(handed_in)?;
    changed(tx, request_id, now_ms)
}

/// Gives a job up, with a sentence for the buyer. Whoever has lost its claim to another process is refused.
pub fn fail(
    tx: &mut Tx<'_>,
    request_id: &EventId,
    claim: &Claim,
    refusal: &Refusal,
    now_ms: UnixMs,
) -> Result<TakenJob> {
    let job = get(tx, request_id)?;
    if job.state == State::Failed {
        return Ok(job);
    }
    job.state.after(Act::Fail)?;
    let given_up = tx.exec(
        "UPDATE market_job SET state = 'failed', code = $2, words = $3, changed_ms = $4,
           claim_token = $5, claim_until_ms = NULL, claim_epoch = $6
         WHERE request_id = $1 AND state = 'accepted' AND claim_token = $5 AND claim_epoch = $6",
        args![
            &request_id.hex(),
            refusal.code.name,
            &refusal.words,
            now_ms,
            &claim.token,
            claim.epoch
        ],
    )?;
    claim::fenced(given_up)?;
    changed(tx, request_id, now_ms)
}

/// Lets go of a job that its buyer has taken back before it was done. Afterwards it is too late: the work is owed.
pub fn cancel(
    tx: &mut Tx<'_>,
    request_id: &EventId,
    buyer: &PublicKey,
    now_ms: UnixMs,
) -> Result<TakenJob> {
    let job = get(tx, request_id)?;
    if job.buyer != *buyer {
        let message = format!("{request_id} is not of {}", buyer.npub());
        return Err(Error::refused(&code::UNKNOWN_JOB, message));
    }
    if job.state == State::Cancelled {
        return Ok(job);
    }
    job.state.after(Act::Cancel)?;
    tx.cas(
        "UPDATE market_job SET state = 'cancelled', changed_ms = $2, claim_token = NULL, claim_until_ms = NULL
         WHERE request_id = $1 AND state = 'accepted'",
        args![&request_id.hex(), now_ms],
    )?;
    changed(tx, request_id, now_ms)
}

/// Takes a receipt: what it says that its buyer owes `us` is booked, once, and the job is closed by it, in one
/// transaction. The same receipt again changes nothing. One that is about another provider, buyer or job, a second one
/// for the same job or the same entry of the buyer's book, and one beyond the buyer's credit are refused.
pub fn take_receipt(
    tx: &mut Tx<'_>,
    receipt: &Receipt,
    us: &PublicKey,
    credit: Msat,
    now_ms: UnixMs,
) -> Result<TakenJob> {
    let stated = receipt.stated();
    let request_id = stated.request_id.as_deref().unwrap_or_default();
    let unknown = || Error::refused(&code::UNKNOWN_JOB, "the receipt is about no job of ours");
    let request_id: EventId = request_id.parse().map_err(|_| unknown())?;
    let job = find(tx, &request_id)?.ok_or_else(unknown)?;
    if job.receipt_id.as_ref() == Some(receipt.receipt_id()) {
        return Ok(job);
    }
    check_receipt(&job, receipt, us)?;
    if dispute::take_payment(tx, &job, receipt, us, now_ms)?.is_some() {
        return Ok(job);
    }
    let act = match stated.status {
        Status::Released if stated.amount.units >= job.price.0 => Act::Pay,
        Status::Released => Act::PayLess,
        Status::Withheld => Act::Withhold,
        Status::Prepaid | Status::Refunded => {
            let message = format!("a {} payment was not agreed", stated.status.as_str());
            return Err(Error::refused(&code::RECEIPT_MISMATCH, message));
        }
    };
    let state = job.state.after(act)?;
    let paid = (act != Act::Withhold).then_some(stated.amount.units);
    if paid.is_some() {
        receivable::book(tx, receipt, us, credit.0, now_ms)?;
    }
    receipts::keep(tx, receipt, Direction::Taken, now_ms)?;
    tx.cas(
        "UPDATE market_job SET state = $2, paid_units = $3, receipt_id = $4, changed_ms = $5
         WHERE request_id = $1 AND state = 'delivered'",
        args![&request_id.hex(), state.as_str(), paid, receipt.receipt_id().as_str(), now_ms],
    )?;
    changed(tx, &request_id, now_ms)
}

fn check_receipt(job: &TakenJob, receipt: &Receipt, us: &PublicKey) -> Result<()> {
    let stated = receipt.stated();
    let mismatch = |what: &str| {
        let message = format!("{what} of the receipt is not that of the job");
        Err(Error::refused(&code::RECEIPT_MISMATCH, message))
    };
    if stated.provider_id != *us || job.provider != *us {
        return mismatch("the provider");
    }
    if stated.buyer_id != job.buyer {
        return mismatch("the buyer");
    }
    if stated.job_hash != job.job_hash {
        return mismatch("the job hash");
    }
    if stated.amount.asset_id != AssetId::btc_ln() {
        return mismatch("the asset");
    }
    Ok(())
}

/// Counts and tells what a job has become.
fn changed(tx: &mut Tx<'_>, request_id: &EventId, now_ms: UnixMs) -> Result<TakenJob> {
    let job = get(tx, request_id)?;
    stability::count(tx, &job)?;
    tell_of(tx, &job, now_ms)?;
    Ok(job)
}

/// Tells that a job has come to the state in which it is. Of a private one only what anybody may know: whoever likes
/// follows these events.
fn tell_of(tx: &mut Tx<'_>, job: &TakenJob, now_ms: UnixMs) -> Result<()> {
    let state = job.state.as_str();
    let schema_id = job.schema_id.as_ref().filter(|_| !job.private).map(|id| id.as_str());
    let words = job.words.as_ref().filter(|_| !job.private);
    let body = json!({
        "request_id": job.request_id, "buyer": job.buyer, "schema_id": schema_id, "private": job.private,
        "price_msat": job.price.0, "paid_msat": job.paid.map(|paid| paid.0), "receipt_id": job.receipt_id,
        "code": job.code, "words": words,
    });
    let id = format!("job:{}:{state}", job.request_id);
    tell(tx, &id, &format!("job.{state}"), &body, now_ms)
}

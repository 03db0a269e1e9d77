//! What we say in a dispute ourselves. It is heard by the same code that hears everybody else.

use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::nostr::dispute::{
    By, DisputeId, Message, Outcome, Parties, Reason, Reference, Said, Side,
};
use guild_store::Tx;

use super::close::{parties, resume, sign};
use super::hear::{Heard, hear};
use super::read::{Dispute, get, of_request};
use super::{Desk, Done};
use crate::error::code;
use crate::job;
use crate::order::{self, Order};
use crate::{Error, Result};

/// A dispute that is to be filed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filing {
    /// The request whose result is disputed.
    pub request_id: EventId,
    /// Why.
    pub reason: Reason,
    /// In words.
    pub statement: Option<String>,
    /// What it can be checked by, beside the result, the verdict and the receipt, which are always named.
    pub evidence: Vec<Reference>,
    /// Who may decide. It must be accepted by our settings.
    pub arbiter: Option<PublicKey>,
}

/// What our rows know of a request.
struct Known {
    parties: Parties,
    private: bool,
    result_id: Option<EventId>,
    evidence: Vec<Reference>,
}

/// Files a dispute as the buyer or the provider. Filed again it is the same.
pub fn file(
    tx: &mut Tx<'_>,
    ours: Side,
    filing: &Filing,
    desk: Desk<'_>,
    now_ms: UnixMs,
) -> Result<Done> {
    if let Some(known) = of_request(tx, &filing.request_id, ours)? {
        if known.filed_by == ours && known.reason == filing.reason {
            return Ok(Done::of(known));
        }
        let message = format!("{} is {}", known.dispute_id, known.state.as_str());
        return Err(Error::refused(&code::DISPUTE_CONFLICT, message));
    }
    let known = known_of(tx, ours, filing)?;
    check_arbiter(filing.arbiter, known.private, desk)?;
    let mut evidence = known.evidence;
    let more = filing.evidence.iter().filter(|one| !evidence.contains(one)).cloned();
    let more: Vec<Reference> = more.collect();
    evidence.extend(more);
    let message = Message {
        request_id: filing.request_id,
        parties: known.parties,
        result_id: known.result_id,
        said: Said::Filed(filing.reason),
        statement: filing.statement.clone(),
        evidence,
    };
    say(tx, ours, &message, known.private, (desk, now_ms))
}

/// Answers an open dispute, or adds to what was said. The same answer within one second is the same event.
pub fn answer(
    tx: &mut Tx<'_>,
    (dispute_id, ours): (&DisputeId, Side),
    (statement, evidence): (Option<String>, Vec<Reference>),
    arbiter: Option<PublicKey>,
    (desk, now_ms): (Desk<'_>, UnixMs),
) -> Result<Done> {
    let dispute = get(tx, dispute_id, ours)?;
    is_open(&dispute)?;
    check_arbiter(arbiter, dispute.private, desk)?;
    let parties = Parties { arbiter: arbiter.or(dispute.arbiter), ..parties(&dispute) };
    let message = Message {
        statement,
        evidence,
        ..Message::new(dispute.request_id, parties, Said::Answered)
    };
    say(tx, ours, &message, dispute.private, (desk, now_ms))
}

/// Decides a dispute: a party can only give in, an arbiter says either. Again it is the same.
pub fn resolve(
    tx: &mut Tx<'_>,
    (dispute_id, ours): (&DisputeId, Side),
    outcome: Outcome,
    statement: Option<String>,
    (desk, now_ms): (Desk<'_>, UnixMs),
) -> Result<Done> {
    let dispute = get(tx, dispute_id, ours)?;
    if dispute.state.is_over() && dispute.outcome == Some(outcome) {
        // Whoever says it again, has put right what its money waits for.
        let dispute = if dispute.given_up { resume(tx, &dispute, now_ms)? } else { dispute };
        return Ok(Done::of(dispute));
    }
    is_open(&dispute)?;
    if ours.wish() == Some(outcome) {
        let message = format!("we are the {}, so only the opposite is ours to say", ours.as_str());
        return Err(Error::refused(&code::DISPUTE_NOT_OURS, message));
    }
    let by = if ours == Side::Arbiter { By::Arbiter } else { By::Concession };
    let said = Said::Decided { outcome, by, filing: dispute.filing_id };
    let message =
        Message { statement, ..Message::new(dispute.request_id, parties(&dispute), said) };
    say(tx, ours, &message, dispute.private, (desk, now_ms))
}

fn is_open(dispute: &Dispute) -> Result<()> {
    if dispute.state.is_over() {
        let message = format!("{} is {}", dispute.dispute_id, dispute.state.as_str());
        return Err(Error::refused(&code::DISPUTE_OVER, message));
    }
    Ok(())
}

fn check_arbiter(arbiter: Option<PublicKey>, private: bool, desk: Desk<'_>) -> Result<()> {
    let Some(arbiter) = arbiter else { return Ok(()) };
    if private {
        let message = "nobody else may read what is private, so nobody else decides about it";
        return Err(Error::refused(&code::DISPUTE_MALFORMED, message));
    }
    if !desk.options.arbiters.contains(&arbiter) {
        let message = format!("{} is not in market.arbiters", arbiter.npub());
        return Err(Error::refused(&code::DISPUTE_ARBITER, message));
    }
    Ok(())
}

/// Signs a message and hears it.
fn say(
    tx: &mut Tx<'_>,
    ours: Side,
    message: &Message,
    private: bool,
    (desk, now_ms): (Desk<'_>, UnixMs),
) -> Result<Done> {
    let own = desk.keys.key.public_key();
    if message.parties.side_of(&own) != Some(ours) {
        let message = format!("{} is not the {} of it", own.npub(), ours.as_str());
        return Err(Error::refused(&code::DISPUTE_SUBJECT, message));
    }
    let event = sign(message, private, desk.keys, now_ms)?;
    let heard = hear(tx, ours, (&event, message), desk, now_ms)?;
    let known = matches!(heard, Heard::Known);
    let mut done = match heard.done() {
        Some(done) => done,
        None => Done::of(get(tx, &message.dispute_id(), ours)?),
    };
    if !known {
        done.events.insert(0, event);
    }
    Ok(done)
}

fn known_of(tx: &mut Tx<'_>, ours: Side, filing: &Filing) -> Result<Known> {
    let refused = |why: &str| Error::refused(&code::DISPUTE_SUBJECT, why);
    match ours {
        Side::Buyer => {
            let order = order::of_request(tx, &filing.request_id)?;
            let order = order.ok_or_else(|| refused("we ordered nothing like it"))?;
            let provider = order.provider.filter(|_| order.result_id.is_some());
            let provider = provider.ok_or_else(|| refused("nothing was delivered"))?;
            Ok(Known {
                parties: Parties { buyer: order.buyer, provider, arbiter: filing.arbiter },
                private: order.private,
                result_id: order.result_id,
                evidence: evidence_of(&order),
            })
        }
        Side::Provider => {
            let job = job::find(tx, &filing.request_id)?;
            let job = job.filter(|job| job.result_json.is_some());
            let job = job.ok_or_else(|| refused("we delivered nothing like it"))?;
            let (buyer, provider) = (job.buyer, job.provider);
            let result = job.result_json.as_deref().map(str::as_bytes);
            let limits = guild_protocol::nostr::Limits::DEFAULT;
            let result_id = result
                .and_then(|bytes| guild_protocol::nostr::Event::parse(bytes, &limits).ok())
                .map(|event| event.id);
            Ok(Known {
                parties: Parties { buyer, provider, arbiter: filing.arbiter },
                private: job.private,
                result_id,
                evidence: job.receipt_id.into_iter().map(Reference::Receipt).collect(),
            })
        }
        Side::Arbiter => Err(refused("an arbiter files nothing")),
    }
}

fn evidence_of(order: &Order) -> Vec<Reference> {
    let verdict = order.verdict.as_ref().map(|text| Reference::Hash(Hash::of(text.as_bytes())));
    let replay = order.replay.as_ref().map(|text| Reference::Hash(Hash::of(text.as_bytes())));
    let receipt = order.receipt_id.clone().map(Reference::Receipt);
    verdict.into_iter().chain(replay).chain(receipt).collect()
}

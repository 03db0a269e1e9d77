//! What is said in a dispute: by us, by the other side, by an arbiter. All of it goes the same way.

use guild_ledger::{TransferId, ledger};
use guild_network::archive;
use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::dispute::{DisputeId, Message, Outcome, Said, Side};
use guild_protocol::nostr::{Event, EventId};
use guild_store::{Tx, args};

use super::close::{Closing, advance, close};
use super::money::{self, Held};
use super::read::{Dispute, find, get};
use super::{By, Desk, Done, State, binds, tell_of};
use crate::error::code;
use crate::job;
use crate::order::{self, Order};
use crate::{Error, Result, delegation};

/// So much is kept of what one author says in one dispute: whoever says more has said enough.
const SAID_MAX: i64 = 8;
/// The hold of an order must outlast a dispute by so much, for whatever is done last.
const MARGIN_MS: i64 = 3_600_000;

/// What became of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// It began a dispute.
    Filed(Done),
    /// It answers one, or adds to it.
    Answered(Done),
    /// It decides one.
    Decided(Done),
    /// It is kept, and changes nothing: a claim, or too late.
    Kept,
    /// It was heard before.
    Known,
}

impl Heard {
    /// A word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Heard::Filed(_) => "dispute_filed",
            Heard::Answered(_) => "dispute_answered",
            Heard::Decided(_) => "dispute_decided",
            Heard::Kept => "dispute_claim",
            Heard::Known => "dispute_known",
        }
    }

    /// What is to be published because of it.
    pub fn done(self) -> Option<Done> {
        match self {
            Heard::Filed(done) | Heard::Answered(done) | Heard::Decided(done) => Some(done),
            Heard::Kept | Heard::Known => None,
        }
    }
}

/// What a dispute is about, as our rows know it.
pub(super) struct Subject {
    /// The order, if we are the buyer.
    pub(super) order: Option<Order>,
    /// How the money stands; nothing while it is held, or nothing has come.
    pub(super) stands: Option<Outcome>,
    /// Whether it is one part of several.
    pub(super) is_part: bool,
    private: bool,
    delivered_ms: UnixMs,
}

/// Takes a message of a dispute in which we are this side. Its signature must be verified. The same again changes
/// nothing; what does not fit is refused, and changes nothing either.
pub fn hear(
    tx: &mut Tx<'_>,
    ours: Side,
    (event, message): (&Event, &Message),
    desk: Desk<'_>,
    now_ms: UnixMs,
) -> Result<Heard> {
    let dispute_id = message.dispute_id();
    let author = message.parties.side_of(&event.pubkey);
    let author = author.ok_or_else(|| subject_refused("its author is none of the two"))?;
    let Some(dispute) = find(tx, &dispute_id, ours)? else {
        let Said::Filed(_) = message.said else {
            return Err(Error::refused(&code::DISPUTE_UNKNOWN, "nobody has filed it yet"));
        };
        return open(tx, ours, author, (event, message), desk, now_ms).map(Heard::Filed);
    };
    if (dispute.buyer, dispute.provider) != (message.parties.buyer, message.parties.provider) {
        return Err(subject_refused("it is between others"));
    }
    if !keep(tx, (&dispute_id, ours), (event, message), now_ms)? {
        return Ok(Heard::Known);
    }
    if dispute.state.is_over() {
        return Ok(Heard::Kept);
    }
    match &message.said {
        Said::Decided { outcome, by, .. } => {
            decided(tx, &dispute, (author, *by, *outcome), (event, message), (desk, now_ms))
        }
        Said::Filed(_) | Said::Answered => {
            let accepted = message.parties.arbiter.filter(|key| accepts(desk, &dispute, key));
            let arbiter = dispute.arbiter.or(accepted).map(|key| key.npub());
            let state = match author == dispute.filed_by {
                true => dispute.state,
                false => State::Answered,
            };
            tx.cas(
                "UPDATE market_dispute SET state = $3, arbiter = $4, changed_ms = $5
                 WHERE dispute_id = $1 AND side = $2 AND state IN ('open', 'answered')",
                args![dispute_id.as_str(), ours.as_str(), state.as_str(), arbiter.as_ref(), now_ms],
            )?;
            let dispute = get(tx, &dispute_id, ours)?;
            tell_of(tx, &dispute, now_ms)?;
            Ok(Heard::Answered(Done::of(dispute)))
        }
    }
}

/// An arbiter binds us if our settings name it, and if it can read what is said.
fn accepts(desk: Desk<'_>, dispute: &Dispute, key: &PublicKey) -> bool {
    desk.options.arbiters.contains(key) && !dispute.private
}

fn decided(
    tx: &mut Tx<'_>,
    dispute: &Dispute,
    (author, by, outcome): (Side, By, Outcome),
    (event, message): (&Event, &Message),
    (desk, now_ms): (Desk<'_>, UnixMs),
) -> Result<Heard> {
    if author == Side::Arbiter {
        let cites =
            matches!(&message.said, Said::Decided { filing, .. } if *filing == dispute.filing_id);
        let is_named = dispute.arbiter == Some(event.pubkey);
        if !cites || !is_named {
            return Err(Error::refused(
                &code::DISPUTE_ARBITER,
                "it is not the arbiter of this dispute, or cites another filing",
            ));
        }
    }
    let subject = subject_of(tx, dispute.side, &Named::by(dispute))?;
    let accepted = author == Side::Arbiter;
    match binds(dispute.side, (author, by), outcome, (subject.stands, accepted)) {
        None => Ok(Heard::Kept),
        Some(by) => {
            let outcome = Some(outcome);
            let closing = Closing { state: State::Decided, by, outcome, is_ours: false };
            close(tx, dispute, &subject, closing, desk, now_ms).map(Heard::Decided)
        }
    }
}

fn open(
    tx: &mut Tx<'_>,
    ours: Side,
    author: Side,
    (event, message): (&Event, &Message),
    desk: Desk<'_>,
    now_ms: UnixMs,
) -> Result<Done> {
    let Said::Filed(reason) = message.said else {
        return Err(subject_refused("it files nothing"));
    };
    let named = Named {
        request_id: message.request_id,
        buyer: message.parties.buyer,
        provider: message.parties.provider,
    };
    let subject = subject_of(tx, ours, &named)?;
    if subject.delivered_ms.saturating_add(desk.options.file_ms) < now_ms {
        return Err(Error::refused(&code::DISPUTE_LATE, "its time to be disputed is over"));
    }
    has_room(tx, ours, author, &event.pubkey.npub(), desk)?;
    let own = desk.keys.key.public_key();
    let arbiter = message.parties.arbiter.filter(|key| match ours {
        Side::Arbiter => *key == own,
        _ => !subject.private && desk.options.arbiters.contains(key),
    });
    if ours == Side::Arbiter && arbiter.is_none() {
        return Err(subject_refused("it names another arbiter"));
    }
    let deadline_ms = deadline(tx, &subject, desk, now_ms)?;
    let dispute_id = message.dispute_id();
    let held = match &subject.order {
        Some(order) => money::hold(tx, &dispute_id, order, deadline_ms, now_ms)?,
        None => Held::default(),
    };
    tx.exec(
        "INSERT INTO market_dispute (dispute_id, side, request_id, buyer, provider, arbiter, filed_by, reason, private,
           filing_id, stood, opened_ms, deadline_ms, state, changed_ms, due_ms, hold_id, held_units, pending,
           moved_units)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 'open', $12, $12, $14, $15, 0, 0)",
        args![
            dispute_id.as_str(),
            ours.as_str(),
            &message.request_id.hex(),
            &message.parties.buyer.npub(),
            &message.parties.provider.npub(),
            arbiter.map(|key| key.npub()).as_ref(),
            author.as_str(),
            reason.as_str(),
            i64::from(subject.private),
            &event.id.hex(),
            subject.stands.map(Outcome::as_str),
            now_ms,
            deadline_ms,
            held.hold_id.as_ref().map(TransferId::as_str),
            held.units
        ],
    )?;
    keep(tx, (&dispute_id, ours), (event, message), now_ms)?;
    let dispute = get(tx, &dispute_id, ours)?;
    tell_of(tx, &dispute, now_ms)?;
    advance(tx, (&dispute_id, ours), None, desk, now_ms)
}

/// While a result is disputed its order's hold must not run out: it is decided before that.
fn deadline(tx: &mut Tx<'_>, subject: &Subject, desk: Desk<'_>, now_ms: UnixMs) -> Result<UnixMs> {
    let wanted_ms = now_ms.saturating_add(desk.options.window_ms.max(0));
    let hold = subject.order.as_ref().filter(|_| subject.stands.is_none());
    let Some(hold) = hold.and_then(|order| order.hold_id.as_ref()) else { return Ok(wanted_ms) };
    Ok(match ledger::held(tx, hold)? {
        Some((_, expires_ms)) => wanted_ms.min(expires_ms.saturating_sub(MARGIN_MS)).max(now_ms),
        None => wanted_ms,
    })
}

/// Whoever files everything has few of them open, and all together are bounded.
fn has_room(tx: &mut Tx<'_>, ours: Side, author: Side, npub: &str, desk: Desk<'_>) -> Result<()> {
    let counted: Option<(i64, i64)> = tx.first(
        "SELECT count(*), count(CASE WHEN filed_by = $2 AND
           CASE WHEN filed_by = 'buyer' THEN buyer ELSE provider END = $3 THEN 1 END)
         FROM market_dispute WHERE side = $1 AND state IN ('open', 'answered')",
        args![ours.as_str(), author.as_str(), npub],
    )?;
    let (all, own) = counted.unwrap_or_default();
    // What we file ourselves is bounded by us.
    let is_own = author == ours;
    if all >= desk.options.open_max || (!is_own && own >= desk.options.open_max_of_one) {
        let message = format!("{all} disputes are open, {own} of them filed by {npub}");
        return Err(Error::refused(&code::DISPUTE_LIMIT, message));
    }
    Ok(())
}

/// A request, and between whom a dispute about it is.
pub(super) struct Named {
    pub(super) request_id: EventId,
    pub(super) buyer: PublicKey,
    pub(super) provider: PublicKey,
}

impl Named {
    pub(super) fn by(dispute: &Dispute) -> Named {
        let Dispute { request_id, buyer, provider, .. } = *dispute;
        Named { request_id, buyer, provider }
    }
}

/// What a dispute is about, as this side knows it.
pub(super) fn subject_of(tx: &mut Tx<'_>, ours: Side, parties: &Named) -> Result<Subject> {
    match ours {
        Side::Buyer => {
            let order = order::of_request(tx, &parties.request_id)?;
            let order = order.filter(|order| {
                order.buyer == parties.buyer && order.provider == Some(parties.provider)
            });
            let order = order.ok_or_else(|| subject_refused("we ordered nothing like it"))?;
            let stands = match order.state {
                order::State::Delivered => None,
                order::State::Released => Some(Outcome::Release),
                order::State::Withheld => Some(Outcome::Withhold),
                state => {
                    let message = format!("the order is {}", state.as_str());
                    return Err(subject_refused(&message));
                }
            };
            let is_part = delegation::replica_of(tx, &order.order_id)?.is_some();
            let delivered_ms = order.delivered_ms.unwrap_or(order.posted_ms);
            let private = order.private;
            Ok(Subject { order: Some(order), stands, is_part, private, delivered_ms })
        }
        Side::Provider => {
            let job = job::find(tx, &parties.request_id)?;
            let job =
                job.filter(|job| job.buyer == parties.buyer && job.provider == parties.provider);
            let job = job.ok_or_else(|| subject_refused("we were not hired for it"))?;
            let stands = match job.state {
                job::State::Delivered => None,
                job::State::Paid | job::State::Underpaid => Some(Outcome::Release),
                job::State::Withheld => Some(Outcome::Withhold),
                state => {
                    let message = format!("the job is {}", state.as_str());
                    return Err(subject_refused(&message));
                }
            };
            let delivered_ms = job.delivered_ms.unwrap_or(job.taken_ms);
            Ok(Subject { order: None, stands, is_part: false, private: job.private, delivered_ms })
        }
        // An arbiter has no rows of the work: it judges by what both show.
        Side::Arbiter => Ok(Subject {
            order: None,
            stands: None,
            is_part: false,
            private: false,
            delivered_ms: UnixMs::MAX,
        }),
    }
}

fn subject_refused(why: &str) -> Error {
    Error::refused(&code::DISPUTE_SUBJECT, why)
}

/// Keeps what was said, in our rows and in the archive; false if it was there.
pub(super) fn keep(
    tx: &mut Tx<'_>,
    (dispute_id, ours): (&DisputeId, Side),
    (event, message): (&Event, &Message),
    now_ms: UnixMs,
) -> Result<bool> {
    let counted: Option<(i64, i64)> = tx.first(
        "SELECT count(*), count(CASE WHEN event_id = $4 THEN 1 END) FROM market_dispute_said
         WHERE dispute_id = $1 AND side = $2 AND author = $3",
        args![dispute_id.as_str(), ours.as_str(), &event.pubkey.npub(), &event.id.hex()],
    )?;
    let (said, known) = counted.unwrap_or_default();
    if known > 0 {
        return Ok(false);
    }
    if said >= SAID_MAX {
        let message = format!("{} has said {said} times something of it", event.pubkey.npub());
        return Err(Error::refused(&code::DISPUTE_LIMIT, message));
    }
    tx.exec(
        "INSERT INTO market_dispute_said (dispute_id, side, event_id, author, step, arbiter, content, json, at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        args![
            dispute_id.as_str(),
            ours.as_str(),
            &event.id.hex(),
            &event.pubkey.npub(),
            message.said.step(),
            message.parties.arbiter.map(|key| key.npub()).as_ref(),
            &message.content_text()?,
            &event.to_json(),
            now_ms
        ],
    )?;
    archive::pin(tx, &event.id)?;
    Ok(true)
}

//! Disputes as they are stored.

use guild_ledger::TransferId;
use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::nostr::dispute::{By, DisputeId, Outcome, Reason, Side};
use guild_store::{Columns, Decode, Rx, args};

use super::{State, Wait};
use crate::error::code;
use crate::row::{Cells, page, unreadable};
use crate::{Error, Result};

/// A dispute, as one of those sees it who take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispute {
    /// Names it; it follows from the request.
    pub dispute_id: DisputeId,
    /// What we are in it.
    pub side: Side,
    /// The request whose result is disputed.
    pub request_id: EventId,
    /// Who asked for the work.
    pub buyer: PublicKey,
    /// Who did it.
    pub provider: PublicKey,
    /// Who may decide, if somebody is named whom we accept.
    pub arbiter: Option<PublicKey>,
    /// Who filed it, as far as we know: who did first.
    pub filed_by: Side,
    /// Why.
    pub reason: Reason,
    /// Whether the work is private, so that nothing about it is said in the open.
    pub private: bool,
    /// The event that filed it.
    pub filing_id: EventId,
    /// How the money stood then; nothing if it was held.
    pub stood: Option<Outcome>,
    /// When it began.
    pub opened_ms: UnixMs,
    /// Until when somebody may decide.
    pub deadline_ms: UnixMs,
    /// Where it stands.
    pub state: State,
    /// Since when.
    pub changed_ms: UnixMs,
    /// When it is looked at again.
    pub due_ms: UnixMs,
    /// By what it was decided.
    pub by: Option<By>,
    /// What the money does; nothing if that is not known yet.
    pub outcome: Option<Outcome>,
    /// What holds money for it, beside the order's own hold.
    pub hold_id: Option<TransferId>,
    /// How much.
    pub held: Msat,
    /// Whether the money has not followed yet.
    pub pending: bool,
    /// What it waits for then.
    pub waits_for: Option<Wait>,
    /// How often it was tried in vain.
    pub tries: i64,
    /// Whether it is not tried any more by itself.
    pub given_up: bool,
    /// How much moved because of it: to the provider on `release`, back on `withhold`.
    pub moved: Msat,
    /// The receipt of that, if it was paid.
    pub receipt_id: Option<ReceiptId>,
    /// The document on which it was paid.
    pub verdict: Option<String>,
    /// What happened then, sealed.
    pub replay: Option<String>,
}

impl Decode for Dispute {
    fn decode(row: &dyn Columns) -> guild_store::Result<Dispute> {
        let mut cells = Cells::of(row);
        Ok(Dispute {
            dispute_id: cells.parsed()?,
            side: word(&mut cells, Side::parse)?,
            request_id: cells.parsed()?,
            buyer: cells.parsed()?,
            provider: cells.parsed()?,
            arbiter: cells.parsed_or_none()?,
            filed_by: word(&mut cells, Side::parse)?,
            reason: word(&mut cells, Reason::parse)?,
            private: cells.next::<i64>()? != 0,
            filing_id: cells.parsed()?,
            stood: word_or_none(&mut cells, Outcome::parse)?,
            opened_ms: cells.next()?,
            deadline_ms: cells.next()?,
            state: word(&mut cells, State::parse)?,
            changed_ms: cells.next()?,
            due_ms: cells.next()?,
            by: word_or_none(&mut cells, By::parse)?,
            outcome: word_or_none(&mut cells, Outcome::parse)?,
            hold_id: cells.parsed_or_none()?,
            held: cells.msat()?,
            pending: cells.next::<i64>()? != 0,
            waits_for: word_or_none(&mut cells, Wait::parse)?,
            tries: cells.next()?,
            given_up: cells.next::<i64>()? != 0,
            moved: cells.msat()?,
            receipt_id: cells.parsed_or_none()?,
            verdict: cells.next()?,
            replay: cells.next()?,
        })
    }
}

fn word<T>(cells: &mut Cells<'_>, parse: fn(&str) -> Option<T>) -> guild_store::Result<T> {
    let word: String = cells.next()?;
    parse(&word).ok_or_else(|| unreadable(format!("a dispute says {word:?}")))
}

fn word_or_none<T>(
    cells: &mut Cells<'_>,
    parse: fn(&str) -> Option<T>,
) -> guild_store::Result<Option<T>> {
    let word: Option<String> = cells.next()?;
    word.map(|word| parse(&word).ok_or_else(|| unreadable(format!("a dispute says {word:?}"))))
        .transpose()
}

impl Dispute {
    /// Which key this side is.
    pub fn key_of(&self, side: Side) -> Option<PublicKey> {
        match side {
            Side::Buyer => Some(self.buyer),
            Side::Provider => Some(self.provider),
            Side::Arbiter => self.arbiter,
        }
    }

    /// Whether whoever filed it was not right.
    pub fn is_lost(&self) -> bool {
        self.outcome.is_some() && self.outcome != self.filed_by.wish()
    }
}

/// Something that was said, as it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The event.
    pub event_id: EventId,
    /// Who.
    pub author: PublicKey,
    /// filed, answered or decided.
    pub step: String,
    /// Whom it names as the arbiter.
    pub arbiter: Option<PublicKey>,
    /// What it says, in the JSON of [the format](guild_protocol::nostr::dispute).
    pub content: String,
    /// The event as it was signed.
    pub json: String,
    /// When it came.
    pub at_ms: UnixMs,
}

impl Decode for Statement {
    fn decode(row: &dyn Columns) -> guild_store::Result<Statement> {
        let mut cells = Cells::of(row);
        Ok(Statement {
            event_id: cells.parsed()?,
            author: cells.parsed()?,
            step: cells.next()?,
            arbiter: cells.parsed_or_none()?,
            content: cells.next()?,
            json: cells.next()?,
            at_ms: cells.next()?,
        })
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT dispute_id, side, request_id, buyer, provider, arbiter, filed_by, reason, private, filing_id, stood,
               opened_ms, deadline_ms, state, changed_ms, due_ms, decided_by, outcome, hold_id, held_units, pending,
               waits_for, tries, given_up, moved_units, receipt_id, verdict, replay FROM market_dispute ",
            $rest
        )
    };
}

/// A dispute as this side of it sees it, if there is one.
pub fn find(rx: &mut Rx<'_>, dispute_id: &DisputeId, side: Side) -> Result<Option<Dispute>> {
    let sql = select!("WHERE dispute_id = $1 AND side = $2");
    Ok(rx.first(sql, args![dispute_id.as_str(), side.as_str()])?)
}

/// A dispute as this side of it sees it.
pub fn get(rx: &mut Rx<'_>, dispute_id: &DisputeId, side: Side) -> Result<Dispute> {
    find(rx, dispute_id, side)?
        .ok_or_else(|| Error::refused(&code::DISPUTE_UNKNOWN, format!("there is no {dispute_id}")))
}

/// A dispute as all sides of it see it that are here: a node may be several of them.
pub fn all_of(rx: &mut Rx<'_>, dispute_id: &DisputeId) -> Result<Vec<Dispute>> {
    Ok(rx.all(select!("WHERE dispute_id = $1 ORDER BY side"), args![dispute_id.as_str()])?)
}

/// The dispute about a request, as this side of it sees it.
pub fn of_request(rx: &mut Rx<'_>, request_id: &EventId, side: Side) -> Result<Option<Dispute>> {
    find(rx, &DisputeId::of_request(request_id), side)
}

/// Whether the result of a request is disputed now, whatever we are in it.
pub fn is_open(rx: &mut Rx<'_>, request_id: &EventId) -> Result<bool> {
    let open: Option<(i64,)> = rx.first(
        "SELECT count(*) FROM market_dispute WHERE dispute_id = $1 AND state IN ('open', 'answered')",
        args![DisputeId::of_request(request_id).as_str()],
    )?;
    Ok(open.is_some_and(|(count,)| count > 0))
}

/// A page of disputes, those that changed last first: those before this one, or the newest of all.
pub fn page_before(
    rx: &mut Rx<'_>,
    before: Option<(UnixMs, &DisputeId)>,
    limit: i64,
) -> Result<Vec<Dispute>> {
    let (at_ms, id) = before.map_or((i64::MAX, ""), |(at_ms, id)| (at_ms, id.as_str()));
    Ok(rx.all(
        select!(
            "WHERE changed_ms < $1 OR (changed_ms = $1 AND dispute_id < $2)
             ORDER BY changed_ms DESC, dispute_id DESC, side LIMIT $3"
        ),
        args![at_ms, id, page(limit)],
    )?)
}

/// What was said in a dispute, in the order in which it came.
pub fn said_in(rx: &mut Rx<'_>, dispute_id: &DisputeId, side: Side) -> Result<Vec<Statement>> {
    Ok(rx.all(
        "SELECT event_id, author, step, arbiter, content, json, at_ms FROM market_dispute_said
         WHERE dispute_id = $1 AND side = $2 ORDER BY at_ms, event_id",
        args![dispute_id.as_str(), side.as_str()],
    )?)
}

/// So many are looked at to see how many were lost in a row: more say no more.
const ROW_MAX: i64 = 16;

/// How many of the disputes that somebody filed against us as this side it has lost in a row, since then.
pub fn lost_in_row(
    rx: &mut Rx<'_>,
    ours: Side,
    filer: &PublicKey,
    since_ms: UnixMs,
) -> Result<u64> {
    let sql = match ours {
        Side::Buyer => {
            "SELECT outcome FROM market_dispute WHERE provider = $1 AND side = 'buyer' AND filed_by = 'provider'
               AND outcome IS NOT NULL AND changed_ms > $2 ORDER BY changed_ms DESC, dispute_id LIMIT $3"
        }
        Side::Provider => {
            "SELECT outcome FROM market_dispute WHERE buyer = $1 AND side = 'provider' AND filed_by = 'buyer'
               AND outcome IS NOT NULL AND changed_ms > $2 ORDER BY changed_ms DESC, dispute_id LIMIT $3"
        }
        Side::Arbiter => return Ok(0),
    };
    let outcomes: Vec<(String,)> = rx.all(sql, args![&filer.npub(), since_ms, ROW_MAX])?;
    let won = ours.other().and_then(Side::wish).map(Outcome::as_str);
    let lost = outcomes.iter().take_while(|(outcome,)| Some(outcome.as_str()) != won).count();
    Ok(u64::try_from(lost).unwrap_or(u64::MAX))
}

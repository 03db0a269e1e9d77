//! Jobs as they are stored.

use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, Limits};
use guild_protocol::schema::SchemaId;
use guild_store::{Columns, Decode, Rx, Tx, args};

use super::State;
use crate::claim::{Claimant, Claimed};
use crate::error::code;
use crate::row::{Cells, page, unreadable};
use crate::{Error, Result};

/// A job as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenJob {
    /// The id of the request.
    pub request_id: EventId,
    /// The request itself; none only if it was refused.
    pub request_json: Option<String>,
    /// Which of our keys decided about it.
    pub provider: PublicKey,
    /// Whose it is.
    pub buyer: PublicKey,
    /// Whether request and answers travel encrypted.
    pub private: bool,
    /// What kind of work; none only if it was refused.
    pub schema_id: Option<SchemaId>,
    /// Which work; none only if it was refused.
    pub job_hash: Option<Hash>,
    /// Its input, in canonical JSON; none only if it was refused.
    pub payload: Option<String>,
    /// What it costs.
    pub price: Msat,
    /// When we decided about it.
    pub taken_ms: UnixMs,
    /// Until when the buyer waits, if it says so.
    pub due_ms: Option<UnixMs>,
    /// Where it stands.
    pub state: State,
    /// Since when.
    pub changed_ms: UnixMs,
    /// The result that we signed.
    pub result_json: Option<String>,
    /// When.
    pub delivered_ms: Option<UnixMs>,
    /// What the buyer owes for it.
    pub paid: Option<Msat>,
    /// The buyer's receipt.
    pub receipt_id: Option<ReceiptId>,
    /// Why it was refused or failed, as a code.
    pub code: Option<String>,
    /// The same in words.
    pub words: Option<String>,
    /// Which process works on it.
    pub claimed: Claimed,
}

impl Decode for TakenJob {
    fn decode(row: &dyn Columns) -> guild_store::Result<TakenJob> {
        let mut cells = Cells::of(row);
        Ok(TakenJob {
            request_id: cells.parsed()?,
            request_json: cells.next()?,
            provider: cells.parsed()?,
            buyer: cells.parsed()?,
            private: cells.next::<i64>()? != 0,
            schema_id: cells.parsed_or_none()?,
            job_hash: cells.parsed_or_none()?,
            payload: cells.next()?,
            price: cells.msat()?,
            taken_ms: cells.next()?,
            due_ms: cells.next()?,
            state: State::parse(&cells.next::<String>()?)
                .ok_or_else(|| unreadable("a job has an unknown state"))?,
            changed_ms: cells.next()?,
            result_json: cells.next()?,
            delivered_ms: cells.next()?,
            paid: cells.msat_or_none()?,
            receipt_id: cells.parsed_or_none()?,
            code: cells.next()?,
            words: cells.next()?,
            claimed: Claimed::read(&mut cells)?,
        })
    }
}

impl TakenJob {
    /// The request. That of a refusal is not kept.
    pub fn request(&self) -> Result<Event> {
        let Some(text) = &self.request_json else {
            let message = format!("{} was refused", self.request_id);
            return Err(Error::refused(&code::JOB_CLOSED, message));
        };
        Ok(Event::parse(text.as_bytes(), &Limits::DEFAULT).map_err(unreadable)?)
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT request_id, request_json, provider, buyer, private, schema_id, job_hash, payload, price_units,
               taken_ms, due_ms, state, changed_ms, result_json, delivered_ms, paid_units, receipt_id, code, words,
               claim_token, claim_until_ms, claim_epoch FROM market_job ",
            $rest
        )
    };
}

/// The job of this request, if it is one of ours.
pub fn find(rx: &mut Rx<'_>, request_id: &EventId) -> Result<Option<TakenJob>> {
    Ok(rx.first(select!("WHERE request_id = $1"), args![&request_id.hex()])?)
}

/// The job of this request.
pub fn get(rx: &mut Rx<'_>, request_id: &EventId) -> Result<TakenJob> {
    find(rx, request_id)?.ok_or_else(|| {
        Error::refused(&code::UNKNOWN_JOB, format!("{request_id} is no job of ours"))
    })
}

/// Jobs of `us` that are to be done, the oldest first.
pub fn accepted(rx: &mut Rx<'_>, us: &PublicKey, limit: i64) -> Result<Vec<TakenJob>> {
    Ok(rx.all(
        select!(
            "WHERE state = 'accepted' AND provider = $1 ORDER BY taken_ms, request_id LIMIT $2"
        ),
        args![&us.npub(), page(limit)],
    )?)
}

/// Those of them that this one works on, or may claim.
pub fn to_do(
    rx: &mut Rx<'_>,
    us: &PublicKey,
    who: &Claimant,
    now_ms: UnixMs,
    limit: i64,
) -> Result<Vec<TakenJob>> {
    Ok(rx.all(
        select!(
            "WHERE state = 'accepted' AND provider = $1
               AND (claim_token IS NULL OR claim_token = $2 OR claim_until_ms <= $3 OR claim_until_ms > $4)
             ORDER BY taken_ms, request_id LIMIT $5"
        ),
        args![&us.npub(), &who.token, now_ms, who.longest_ms(now_ms), page(limit)],
    )?)
}

/// A page of jobs that are done and not paid, the first that were done first: those after this one, or the first of
/// all. For these a receipt is looked for. Free ones are not among them.
pub fn unpaid_after(
    rx: &mut Rx<'_>,
    after: Option<(UnixMs, &EventId)>,
    limit: i64,
) -> Result<Vec<TakenJob>> {
    let (at_ms, id) = after.map_or((i64::MIN, String::new()), |(at_ms, id)| (at_ms, id.hex()));
    Ok(rx.all(
        select!(
            "WHERE state = 'delivered' AND price_units > 0
               AND (delivered_ms > $1 OR (delivered_ms = $1 AND request_id > $2))
             ORDER BY delivered_ms, request_id LIMIT $3"
        ),
        args![at_ms, &id, page(limit)],
    )?)
}

/// A page of jobs, the newest first: those before this one, or the newest of all.
pub fn page_before(
    rx: &mut Rx<'_>,
    before: Option<(UnixMs, &EventId)>,
    limit: i64,
) -> Result<Vec<TakenJob>> {
    let (at_ms, id) = before.map_or((i64::MAX, String::new()), |(at_ms, id)| (at_ms, id.hex()));
    Ok(rx.all(
        select!(
            "WHERE taken_ms < $1 OR (taken_ms = $1 AND request_id < $2)
             ORDER BY taken_ms DESC, request_id DESC LIMIT $3"
        ),
        args![at_ms, &id, page(limit)],
    )?)
}

/// Forgets refusals that are older than this, and those beyond the newest `kept_max`: anybody can make us refuse. At
/// most `limit` at once. How many.
pub fn forget_refused(
    tx: &mut Tx<'_>,
    before_ms: UnixMs,
    kept_max: i64,
    limit: i64,
) -> Result<u64> {
    let first_too_many: Option<(i64,)> = tx.first(
        "SELECT taken_ms FROM market_job WHERE state = 'refused' ORDER BY taken_ms DESC LIMIT 1 OFFSET $1",
        args![kept_max.max(0)],
    )?;
    let before_ms = match first_too_many {
        Some((taken_ms,)) => before_ms.max(taken_ms.saturating_add(1)),
        None => before_ms,
    };
    Ok(tx.exec(
        "DELETE FROM market_job WHERE request_id IN (SELECT request_id FROM market_job
           WHERE state = 'refused' AND taken_ms < $1 ORDER BY taken_ms LIMIT $2)",
        args![before_ms, page(limit)],
    )?)
}

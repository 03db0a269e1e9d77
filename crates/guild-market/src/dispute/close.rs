//! What time, rows and decisions make of a dispute.

use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::nostr::dispute::{By, DisputeId, Message, Outcome, Parties, Said, Side};
use guild_protocol::nostr::{Event, unix_s};
use guild_store::{Rx, Tx, args};

use super::decide::{Facts, State, Step, decide};
use super::hear::{Named, Subject, keep, subject_of};
use super::read::{Dispute, get, lost_in_row};
use super::wait::{Wait, again_ms};
use super::{Desk, Done, money, tell_of};
use crate::order::Order;
use crate::row::page;
use crate::settle::Keys;
use crate::{Result, routing};

/// How a dispute ends.
pub(super) struct Closing {
    pub(super) state: State,
    pub(super) by: By,
    pub(super) outcome: Option<Outcome>,
    /// Whether that follows from our own rows: then nobody has said it yet.
    pub(super) is_ours: bool,
}

/// Disputes that are to be looked at: open ones whose time has come, and those whose money has not followed yet,
/// and was not given up.
pub fn due(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<(DisputeId, Side)>> {
    let rows: Vec<(String, String)> = rx.all(
        "SELECT dispute_id, side FROM market_dispute
         WHERE (state IN ('open', 'answered') OR pending = 1) AND given_up = 0 AND due_ms <= $1
         ORDER BY due_ms, dispute_id LIMIT $2",
        args![now_ms, page(limit)],
    )?;
    let read = |(id, side): (String, String)| -> Result<(DisputeId, Side)> {
        let side = Side::parse(&side).ok_or_else(|| crate::row::unreadable("a side is unknown"))?;
        Ok((id.parse()?, side))
    };
    rows.into_iter().map(read).collect()
}

/// Looks at a dispute again at this moment.
pub fn put_off(
    tx: &mut Tx<'_>,
    (dispute_id, side): (&DisputeId, Side),
    until_ms: UnixMs,
) -> Result<()> {
    tx.exec(
        "UPDATE market_dispute SET due_ms = $3 WHERE dispute_id = $1 AND side = $2",
        args![dispute_id.as_str(), side.as_str(), until_ms],
    )?;
    Ok(())
}

/// Does what is to be done about a dispute now; `checked` is what doing the work again has shown, if that was done.
pub fn advance(
    tx: &mut Tx<'_>,
    (dispute_id, side): (&DisputeId, Side),
    checked: Option<Outcome>,
    desk: Desk<'_>,
    now_ms: UnixMs,
) -> Result<Done> {
    let dispute = get(tx, dispute_id, side)?;
    if dispute.state.is_over() {
        return Ok(Done::of(dispute));
    }
    let subject = subject_of(tx, side, &Named::by(&dispute))?;
    let filer = dispute.key_of(dispute.filed_by).filter(|_| dispute.filed_by != side);
    let since_ms = now_ms.saturating_sub(desk.options.lost_ms);
    let lost_in_row = match filer {
        Some(filer) => lost_in_row(tx, side, &filer, since_ms)?,
        None => 0,
    };
    let facts = Facts {
        side,
        state: dispute.state,
        reason: dispute.reason,
        stood: dispute.stood,
        stands: subject.stands,
        is_part: subject.is_part,
        can_check: subject.order.as_ref().is_some_and(Order::is_objective),
        lost_in_row,
        lost_max: desk.options.lost_max,
        checked,
        deadline_ms: dispute.deadline_ms,
        fallback: desk.options.fallback,
        now_ms,
    };
    match decide(&facts) {
        Step::Over => Ok(Done::of(dispute)),
        Step::Wait => {
            // The provider also looks at what the buyer has done since.
            let until_ms = match side {
                Side::Provider => dispute.deadline_ms.min(now_ms.saturating_add(LOOK_MS)),
                _ => dispute.deadline_ms,
            };
            put_off(tx, (dispute_id, side), until_ms)?;
            Ok(Done::of(get(tx, dispute_id, side)?))
        }
        Step::Check => Ok(Done { is_to_check: true, ..Done::of(dispute) }),
        Step::Close { state, by, outcome } => {
            let closing = Closing { state, by, outcome, is_ours: true };
            close(tx, &dispute, &subject, closing, desk, now_ms)
        }
    }
}

/// How often a provider looks whether the buyer has settled.
const LOOK_MS: i64 = 60_000;

/// Ends a dispute: what it says, what the money does, and what is thought of whoever filed it, at once.
pub(super) fn close(
    tx: &mut Tx<'_>,
    dispute: &Dispute,
    subject: &Subject,
    closing: Closing,
    desk: Desk<'_>,
    now_ms: UnixMs,
) -> Result<Done> {
    let Closing { state, by, outcome, is_ours } = closing;
    let (id, side) = (&dispute.dispute_id, dispute.side);
    tx.cas(
        "UPDATE market_dispute SET state = $3, decided_by = $4, outcome = $5, changed_ms = $6, due_ms = $6
         WHERE dispute_id = $1 AND side = $2 AND state IN ('open', 'answered')",
        args![
            id.as_str(),
            side.as_str(),
            state.as_str(),
            by.as_str(),
            outcome.map(Outcome::as_str),
            now_ms
        ],
    )?;
    let closed = get(tx, id, side)?;
    let mut events = follow(tx, &closed, subject, desk.keys, now_ms)?;
    learn(tx, &closed, subject, now_ms)?;
    if let (Some(outcome), true, Side::Buyer) = (outcome, is_ours, side) {
        events.push(announce(tx, &closed, (by, outcome), desk.keys, now_ms)?);
    }
    let dispute = get(tx, id, side)?;
    tell_of(tx, &dispute, now_ms)?;
    Ok(Done { dispute, events, is_to_check: false })
}

/// Lets the money follow what was decided. What cannot be booked now stays pending.
fn follow(
    tx: &mut Tx<'_>,
    dispute: &Dispute,
    subject: &Subject,
    keys: Keys<'_>,
    now_ms: UnixMs,
) -> Result<Vec<Event>> {
    let followed = money::follow(tx, dispute, subject.order.as_ref(), keys, now_ms)?;
    tx.exec(
        "UPDATE market_dispute SET pending = $3, moved_units = $4, receipt_id = $5, verdict = $6, replay = $7,
           waits_for = $8
         WHERE dispute_id = $1 AND side = $2",
        args![
            dispute.dispute_id.as_str(),
            dispute.side.as_str(),
            i64::from(followed.waits_for.is_some()),
            followed.moved.0,
            followed.receipt.as_ref().map(|receipt| receipt.receipt_id().as_str()),
            followed.verdict.as_ref(),
            followed.replay.as_ref(),
            followed.waits_for.map(Wait::as_str)
        ],
    )?;
    Ok(followed.notice.into_iter().collect())
}

/// Tries again to let the money follow, where that was not possible: less and less often, and not for ever.
pub fn retry(
    tx: &mut Tx<'_>,
    (dispute_id, side): (&DisputeId, Side),
    desk: Desk<'_>,
    now_ms: UnixMs,
) -> Result<Done> {
    let dispute = get(tx, dispute_id, side)?;
    if !dispute.pending || dispute.given_up {
        return Ok(Done::of(dispute));
    }
    let mut events = Vec::new();
    if side == Side::Buyer {
        let subject = subject_of(tx, side, &Named::by(&dispute))?;
        events = follow(tx, &dispute, &subject, desk.keys, now_ms)?;
    }
    let dispute = get(tx, dispute_id, side)?;
    let dispute = if dispute.pending { tried(tx, &dispute, now_ms)? } else { dispute };
    Ok(Done { events, ..Done::of(dispute) })
}

/// Looking at a dispute has failed by itself: it is put off, and where only its money is left to follow that counts as
/// a try.
pub fn failed(
    tx: &mut Tx<'_>,
    (dispute_id, side): (&DisputeId, Side),
    now_ms: UnixMs,
) -> Result<Dispute> {
    let dispute = get(tx, dispute_id, side)?;
    if !dispute.pending || dispute.given_up {
        put_off(tx, (dispute_id, side), now_ms.saturating_add(LOOK_MS))?;
        return get(tx, dispute_id, side);
    }
    tx.exec(
        "UPDATE market_dispute SET waits_for = $3 WHERE dispute_id = $1 AND side = $2",
        args![dispute_id.as_str(), side.as_str(), Wait::Repair.as_str()],
    )?;
    let dispute = Dispute { waits_for: Some(Wait::Repair), ..dispute };
    tried(tx, &dispute, now_ms)
}

/// Counts a try that was in vain: when the next one is, or that there is none.
fn tried(tx: &mut Tx<'_>, dispute: &Dispute, now_ms: UnixMs) -> Result<Dispute> {
    let (id, side) = (&dispute.dispute_id, dispute.side);
    let tries = dispute.tries.saturating_add(1);
    let after_ms = again_ms(tries);
    tx.cas(
        "UPDATE market_dispute SET tries = $3, given_up = $4, due_ms = $5 WHERE dispute_id = $1 AND side = $2",
        args![
            id.as_str(),
            side.as_str(),
            tries,
            i64::from(after_ms.is_none()),
            now_ms.saturating_add(after_ms.unwrap_or(0))
        ],
    )?;
    let dispute = get(tx, id, side)?;
    if dispute.given_up {
        tell_of(tx, &dispute, now_ms)?;
    }
    Ok(dispute)
}

/// Has it tried again, as often as at first, what was given up.
pub(super) fn resume(tx: &mut Tx<'_>, dispute: &Dispute, now_ms: UnixMs) -> Result<Dispute> {
    let (id, side) = (&dispute.dispute_id, dispute.side);
    tx.cas(
        "UPDATE market_dispute SET tries = 0, given_up = 0, due_ms = $3
         WHERE dispute_id = $1 AND side = $2 AND given_up = 1",
        args![id.as_str(), side.as_str(), now_ms],
    )?;
    get(tx, id, side)
}

/// What the matrix learns: whoever files what it loses is trusted less, and what was settled the wrong way is set
/// right.
pub(super) fn learn(
    tx: &mut Tx<'_>,
    dispute: &Dispute,
    subject: &Subject,
    now_ms: UnixMs,
) -> Result<()> {
    let (Side::Buyer, Some(order), Some(outcome)) = (dispute.side, &subject.order, dispute.outcome)
    else {
        return Ok(());
    };
    let options = routing::Options::default();
    if dispute.filed_by == Side::Provider && dispute.is_lost() {
        routing::work::lost_dispute(tx, &options, order, now_ms)?;
    }
    if dispute.stood.is_some_and(|stood| stood != outcome) {
        let is_good = outcome == Outcome::Release;
        routing::work::overturned(tx, &options, (order, is_good), now_ms)?;
    }
    Ok(())
}

/// Says what we have decided about our own money.
fn announce(
    tx: &mut Tx<'_>,
    dispute: &Dispute,
    (by, outcome): (By, Outcome),
    keys: Keys<'_>,
    now_ms: UnixMs,
) -> Result<Event> {
    let said = Said::Decided { outcome, by, filing: dispute.filing_id };
    let message = Message::new(dispute.request_id, parties(dispute), said);
    let event = sign(&message, dispute.private, keys, now_ms)?;
    // Kept with the rest as soon as it is in the archive, which the caller sees to.
    keep(tx, (&dispute.dispute_id, dispute.side), (&event, &message), now_ms)?;
    Ok(event)
}

/// Those whom a dispute names.
pub(super) fn parties(dispute: &Dispute) -> Parties {
    Parties { buyer: dispute.buyer, provider: dispute.provider, arbiter: dispute.arbiter }
}

/// A message as an event of ours; encrypted if the work is private.
pub(super) fn sign(
    message: &Message,
    private: bool,
    keys: Keys<'_>,
    now_ms: UnixMs,
) -> Result<Event> {
    let at = unix_s(now_ms);
    let draft = match private {
        true => message.sealed_draft(keys.key, at, keys.random)?,
        false => message.draft(&keys.key.public_key(), at)?,
    };
    Ok(draft.sign(keys.key)?)
}

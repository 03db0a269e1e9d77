//! What was said of it in public: whether it is by the buyer, and cites these very files.

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::nostr::review::{Evidence, Review};

use super::work::Seat;
use super::{Desk, trial};
use crate::dossier::{Problem, code, receipt_at};

pub(super) fn check(desk: &mut Desk<'_>, id: &EventId, seats: &[Seat]) {
    let Some(event) = desk.event(id) else { return };
    let outcome = match event.pubkey == desk.manifest.buyer {
        false => Err(wrong("it was signed by somebody else than the buyer")),
        true => match Review::parse(&event) {
            Ok(review) => cites(desk, &review.subject, &review.evidence, seats),
            Err(error) => Err(wrong(&error.to_string())),
        },
    };
    desk.report.record("review", id.hex(), outcome);
}

fn wrong(why: &str) -> Problem {
    Problem::new(&code::REVIEW, why)
}

/// Whether everything that it cites is here, and so.
fn cites(
    desk: &mut Desk<'_>,
    subject: &PublicKey,
    evidence: &Evidence,
    seats: &[Seat],
) -> Result<(), Problem> {
    let cited = |seat: &&Seat| Some(seat.work.request_id) == evidence.request_id;
    let Some(seat) = seats.iter().find(cited) else {
        return Err(wrong("it cites another request"));
    };
    let same = |what: &str, holds: bool| match holds {
        true => Ok(()),
        false => Err(wrong(&format!("it cites another {what}"))),
    };
    same("provider", seat.work.provider.as_ref() == Some(subject))?;
    same("result", evidence.result_id == seat.work.result_id)?;
    if let (Some(hash), Some(job)) = (evidence.job_hash, &seat.job) {
        same("job", hash == job.job_hash())?;
    }
    if let Some(hash) = evidence.verdict_hash {
        let named = match &seat.work.revealed {
            None => seat.work.verdict_hash,
            Some(revealed) => trial::judgement(desk, seat, revealed),
        };
        same("verdict", named == Some(hash))?;
    }
    match (&evidence.payment, &seat.work.receipt_id) {
        (None, _) => {}
        (Some(payment), Some(receipt_id)) => {
            same("receipt", payment.receipt_id == *receipt_id)?;
            let bytes = desk.bytes(&receipt_at(receipt_id)).unwrap_or_default();
            same("receipt", payment.receipt_hash == Hash::of(bytes))?;
        }
        (Some(_), None) => same("receipt", false)?,
    }
    match (&evidence.reveal, &seat.work.revealed) {
        (None, _) => Ok(()),
        (Some(said), Some(revealed)) => {
            let is_same = said.benchmark == revealed.benchmark
                && said.seed == revealed.seed
                && Some(&said.salt) == revealed.salt.as_ref();
            same("reveal", is_same)
        }
        (Some(_), None) => same("reveal", false),
    }
}

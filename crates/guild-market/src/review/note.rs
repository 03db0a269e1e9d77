//! Something happened of which something is to be said: a draft, in the transaction that writes what happened.

use guild_network::index;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::{Hash, to_hex};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::is_relay_url;
use guild_protocol::nostr::review::{Evidence, Payment, Reveal, Review};
use guild_store::{Rx, Tx, args};
use serde_json::Value;

use super::read::{draft_of, last_of};
use super::{Belief, Due, Facts, Options, Reason, ReviewId, compose, get, score, when};
use crate::Result;
use crate::benchmark::Task;
use crate::judge::Class;
use crate::meeting::{self, Meeting, Outcome};
use crate::order::Order;
use crate::receipts;
use crate::routing::Mutation;
use crate::routing::log::{self, Appended};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted<'a> {
    /// A benchmark or an order; or that something forbidden was tried.
    pub reason: Reason,
    /// What is believed now.
    pub belief: Belief<'a>,
    /// What it can be checked by.
    pub evidence: Evidence,
}

/// Begins a draft, or changes the one that is there. Whoever calls this does so once for each outcome.
pub fn note(
    tx: &mut Tx<'_>,
    options: &Options,
    noted: &Noted<'_>,
    now_ms: UnixMs,
) -> Result<ReviewId> {
    let Belief { provider, task, .. } = noted.belief;
    let draft = draft_of(tx, &provider, task)?;
    let (count, last) = last_of(tx, &provider, task)?;
    // What is forbidden stays so, whatever it does well later.
    let was_violation = draft.as_ref().is_some_and(|draft| draft.reason == Reason::Violation);
    let is_violation = was_violation || noted.reason == Reason::Violation;
    let belief = Belief { is_violation, ..noted.belief.clone() };
    let review = compose(&belief, hint(tx, &provider)?, noted.evidence.clone());
    let due = when(&Facts {
        reason: if is_violation { Reason::Violation } else { noted.reason },
        trust_bp: review.trust_bp,
        // That is looked at when it is due.
        is_disputed: false,
        drafted_due_ms: draft.as_ref().map(|draft| draft.due_ms),
        last,
        delay_ms: options.delay_ms,
        now_ms,
    });
    let (due_ms, reason) = match due {
        Due::At(due_ms, reason) => (due_ms, reason),
        Due::Held => (now_ms, noted.reason),
    };
    match draft {
        Some(draft) => change(tx, &draft.review_id, &review, (reason, due_ms), now_ms),
        None => {
            let number = count.saturating_add(1);
            begin(tx, number, &review, (reason, due_ms), now_ms)
        }
    }
}

fn begin(
    tx: &mut Tx<'_>,
    number: i64,
    review: &Review,
    (reason, due_ms): (Reason, UnixMs),
    now_ms: UnixMs,
) -> Result<ReviewId> {
    let review_id = ReviewId::of_number(&review.subject, &review.task, number);
    tx.exec(
        "INSERT INTO market_review (review_id, provider, task_type, number, state, reason, drafted_ms, changed_ms,
           due_ms, outcomes, trust_bp, relay, request_id, content)
         VALUES ($1, $2, $3, $4, 'due', $5, $6, $6, $7, 1, $8, $9, $10, $11)",
        args![
            review_id.as_str(),
            &review.subject.npub(),
            &review.task,
            number,
            reason.name(),
            now_ms,
            due_ms,
            i64::from(review.trust_bp),
            review.relay.as_ref(),
            review.evidence.request_id.map(|id| id.hex()).as_ref(),
            &review.content_text()?
        ],
    )?;
    Ok(review_id)
}

fn change(
    tx: &mut Tx<'_>,
    review_id: &ReviewId,
    review: &Review,
    (reason, due_ms): (Reason, UnixMs),
    now_ms: UnixMs,
) -> Result<ReviewId> {
    tx.exec(
        "UPDATE market_review SET reason = $2, changed_ms = $3, due_ms = $4, outcomes = outcomes + 1, trust_bp = $5,
           relay = $6, request_id = $7, content = $8
         WHERE review_id = $1 AND state IN ('due', 'held')",
        args![
            review_id.as_str(),
            reason.name(),
            now_ms,
            due_ms,
            i64::from(review.trust_bp),
            review.relay.as_ref(),
            review.evidence.request_id.map(|id| id.hex()).as_ref(),
            &review.content_text()?
        ],
    )?;
    Ok(get(tx, review_id)?.review_id)
}

/// Where a provider can be heard, as it says itself.
fn hint(rx: &mut Rx<'_>, provider: &PublicKey) -> Result<Option<String>> {
    let offers = index::provider(rx, provider)?;
    let mut relays = offers.into_iter().flat_map(|offer| offer.card.relays);
    Ok(relays.find(|url| is_relay_url(url)))
}

/// An order has ended, and these rows of the routing log are what became of it: whoever reviewed its provider is
/// scored, and a review of it is due. Of private work nobody is told, and of our own neither.
pub fn ended(
    tx: &mut Tx<'_>,
    options: &Options,
    order: &Order,
    rows: &[Appended],
    now_ms: UnixMs,
) -> Result<Option<ReviewId>> {
    let outcome = rows.iter().find_map(|row| match row.effect.mutation {
        Mutation::Outcome { class, .. } if row.is_new => Some((&row.effect, class)),
        _ => None,
    });
    let Some((effect, class)) = outcome else { return Ok(None) };
    score(tx, &effect.task, &effect.provider, class, now_ms)?;
    let is_ours = options.ours.contains(&effect.provider);
    if order.private || is_ours || order.provider != Some(effect.provider) {
        return Ok(None);
    }
    let is_violation = class == Class::SecurityViolation;
    let noted = Noted {
        reason: if is_violation { Reason::Violation } else { Reason::Order },
        belief: Belief {
            provider: effect.provider,
            task: &effect.task,
            trust_bp: effect.entry.trust_bp,
            entry: Some(&effect.entry),
            test_score_bp: score_of(order),
            is_violation,
        },
        evidence: evidence_of(tx, order)?,
    };
    note(tx, options, &noted, now_ms).map(Some)
}

fn score_of(order: &Order) -> Option<u32> {
    let verdict: Value = serde_json::from_str(order.verdict.as_deref()?).ok()?;
    let score = verdict.get("score")?.as_f64()?;
    Some((score.clamp(0.0, 1.0) * 10_000.0).round() as u32)
}

fn evidence_of(rx: &mut Rx<'_>, order: &Order) -> Result<Evidence> {
    let payment = match &order.receipt_id {
        None => None,
        Some(receipt_id) => receipts::get(rx, receipt_id)?.map(|kept| Payment {
            receipt_id: receipt_id.clone(),
            receipt_hash: Hash::of(kept.text.as_bytes()),
        }),
    };
    Ok(Evidence {
        request_id: Some(order.request_id),
        result_id: order.result_id,
        job_hash: Some(order.job_hash),
        verdict_hash: order.verdict.as_ref().map(|document| Hash::of(document.as_bytes())),
        payment,
        reveal: None,
    })
}

/// A meeting has ended: a review of whom was met is due, if there was something to judge. Called in the transaction
/// that ends it, which happens once.
pub fn met(
    tx: &mut Tx<'_>,
    options: &Options,
    meeting: &Meeting,
    now_ms: UnixMs,
) -> Result<Option<ReviewId>> {
    let is_violation = match meeting.outcome {
        Some(Outcome::Active | Outcome::Conditional | Outcome::Rejected) => false,
        Some(Outcome::Forbidden) => true,
        _ => return Ok(None),
    };
    if options.ours.contains(&meeting.terms.provider) {
        return Ok(None);
    }
    let trials = meeting::trials(tx, &meeting.meeting_id)?;
    let sum = |of: fn(&meeting::Trial) -> i64| {
        trials.iter().fold(0_i64, |sum, trial| sum.saturating_add(of(trial).max(0)))
    };
    let (passed, total) = (sum(|trial| trial.passed), sum(|trial| trial.total));
    let test_score_bp = passed.saturating_mul(10_000).checked_div(total);
    let entry = log::latest(tx, &meeting.task, &meeting.terms.provider)?;
    let is_admitted = meeting.outcome.is_some_and(Outcome::is_admitted);
    // Whoever did not pass is not trusted for it, whatever it did before.
    let trust_bp = entry.as_ref().filter(|_| is_admitted).map_or(0, |entry| entry.trust_bp);
    let judged =
        trials.iter().rev().find(|trial| trial.class.is_some() && trial.result_id.is_some());
    let evidence = match judged {
        None => Evidence::default(),
        Some(trial) => evidence_of_trial(tx, meeting, trial)?,
    };
    let noted = Noted {
        reason: if is_violation { Reason::Violation } else { Reason::Benchmark },
        belief: Belief {
            provider: meeting.terms.provider,
            task: &meeting.task,
            trust_bp,
            entry: entry.as_ref(),
            test_score_bp: test_score_bp.and_then(|bp| u32::try_from(bp).ok()),
            is_violation,
        },
        evidence,
    };
    note(tx, options, &noted, now_ms).map(Some)
}

fn evidence_of_trial(
    rx: &mut Rx<'_>,
    meeting: &Meeting,
    trial: &meeting::Trial,
) -> Result<Evidence> {
    let judgement: Option<(Option<String>,)> = rx.first(
        "SELECT judgement_id FROM market_trial WHERE request_id = $1",
        args![&trial.request_id.hex()],
    )?;
    let verdict = judgement.and_then(|(id,)| id);
    let revealed = |task: Task| Reveal {
        commitment: task.commitment(),
        salt: task.salt().hex(),
        benchmark: meeting.terms.benchmark.name().to_owned(),
        seed: to_hex(&trial.seed),
    };
    Ok(Evidence {
        request_id: Some(trial.request_id),
        result_id: trial.result_id,
        job_hash: None,
        verdict_hash: verdict.and_then(|id| Hash::parse_liberal(&id).ok()),
        payment: None,
        // One that can no longer be made again cannot be revealed.
        reveal: meeting.terms.task(&trial.seed).ok().map(revealed),
    })
}

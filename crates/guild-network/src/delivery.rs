//! What became of our requests to a provider at a relay: whether the relay took them, and where the first answer came
//! from. Once there is enough of it, it says more than any hint.
//!
//! An observation fades: after a week it counts half.

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, kind, tag};
use guild_store::{Rx, Tx, args};
use serde::Serialize;

use crate::Result;
use crate::client::relay_url;

/// One observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The relay took the request.
    Taken,
    /// It refused it for good.
    Refused,
    /// It could not be reached, or did not say; or it took the request, and the provider never said anything.
    Unanswered,
    /// The provider's first answer came from here, so long after the request.
    Answered {
        /// How long it took.
        after_ms: i64,
    },
}

/// What was observed of a provider at a relay, in thousandths, as far as it has not faded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Quality {
    /// Requests that the relay took.
    pub taken: i64,
    /// Those that it refused.
    pub refused: i64,
    /// Those about which it did not say anything, and those that it took and the provider never answered.
    pub unanswered: i64,
    /// Those that the provider answered first from here.
    pub answered: i64,
    /// From a request to its first answer, lately.
    pub after_ms: Option<i64>,
    /// As of when.
    pub at_ms: UnixMs,
}

/// After so long an observation counts half.
const HALF_LIFE_MS: i64 = 7 * 24 * 3_600_000;
/// So many observations are enough to say something.
const ENOUGH_MILLI: i64 = 3_000;
/// What was observed is forgotten after so long.
const KEPT_MS: i64 = 60 * 24 * 3_600_000;
/// So much is forgotten at a time.
const FORGET_MAX: i64 = 500;
/// Of one provider at most so many relays are remembered: it names them.
const RELAYS_MAX: i64 = 32;
/// A request may name many providers; of more than this nobody can say who was meant.
const ADDRESSED_MAX: usize = 8;

impl Quality {
    /// What is left of it at a later time. Whole halves are exact, what is between them is a straight line.
    #[must_use]
    pub fn faded(&self, now_ms: UnixMs) -> Quality {
        let age_ms = now_ms.saturating_sub(self.at_ms).max(0);
        let halves = u32::try_from(age_ms / HALF_LIFE_MS).unwrap_or(u32::MAX);
        let rest_ms = age_ms % HALF_LIFE_MS;
        let left = |milli: i64| {
            let milli = milli.clamp(0, 1 << 40).checked_shr(halves).unwrap_or(0);
            milli.saturating_sub(milli.saturating_mul(rest_ms / 1_000) / (HALF_LIFE_MS / 500))
        };
        Quality {
            taken: left(self.taken),
            refused: left(self.refused),
            unanswered: left(self.unanswered),
            answered: left(self.answered),
            after_ms: self.after_ms,
            at_ms: now_ms.max(self.at_ms),
        }
    }

    /// With one more observation.
    #[must_use]
    pub fn and(&self, outcome: Outcome, now_ms: UnixMs) -> Quality {
        let mut is = self.faded(now_ms);
        let more = |milli: i64| milli.saturating_add(1_000);
        match outcome {
            Outcome::Taken => is.taken = more(is.taken),
            Outcome::Refused => is.refused = more(is.refused),
            Outcome::Unanswered => is.unanswered = more(is.unanswered),
            Outcome::Answered { after_ms } => {
                is.answered = more(is.answered);
                let was_ms = is.after_ms.unwrap_or(after_ms);
                is.after_ms = Some(was_ms.saturating_add(after_ms.saturating_sub(was_ms) / 4));
            }
        }
        is
    }

    /// Whether there is enough of it to say more than a hint.
    pub fn is_enough(&self) -> bool {
        let all = [self.taken, self.refused, self.unanswered, self.answered];
        all.into_iter().fold(0, i64::saturating_add) >= ENOUGH_MILLI
    }

    /// How well requests arrive, in thousandths. That a relay took one proves less than an answer: it may drop it.
    pub fn score_milli(&self) -> i64 {
        let good = (self.taken / 2).saturating_add(self.answered.saturating_mul(2));
        let bad = self.refused.saturating_add(self.unanswered);
        let all = good.saturating_add(bad).saturating_add(2_000);
        good.saturating_add(1_000).saturating_mul(1_000) / all.max(1)
    }
}

type Row = (i64, i64, i64, i64, Option<i64>, i64);

fn read((taken, refused, unanswered, answered, after_ms, at_ms): Row) -> Quality {
    Quality { taken, refused, unanswered, answered, after_ms, at_ms }
}

/// Writes down an observation.
pub fn record(
    tx: &mut Tx<'_>,
    relay: &str,
    provider: &PublicKey,
    outcome: Outcome,
    now_ms: UnixMs,
) -> Result<()> {
    let key = provider.hex();
    let row: Option<Row> = tx.first(
        "SELECT taken, refused, unanswered, answered, after_ms, at_ms FROM relay_delivery
         WHERE provider = $1 AND relay = $2",
        args![&key, relay],
    )?;
    if row.is_none() {
        let counted: Option<(i64,)> =
            tx.first("SELECT count(*) FROM relay_delivery WHERE provider = $1", args![&key])?;
        if counted.is_some_and(|(relays,)| relays >= RELAYS_MAX) {
            return Ok(());
        }
    }
    let was = row.map(read).unwrap_or(Quality { at_ms: now_ms, ..Quality::default() });
    let Quality { taken, refused, unanswered, answered, after_ms, at_ms } =
        was.and(outcome, now_ms);
    tx.exec(
        "INSERT INTO relay_delivery
           (provider, relay, taken, refused, unanswered, answered, after_ms, at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (provider, relay) DO UPDATE
         SET taken = $3, refused = $4, unanswered = $5, answered = $6, after_ms = $7, at_ms = $8",
        args![&key, relay, taken, refused, unanswered, answered, after_ms, at_ms],
    )?;
    Ok(())
}

/// Those whom a request of ours addresses; nobody if it is none.
pub(crate) fn addressed(event: &Event) -> Vec<PublicKey> {
    if !kind::is_request(event.kind) {
        return Vec::new();
    }
    let keys = tag::values(&event.tags, "p").filter_map(|key| key.parse().ok());
    let keys: Vec<PublicKey> = keys.collect();
    if keys.len() > ADDRESSED_MAX { Vec::new() } else { keys }
}

/// A provider's answer to a request of ours came first from a relay. Only the first one counts, so nobody gains by
/// answering often; false if it is not the first.
pub(crate) fn heard(
    tx: &mut Tx<'_>,
    request_id: &EventId,
    provider: &PublicKey,
    (relay, after_ms): (&str, i64),
    now_ms: UnixMs,
) -> Result<bool> {
    let new = tx.exec(
        "INSERT INTO relay_heard (request_id, provider, relay, after_ms, at_ms)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (request_id, provider) DO NOTHING",
        args![&request_id.hex(), &provider.hex(), relay, after_ms, now_ms],
    )?;
    // What came to our own relay speaks for no other.
    if new > 0 && relay_url(relay).is_ok() {
        record(tx, relay, provider, Outcome::Answered { after_ms }, now_ms)?;
    }
    Ok(new > 0)
}

/// A request of ours ended without any answer of its provider: every relay that took it may have dropped it. Nothing is
/// written if the provider was heard, wherever that was.
pub fn silent(
    tx: &mut Tx<'_>,
    request_id: &EventId,
    provider: &PublicKey,
    now_ms: UnixMs,
) -> Result<()> {
    let heard: Option<(i64,)> = tx.first(
        "SELECT at_ms FROM relay_heard WHERE request_id = $1 AND provider = $2",
        args![&request_id.hex(), &provider.hex()],
    )?;
    if heard.is_some() {
        return Ok(());
    }
    let took: Vec<(String,)> = tx.all(
        "SELECT relay FROM nostr_ack WHERE event_id = $1 AND state = 'acked' ORDER BY relay LIMIT $2",
        args![&request_id.hex(), RELAYS_MAX],
    )?;
    for (relay,) in took {
        record(tx, &relay, provider, Outcome::Unanswered, now_ms)?;
    }
    Ok(())
}

/// A row, and whose it is.
type Observed = (String, i64, i64, i64, i64, Option<i64>, i64);

/// What was observed of a provider, by relay, as of now.
pub fn of_provider(
    rx: &mut Rx<'_>,
    provider: &PublicKey,
    now_ms: UnixMs,
) -> Result<Vec<(String, Quality)>> {
    let rows: Vec<Observed> = rx.all(
        "SELECT relay, taken, refused, unanswered, answered, after_ms, at_ms FROM relay_delivery
         WHERE provider = $1 ORDER BY relay",
        args![&provider.hex()],
    )?;
    let known = |(relay, taken, refused, unanswered, answered, after_ms, at_ms)| {
        (relay, read((taken, refused, unanswered, answered, after_ms, at_ms)).faded(now_ms))
    };
    Ok(rows.into_iter().map(known).collect())
}

/// The providers of whom most was observed at a relay, as of now.
pub fn at_relay(
    rx: &mut Rx<'_>,
    relay: &str,
    limit: usize,
    now_ms: UnixMs,
) -> Result<Vec<(PublicKey, Quality)>> {
    let rows: Vec<Observed> = rx.all(
        "SELECT provider, taken, refused, unanswered, answered, after_ms, at_ms FROM relay_delivery
         WHERE relay = $1 ORDER BY answered DESC, taken DESC, provider LIMIT $2",
        args![relay, i64::try_from(limit).unwrap_or(i64::MAX)],
    )?;
    let known = |(key, taken, refused, unanswered, answered, after_ms, at_ms): Observed| {
        let quality = read((taken, refused, unanswered, answered, after_ms, at_ms));
        Ok((key.parse()?, quality.faded(now_ms)))
    };
    rows.into_iter().map(known).collect()
}

/// Forgets what was observed long ago, a limited number at a time; how many.
pub fn forget(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<u64> {
    let before_ms = now_ms.saturating_sub(KEPT_MS);
    let gone = tx.exec(
        "DELETE FROM relay_delivery WHERE (provider, relay) IN
           (SELECT provider, relay FROM relay_delivery WHERE at_ms < $1 ORDER BY at_ms LIMIT $2)",
        args![before_ms, FORGET_MAX],
    )?;
    let heard = tx.exec(
        "DELETE FROM relay_heard WHERE (request_id, provider) IN
           (SELECT request_id, provider FROM relay_heard WHERE at_ms < $1 ORDER BY at_ms LIMIT $2)",
        args![before_ms, FORGET_MAX],
    )?;
    Ok(gone.saturating_add(heard))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(outcomes: &[Outcome]) -> Quality {
        outcomes.iter().fold(Quality::default(), |quality, one| quality.and(*one, 0))
    }

    #[test]
    fn answers_prove_more_than_acks_and_silence_speaks_against() {
        let (taken, silent) = (Outcome::Taken, Outcome::Unanswered);
        let answered = Outcome::Answered { after_ms: 400 };
        assert!(!seen(&[taken, answered]).is_enough());
        assert!(seen(&[taken, taken, answered]).is_enough());
        assert_eq!(Quality::default().score_milli(), 500, "nothing is known");
        assert!(seen(&[answered; 3]).score_milli() > seen(&[taken; 9]).score_milli());
        assert!(seen(&[silent; 3]).score_milli() < 300);
        assert!(seen(&[Outcome::Refused; 3]).score_milli() < 300);
        // A relay that takes everything and drops it is below what is known of none.
        assert!(seen(&[taken, silent, taken, silent, taken, silent]).score_milli() < 500);
        let slower = seen(&[answered, Outcome::Answered { after_ms: 800 }]);
        assert_eq!(slower.after_ms, Some(500));
    }

    #[test]
    fn what_was_seen_fades_by_half_in_a_week() {
        let seen = Quality { taken: 8_000, ..Quality::default() };
        for (weeks_by_4, left) in
            [(0, 8_000), (2, 6_000), (4, 4_000), (8, 2_000), (12, 1_000), (99_999, 0)]
        {
            let faded = seen.faded(weeks_by_4 * HALF_LIFE_MS / 4);
            assert!((faded.taken - left).abs() <= 1, "{weeks_by_4}: {}", faded.taken);
        }
        assert_eq!(seen.faded(i64::MIN).taken, 8_000, "a clock that was set back");
        let most = Quality { taken: i64::MAX, answered: i64::MAX, ..Quality::default() };
        assert!(most.faded(5).and(Outcome::Taken, 6).score_milli() > 900);
    }
}

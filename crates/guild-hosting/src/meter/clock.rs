//! What the meter makes of the clock. A clock that runs backwards would let minutes be paid twice or stops come late;
//! one that jumps forward would end everything at once. Both are seen, and counted.

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx, args};

use crate::Result;
use crate::clamp::check_time;

/// Two hosts may differ by so much: the later of two ticks then counts as no earlier than the one before.
pub const BACK_MAX_MS: i64 = 1_000;
/// A step forward beyond this is believed only when it is seen twice.
pub const JUMP_MAX_MS: i64 = 300_000;

/// What earlier ticks saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The time of the last tick.
    pub last_ms: UnixMs,
    /// A time far ahead of it that was seen once.
    pub suspect_ms: Option<UnixMs>,
    /// How often anybody looked; batches of the same moment count once.
    pub ticks: i64,
    /// How often the clock had run backwards.
    pub backs: i64,
    /// How often it had jumped ahead.
    pub jumps: i64,
}

/// What a tick sees of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It goes on.
    Steady,
    /// It ran back by so much: nothing is metered until it is right again, or [`accept_clock`] is called.
    Back {
        /// How far.
        by_ms: i64,
    },
    /// It jumped ahead by so much: nothing is metered until it is seen twice.
    Jumped {
        /// How far.
        by_ms: i64,
    },
}

/// What to make of a time, and which time counts.
pub fn sight(seen: Option<&Seen>, now_ms: UnixMs) -> (Sight, Option<UnixMs>) {
    let Some(seen) = seen else { return (Sight::Steady, Some(now_ms)) };
    let ahead_ms = now_ms.saturating_sub(seen.last_ms);
    if ahead_ms < BACK_MAX_MS.saturating_neg() {
        return (Sight::Back { by_ms: ahead_ms.saturating_neg() }, None);
    }
    let since_suspect_ms = seen.suspect_ms.map(|suspect_ms| now_ms.saturating_sub(suspect_ms));
    let seen_twice = since_suspect_ms
        .is_some_and(|ms| (BACK_MAX_MS.saturating_neg()..=JUMP_MAX_MS).contains(&ms));
    if ahead_ms > JUMP_MAX_MS && !seen_twice {
        return (Sight::Jumped { by_ms: ahead_ms }, None);
    }
    (Sight::Steady, Some(now_ms.max(seen.last_ms)))
}

/// What the last tick saw, if there was one.
pub fn seen(rx: &mut Rx<'_>) -> Result<Option<Seen>> {
    let row: Option<(i64, Option<i64>, i64, i64, i64)> = rx.first(
        "SELECT last_ms, suspect_ms, ticks, backs, jumps FROM hosting_meter WHERE one = 1",
        args![],
    )?;
    Ok(row.map(|(last_ms, suspect_ms, ticks, backs, jumps)| Seen {
        last_ms,
        suspect_ms,
        ticks,
        backs,
        jumps,
    }))
}

/// The time that counts, if the present one can be believed by what the meter saw last. Remembers nothing.
pub(crate) fn believed(rx: &mut Rx<'_>, now_ms: UnixMs) -> Result<Option<UnixMs>> {
    let before = seen(rx)?;
    // A time far ahead counts when the meter has seen it twice.
    let before = before.map(|seen| Seen { suspect_ms: None, ..seen });
    Ok(sight(before.as_ref(), now_ms).1)
}

/// Looks at the clock and remembers what was seen; the time that counts, if it can be believed.
pub(super) fn look(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<(Sight, Option<UnixMs>)> {
    check_time("now", now_ms)?;
    let before = seen(tx)?;
    let (sight, counts_ms) = sight(before.as_ref(), now_ms);
    if before.is_some_and(|seen| seen.suspect_ms.is_none() && counts_ms == Some(seen.last_ms)) {
        return Ok((sight, counts_ms));
    }
    let mut after =
        before.unwrap_or(Seen { last_ms: now_ms, suspect_ms: None, ticks: 0, backs: 0, jumps: 0 });
    after.ticks = after.ticks.saturating_add(1);
    match sight {
        Sight::Steady => after.suspect_ms = None,
        Sight::Back { .. } => after.backs = after.backs.saturating_add(1),
        Sight::Jumped { .. } => {
            after.jumps = after.jumps.saturating_add(1);
            after.suspect_ms = Some(now_ms);
        }
    }
    after.last_ms = counts_ms.unwrap_or(after.last_ms);
    write(tx, &after)?;
    Ok((sight, counts_ms))
}

/// The operator says that the present time is right, also if it is earlier than what was seen before.
pub fn accept_clock(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<()> {
    check_time("now", now_ms)?;
    match seen(tx)? {
        Some(seen) => write(tx, &Seen { last_ms: now_ms, suspect_ms: None, ..seen }),
        None => Ok(()),
    }
}

fn write(tx: &mut Tx<'_>, seen: &Seen) -> Result<()> {
    tx.exec(
        "INSERT INTO hosting_meter (one, last_ms, suspect_ms, ticks, backs, jumps) VALUES (1, $1, $2, $3, $4, $5)
         ON CONFLICT (one) DO UPDATE SET last_ms = excluded.last_ms, suspect_ms = excluded.suspect_ms,
           ticks = excluded.ticks, backs = excluded.backs, jumps = excluded.jumps",
        args![seen.last_ms, seen.suspect_ms, seen.ticks, seen.backs, seen.jumps],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last_ms: UnixMs, suspect_ms: Option<UnixMs>) -> Seen {
        Seen { last_ms, suspect_ms, ticks: 1, backs: 0, jumps: 0 }
    }

    #[test]
    fn steps_of_the_clock_are_seen() {
        const T: UnixMs = 10_000_000;
        let look = |suspect_ms, now_ms| sight(Some(&at(T, suspect_ms)), now_ms);
        assert_eq!(sight(None, 5), (Sight::Steady, Some(5)));
        assert_eq!(look(None, T), (Sight::Steady, Some(T)));
        assert_eq!(look(None, T - 1_000), (Sight::Steady, Some(T)), "two hosts differ a little");
        assert_eq!(look(None, T - 1_001), (Sight::Back { by_ms: 1_001 }, None));
        assert_eq!(look(None, T + 300_000), (Sight::Steady, Some(T + 300_000)));
        let far = T + 300_001;
        assert_eq!(look(None, far), (Sight::Jumped { by_ms: 300_001 }, None));
        assert_eq!(look(Some(far), far + 1), (Sight::Steady, Some(far + 1)), "seen twice");
        let farther = far + 300_001;
        assert_eq!(look(Some(far), farther), (Sight::Jumped { by_ms: 600_002 }, None));
        assert_eq!(look(Some(far), T + 1_000), (Sight::Steady, Some(T + 1_000)), "it was a glitch");
        assert_eq!(sight(Some(&at(0, None)), i64::MIN).1, None);
    }
}

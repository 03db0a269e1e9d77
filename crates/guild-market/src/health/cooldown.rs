//! When whoever is suspended is tried again: a pure decision.
//!
//! | failures in a row | not before | then |
//! |---|---|---|
//! | 1 | a day | by itself |
//! | 2 | 3 days | by itself |
//! | 3 | 7 days | if its announcement has changed; after 30 days by itself |
//! | 4 and more | 30 days | if it says that it is another version |
//!
//! An announcement that changes makes no pause shorter: it costs nothing to change one. Whoever operates the node may
//! meet it by hand whenever it likes.

use guild_protocol::env::UnixMs;

use super::{Health, Options, Stage};
use crate::routing::Entry;

/// For how long somebody is not tried again that has failed so often.
///
/// ```
/// use guild_market::health::{Options, cooldown_ms};
/// let days = |failures| cooldown_ms(&Options::default(), failures) / 86_400_000;
/// assert_eq!([1, 2, 3, 4, 9].map(days), [1, 3, 7, 30, 30]);
/// ```
pub fn cooldown_ms(options: &Options, failures: u32) -> i64 {
    let [first, second, third, later] = options.cooldowns_ms;
    match failures {
        0 | 1 => first,
        2 => second,
        3 => third,
        _ => later,
    }
}

/// From when on whoever is suspended may be tried again: what the lifecycle says, and what a meeting that it did not
/// pass says, whichever is later. Nothing if it is not suspended.
pub fn retry_ms(options: &Options, entry: &Entry) -> Option<UnixMs> {
    let health = &entry.health;
    let own_ms = health.until_ms(options);
    let is_suspended = health.stage == Stage::Suspended && !entry.status.is_hireable();
    is_suspended.then(|| own_ms.max(entry.until_ms.unwrap_or(own_ms)))
}

/// What is known of an engagement that has failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Engagement {
    /// Whether its announcement is another one than when it was suspended.
    pub is_card_new: bool,
    /// Whether it says that it is another version, and not only a little one.
    pub is_version_new: bool,
}

/// Whether somebody is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Now.
    Now,
    /// Not before this moment.
    At(UnixMs),
    /// When something changes; it is asked again at this moment.
    Waits(UnixMs),
    /// It has failed too often: it is removed.
    Never,
}

/// How long it takes until it is asked again whether something has changed.
const LOOK_MS: i64 = 3_600_000;

/// Whether somebody who is suspended is tried again.
pub fn retry(
    options: &Options,
    entry: &Entry,
    known: &Engagement,
    now_ms: UnixMs,
) -> Option<Retry> {
    let at_ms = retry_ms(options, entry)?;
    let Health { failures, since_ms, .. } = entry.health;
    if failures >= options.remove_after.max(1) {
        return Some(Retry::Never);
    }
    if now_ms < at_ms {
        return Some(Retry::At(at_ms));
    }
    let auto_ms = since_ms.saturating_add(options.auto_retry_ms);
    let is_due = match failures {
        0..=2 => true,
        3 => known.is_card_new || now_ms >= auto_ms,
        _ => known.is_version_new,
    };
    Some(if is_due { Retry::Now } else { Retry::Waits(now_ms.saturating_add(LOOK_MS)) })
}

/// Whether a version is another one, and not only a little: its first number that is not zero differs.
///
/// ```
/// use guild_market::health::is_other_version;
/// assert!(is_other_version("1.4.2", "2.0.0") && is_other_version("0.3.1", "0.4.0"));
/// assert!(!is_other_version("1.4.2", "1.5.0") && !is_other_version("0.3.1", "0.3.2"));
/// assert!(!is_other_version("", "9") && !is_other_version("1.0", ""), "nothing is said");
/// ```
pub fn is_other_version(before: &str, after: &str) -> bool {
    match (lead(before), lead(after)) {
        (Some(before), Some(after)) => before != after,
        _ => false,
    }
}

/// The place and the value of the first number that is not zero.
fn lead(version: &str) -> Option<(usize, u64)> {
    let numbers = version.trim().trim_start_matches('v').split(['.', '-', '+']);
    let numbers = numbers.map_while(|number| number.parse::<u64>().ok());
    numbers.enumerate().take(3).find(|(_, number)| *number > 0)
}

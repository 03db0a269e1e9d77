//! What is said over the wire: bodies of requests and answers.
//!
//! They stand here and not in the gateway because the answer to a write is kept in the transaction of its effect
//! ([`crate::access::idempotency`]), word for word. Amounts are whole micro-USD; `*_cents` is the same as a decimal
//! text, exact, for people. What is asked for may be given in either. Times are Unix milliseconds, durations seconds.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clamp::NUMBER_MAX;
use crate::error::code;
use crate::{Error, Result};

mod access;
mod billing;
mod inside;
mod job;
mod port;
mod sandbox;

pub use access::{
    KeyView, Keys, NewKeyBody, NewKeyView, NonceView, Proof, RevokedView, SessionView, WhoView,
};
pub use billing::{
    BalanceView, BuysView, ClockView, ConfirmBody, CreditBody, CreditView, FailBody, Insufficient,
    Line, QuoteView, Statement, WithdrawBody, WithdrawalView, Withdrawals,
};
pub use guild_sandbox::agent::Frame;
pub use inside::{
    Directory, DirectoryQuery, ExecBody, ExecView, FileQuery, FileView, FromQuery, SecretsBody,
    SecretsView, SignalBody, StdinBody,
};
pub use job::{ExtendBody, GrantView, GrantsView, JobView, Jobs, NewJobBody};
pub use port::{PortBody, PortClosed, PortView, Ports};
pub(crate) use sandbox::Chosen;
pub use sandbox::{NewSandboxBody, PriceQuery, PriceView, ResizeBody, SandboxView, Sandboxes};

/// What a reader of a command gets: a frame, nothing at its end, or why it cannot be read.
pub type FrameRead = Result<Option<Frame>, guild_sandbox::agent::Error>;

/// One cent, in micro-USD.
const CENT: i64 = 10_000;
/// How many items a page has if nothing is said.
const PAGE: i64 = 50;
/// How many it has at most.
pub const PAGE_MAX: i64 = 200;

/// Which part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// Where the page before ended: its `next`. The newest come first.
    pub before: Option<String>,
    /// How many at most.
    pub limit: Option<i64>,
}

impl PageQuery {
    /// How many, if that is a number that one may ask for.
    pub(crate) fn limit(&self) -> Result<i64> {
        let limit = self.limit.unwrap_or(PAGE);
        if (1..=PAGE_MAX).contains(&limit) {
            return Ok(limit);
        }
        malformed(format!("limit: must be 1 to {PAGE_MAX}"))
    }

    /// Where the page before ended.
    pub(crate) fn before<T: std::str::FromStr>(&self) -> Result<Option<T>> {
        let parse = |text: &String| match text.parse() {
            Ok(id) => Ok(id),
            Err(_) => malformed("before: must be the `next` of the page before".to_owned()),
        };
        self.before.as_ref().map(parse).transpose()
    }
}

/// Where the next page begins, if this one is full.
pub(crate) fn next_of<T>(items: &[T], limit: i64, id: impl Fn(&T) -> String) -> Option<String> {
    let full = i64::try_from(items.len()).is_ok_and(|count| count >= limit);
    items.last().filter(|_| full).map(id)
}

pub(crate) fn malformed<T>(message: String) -> Result<T> {
    Err(Error::refused(&code::MALFORMED, message))
}

/// Micro-USD as cents, exact: 12345 is `1.2345`.
///
/// ```
/// # use guild_hosting::api::cents;
/// assert_eq!(cents(12_345), "1.2345");
/// assert_eq!(cents(10_000), "1");
/// assert_eq!(cents(-5_000), "-0.5");
/// ```
pub fn cents(micro_usd: i64) -> String {
    let (sign, units) = (if micro_usd < 0 { "-" } else { "" }, micro_usd.unsigned_abs());
    let cent = CENT.unsigned_abs();
    let (whole, part) =
        (units.checked_div(cent).unwrap_or(0), units.checked_rem(cent).unwrap_or(0));
    let text = format!("{sign}{whole}.{part:04}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Micro-USD as dollars for people, exact, with two places at least.
///
/// ```
/// # use guild_hosting::api::dollars;
/// assert_eq!(dollars(2_500_000), "2.50 USD");
/// assert_eq!(dollars(-1_110), "-0.00111 USD");
/// ```
pub fn dollars(micro_usd: i64) -> String {
    const DOLLAR: u64 = 1_000_000;
    let (sign, units) = (if micro_usd < 0 { "-" } else { "" }, micro_usd.unsigned_abs());
    let (whole, part) =
        (units.checked_div(DOLLAR).unwrap_or(0), units.checked_rem(DOLLAR).unwrap_or(0));
    let part = format!("{part:06}");
    let part = part.trim_end_matches('0');
    format!("{sign}{whole}.{part:0<2} USD")
}

/// A span of time for people.
///
/// ```
/// # use guild_hosting::api::span;
/// assert_eq!([59_000, 61_000, 7_260_000, 90_000_000].map(span), ["59 s", "1 min 1 s", "2 h 1 min", "1 d 1 h"]);
/// ```
pub fn span(ms: i64) -> String {
    let s = ms.div_euclid(1_000);
    let (minutes, hours, days) = (s.div_euclid(60), s.div_euclid(3_600), s.div_euclid(86_400));
    match s {
        ..60 => format!("{s} s"),
        60..3_600 => format!("{minutes} min {} s", s.rem_euclid(60)),
        3_600..86_400 => format!("{hours} h {} min", minutes.rem_euclid(60)),
        _ => format!("{days} d {} h", hours.rem_euclid(24)),
    }
}

/// An amount that was given in one of the two ways; nothing if it was given in neither.
pub(crate) fn amount(
    field: &str,
    micro_usd: Option<i64>,
    cents: Option<i64>,
) -> Result<Option<i64>> {
    let units = match (micro_usd, cents) {
        (None, None) => return Ok(None),
        (Some(units), None) => Some(units),
        (None, Some(cents)) => cents.checked_mul(CENT),
        (Some(_), Some(_)) => {
            return malformed(format!(
                "{field}: give {field}_micro_usd or {field}_cents, not both"
            ));
        }
    };
    match units.filter(|units| (1..=NUMBER_MAX).contains(units)) {
        Some(units) => Ok(Some(units)),
        None => malformed(format!("{field}: must be 1 to {NUMBER_MAX} micro-USD")),
    }
}

/// An amount that must be given.
pub(crate) fn amount_needed(
    field: &str,
    micro_usd: Option<i64>,
    cents: Option<i64>,
) -> Result<i64> {
    match amount(field, micro_usd, cents)? {
        Some(units) => Ok(units),
        None => malformed(format!("{field}: {field}_micro_usd or {field}_cents is needed")),
    }
}

/// A duration in seconds, as milliseconds.
pub(crate) fn seconds(field: &str, seconds: i64) -> Result<i64> {
    const MOST_S: i64 = 366 * 86_400;
    if (1..=MOST_S).contains(&seconds) {
        return Ok(seconds.saturating_mul(1_000));
    }
    malformed(format!("{field}: must be 1 to {MOST_S} seconds"))
}

/// The version that somebody has read.
pub(crate) fn version(version: i64) -> Result<i64> {
    if (0..=NUMBER_MAX).contains(&version) {
        return Ok(version);
    }
    malformed(format!("version: must be 0 to {NUMBER_MAX}"))
}

/// Refuses a number that is not 1 to so many.
pub(crate) fn within(field: &str, number: i64, most: i64) -> Result<()> {
    if (1..=most).contains(&number) {
        return Ok(());
    }
    malformed(format!("{field}: must be 1 to {most}"))
}

/// How long it is from now until then, at least nothing.
pub(crate) fn left_ms(until_ms: Option<UnixMs>, now_ms: UnixMs) -> Option<i64> {
    until_ms.map(|until_ms| until_ms.saturating_sub(now_ms).max(0))
}

/// An error, as every path answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// What went wrong.
    pub error: ProblemDetail,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProblemDetail {
    /// Its name, which never changes: `area.reason`.
    pub code: String,
    /// What sort of thing it is: `invalid`, `not_found`, `conflict`, `denied`, `unavailable`, `corrupt`, `internal`.
    pub kind: String,
    /// What is wrong in this very case.
    pub message: String,
    /// Which part of the request is wrong, if it is one.
    pub field: Option<String>,
    /// What can be done about it.
    pub help: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_given_in_one_way_and_in_bounds() {
        let given = |micro, cents| amount("cap", micro, cents).map_err(|e| e.to_string());
        assert_eq!(given(None, None), Ok(None));
        assert_eq!(given(Some(7), None), Ok(Some(7)));
        assert_eq!(given(None, Some(3)), Ok(Some(30_000)));
        for (micro, cents) in [
            (Some(0), None),
            (Some(-1), None),
            (None, Some(-1)),
            (Some(NUMBER_MAX + 1), None),
            (None, Some(i64::MAX)),
            (Some(1), Some(1)),
        ] {
            assert!(given(micro, cents).unwrap_err().starts_with("cap: "));
        }
        assert!(amount_needed("cap", None, None).is_err());
        assert!(seconds("ttl_s", 0).is_err() && seconds("ttl_s", i64::MAX).is_err());
    }

    #[test]
    fn a_full_page_has_a_next() {
        let name = |n: &i32| n.to_string();
        assert_eq!(next_of(&[3, 2], 2, name), Some("2".to_owned()));
        assert_eq!(next_of(&[3], 2, name), None);
        assert_eq!(next_of(&[], 2, name), None);
    }
}

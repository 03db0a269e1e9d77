//! Days and months, in UTC.

use guild_protocol::env::UnixMs;
use guild_protocol::timestamp::Timestamp;
use serde::Serialize;

use crate::Result;

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// How long a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// A day.
    Day,
    /// A month.
    Month,
}

impl Layer {
    /// Both.
    pub const ALL: [Layer; 2] = [Layer::Day, Layer::Month];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Layer::Day => "day",
            Layer::Month => "month",
        }
    }

    /// The layer of this word.
    pub fn parse(word: &str) -> Option<Layer> {
        Layer::ALL.into_iter().find(|layer| layer.as_str() == word)
    }
}

/// The day and the month of a moment.
///
/// ```
/// use guild_market::budget::Today;
/// let today = Today::at(1_768_465_800_000).unwrap();
/// assert_eq!((today.day.as_str(), today.month.as_str()), ("2026-01-15", "2026-01"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Today {
    /// `2026-01-15`
    pub day: String,
    /// `2026-01`
    pub month: String,
}

impl Today {
    /// That of this moment. One outside of the years 0 to 9999 has none.
    pub fn at(now_ms: UnixMs) -> Result<Today> {
        let text = Timestamp::from_ms(now_ms)?.to_string();
        let part = |end: usize| text.get(..end).unwrap_or_default().to_owned();
        Ok(Today { day: part(10), month: part(7) })
    }

    /// The period of a layer.
    pub fn period(&self, layer: Layer) -> &str {
        match layer {
            Layer::Day => &self.day,
            Layer::Month => &self.month,
        }
    }
}

/// When the next period of a layer begins, as text.
pub(super) fn renews(layer: Layer, now_ms: UnixMs) -> Result<String> {
    let day = now_ms.div_euclid(DAY_MS);
    let midnight = |ahead: i64| {
        let ms = day.saturating_add(ahead).saturating_mul(DAY_MS);
        Ok::<_, crate::Error>(Timestamp::from_ms(ms)?.to_string())
    };
    if layer == Layer::Day {
        return midnight(1);
    }
    // The first of the next month is at most 31 days away.
    let month = Today::at(now_ms)?.month;
    for ahead in 1..31 {
        let text = midnight(ahead)?;
        if !text.starts_with(&month) {
            return Ok(text);
        }
    }
    midnight(31)
}

/// How many months the second is after the first; nothing if either is none.
pub(super) fn months_between(from: &str, to: &str) -> Option<i64> {
    let count = |month: &str| {
        let (year, month) = month.split_once('-')?;
        let (year, month): (i64, i64) = (year.parse().ok()?, month.parse().ok()?);
        year.checked_mul(12)?.checked_add(month)
    };
    count(to)?.checked_sub(count(from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_ms()
    }

    #[test]
    fn a_day_ends_at_midnight_and_a_month_at_its_end() {
        for (now, day, month, next_day, next_month) in [
            ("2026-01-31T23:59:59.999Z", "2026-01-31", "2026-01", "2026-02-01", "2026-02-01"),
            ("2026-02-01T00:00:00.000Z", "2026-02-01", "2026-02", "2026-02-02", "2026-03-01"),
            ("2028-02-28T12:00:00.000Z", "2028-02-28", "2028-02", "2028-02-29", "2028-03-01"),
            ("2026-12-31T00:00:00.000Z", "2026-12-31", "2026-12", "2027-01-01", "2027-01-01"),
            ("2026-12-01T00:00:00.000Z", "2026-12-01", "2026-12", "2026-12-02", "2027-01-01"),
            ("1969-12-31T23:00:00.000Z", "1969-12-31", "1969-12", "1970-01-01", "1970-01-01"),
        ] {
            let today = Today::at(ms(now)).unwrap();
            assert_eq!((today.day.as_str(), today.month.as_str()), (day, month));
            let next = |layer| renews(layer, ms(now)).unwrap();
            assert_eq!(next(Layer::Day), format!("{next_day}T00:00:00.000Z"));
            assert_eq!(next(Layer::Month), format!("{next_month}T00:00:00.000Z"), "{now}");
        }
        assert!(Today::at(i64::MAX).is_err());
    }

    #[test]
    fn months_are_counted_over_the_years() {
        assert_eq!(months_between("2026-01", "2026-02"), Some(1));
        assert_eq!(months_between("2025-11", "2027-01"), Some(14));
        assert_eq!(months_between("2026-02", "2026-01"), Some(-1));
        assert_eq!(months_between("", "2026-01"), None);
    }
}

//! A moment as text. One spelling only, because the text enters hashes: `2026-01-15T08:30:00.000Z`, UTC, exactly
//! three decimals.

use std::fmt;
use std::str::FromStr;

use crate::env::UnixMs;
use crate::hash::shorten;
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        BAD_TIMESTAMP = "timestamp.malformed", Invalid,
            "A moment is not written as UTC with exactly three decimals and a Z.",
            "Write it like 2026-01-15T08:30:00.000Z.";
    }
}

/// A moment between the years 0 and 9999, to the millisecond.
///
/// ```
/// use guild_protocol::timestamp::Timestamp;
/// let moment = Timestamp::from_ms(1_768_465_800_000).unwrap();
/// assert_eq!(moment.to_string(), "2026-01-15T08:30:00.000Z");
/// assert_eq!("2026-01-15T08:30:00.000Z".parse::<Timestamp>().unwrap(), moment);
/// assert!("2026-01-15T08:30:00Z".parse::<Timestamp>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(UnixMs);

impl Timestamp {
    /// The bytes of the one spelling.
    const BYTES: usize = 24;

    /// The moment so many milliseconds after 1970, if its year has four digits.
    pub fn from_ms(ms: UnixMs) -> Result<Timestamp> {
        match written(ms) {
            Some(_) => Ok(Timestamp(ms)),
            None => Err(Error::new(
                &code::BAD_TIMESTAMP,
                format!("{ms} ms after 1970 is not in the years 0 to 9999"),
            )),
        }
    }

    /// Milliseconds since 1970.
    pub fn as_ms(self) -> UnixMs {
        self.0
    }

    /// Reads any RFC 3339 moment, as other systems write them; what is finer than a millisecond is cut off.
    pub fn parse_liberal(text: &str) -> Result<Timestamp> {
        let moment = (text.len() <= 64).then(|| text.parse::<jiff::Timestamp>().ok()).flatten();
        match moment {
            Some(moment) => Timestamp::from_ms(moment.as_millisecond()),
            None => Err(Error::new(
                &code::BAD_TIMESTAMP,
                format!("{:?} is not an RFC 3339 moment", shorten(text)),
            )),
        }
    }
}

fn written(ms: UnixMs) -> Option<String> {
    let moment = jiff::Timestamp::from_millisecond(ms).ok()?;
    Some(format!("{moment:.3}")).filter(|text| text.len() == Timestamp::BYTES)
}

impl FromStr for Timestamp {
    type Err = Error;
    fn from_str(text: &str) -> Result<Timestamp> {
        let read = Timestamp::parse_liberal(text).ok();
        read.filter(|moment| moment.to_string() == text).ok_or_else(|| {
            Error::new(
                &code::BAD_TIMESTAMP,
                format!("{:?} is not written like 2026-01-15T08:30:00.000Z", shorten(text)),
            )
        })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Checked when it was made.
        f.write_str(&written(self.0).unwrap_or_default())
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_spelling_is_read() {
        for bad in [
            "",
            "2026-01-15T08:30:00Z",
            "2026-01-15T08:30:00.0000Z",
            "2026-01-15T08:30:00.000+00:00",
            "2026-01-15t08:30:00.000Z",
            "2026-01-15 08:30:00.000Z",
            "2026-02-30T08:30:00.000Z",
            "2026-01-15T08:30:60.000Z",
            "+002026-01-15T08:30:00.000Z",
        ] {
            assert_eq!(bad.parse::<Timestamp>().unwrap_err().code(), &code::BAD_TIMESTAMP, "{bad}");
        }
        for liberal in ["2026-01-15T08:30:00Z", "2026-01-15T09:30:00.000999+01:00"] {
            assert_eq!(Timestamp::parse_liberal(liberal).unwrap().as_ms(), 1_768_465_800_000);
        }
    }

    #[test]
    fn years_outside_four_digits_are_refused() {
        for ms in [i64::MIN, i64::MAX, -62_167_219_200_001, 253_402_300_800_000] {
            assert!(Timestamp::from_ms(ms).is_err(), "{ms}");
        }
        assert_eq!(Timestamp::from_ms(-1).unwrap().to_string(), "1969-12-31T23:59:59.999Z");
    }
}

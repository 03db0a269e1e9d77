//! An amount as it may be written: a whole number, or the same as text. A number is exact up to 2^53 only, text up to
//! 64 bits; what has a fraction or an exponent is neither.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Smallest units of an asset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Units(pub(super) i64);

impl<'de> Deserialize<'de> for Units {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Units, D::Error> {
        from.deserialize_any(Either)
    }
}

struct Either;

impl Visitor<'_> for Either {
    type Value = Units;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of smallest units, as a number up to 2^53 or as decimal text")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Units, E> {
        const EXACT_MAX: u64 = (1 << 53) - 1;
        if number.unsigned_abs() > EXACT_MAX {
            return Err(E::custom("write a number beyond 2^53 as text: not every reader keeps it"));
        }
        Ok(Units(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Units, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Units, E> {
        match text.parse::<i64>() {
            // One way to write each number: no plus, no leading zero.
            Ok(number) if number.to_string() == text => Ok(Units(number)),
            _ => Err(E::custom("is not a whole number of smallest units that fits into 64 bits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::json;

    use super::*;

    #[test]
    fn whole_numbers_in_either_form_and_nothing_else() {
        let read = |text: &str| json::decode::<Units>(text.as_bytes()).ok().map(|Units(n)| n);
        for (text, units) in [
            ("7", 7),
            ("-7", -7),
            ("\"7\"", 7),
            ("9007199254740991", 9_007_199_254_740_991),
            ("\"9223372036854775807\"", i64::MAX),
            ("\"-9223372036854775808\"", i64::MIN),
        ] {
            assert_eq!(read(text), Some(units), "{text}");
        }
        for text in [
            "1.5",
            "1e30",
            "9007199254740993",
            "\"9223372036854775808\"",
            "\"1.0\"",
            "\"1e3\"",
            "\"+1\"",
            "\"007\"",
            "\"-0\"",
            "\" 1\"",
            "\"\"",
            "true",
            "null",
            "[1]",
            "-0",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}

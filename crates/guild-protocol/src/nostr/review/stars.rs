//! Ratings as texts. Decimals are read and written exactly: no floating-point number is between trust and stars.

/// Whole trust, in ten-thousandths.
pub const MOST_BP: u32 = 10_000;
/// Of so many stars.
pub(super) const OF: &str = "5";

/// One, in ten-thousandths.
const ONE: u64 = 10_000;
/// The longest decimal that is read, and its longest whole part.
const MAX_BYTES: usize = 24;
const MAX_WHOLE_DIGITS: usize = 6;

/// How many of five stars a trust is: 1 + 4 × trust, exactly.
///
/// ```
/// use guild_protocol::nostr::review::stars;
/// assert_eq!([0, 1, 5_000, 6_125, 10_000].map(stars), ["1", "1.0004", "3", "3.45", "5"]);
/// ```
pub fn stars(trust_bp: u32) -> String {
    let parts = u64::from(trust_bp.min(MOST_BP)).saturating_mul(4).saturating_add(ONE);
    let (whole, rest) = (parts.div_euclid(ONE), parts.rem_euclid(ONE));
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:04}").trim_end_matches('0').to_owned()
}

/// The trust that a rating on some scale is, in ten-thousandths. A scale of more than one begins at one star; a scale
/// of one is the trust itself. What is above its scale, below zero or no decimal is nothing.
pub(super) fn trust_bp(rating: &str, of: &str) -> Option<u32> {
    let (rating, of) = (decimal(rating)?, decimal(of)?);
    if of < ONE || rating > of {
        return None;
    }
    if of == ONE {
        return u32::try_from(rating).ok();
    }
    let above = rating.saturating_sub(ONE).checked_mul(u64::from(MOST_BP))?;
    u32::try_from(above.checked_div(of.checked_sub(ONE)?)?).ok()
}

/// A decimal in ten-thousandths; what is finer is left out.
fn decimal(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let fits = text.len() <= MAX_BYTES && whole.len() <= MAX_WHOLE_DIGITS;
    if !fits || !digits(whole) || !digits(rest) {
        return None;
    }
    let four: String = rest.chars().chain("0000".chars()).take(4).collect();
    let (whole, rest) = (whole.parse::<u64>().ok()?, four.parse::<u64>().ok()?);
    whole.checked_mul(ONE)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trust_is_read_again_from_its_stars() {
        for bp in 0..=MOST_BP {
            assert_eq!(trust_bp(&stars(bp), OF), Some(bp));
        }
        assert_eq!(stars(u32::MAX), "5");
    }

    #[test]
    fn other_scales_are_read() {
        assert_eq!(trust_bp("4.5", "5"), Some(8_750));
        assert_eq!(trust_bp("0", "5"), Some(0), "below the first star is no trust");
        assert_eq!(trust_bp("10", "10"), Some(10_000));
        assert_eq!(trust_bp("0.94", "1"), Some(9_400));
        assert_eq!(trust_bp("4.33333333333", "5.00"), Some(8_333));
        for (rating, of) in [
            ("5.1", "5"),
            ("-1", "5"),
            ("4e0", "5"),
            ("", "5"),
            (".5", "5"),
            ("4.", "5"),
            ("NaN", "5"),
            ("４", "5"),
            ("1", "0.5"),
            ("1", "0"),
            ("1", ""),
            ("1234567", "9999999"),
            ("1", "1000000000000000000000000"),
        ] {
            assert_eq!(trust_bp(rating, of), None, "{rating} of {of}");
        }
    }
}

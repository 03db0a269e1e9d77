//! Amounts in words.

/// Digits in groups of three.
///
/// ```
/// assert_eq!(guild_roles::explorer::grouped(1_234_567), "1,234,567");
/// ```
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "−" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && digits.len().saturating_sub(i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Millisatoshi, in the larger unit where that is exact.
///
/// ```
/// use guild_roles::explorer::msat;
/// assert_eq!([msat(5_000), msat(1_500), msat(0)], ["5 sat", "1,500 msat", "0 msat"]);
/// ```
pub fn msat(units: i64) -> String {
    if units != 0 && units.checked_rem(1_000) == Some(0) {
        return format!("{} sat", grouped(units.div_euclid(1_000)));
    }
    format!("{} msat", grouped(units))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        assert_eq!(
            [0, 1, 999, 1_000, 1_500, 21_000_000, -2_000].map(msat),
            ["0 msat", "1 msat", "999 msat", "1 sat", "1,500 msat", "21,000 sat", "−2 sat"]
        );
        assert_eq!(grouped(i64::MIN), "−9,223,372,036,854,775,808");
    }
}

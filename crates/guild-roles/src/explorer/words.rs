//! Amounts in words, and words of strangers within bounds.

/// How much of a sentence that somebody wrote is shown. All that strangers say is cut to some length here, because a
/// list of a hundred lines has a hundred times the longest of them.
pub(super) const SAID_MAX_CHARS: usize = 500;
/// How much of a description.
pub(super) const ABOUT_MAX_CHARS: usize = 1_000;
/// How much of a name, an address or a word.
pub(super) const NAME_MAX_CHARS: usize = 200;
/// How many things of a list.
pub(super) const LISTED_MAX: usize = 32;

/// The beginning of a text, with a sign that there is more of it.
pub(super) fn clipped(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The same of the first things of a list.
pub(super) fn clipped_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    texts.into_iter().take(LISTED_MAX).map(|text| clipped(text, NAME_MAX_CHARS)).collect()
}

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
    fn long_words_are_cut_between_letters() {
        assert_eq!([clipped("ééé", 3), clipped("éééé", 3), clipped("", 0)], ["ééé", "ééé…", ""]);
        assert_eq!(clipped_all(["x"].repeat(99)).len(), LISTED_MAX);
    }

    #[test]
    fn amounts_are_exact() {
        assert_eq!(
            [0, 1, 999, 1_000, 1_500, 21_000_000, -2_000].map(msat),
            ["0 msat", "1 msat", "999 msat", "1 sat", "1,500 msat", "21,000 sat", "−2 sat"]
        );
        assert_eq!(grouped(i64::MIN), "−9,223,372,036,854,775,808");
    }
}

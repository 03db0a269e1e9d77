//! Which part of a file is asked for (RFC 9110, 14.2).

/// What a header `Range` means for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of it: the header says nothing that is understood, or names several parts.
    All,
    /// From the first number up to the second, which is behind it.
    Part(u64, u64),
    /// Nothing that the file has.
    Nothing,
}

/// Reads the header, for a file of so many bytes.
pub(super) fn parse(text: &str, bytes: u64) -> Asked {
    let Some((from, to)) = text.trim().strip_prefix("bytes=").and_then(|one| one.split_once('-'))
    else {
        return Asked::All;
    };
    let (from, to) = (from.trim(), to.trim());
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large for anything is as good as the largest.
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    let (start, end) = match (digits(from), digits(to)) {
        (true, true) if number(from) > number(to) => return Asked::All,
        (true, true) => (number(from), number(to).saturating_add(1)),
        (true, false) if to.is_empty() => (number(from), u64::MAX),
        (false, true) if from.is_empty() => (bytes.saturating_sub(number(to)), u64::MAX),
        _ => return Asked::All,
    };
    let end = end.min(bytes);
    if start < end { Asked::Part(start, end) } else { Asked::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        for (text, asked) in [
            ("bytes=0-0", Asked::Part(0, 1)),
            ("bytes=2-5", Asked::Part(2, 6)),
            ("bytes=2-", Asked::Part(2, 10)),
            ("bytes=-3", Asked::Part(7, 10)),
            ("bytes=-99", Asked::Part(0, 10)),
            ("bytes=5-99999999999999999999999", Asked::Part(5, 10)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=99999999999999999999999-", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=5-2", Asked::All),
            ("bytes=0-1,3-4", Asked::All),
            ("bytes=-", Asked::All),
            ("bytes=a-b", Asked::All),
            ("bytes=+1-2", Asked::All),
            ("items=0-1", Asked::All),
            ("", Asked::All),
        ] {
            assert_eq!(parse(text, 10), asked, "{text}");
        }
        assert_eq!(parse("bytes=0-", 0), Asked::Nothing);
    }
}

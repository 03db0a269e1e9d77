//! Texts of strangers as they look at a glance, for searching and comparing. Nobody is identified by one.

/// The longest text of which a form is made.
const MAX_CHARS: usize = 256;

/// A text as it looks: lower case, letters that look like Latin ones as these, what cannot be seen left out, and every
/// run of other characters one dash. Two strangers may share it.
///
/// ```
/// use guild_market::discovery::canonical;
/// assert_eq!(canonical(" Benchmark Platform_v2 "), "benchmark-platform-v2");
/// // Two of its letters are Cyrillic, and something without width stands in between.
/// assert_eq!(canonical("f\u{430}st-b\u{43e}\u{200b}x"), "fast-box");
/// ```
pub fn canonical(text: &str) -> String {
    // Most texts are plain, and of these nothing has to be looked up.
    if text.is_ascii() {
        let shown = text.bytes().filter(|byte| !byte.is_ascii_control()).take(MAX_CHARS);
        return joined(shown.map(|byte| char::from(byte.to_ascii_lowercase())), text.len());
    }
    let shown = text.chars().filter(|c| !is_unseen(*c)).take(MAX_CHARS);
    joined(shown.flat_map(char::to_lowercase).map(latin), text.len())
}

/// Letters and digits as they are, every run of others in between one dash.
fn joined(shown: impl Iterator<Item = char>, bytes: usize) -> String {
    let mut form = String::with_capacity(bytes.min(MAX_CHARS));
    let mut gap = false;
    for c in shown {
        if c.is_alphanumeric() {
            if gap && !form.is_empty() {
                form.push('-');
            }
            gap = false;
            form.push(c);
        } else {
            gap = true;
        }
    }
    form
}

/// Whether a character takes no place, or turns the direction of others.
pub(super) fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

/// The Latin letter that a lower-case letter looks like, if there is one: those of other alphabets that are used to
/// look like somebody else.
fn latin(c: char) -> char {
    match c {
        'а' | 'α' => 'a',
        'в' => 'b',
        'с' | 'ϲ' => 'c',
        'ԁ' => 'd',
        'е' | 'ё' | 'ε' => 'e',
        'ɡ' => 'g',
        'һ' | 'н' => 'h',
        'і' | 'ι' | 'ı' | 'ї' => 'i',
        'ј' | 'ϳ' => 'j',
        'к' | 'κ' => 'k',
        'ӏ' => 'l',
        'м' => 'm',
        'ո' | 'η' => 'n',
        'о' | 'ο' | 'օ' => 'o',
        'р' | 'ρ' => 'p',
        'ԛ' => 'q',
        'ѕ' => 's',
        'т' | 'τ' => 't',
        'υ' | 'ս' => 'u',
        'ν' | 'ѵ' => 'v',
        'ԝ' | 'ω' => 'w',
        'х' | 'χ' => 'x',
        'у' | 'γ' => 'y',
        'ᴢ' => 'z',
        // The wide forms of ASCII.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c).saturating_sub(0xfee0)).unwrap_or(c),
        c => c,
    }
}

/// Whether one text becomes the other by at most `most` letters that are added, left out or changed.
pub(super) fn is_near(one: &str, other: &str, most: usize) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().abs_diff(other.len()) > most {
        return false;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut left = i.saturating_add(1);
        let mut next = Vec::with_capacity(row.len());
        next.push(left);
        for ((with, diagonal), above) in other.iter().zip(&row).zip(row.iter().skip(1)) {
            let changed = diagonal.saturating_add(usize::from(letter != with));
            left = changed.min(above.saturating_add(1)).min(left.saturating_add(1));
            next.push(left);
        }
        row = next;
    }
    row.last().is_some_and(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_texts_have_the_form_that_they_have_among_others() {
        for text in ["", " Fast  Box_v2!", "a\tb\u{7f}c", "--x--", &"Ab-".repeat(200), "1.2,3"] {
            let shown = text.chars().filter(|c| !is_unseen(*c)).take(MAX_CHARS);
            let long = joined(shown.flat_map(char::to_lowercase).map(latin), text.len());
            assert_eq!(canonical(text), long, "{text:?}");
        }
    }

    #[test]
    fn what_looks_the_same_is_the_same() {
        let plain = "fast-box-9";
        for text in [
            "Fast Box 9",
            "fast--box__9",
            "\u{202e}Fast\u{2066} Box 9\u{2069}",
            "fa\u{200d}st box\u{feff} 9",
            "f\u{430}\u{455}t b\u{43e}x 9",
            "ＦＡＳＴ　ＢＯＸ　９",
            "FASΤ ΒΟΧ 9".replace('Β', "B").as_str(),
        ] {
            assert_eq!(canonical(text), plain, "{text:?}");
        }
        assert_eq!(canonical("\u{200b}\u{202e} --"), "");
        assert_ne!(canonical("fast-box-8"), plain);
        // However long the text, its form is bounded.
        assert!(canonical(&"ẞx".repeat(100_000)).chars().count() <= 3 * MAX_CHARS);
    }

    #[test]
    fn near_is_a_few_letters_away() {
        for (one, other, most, near) in [
            ("benchmark", "benchmark", 0, true),
            ("benchmark", "benchmrk", 1, true),
            ("benchmark", "bnchmrk", 1, false),
            ("benchmark", "bnchmrk", 2, true),
            ("kitten", "sitting", 3, true),
            ("kitten", "sitting", 2, false),
            ("", "abc", 2, false),
            ("", "", 0, true),
        ] {
            assert_eq!(is_near(one, other, most), near, "{one} {other} {most}");
            assert_eq!(is_near(other, one, most), near, "{other} {one} {most}");
        }
    }
}

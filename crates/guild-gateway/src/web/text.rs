//! Words of strangers, moments and amounts, as a page shows them.

use guild_protocol::amount::Amount;
use guild_protocol::timestamp::Timestamp;

pub(super) use guild_roles::explorer::{grouped, msat};

/// A stranger's words on one line: no control characters, nothing that turns the direction of writing, nothing
/// invisible, no towers of accents, and not longer than `max_chars`. What is left still has to be escaped, which `maud`
/// does.
pub(super) fn clean(text: &str, max_chars: usize) -> String {
    let mut line = String::new();
    let mut space = false;
    let mut marks = 0_usize;
    let visible = text.chars().filter(|c| !is_hidden(*c));
    let visible = visible.filter(|c| {
        marks = if is_mark(*c) { marks.saturating_add(1) } else { 0 };
        marks <= MARKS_MAX
    });
    for (count, c) in visible.enumerate() {
        if count == max_chars {
            line.push('…');
            break;
        }
        if c.is_whitespace() || c.is_control() {
            space = !line.is_empty();
            continue;
        }
        if std::mem::take(&mut space) {
            line.push(' ');
        }
        line.push(c);
    }
    line
}

/// How many accents one letter may carry.
const MARKS_MAX: usize = 3;

/// Accents that stand above or below the letter before them, and on each other.
fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// Characters that show nothing and change how others are shown. The two joiners stay: some scripts need them.
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// The two ends of a long name: `npub1qqs…7k2f`.
pub(super) fn short(id: &str) -> String {
    match ends(id) {
        Some([head, _, tail]) => format!("{head}…{tail}"),
        None => id.to_owned(),
    }
}

/// The beginning, the middle and the end of a long name.
pub(super) fn ends(id: &str) -> Option<[&str; 3]> {
    let count = id.chars().count();
    let at = |n: usize| id.char_indices().nth(n).map(|(at, _)| at);
    let (head, tail) = (at(10)?, at(count.checked_sub(6)?)?);
    let parts = [id.get(..head)?, id.get(head..tail)?, id.get(tail..)?];
    (count > 20).then_some(parts)
}

/// How long ago a moment was, in words.
pub(super) fn ago(now_ms: i64, at_ms: i64) -> String {
    let seconds = now_ms.saturating_sub(at_ms).div_euclid(1_000);
    match seconds {
        ..-5 => "in the future".to_owned(),
        -5..5 => "just now".to_owned(),
        5..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds.div_euclid(60)),
        3_600..86_400 => format!("{} h ago", seconds.div_euclid(3_600)),
        86_400..2_592_000 => format!("{} d ago", seconds.div_euclid(86_400)),
        _ => {
            let shown = moment(at_ms);
            // Of a moment only its day; what is none is said in full.
            shown.strip_suffix(" UTC").and_then(|time| time.get(..10)).unwrap_or(&shown).to_owned()
        }
    }
}

/// How much later something happened: `at once`, `+40 ms`, `+1.2 s`, `+3 min`.
pub(super) fn later(before_ms: i64, at_ms: i64) -> String {
    let ms = at_ms.saturating_sub(before_ms).max(0);
    match ms {
        0 => "at once".to_owned(),
        1..1_000 => format!("+{ms} ms"),
        1_000..60_000 => {
            format!("+{}.{} s", ms.div_euclid(1_000), ms.rem_euclid(1_000).div_euclid(100))
        }
        60_000..7_200_000 => format!("+{} min", ms.div_euclid(60_000)),
        7_200_000..172_800_000 => format!("+{} h", ms.div_euclid(3_600_000)),
        _ => format!("+{} d", ms.div_euclid(86_400_000)),
    }
}

/// A moment for people: `2026-01-15 08:30:00 UTC`.
pub(super) fn moment(at_ms: i64) -> String {
    let text = machine_moment(at_ms);
    let (date, time) = (text.get(..10), text.get(11..19));
    match (date, time) {
        (Some(date), Some(time)) => format!("{date} {time} UTC"),
        _ => "at no known time".to_owned(),
    }
}

/// A moment for machines; empty if it is none.
pub(super) fn machine_moment(at_ms: i64) -> String {
    Timestamp::from_ms(at_ms).map(|moment| moment.to_string()).unwrap_or_default()
}

/// An amount of any asset.
pub(super) fn amount(amount: &Amount) -> String {
    if amount.asset_id.is_msat() {
        return msat(amount.units);
    }
    format!("{} {}", grouped(amount.units), amount.asset_id)
}

/// What a schema is called among people: `oa.sandbox_run.v1` → `Sandbox run`.
pub(super) fn job_name(schema_id: &str) -> String {
    let name = schema_id.split('.').nth(1).unwrap_or(schema_id);
    let words = clean(&name.replace('_', " "), 40);
    let mut chars = words.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => "Job".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_strangers_cannot_play_tricks() {
        assert_eq!(clean("  a\u{0}\n\tb\u{7f}  c ", 99), "a b c");
        assert_eq!(clean("\u{202e}evil\u{2066}\u{200b}\u{feff}\u{e0041}", 99), "evil");
        assert_eq!(clean(&"x".repeat(10_000), 5), "xxxxx…");
        assert_eq!(clean("کتاب\u{200c}ها", 99), "کتاب\u{200c}ها");
        assert_eq!(clean("\u{1b}[2J", 99), "[2J");
        assert_eq!(clean("", 5), "");
        let tower = format!("e{}!", "\u{301}".repeat(99));
        assert_eq!(clean(&tower, 99), "e\u{301}\u{301}\u{301}!");
    }

    #[test]
    fn ids_keep_their_ends() {
        assert_eq!(short("npub1abcdefghijklmnopqrstuvwxyz"), "npub1abcde…uvwxyz");
        assert_eq!(short("short"), "short");
        assert_eq!(short(&"é".repeat(30)).chars().count(), 17);
    }

    #[test]
    fn moments_and_spans_read_well() {
        let now = 1_768_465_800_000;
        let shown =
            [0, 5, 59, 60, 3_599, 3_600, 86_400, 2_592_000].map(|s| ago(now, now - s * 1_000));
        let expected = [
            "just now",
            "5 s ago",
            "59 s ago",
            "1 min ago",
            "59 min ago",
            "1 h ago",
            "1 d ago",
            "2025-12-16",
        ];
        assert_eq!(shown, expected);
        assert_eq!(ago(now, now + 60_000), "in the future");
        assert_eq!(ago(0, i64::MIN), "at no known time");
        assert_eq!(
            [0, 999, 1_250, 61_000, 7_200_000, 200_000_000].map(|ms| later(10, 10 + ms)),
            ["at once", "+999 ms", "+1.2 s", "+1 min", "+2 h", "+2 d"]
        );
        assert_eq!(moment(now), "2026-01-15 08:30:00 UTC");
        assert_eq!(moment(i64::MAX), "at no known time");
    }

    #[test]
    fn schemas_have_names() {
        assert_eq!(job_name("oa.sandbox_run.v1"), "Sandbox run");
        assert_eq!(job_name(""), "Job");
    }
}

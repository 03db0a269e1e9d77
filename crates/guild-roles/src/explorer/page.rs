//! Lists are read in pages, newest first. A cursor names the last line of a page; the next begins behind it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// How many lines a page has at most.
pub const PAGE_MAX: usize = 100;

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Behind this line; from the newest if there is none.
    pub after: Option<Cursor>,
    /// So many lines, at most [`PAGE_MAX`].
    pub limit: usize,
}

impl Page {
    /// The first page with so many lines.
    pub fn first(limit: usize) -> Page {
        Page { after: None, limit }
    }

    /// How many lines are given, never none and never too many.
    pub(super) fn lines(&self) -> usize {
        self.limit.clamp(1, PAGE_MAX)
    }
}

/// A place in a list: the number by which it is sorted, and what tells lines with equal numbers apart.
///
/// ```
/// use guild_roles::explorer::Cursor;
/// let cursor: Cursor = "1700000000000-ab12".parse().unwrap();
/// assert_eq!((cursor.at, cursor.id.as_str()), (1_700_000_000_000, "ab12"));
/// assert_eq!(cursor.to_string(), "1700000000000-ab12");
/// assert!("yesterday".parse::<Cursor>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The number by which the list is sorted.
    pub at: i64,
    /// The line with that number.
    pub id: String,
}

/// A text that is no cursor of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a cursor that this node gave out")]
pub struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;
    fn from_str(text: &str) -> Result<Cursor, NoCursor> {
        let (at, id) = text.split_once('-').ok_or(NoCursor)?;
        let at: i64 = at.parse().map_err(|_| NoCursor)?;
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let good = at >= 0 && !id.is_empty() && id.len() <= 128 && id.bytes().all(word);
        if good { Ok(Cursor { at, id: id.to_owned() }) } else { Err(NoCursor) }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at, self.id)
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// Its lines.
    pub items: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
}

/// The lines of a page out of one line more, which says whether there is another page; and where that begins.
pub(super) fn cut<T>(
    mut rows: Vec<T>,
    lines: usize,
    cursor: impl Fn(&T) -> Cursor,
) -> (Vec<T>, Option<Cursor>) {
    let more = rows.len() > lines;
    rows.truncate(lines);
    let next = rows.last().filter(|_| more).map(cursor);
    (rows, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_cursors_are_read() {
        for bad in
            ["", "-", "1-", "-1-a", "1-a b", "1-é", "x-a", "1-../a", "99999999999999999999-a"]
        {
            assert_eq!(bad.parse::<Cursor>(), Err(NoCursor), "{bad}");
        }
        assert_eq!(format!("1-{}", "a".repeat(129)).parse::<Cursor>(), Err(NoCursor));
    }

    #[test]
    fn a_full_page_leads_on_and_the_last_does_not() {
        let cursor = |n: &i64| Cursor { at: *n, id: n.to_string() };
        let (items, next) = cut(vec![3, 2, 1], 2, cursor);
        assert_eq!((items, next.unwrap().at), (vec![3, 2], 2));
        assert_eq!(cut(vec![2, 1], 2, cursor).1, None);
    }
}

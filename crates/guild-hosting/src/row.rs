//! Reading rows that have more columns than a tuple should have.

use std::str::FromStr;

use guild_store::{Columns, Error, FromVal, Result};
use serde::de::DeserializeOwned;

/// The columns of a row, from the first to the last.
pub(crate) struct Cells<'a> {
    row: &'a dyn Columns,
    next: usize,
}

impl<'a> Cells<'a> {
    pub(crate) fn of(row: &'a dyn Columns) -> Cells<'a> {
        Cells { row, next: 0 }
    }

    /// The next column.
    pub(crate) fn next<T: FromVal>(&mut self) -> Result<T> {
        let at = self.next;
        self.next = at.saturating_add(1);
        let cell = T::from_val(self.row.val(at)?);
        cell.ok_or_else(|| Error::Decode(format!("column {at} has another type")))
    }

    /// The next column, a text that stands for something.
    pub(crate) fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self) -> Result<T> {
        let text: String = self.next()?;
        text.parse().map_err(unreadable)
    }

    /// The next column, a word of ours.
    pub(crate) fn word<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        let text: String = self.next()?;
        parse(&text).ok_or_else(|| unreadable(format!("{text:?} is no word that we write")))
    }

    /// The next column, JSON.
    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let text: String = self.next()?;
        serde_json::from_str(&text).map_err(unreadable)
    }
}

/// Our own row says something that we never write.
pub(crate) fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Decode(error.to_string())
}

/// A page is never larger than this.
const PAGE_MAX: i64 = 1_000;

/// The number of rows to ask for. Less than nothing would be everything on SQLite, and refused by PostgreSQL.
pub(crate) fn page(limit: i64) -> i64 {
    limit.clamp(0, PAGE_MAX)
}

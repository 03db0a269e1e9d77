//! Everything that is wrong with an input, not only the first thing.
//!
//! Somebody who corrects a file wants one list. Each problem is an ordinary [`Error`] with its code and its place.

use std::fmt;

use crate::Error;
use crate::error::Kind;
use crate::hash::shorten;

/// At least one problem, in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    first: Error,
    rest: Vec<Error>,
    left_out: usize,
}

impl Problems {
    /// How many problems are listed; the others are only counted.
    pub const MAX_LISTED: usize = 100;

    /// The problems, each with its code and place.
    pub fn iter(&self) -> impl Iterator<Item = &Error> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// How many more there are than are listed.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The kind of the first problem: it decides status and exit code of the whole.
    pub fn kind(&self) -> Kind {
        self.first.kind()
    }
}

impl From<Error> for Problems {
    fn from(error: Error) -> Problems {
        Problems { first: error, rest: Vec::new(), left_out: 0 }
    }
}

/// For callers that carry one error: the first problem, and how many more there are.
impl From<Problems> for Error {
    fn from(problems: Problems) -> Error {
        let more = problems.rest.len().saturating_add(problems.left_out);
        if more == 0 {
            return problems.first;
        }
        let Problems { first, .. } = problems;
        let error = Error::new(first.code(), format!("{} (and {more} more)", first.message()));
        match first.place() {
            Some(place) => error.at(place),
            None => error,
        }
    }
}

/// One line for each problem.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        for problem in &self.rest {
            write!(f, "\n{problem}")?;
        }
        if self.left_out > 0 {
            write!(f, "\n(and {} more)", self.left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Where problems are gathered while an input is walked.
#[derive(Debug, Default)]
pub struct Gathered {
    listed: Vec<Error>,
    left_out: usize,
}

impl Gathered {
    /// One more.
    pub fn push(&mut self, problem: Error) {
        if self.listed.len() < Problems::MAX_LISTED {
            self.listed.push(problem);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// `value`, unless something was wrong.
    pub fn unless_any<T>(self, value: T) -> Result<T, Problems> {
        let mut listed = self.listed.into_iter();
        match listed.next() {
            None => Ok(value),
            Some(first) => Err(Problems { first, rest: listed.collect(), left_out: self.left_out }),
        }
    }
}

/// Where a walk through a document stands. Written out only when a problem is found: most items have none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    Top,
    Member(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    /// The problem, placed here.
    pub(crate) fn of(&self, problem: Error) -> Error {
        match self {
            Place::Top => problem,
            _ => problem.at(self.to_string()),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Top => Ok(()),
            Place::Item(outer, number) => write!(f, "{outer}[{number}]"),
            Place::Member(outer, name) => {
                if !matches!(outer, Place::Top) {
                    write!(f, "{outer}.")?;
                }
                // A hostile key must not look like a path, nor fill the screen.
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
                if !name.is_empty() && name.len() <= 64 && name.bytes().all(plain) {
                    f.write_str(name)
                } else {
                    write!(f, "{:?}", shorten(name))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::code::SHAPE;

    fn gathered(count: usize) -> Problems {
        let mut all = Gathered::default();
        for i in 0..count {
            all.push(Error::new(&SHAPE, "is wrong").at(format!("[{i}]")));
        }
        all.unless_any(()).unwrap_err()
    }

    #[test]
    fn all_are_listed_up_to_the_limit() {
        assert_eq!(gathered(2).to_string(), "[0]: is wrong\n[1]: is wrong");
        let many = gathered(Problems::MAX_LISTED + 7);
        assert_eq!(many.iter().count(), Problems::MAX_LISTED);
        assert!(many.to_string().ends_with("(and 7 more)"));
        assert!(Gathered::default().unless_any(()).is_ok());
    }

    #[test]
    fn one_error_still_says_that_there_are_more() {
        assert_eq!(Error::from(gathered(1)).to_string(), "[0]: is wrong");
        assert_eq!(Error::from(gathered(3)).to_string(), "[0]: is wrong (and 2 more)");
        let many = Error::from(gathered(Problems::MAX_LISTED + 7));
        assert_eq!(many.to_string(), "[0]: is wrong (and 106 more)");
    }

    #[test]
    fn a_place_reads_as_a_path() {
        let top = Place::Top;
        let texts = Place::Member(&top, "texts");
        let item = Place::Item(&texts, 3);
        assert_eq!(Place::Member(&item, "a").to_string(), "texts[3].a");
        assert_eq!(Place::Member(&top, "a.b[0]").to_string(), "\"a.b[0]\"");
        assert_eq!(Place::Item(&top, 0).to_string(), "[0]");
        assert_eq!(top.of(Error::new(&SHAPE, "x")).place(), None);
    }
}

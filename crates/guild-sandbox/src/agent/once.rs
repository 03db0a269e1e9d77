//! What was asked of a command under a name of its own, so that asking again changes nothing.

use std::collections::VecDeque;

use super::error::{Error, Result};

/// How many names are remembered for a command. Whoever asks again asks soon.
const MAX_NAMES: usize = 64;
const MAX_NAME_BYTES: usize = 64;

/// The names of one sort, the oldest first, and what is known under each.
#[derive(Debug)]
pub(crate) struct Names<T>(VecDeque<(String, T)>);

/// How much of an input has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) bytes: u64,
    pub(crate) closed: bool,
}

impl<T> Default for Names<T> {
    fn default() -> Names<T> {
        Names(VecDeque::new())
    }
}

impl<T: Default> Names<T> {
    /// What is known under a name; if it is new, it is known from now on.
    pub(crate) fn at(&mut self, name: &str) -> &mut T {
        let known = self.0.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            if self.0.len() == MAX_NAMES {
                self.0.pop_front();
            }
            self.0.push_back((name.to_owned(), T::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// Forgets a name: nothing has happened under it.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }
}

/// A name as it must be.
pub(crate) fn check(name: &str) -> Result<()> {
    let is_good =
        (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    match is_good {
        true => Ok(()),
        false => Err(Error::bad("id", format!("must be 1 to {MAX_NAME_BYTES} visible characters"))),
    }
}

/// How much of a piece has come already: the piece begins behind `from` bytes of its input.
pub(crate) fn skip(taken: Taken, from: u64, length: usize) -> Result<usize> {
    match taken.bytes.checked_sub(from) {
        Some(more) => Ok(usize::try_from(more).unwrap_or(usize::MAX).min(length)),
        None => Err(Error::bad("from", format!("only {} bytes have come before", taken.bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_remembered_and_the_oldest_are_forgotten() {
        let mut names = Names::<bool>::default();
        for n in 0..=MAX_NAMES {
            assert!(!std::mem::replace(names.at(&n.to_string()), true), "{n} is new");
        }
        assert!(*names.at("1") && *names.at("64"));
        assert!(!*names.at("0"), "the oldest is forgotten");
        names.forget("64");
        assert!(!*names.at("64"));
        assert!(check("a").is_ok() && check(&"a".repeat(64)).is_ok());
        for bad in ["", "a b", "ä", "a\n", &"a".repeat(65)] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_piece_is_passed_over_as_far_as_it_has_come() {
        let taken = Taken { bytes: 10, closed: false };
        assert_eq!(skip(taken, 0, 4).unwrap(), 4);
        assert_eq!(skip(taken, 8, 4).unwrap(), 2);
        assert_eq!(skip(taken, 10, 4).unwrap(), 0);
        assert!(skip(taken, 11, 4).is_err(), "something is missing in between");
    }
}

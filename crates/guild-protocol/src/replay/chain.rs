//! Following the chain of hashes, and telling a changed line from a changed link.

use super::{chain_next, chain_start, code};
use crate::hash::Hash;
use crate::json::Doc;
use crate::tamper;
use crate::verification::Problem;
use crate::wire::{canonical_without, text_at};

/// How many changed lines are searched for their field at most: a search takes its time.
const MAX_SEARCHES: u8 = 4;

/// The chain up to the last line read.
#[derive(Debug)]
pub(super) struct Chain {
    /// The value that the next line continues; none behind a line that could not be read.
    value: Option<Hash>,
    /// The last line, if it does not state the value that it has.
    doubt: Option<Doubt>,
    searches_left: u8,
}

/// A line whose `chain` is not what the line gives. Either the line or its `chain` was changed: the next line, which
/// continues the true value, tells.
#[derive(Debug)]
struct Doubt {
    line: u64,
    former: Hash,
    content: Vec<u8>,
    computed: Hash,
    stated: Hash,
}

impl Chain {
    pub(super) fn new(explain: bool) -> Chain {
        let searches_left = if explain { MAX_SEARCHES } else { 0 };
        Chain { value: Some(chain_start()), doubt: None, searches_left }
    }

    /// A line that could not be read. The chain starts anew behind it.
    pub(super) fn lose(&mut self) -> Option<Problem> {
        self.value = None;
        self.doubt.take().map(|doubt| self.changed_line(&doubt))
    }

    /// Takes the next line.
    pub(super) fn line(&mut self, line: u64, doc: &Doc<'_>) -> Vec<Problem> {
        let content = canonical_without(doc, &["chain", "trajectory_hash"]);
        let Some(stated) = text_at(doc, "chain").and_then(|text| text.parse::<Hash>().ok()) else {
            let mut problems: Vec<_> = self.lose().into_iter().collect();
            let message = "is missing or malformed: every line of a sealed file carries it";
            problems.push(Problem::new(&code::CHAIN, message).at("chain").on_line(line));
            return problems;
        };
        let mut problems = Vec::new();
        if let Some(doubt) = self.doubt.take() {
            let fits = |former: &Hash| chain_next(former, &content) == stated;
            if fits(&doubt.computed) {
                problems.push(changed_link(&doubt));
                self.value = Some(doubt.computed);
            } else {
                problems.push(self.changed_line(&doubt));
                self.value = Some(doubt.stated);
            }
        }
        if let Some(former) = self.value {
            let computed = chain_next(&former, &content);
            if computed != stated {
                self.doubt = Some(Doubt { line, former, content, computed, stated });
            }
        }
        self.value = Some(stated);
        problems
    }

    /// Behind the last line: the trajectory hash, and what is wrong with it.
    pub(super) fn end(
        &mut self,
        line: u64,
        trajectory_hash: Option<&str>,
    ) -> (Option<Hash>, Vec<Problem>) {
        let sealed = trajectory_hash.and_then(|text| text.parse::<Hash>().ok());
        let seal =
            |message| Problem::new(&code::CHAIN, message).at("trajectory_hash").on_line(line);
        let Some(doubt) = self.doubt.take() else {
            let problem = match (sealed, self.value) {
                (None, _) => Some(seal("is missing or malformed: the file has no seal")),
                (sealed, value) if sealed != value => Some(seal("is not the end of the chain")),
                _ => None,
            };
            return (self.value, problem.into_iter().collect());
        };
        let is_link = sealed == Some(doubt.computed);
        let problem = if is_link { changed_link(&doubt) } else { self.changed_line(&doubt) };
        (Some(if is_link { doubt.computed } else { doubt.stated }), vec![problem])
    }

    fn changed_line(&mut self, doubt: &Doubt) -> Problem {
        let changed = |message| Problem::new(&code::CHAIN, message).on_line(doubt.line);
        if self.searches_left == 0 || doubt.content.len() > tamper::MAX_SEARCH_BYTES {
            return changed("was changed: it does not fit its chain");
        }
        self.searches_left = self.searches_left.saturating_sub(1);
        match tamper::search(doubt.former.as_bytes(), &doubt.content, &doubt.stated) {
            Some(found) => changed("was changed after it was written").at(found.path),
            None => changed("was changed in more than one byte, or lines were added or removed"),
        }
    }
}

fn changed_link(doubt: &Doubt) -> Problem {
    let message = "was changed: the lines around it fit without it";
    Problem::new(&code::CHAIN, message).at("chain").on_line(doubt.line)
}

//! The head of the ledger: a hash over everything booked so far, one for each commit. A receipt that names it says
//! which history it belongs to.
//!
//! `head = sha256(previous head, as 32 bytes ‖ the lines of the records since)`, the first from 32 zero bytes. The
//! lines are those of the export ([`crate::record`]), each with its line feed: a stranger needs only the file.

use guild_protocol::hash::{Hash, Hasher};

use crate::record::Record;

/// The head after number `last_seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The number of the last record that it covers.
    pub last_seq: i64,
    /// The hash of everything up to there.
    pub hash: Hash,
}

impl Head {
    /// The head of an empty ledger.
    pub fn start() -> Head {
        Head { last_seq: 0, hash: Hash::from_bytes([0; 32]) }
    }

    /// The head after these records; the same, if there are none.
    #[must_use]
    pub fn after<'a>(&self, records: impl IntoIterator<Item = Record<'a>>) -> Head {
        let mut next = NextHead::new(self);
        let mut line = String::new();
        for record in records {
            line.clear();
            record.write_line(&mut line);
            next.take(record.seq, &line);
        }
        next.finish()
    }
}

/// A head in the making.
#[derive(Debug, Clone)]
pub(crate) struct NextHead {
    previous: Head,
    hasher: Hasher,
    last_seq: i64,
}

impl NextHead {
    pub(crate) fn new(previous: &Head) -> NextHead {
        let mut hasher = Hasher::new();
        hasher.update(previous.hash.as_bytes());
        NextHead { previous: *previous, hasher, last_seq: previous.last_seq }
    }

    /// Takes the next record: its number, and its line with the line feed.
    pub(crate) fn take(&mut self, seq: i64, line: &str) {
        self.hasher.update(line.as_bytes());
        self.last_seq = seq;
    }

    /// Whether it covers anything yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.last_seq == self.previous.last_seq
    }

    pub(crate) fn finish(self) -> Head {
        if self.is_empty() {
            return self.previous;
        }
        Head { last_seq: self.last_seq, hash: self.hasher.finish() }
    }
}

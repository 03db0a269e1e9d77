//! One commit of a history, without the rest of it.
//!
//! It shows that a transfer is covered by a head. Whether the account could pay, and whether anything was paid twice,
//! only the whole history shows.

use std::collections::BTreeMap;

use guild_protocol::hash::{Hash, Hasher};
use guild_protocol::json::{self, Doc};

use super::finding::Refusal;
use super::record::{
    Record, Step, Transfer, account_text, form, parse, seq_of, text, transfer_text,
};

/// The version that is read.
const VERSION: &str = "guild.ledger_slice.v1";

/// A commit that is what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The head after it.
    pub head: Hash,
    /// What it booked, by the ids of the transfers.
    pub transfers: BTreeMap<String, Moved>,
}

/// A transfer of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// From which account.
    pub debit: String,
    /// Into which account.
    pub credit: String,
    /// How much.
    pub units: i128,
    /// Whether it moved anything: holding and giving back do not.
    pub moved: bool,
}

impl Slice {
    /// Reads a slice: whether its records lead from the head before it to the head after it. Else why not.
    pub fn read(bytes: &[u8]) -> Result<Slice, String> {
        let mut reader = Reader::default();
        for (number, line) in (1_u64..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            reader.line(line).map_err(|refusal| format!("line {number} {}", refusal.message))?;
        }
        match (reader.is_begun, reader.end) {
            (true, Some(head)) => Ok(Slice { head, transfers: reader.transfers }),
            _ => Err("it ends without a head".to_owned()),
        }
    }
}

#[derive(Default)]
struct Reader {
    is_begun: bool,
    hasher: Hasher,
    last_seq: Option<i64>,
    transfers: BTreeMap<String, Moved>,
    end: Option<Hash>,
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        if self.end.is_some() {
            return Err(form("stands behind the head"));
        }
        let bytes = line.strip_suffix(b"\n").ok_or_else(|| form("has no line feed at its end"))?;
        let doc = parse(bytes)?;
        json::require_canonical(bytes, &doc)
            .map_err(|error| form(format!("is not canonical JSON: {error}")))?;
        if !self.is_begun {
            self.is_begun = true;
            self.hasher.update(first(&doc)?.as_bytes());
            return Ok(());
        }
        match Record::of(&doc)? {
            Record::Head { hash, last_seq } => return self.finish(hash, last_seq),
            Record::Transfer(transfer) => self.take(&transfer)?,
            Record::Account(_) | Record::Rule(_) => {}
            _ => return Err(form("is no record of a commit")),
        }
        let seq = seq_of(&doc).ok_or_else(|| form("has no number"))?;
        if self.last_seq.is_some_and(|last| last.checked_add(1) != Some(seq)) {
            return Err(form("does not follow the one before it"));
        }
        self.last_seq = Some(seq);
        self.hasher.update(line);
        Ok(())
    }

    fn take(&mut self, transfer: &Transfer<'_>) -> Result<(), Refusal> {
        let moved = Moved {
            debit: account_text(&transfer.debit),
            credit: account_text(&transfer.credit),
            units: transfer.units,
            moved: matches!(transfer.step, Step::Post | Step::Settle { .. }),
        };
        match self.transfers.insert(transfer_text(&transfer.transfer), moved) {
            None => Ok(()),
            Some(_) => Err(form("books a transfer twice")),
        }
    }

    fn finish(&mut self, hash: Hash, last_seq: i64) -> Result<(), Refusal> {
        let computed = std::mem::take(&mut self.hasher).finish();
        if computed != hash || self.last_seq != Some(last_seq) {
            return Err(form(format!(
                "is not the head of the records before it: that is {computed}"
            )));
        }
        self.end = Some(hash);
        Ok(())
    }
}

/// The head before the commit.
fn first(doc: &Doc<'_>) -> Result<Hash, Refusal> {
    let said = |name: &str| doc.get(name).map_or(Ok(""), |value| text(name, value));
    let is_slice = said("record")? == "slice" && said("schema_version")? == VERSION;
    let after = said("after")?.parse::<Hash>();
    match (is_slice, after) {
        (true, Ok(after)) if matches!(doc, Doc::Object(members) if members.len() == 3) => Ok(after),
        _ => Err(form(format!("is not the first line of a {VERSION}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = include_str!("../../vectors/evidence/ledger.jsonl");

    /// The last commit of the example: Ann pays Bob 250 of 400 held.
    fn slice() -> String {
        let lines: Vec<&str> = WHOLE.lines().collect();
        let Some(before) = lines[9].split('"').find(|part| part.starts_with("sha256:")) else {
            panic!("line 10 is a head: {}", lines[9])
        };
        let first = format!(
            "{{\"after\":\"{before}\",\"record\":\"slice\",\"schema_version\":\"{VERSION}\"}}"
        );
        [first.as_str(), lines[10], lines[11]].map(|line| format!("{line}\n")).concat()
    }

    #[test]
    fn a_commit_leads_from_head_to_head() {
        let slice = Slice::read(slice().as_bytes()).unwrap();
        assert!(WHOLE.contains(&slice.head.to_string()));
        let moved = &slice.transfers["xfer_019bc0c69b4474b2827777d4dd1fc61c"];
        assert_eq!((moved.units, moved.moved), (250, true));
        assert_eq!(
            moved.credit,
            "acct_290061b011129f4d49ea82804d1579c4280134a876d559e9b38190d941da3026"
        );
    }

    #[test]
    fn no_byte_of_it_can_be_another() {
        let good = slice().into_bytes();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Slice::read(&bad).is_err(), "byte {at}");
        }
        let good = String::from_utf8(good).unwrap();
        let lines: Vec<&str> = good.split_inclusive('\n').collect();
        for left_out in 0..lines.len() {
            let mut bad = lines.clone();
            bad.remove(left_out);
            assert!(Slice::read(bad.concat().as_bytes()).is_err(), "without line {left_out}");
            let mut twice = lines.clone();
            twice.insert(left_out, lines[left_out]);
            assert!(Slice::read(twice.concat().as_bytes()).is_err(), "line {left_out} twice");
        }
        assert!(Slice::read(b"").is_err());
    }
}

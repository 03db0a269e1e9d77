//! `calls.jsonl`: what callers asked and what they were told.

use std::collections::BTreeMap;

use guild_protocol::hash::Hasher;
use guild_protocol::json::Doc;

use super::code;
use super::finding::{Findings, Part, Place, Refusal};
use super::record::{self, Read, Transfer, TransferKey, transfer_text};

/// What callers asked and were told, to be compared with the ledger. It keeps ids and hashes, not contents.
#[derive(Debug, Default)]
pub struct Calls {
    findings: Findings,
    lines: u64,
    count: u64,
    by_id: BTreeMap<TransferKey, Called>,
}

#[derive(Debug, Default)]
struct Called {
    /// The different contents that were asked for, and how often each was.
    contents: Vec<(Content, u64)>,
    asked: u64,
    refused: u64,
    /// The line that first says it is booked.
    told_booked: Option<u64>,
    /// How many answers say so.
    booked: u64,
    in_ledger: bool,
}

/// What was said about a transfer: which fields, and the hash of their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Content {
    said: [bool; FIELDS],
    hash: [u8; 16],
}

const FIELDS: usize = 7;

/// The values of `step`, `debit`, `credit`, `units`, `hold`, `expires_ms` and `memo`, as far as they are said.
type Values = [Option<Vec<u8>>; FIELDS];

impl Content {
    fn of(values: &Values) -> Content {
        let said = values.each_ref().map(Option::is_some);
        let mut hasher = Hasher::new();
        for value in values.iter() {
            let length = value.as_ref().map_or(u64::MAX, |v| u64::try_from(v.len()).unwrap_or(0));
            hasher.update(&length.to_be_bytes());
            hasher.update(value.as_deref().unwrap_or_default());
        }
        let mut hash = [0; 16];
        hash.iter_mut().zip(hasher.finish().as_bytes()).for_each(|(to, from)| *to = *from);
        Content { said, hash }
    }

    /// Whether a transfer with these values is what was asked for.
    fn is_of(&self, values: &Values) -> bool {
        let mut values = values.clone();
        for (value, said) in values.iter_mut().zip(self.said) {
            if !said {
                *value = None;
            }
        }
        Content::of(&values) == *self
    }
}

fn values_of(transfer: &Transfer<'_>) -> Values {
    let text = |number: i128| number.to_string().into_bytes();
    [
        Some(transfer.step.word().as_bytes().to_vec()),
        Some(transfer.debit.to_vec()),
        Some(transfer.credit.to_vec()),
        Some(text(transfer.units)),
        transfer.step.hold().map(|hold| hold.to_vec()),
        transfer.step.expires_ms().map(|at| text(at.into())),
        Some(transfer.memo.as_bytes().to_vec()),
    ]
}

impl Calls {
    /// Nothing asked yet.
    pub fn new() -> Calls {
        Calls::default()
    }

    /// Takes the next line of `calls.jsonl`, with its line feed. A last line without one broke off when its writer was
    /// stopped: a call is written down before it is made, so it says nothing.
    pub fn line(&mut self, line: &[u8]) {
        self.lines = self.lines.saturating_add(1);
        let read = match line.strip_suffix(b"\n") {
            Some(text) => record::parse(text).and_then(|doc| self.take(&doc)),
            None if line.len() < super::MAX_LINE_BYTES => Ok(()),
            None => record::parse(line).map(drop),
        };
        if let Err(refusal) = read {
            // The forms are those of the ledger; that this is a line of the calls is the code's to say.
            let code = if refusal.code == &code::ANSWER { refusal.code } else { &code::CALL };
            let place = Place::line(Part::Calls, self.lines);
            self.findings.push(Refusal { code, ..refusal }.at(place));
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn take(&mut self, doc: &Doc<'_>) -> Read<()> {
        let kind = record::text("call", doc.get("call").unwrap_or(&Doc::Null))?;
        let id = doc.get("transfer_id").unwrap_or(&Doc::Null);
        let id = record::transfer_key("transfer_id", id)?;
        match kind {
            "asked" => self.asked(id, doc),
            "told" => self.told(id, doc),
            other => Err(record::form(format!("knows no call {}", record::quoted(other)))),
        }
    }

    fn asked(&mut self, id: TransferKey, doc: &Doc<'_>) -> Read<()> {
        let said = check_fields(doc, &ASKED).and_then(|()| values_said(doc));
        // Whatever is wrong with it, something was asked: the transfer is not also unasked.
        let content = Content::of(said.as_ref().unwrap_or(&Values::default()));
        self.count = self.count.saturating_add(1);
        let called = self.by_id.entry(id).or_default();
        called.asked = called.asked.saturating_add(1);
        match called.contents.iter_mut().find(|(known, _)| *known == content) {
            Some((_, times)) => *times = times.saturating_add(1),
            None => called.contents.push((content, 1)),
        }
        said.map(drop)
    }

    fn told(&mut self, id: TransferKey, doc: &Doc<'_>) -> Read<()> {
        check_fields(doc, &TOLD)?;
        let outcome = record::text("outcome", doc.get("outcome").unwrap_or(&Doc::Null))?;
        let code_name = doc.get("code").map(|name| record::plain("code", name)).transpose()?;
        let refused = match (outcome, code_name) {
            ("booked", None) => false,
            ("refused", Some(_)) => true,
            _ => return Err(record::form("is neither booked nor refused with a code")),
        };
        let Some(called) = self.by_id.get_mut(&id) else {
            let message = format!("{} was not asked for before", transfer_text(&id));
            return Err(Refusal::new(&code::ANSWER, message));
        };
        if refused {
            called.refused = called.refused.saturating_add(1);
        } else {
            called.told_booked.get_or_insert(self.lines);
            called.booked = called.booked.saturating_add(1);
        }
        Ok(())
    }

    /// Compares a transfer of the ledger with what was asked.
    pub(super) fn booked(&mut self, transfer: &Transfer<'_>) -> Result<(), Refusal> {
        let id = || transfer_text(&transfer.transfer);
        let Some(called) = self.by_id.get_mut(&transfer.transfer) else {
            return Err(Refusal::new(&code::UNASKED, format!("nobody asked for {}", id())));
        };
        called.in_ledger = true;
        let values = values_of(transfer);
        let same = called.contents.iter().filter(|(content, _)| content.is_of(&values));
        let asked = same.fold(0u64, |sum, (_, times)| sum.saturating_add(*times));
        if asked == 0 {
            let message = format!("{} was asked for with other content", id());
            return Err(Refusal::new(&code::CONTENT, message));
        }
        // Whoever asked for something else and was told that it is booked was told a lie.
        if called.booked > asked {
            let message = format!("{} is booked, as some of its callers did not ask for it", id());
            return Err(Refusal::new(&code::CONTENT, message));
        }
        // An unanswered call may have been booked; one that was refused was not.
        if called.told_booked.is_none() && called.refused >= called.asked {
            let message = format!("{} was refused each time it was asked for", id());
            return Err(Refusal::new(&code::REFUSED, message));
        }
        Ok(())
    }

    /// After the whole ledger: what is missing in it.
    pub(super) fn finish(mut self) -> Findings {
        for (id, called) in self.by_id.iter().filter(|(_, called)| !called.in_ledger) {
            if let Some(line) = called.told_booked {
                let message = format!("{} was told to be booked", transfer_text(id));
                let lost = Refusal::new(&code::LOST, message);
                self.findings.push(lost.at(Place::line(Part::Calls, line)));
            }
        }
        self.findings
    }
}

const ASKED: [&str; 9] =
    ["call", "credit", "debit", "expires_ms", "hold", "memo", "step", "transfer_id", "units"];

const TOLD: [&str; 4] = ["call", "code", "outcome", "transfer_id"];

fn check_fields(doc: &Doc<'_>, known: &[&str]) -> Read<()> {
    let Doc::Object(members) = doc else { return Err(record::form("is no object")) };
    match members.iter().find(|(key, _)| !known.contains(&key.as_ref())) {
        None => Ok(()),
        Some((key, _)) => {
            let message = format!("has a field {} that is not known", record::quoted(key));
            Err(record::form(message))
        }
    }
}

/// What a call says; `null` is as good as absent.
fn values_said(doc: &Doc<'_>) -> Read<Values> {
    let said = |field: &str| doc.get(field).filter(|value| **value != Doc::Null).cloned();
    let value = |field: &str, read: &dyn Fn(&Doc<'_>) -> Read<Vec<u8>>| {
        said(field).map(|value| read(&value)).transpose()
    };
    Ok([
        value("step", &|v| record::text("step", v).map(|step| step.as_bytes().to_vec()))?,
        value("debit", &|v| record::account_key("debit", v).map(|key| key.to_vec()))?,
        value("credit", &|v| record::account_key("credit", v).map(|key| key.to_vec()))?,
        value("units", &|v| record::units("units", v).map(|n| n.to_string().into_bytes()))?,
        value("hold", &|v| record::transfer_key("hold", v).map(|key| key.to_vec()))?,
        value("expires_ms", &|v| {
            record::integer("expires_ms", v).map(|at| at.to_string().into_bytes())
        })?,
        value("memo", &|v| record::text("memo", v).map(|memo| memo.as_bytes().to_vec()))?,
    ])
}

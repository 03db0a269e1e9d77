//! The lines of `ledger.jsonl` in their order: numbers, heads, balances, end.

use std::collections::BTreeMap;

use guild_protocol::hash::{Hash, Hasher};
use guild_protocol::json;

use super::calls::Calls;
use super::dealings::Dealings;
use super::events::Events;
use super::finding::{Findings, Part, Place, Refusal, Report};
use super::keys::Keys;
use super::money::Money;
use super::receipts::Receipts;
use super::record::{self, AccountKey, Counters, Record, Transfer, account_text, form};
use super::{SCHEMA_VERSION, code};

/// Checks a history of money, line by line. The memory it takes grows with accounts, open holds and ids only.
#[derive(Debug)]
pub struct Checker {
    findings: Findings,
    stage: Stage,
    lines: u64,
    report: Report,
    last_seq: i64,
    /// Lines since the last record that could not be read: records, perhaps.
    unread: i64,
    chain: Chain,
    money: Money,
    stated: Stated,
    calls: Option<Calls>,
    receipts: Receipts,
    keys: Option<Keys>,
    dealings: Dealings,
    events: Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Records,
    Balances,
    Ended { trailing: bool },
}

/// The hash over the records.
#[derive(Debug)]
struct Chain {
    head: Hash,
    hasher: Hasher,
    /// Whether there are records that no head covers yet.
    open: bool,
}

impl Chain {
    fn after(head: Hash) -> Chain {
        let mut hasher = Hasher::new();
        hasher.update(head.as_bytes());
        Chain { head, hasher, open: false }
    }

    fn take(&mut self, line: &[u8]) {
        self.hasher.update(line);
        self.open = true;
    }
}

/// The balances that the file states.
#[derive(Debug, Default)]
struct Stated {
    last: Option<AccountKey>,
    count: u64,
    by_asset: BTreeMap<String, Counters>,
    /// Reported after the sums: a sum that is not zero says more than a balance that differs.
    differing: Findings,
}

impl Default for Checker {
    fn default() -> Checker {
        Checker::new()
    }
}

impl Checker {
    /// Nothing read yet.
    pub fn new() -> Checker {
        Checker {
            findings: Findings::default(),
            stage: Stage::Begin,
            lines: 0,
            report: Report::default(),
            last_seq: 0,
            unread: 0,
            chain: Chain::after(Hash::from_bytes([0; 32])),
            money: Money::default(),
            stated: Stated::default(),
            calls: None,
            receipts: Receipts::new(),
            keys: None,
            dealings: Dealings::default(),
            events: Events::new(),
        }
    }

    /// Compares with what was asked and answered. Without this, nobody is expected to have asked.
    #[must_use]
    pub fn with_calls(mut self, calls: Calls) -> Checker {
        self.calls = Some(calls);
        self
    }

    /// Looks for what receipts name.
    #[must_use]
    pub fn with_receipts(mut self, receipts: Receipts) -> Checker {
        self.receipts = receipts;
        self
    }

    /// Knows under which keys the node deals.
    #[must_use]
    pub fn with_keys(mut self, keys: Keys) -> Checker {
        self.keys = Some(keys);
        self
    }

    /// Reports what was found in the events, too.
    #[must_use]
    pub fn with_events(mut self, events: Events) -> Checker {
        self.events = events;
        self
    }

    /// Takes the next line of `ledger.jsonl`, with its line feed. A line that is longer than
    /// [`MAX_LINE_BYTES`](super::MAX_LINE_BYTES) may be handed over in part: it is refused for its length.
    pub fn line(&mut self, line: &[u8]) {
        self.lines = self.lines.saturating_add(1);
        if let Stage::Ended { trailing } = &mut self.stage {
            if !std::mem::replace(trailing, true) {
                self.refuse(Refusal::new(&code::TRAILING, "something stands behind the end"), None);
            }
            return;
        }
        let doc = match record::parse(line.strip_suffix(b"\n").unwrap_or(line)) {
            Ok(doc) => doc,
            Err(refusal) => return self.unreadable(line, refusal, None),
        };
        let seq = record::seq_of(&doc);
        if !line.ends_with(b"\n") {
            return self.unreadable(line, form("has no line feed at its end"), seq);
        }
        let bytes = line.strip_suffix(b"\n").unwrap_or(line);
        if let Err(error) = json::require_canonical(bytes, &doc) {
            // It can be read all the same.
            self.refuse(form(format!("is not canonical JSON: {error}")), seq);
        }
        match Record::of(&doc) {
            Ok(record) => self.record(line, &record, seq),
            Err(refusal) => self.unreadable(line, refusal, seq),
        }
    }

    /// What was found.
    pub fn finish(self) -> Report {
        self.finish_with_dealings().0
    }

    /// What was found, and what the node's dealings with others are, to be [compared](super::compare()) with theirs.
    pub fn finish_with_dealings(mut self) -> (Report, Dealings) {
        if !matches!(self.stage, Stage::Ended { .. }) {
            let message =
                if self.lines == 0 { "the file is empty" } else { "there is no end line" };
            self.refuse(Refusal::new(&code::CUT, message), None);
        }
        self.check_balances();
        self.report.accounts = self.money.accounts();
        if let Some(calls) = self.calls {
            self.report.calls = calls.count();
            self.findings.append(calls.finish());
        }
        self.report.receipts = self.receipts.count();
        let promises = self.receipts.take_promises();
        self.findings.append(self.receipts.finish(self.keys.as_ref().and_then(Keys::npubs)));
        let mut dealings = self.dealings;
        if let Some(keys) = self.keys {
            let (npubs, problem) = keys.into_parts();
            problem.into_iter().for_each(|problem| self.findings.push(problem));
            dealings = dealings.under(npubs);
        }
        self.report.events = self.events.count();
        self.findings.append(self.events.finish());
        dealings.finish(&self.money, promises);
        (self.findings.into_report(self.report), dealings)
    }

    fn place(&self, seq: Option<i64>) -> Place {
        Place { seq, ..Place::line(Part::Ledger, self.lines) }
    }

    fn refuse(&mut self, refusal: Refusal, seq: Option<i64>) {
        self.findings.push(refusal.at(self.place(seq)));
    }

    /// A line that is no record. It may have been one, so it belongs to the hash, and takes a number.
    fn unreadable(&mut self, line: &[u8], refusal: Refusal, seq: Option<i64>) {
        self.refuse(refusal, seq);
        match self.stage {
            // The first line and the balances are not hashed.
            Stage::Begin => {
                self.stage = Stage::Records;
                return;
            }
            Stage::Balances => return,
            Stage::Records | Stage::Ended { .. } => {}
        }
        self.chain.take(line);
        match seq {
            Some(seq) => self.number(seq),
            None => self.unread = self.unread.saturating_add(1),
        }
    }

    fn record(&mut self, line: &[u8], record: &Record<'_>, seq: Option<i64>) {
        if self.stage == Stage::Begin && !matches!(record, Record::Export { .. }) {
            self.stage = Stage::Records;
            self.refuse(Refusal::new(&code::ORDER, "the first line must be the export line"), seq);
        }
        match record {
            Record::Export { schema_version } => self.export(schema_version),
            Record::Account(_) | Record::Rule(_) | Record::Transfer(_) => {
                self.numbered(line, record, seq.unwrap_or(0));
            }
            Record::Head { hash, last_seq } => self.head(hash, *last_seq),
            Record::Balance { account, counters } => self.balance(*account, counters),
            Record::End { head, last_seq } => self.end(head, *last_seq),
        }
    }

    fn export(&mut self, schema_version: &str) {
        if self.stage != Stage::Begin {
            self.refuse(Refusal::new(&code::ORDER, "an export begins a second time"), None);
            return;
        }
        self.stage = Stage::Records;
        if schema_version != SCHEMA_VERSION {
            let message = format!("{} is not {SCHEMA_VERSION}", record::quoted(schema_version));
            self.refuse(Refusal::new(&code::VERSION, message), None);
        }
    }

    fn numbered(&mut self, line: &[u8], record: &Record<'_>, seq: i64) {
        self.back_to_records(Some(seq));
        self.number(seq);
        self.chain.take(line);
        self.report.records = self.report.records.saturating_add(1);
        let checked = match record {
            Record::Account(opened) => {
                self.dealings.opened(opened);
                self.money.open(opened)
            }
            Record::Rule(rule) => self.money.set_rule(rule),
            Record::Transfer(transfer) => self.transfer(transfer, seq),
            _ => Ok(()),
        };
        if let Err(refusal) = checked {
            self.refuse(refusal, Some(seq));
        }
    }

    fn transfer(&mut self, transfer: &Transfer<'_>, seq: i64) -> Result<(), Refusal> {
        self.report.transfers = self.report.transfers.saturating_add(1);
        let checked = self.money.take(transfer);
        let asked = self.calls.as_mut().map_or(Ok(()), |calls| calls.booked(transfer));
        self.dealings.booked(transfer, seq, &self.money);
        if self.receipts.name(transfer) {
            let asset_id = self.money.account(&transfer.debit).map(|(asset_id, _)| asset_id);
            self.receipts.booked(transfer, seq, asset_id);
        }
        // What broke a rule of money was hardly asked for: one of the two is enough.
        checked.and(asked)
    }

    /// Records and heads stand before the balances. If one does not, it is said once.
    fn back_to_records(&mut self, seq: Option<i64>) {
        if self.stage == Stage::Balances {
            self.stage = Stage::Records;
            self.refuse(Refusal::new(&code::ORDER, "it stands behind the balances"), seq);
        }
    }

    fn number(&mut self, seq: i64) {
        let next = self.last_seq.saturating_add(1);
        // Lines that could not be read may have had the numbers between.
        if seq < next || seq > next.saturating_add(self.unread) {
            let message = format!("{seq} stands where {next} belongs");
            self.refuse(Refusal::new(&code::GAP, message), Some(seq));
        }
        (self.last_seq, self.unread) = (seq, 0);
    }

    fn head(&mut self, hash: &Hash, last_seq: i64) {
        self.back_to_records(None);
        self.report.heads = self.report.heads.saturating_add(1);
        let computed = self.chain.hasher.clone().finish();
        let wrong = if !self.chain.open {
            Some("it covers no record".to_owned())
        } else if last_seq != self.last_seq {
            Some(format!("it says last_seq {last_seq}, the last record is {}", self.last_seq))
        } else if computed != *hash {
            Some(format!("the records it covers make {computed}"))
        } else {
            None
        };
        if let Some(message) = wrong {
            self.refuse(Refusal::new(&code::HEAD, message), Some(last_seq));
        }
        self.receipts.head(hash, last_seq);
        // Going on from what is stated: one changed record is one wrong head.
        self.chain = Chain::after(*hash);
    }

    fn balance(&mut self, account: AccountKey, stated: &Counters) {
        self.stage = Stage::Balances;
        if self.stated.last.is_some_and(|last| last >= account) {
            let message = "the balances are not in the order of their accounts, each once";
            self.refuse(Refusal::new(&code::ORDER, message), None);
            return;
        }
        self.stated.last = Some(account);
        let Some((asset_id, computed)) = self.money.account(&account) else {
            if let Err(refusal) = self.money.unknown(&account) {
                self.refuse(refusal, None);
            }
            return;
        };
        self.stated.count = self.stated.count.saturating_add(1);
        match self.stated.by_asset.get_mut(asset_id) {
            Some(sum) => add(sum, stated),
            None => {
                self.stated.by_asset.insert(asset_id.to_owned(), *stated);
            }
        }
        if *stated != computed {
            let message = format!(
                "{} is stated as {}, its transfers make {}",
                account_text(&account),
                shown(stated),
                shown(&computed)
            );
            let refusal = Refusal::new(&code::BALANCE, message);
            self.stated.differing.push(refusal.at(self.place(None)));
        }
    }

    fn end(&mut self, head: &Hash, last_seq: i64) {
        self.stage = Stage::Ended { trailing: false };
        if self.chain.open {
            let message = "no head covers the last records";
            self.refuse(Refusal::new(&code::HEAD, message), Some(self.last_seq));
            return;
        }
        if *head != self.chain.head || last_seq != self.last_seq {
            let message = format!("the last head is {} after {}", self.chain.head, self.last_seq);
            self.refuse(Refusal::new(&code::END, message), Some(last_seq));
        }
    }

    fn check_balances(&mut self) {
        let stated = std::mem::take(&mut self.stated);
        let accounts = self.money.accounts();
        let complete = stated.count == accounts;
        for (asset_id, sum) in stated.by_asset.iter().filter(|_| complete) {
            let message = match sum {
                sum if sum.credits_posted != sum.debits_posted => {
                    format!("all accounts of {asset_id} make {}", shown(sum))
                }
                sum if sum.credits_pending != sum.debits_pending => {
                    format!("all holds of {asset_id} make {}", shown(sum))
                }
                _ => continue,
            };
            self.refuse(Refusal::new(&code::SUM, message), None);
        }
        self.findings.append(stated.differing);
        // A file that was cut has said so already.
        if !complete && matches!(self.stage, Stage::Ended { .. }) {
            let message =
                format!("{accounts} accounts were opened, {} have balances", stated.count);
            self.refuse(Refusal::new(&code::BALANCE, message), None);
        }
    }
}

fn add(sum: &mut Counters, stated: &Counters) {
    for (sum, units) in [
        (&mut sum.credits_pending, stated.credits_pending),
        (&mut sum.credits_posted, stated.credits_posted),
        (&mut sum.debits_pending, stated.debits_pending),
        (&mut sum.debits_posted, stated.debits_posted),
    ] {
        *sum = sum.saturating_add(units);
    }
}

fn shown(counters: &Counters) -> String {
    let Counters { credits_pending, credits_posted, debits_pending, debits_posted } = counters;
    format!(
        "{credits_posted} in and {debits_posted} out, {credits_pending} and {debits_pending} held"
    )
}

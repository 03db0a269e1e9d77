//! The history as lines: what the export says, and what the head is a hash of.
//!
//! Every line is canonical JSON (RFC 8785) with a line feed. Counters are decimal texts, because 64 bits do not fit
//! into a JSON number; times and numbers of the history are JSON integers. The lines are written by hand: they are
//! hashed on every booking, and a general serializer would cost more than the hash.

use std::borrow::Cow;
use std::fmt::Write as _;

use guild_protocol::env::UnixMs;

use crate::account::{Account, AccountId, Balance};
use crate::book::Booked;
use crate::head::Head;
use crate::rule::Rule;

/// The first line of an export.
pub const FIRST_LINE: &str =
    "{\"record\":\"export\",\"schema_version\":\"guild.ledger_export.v1\"}\n";

/// The version of a slice.
pub const SLICE_VERSION: &str = "guild.ledger_slice.v1";

/// Something that happened. Together, in the order of their numbers, they are the whole history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place in the history: 1, 2, 3, … without a gap.
    pub seq: i64,
    /// When it happened.
    pub at_ms: UnixMs,
    /// What happened.
    pub what: What<'a>,
}

/// What can happen to a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What<'a> {
    /// An account was opened.
    Account {
        /// The account.
        account: Cow<'a, Account>,
        /// Its short name inside this database; not part of the line.
        account_no: i64,
    },
    /// The rule of an account was set: all of it.
    Rule {
        /// Of this account.
        account_id: Cow<'a, AccountId>,
        /// What holds from now on.
        rule: Cow<'a, Rule>,
    },
    /// A transfer was booked.
    Transfer(Cow<'a, Booked>),
}

impl<'a> Record<'a> {
    /// The record of a transfer.
    pub fn of_transfer(booked: &'a Booked) -> Record<'a> {
        let what = What::Transfer(Cow::Borrowed(booked));
        Record { seq: booked.seq, at_ms: booked.at_ms, what }
    }

    /// Appends the record's line.
    pub fn write_line(&self, out: &mut String) {
        match &self.what {
            What::Account { account, .. } => self.account_line(account, out),
            What::Rule { account_id, rule } => self.rule_line(account_id, rule, out),
            What::Transfer(booked) => transfer_line(booked, out),
        }
    }

    fn account_line(&self, account: &Account, out: &mut String) {
        Line::new(out)
            .plain("account_id", account.account_id.as_str())
            .text("asset_id", account.asset_id.as_str())
            .integer("at_ms", self.at_ms)
            .plain("limit", account.limit.as_str())
            .text("owner", &account.owner)
            .text("purpose", &account.purpose)
            .plain("record", "account")
            .integer("seq", self.seq)
            .end();
    }

    fn rule_line(&self, account_id: &AccountId, rule: &Rule, out: &mut String) {
        let line = Line::new(out)
            .plain("account_id", account_id.as_str())
            .integer("at_ms", self.at_ms)
            .optional("credit_units", rule.credit_units, Line::counter)
            .key("gate");
        match &rule.gate {
            None => line.out.push_str("null"),
            Some(gate) => {
                line.out.push_str("{\"lets_through\":[");
                for (i, purpose) in gate.lets_through.iter().enumerate() {
                    if i > 0 {
                        line.out.push(',');
                    }
                    push_text(line.out, purpose);
                }
                // A formatted write to a String cannot fail.
                let _ = write!(line.out, "],\"reserve_units\":\"{}\"}}", gate.reserve_units);
            }
        }
        line.plain("record", "rule").integer("seq", self.seq).end();
    }
}

fn transfer_line(booked: &Booked, out: &mut String) {
    let hold = booked.hold.as_ref().map(|hold| hold.transfer_id.as_str());
    Line::new(out)
        .integer("at_ms", booked.at_ms)
        .plain("credit", booked.credit.account.account_id.as_str())
        .plain("debit", booked.debit.account.account_id.as_str())
        .optional("expires_ms", booked.expires_ms, Line::integer)
        .optional("hold", hold, Line::plain)
        .text("memo", &booked.memo)
        .plain("record", "transfer")
        .integer("seq", booked.seq)
        .plain("step", booked.step.as_str())
        .plain("transfer_id", booked.transfer_id.as_str())
        .counter("units", booked.units)
        .end();
}

/// Appends the line of a head.
pub fn write_head(head: &Head, out: &mut String) {
    Line::new(out)
        .plain("hash", &head.hash.to_string())
        .integer("last_seq", head.last_seq)
        .plain("record", "head")
        .end();
}

/// Appends the first line of a slice: the head before its records.
pub fn write_slice(before: &Head, out: &mut String) {
    Line::new(out)
        .plain("after", &before.hash.to_string())
        .plain("record", "slice")
        .plain("schema_version", SLICE_VERSION)
        .end();
}

/// Appends the line of a balance.
pub fn write_balance(account_id: &AccountId, balance: &Balance, out: &mut String) {
    Line::new(out)
        .plain("account_id", account_id.as_str())
        .counter("credits_pending", balance.credits_pending)
        .counter("credits_posted", balance.credits_posted)
        .counter("debits_pending", balance.debits_pending)
        .counter("debits_posted", balance.debits_posted)
        .plain("record", "balance")
        .end();
}

/// Appends the last line of an export; a file without it was cut.
pub fn write_end(head: &Head, out: &mut String) {
    Line::new(out)
        .plain("head", &head.hash.to_string())
        .integer("last_seq", head.last_seq)
        .plain("record", "end")
        .end();
}

/// One object, its keys in the order in which they are given: sorted by whoever writes the call.
struct Line<'o> {
    out: &'o mut String,
    first: bool,
}

impl<'o> Line<'o> {
    fn new(out: &'o mut String) -> Line<'o> {
        out.push('{');
        Line { out, first: true }
    }

    fn key(mut self, key: &str) -> Line<'o> {
        self.out.push_str(if std::mem::take(&mut self.first) { "\"" } else { ",\"" });
        self.out.push_str(key);
        self.out.push_str("\":");
        self
    }

    /// A text that has nothing to escape: an id, a word of ours.
    fn plain(self, key: &str, text: &str) -> Line<'o> {
        let line = self.key(key);
        line.out.push('"');
        line.out.push_str(text);
        line.out.push('"');
        line
    }

    fn text(self, key: &str, text: &str) -> Line<'o> {
        let line = self.key(key);
        push_text(line.out, text);
        line
    }

    fn integer(self, key: &str, number: i64) -> Line<'o> {
        let line = self.key(key);
        let _ = write!(line.out, "{number}");
        line
    }

    fn counter(self, key: &str, number: i64) -> Line<'o> {
        let line = self.key(key);
        let _ = write!(line.out, "\"{number}\"");
        line
    }

    fn optional<T>(
        self,
        key: &str,
        value: Option<T>,
        write: impl FnOnce(Line<'o>, &str, T) -> Line<'o>,
    ) -> Line<'o> {
        match value {
            Some(value) => write(self, key, value),
            None => {
                let line = self.key(key);
                line.out.push_str("null");
                line
            }
        }
    }

    fn end(self) {
        self.out.push_str("}\n");
    }
}

/// A JSON text as RFC 8785 writes it: only what must be escaped is, in its shortest form.
fn push_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
